"""``pcicap record``: hosts checked, clocks compared, analysers armed, frames sent, captures ended, folder written."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pcicap import describe
from pcicap.analysers.base import Analyser, OpenWriter, Outcome, Settings
from pcicap.analysers.replay import ReplayAnalyser, ask_replay
from pcicap.analysers.sigrok import SigrokAnalyser
from pcicap.companions import Together
from pcicap.errors import AnalyserError, FrameError, PcicapError, RunFolderError
from pcicap.framegen import Framegen
from pcicap.interruption import interruptible
from pcicap.pausing import Pausing
from pcicap.plan import Plan
from pcicap.plan_analysers import AnalyserPlan
from pcicap.progress import Progress, count
from pcicap.runfolder import RunFolder
from pcicap.samplewriter import SampleWriter
from pcicap.srfile import SrFile

_TICK_S = 0.02


def record(plan: Plan, target: Path, progress: Progress, sweep: Mapping[str, Any] | None = None) -> str | None:
    """Record one run.

    Parameters
    ----------
    plan : Plan
        Without its sweep: one point.
    target : Path
        Run folder to make.
    progress : Progress
        Where to say what happens.
    sweep : mapping, optional
        ``[sweep]`` of run.toml.

    Returns
    -------
    str or None
        Why the run is incomplete; None when it is whole. Either way the folder is there.

    Raises
    ------
    PcicapError
        Nothing could be recorded; there is no folder.
    """
    recording = _Recording(plan, progress)
    with interruptible() as check:
        try:
            return recording.run(target, check, sweep)
        finally:
            recording.close()


class _Recording:
    def __init__(self, plan: Plan, progress: Progress) -> None:
        self._plan = plan
        self._progress = progress
        self._analysers = [_analyser(entry) for entry in plan.analysers]
        self._settings: list[Settings] = []
        self._framegen: Together | None = None
        self._pausing: Pausing | None = None

    def run(self, target: Path, check: Callable[[], None], sweep: Mapping[str, Any] | None) -> str | None:
        facts = self._configure(check)
        folder = RunFolder(target, self._plan.text)
        try:
            run = describe.run_toml(self._plan, list(zip(self._analysers, self._settings, facts, strict=True)), sweep)
            self._copy_profiles(folder.path)
            folder.begin(run)
            self._meet_peers(folder.path, check)
        except BaseException:
            # no analyser was armed, no frame was sent
            self.close()
            folder.abandon()
            raise
        reason, outcomes = self._acquire(folder.path, check)
        folder.release()
        reason = self._end_frames(check, reason) or next((o.reason for o in outcomes if o.reason), None)
        try:
            self._describe(run, folder.path, outcomes)
            folder.finish({**run, "complete": reason is None, "reason": reason})
        except OSError as error:
            raise RunFolderError(
                f"{folder.path}: cannot be completed ({error.strerror}); make room, then: pcicap recover {folder.path}"
            ) from None
        samples = ", ".join(f"{count(outcome.samples)} samples" for outcome in outcomes) or "no capture"
        self._progress.step(f"{target}: {samples}{', complete' if reason is None else ', incomplete: ' + reason}")
        return reason

    def _copy_profiles(self, folder: Path) -> None:
        for host in self._plan.hosts:
            if isinstance(host.nic, Path):
                copy = folder / str(describe.nic_name(host))
                copy.parent.mkdir(exist_ok=True)
                shutil.copyfile(host.nic, copy)

    def close(self) -> None:
        """End what may still run."""
        if self._pausing:
            self._pausing.stop()
        if self._framegen:
            self._framegen.stop()
        for analyser in self._analysers:
            if isinstance(analyser, ReplayAnalyser):
                analyser.close()

    def _configure(self, check: Callable[[], None]) -> list[Mapping[str, Any]]:
        """Check the hosts' analysers and what framegen would do; facts of replayed sources."""
        facts: list[Mapping[str, Any]] = []
        for analyser in self._analysers:
            check()
            settings = analyser.configure()
            self._settings.append(settings)
            facts.append(_replay_facts(analyser))
            asked = analyser.spec.rate_hz
            said = f"{analyser.spec.name}: {settings.model}, {len(settings.bits)} lines"
            if settings.rate_hz is not None:
                said += f" at {settings.rate_hz / 1e6:g} MS/s"
                if settings.rate_hz != asked:
                    said += f" ({(asked or 0) / 1e6:g} MS/s were asked for)"
            self._progress.step(said + (", a replay" if facts[-1] else ""))
        return facts

    def _meet_peers(self, folder: Path, check: Callable[[], None]) -> None:
        plan = self._plan
        if plan.test is None:
            return
        assert plan.steering
        assert plan.steering.interface
        longest = max((analyser.spec.timeouts.total_s for analyser in self._analysers), default=0.0)
        here, patience = plan.steering.interface, longest + 30
        own = Framegen(plan.test, here, plan.peers, folder / "frames", patience)
        beside = [
            (one, Framegen(one.test, one.interface or here, one.peers, folder / "companions" / one.name, patience))
            for one in plan.companions
        ]
        self._framegen = Together(own, beside)
        if plan.pause:
            lifted = ["--allow-default-route"] if "default-route" in plan.test.allow else []
            self._pausing = Pausing(plan.pause, here, lifted, folder)
        self._framegen.start()
        self._framegen.wait_ready(check)
        self._progress.step("peers met, clocks compared")

    def _acquire(self, folder: Path, check: Callable[[], None]) -> tuple[str | None, list[Outcome]]:
        """From the first analyser armed to the last one ended; what went wrong, if anything, and what came of each."""
        reason: str | None = None
        started = 0
        try:
            for analyser, settings in zip(self._analysers, self._settings, strict=True):
                check()
                analyser.start(_opener(folder, analyser, settings))
                started += 1
            for analyser in self._analysers:
                analyser.wait_armed()
            self._progress.step("analysers armed")
            self._send(check)
            self._end_captures(check)
        except PcicapError as error:
            reason = str(error)
        except OSError as error:
            reason = f"{error.filename or folder}: {error.strerror}"
        for analyser in self._analysers[:started]:
            analyser.stop()
        outcomes = [analyser.wait() for analyser in self._analysers[:started]]
        return reason, outcomes + [Outcome(0, None, None, "not started")] * (len(self._analysers) - started)

    def _send(self, check: Callable[[], None]) -> None:
        if self._framegen is None:
            return
        self._framegen.go()
        if self._pausing:
            self._pausing.go()
        self._framegen.wait_sent(lambda: self._watch(check))
        if self._pausing and (reason := self._pausing.reason()):
            raise FrameError(reason)
        self._progress.step("frames sent")

    def _end_captures(self, check: Callable[[], None]) -> None:
        """Stop analysers that record until the frames are through, wait for the others."""
        if self._framegen:
            waiting = [a for a in self._analysers if a.spec.samples is None]
            until = time.monotonic() + max((a.spec.margin_s for a in waiting), default=0.0)
            while time.monotonic() < until:
                self._watch(check)
                time.sleep(_TICK_S)
            for analyser in waiting:
                analyser.stop()
        while any(analyser.running() for analyser in self._analysers):
            self._watch(check)
            time.sleep(_TICK_S)

    def _end_frames(self, check: Callable[[], None], reason: str | None) -> str | None:
        """Compare the clocks again and fetch the logs, or stop at once; why the run is incomplete."""
        if self._framegen is None:
            return reason
        if reason is None:
            try:
                self._framegen.finish(check)
                self._progress.step("clocks compared, frame logs fetched")
            except PcicapError as error:
                reason = str(error)
        self._framegen.stop()
        return reason or self._framegen.reason()

    def _describe(self, run: dict[str, Any], folder: Path, outcomes: list[Outcome]) -> None:
        """Add to run.toml what is known only now."""
        describe.add_outcomes(run, folder, outcomes, self._settings)
        if self._plan.sync_line:
            for problem in describe.add_alignment(run, folder, self._plan.sync_line):
                self._progress.step(problem)
        if self._framegen:
            describe.add_frames(run, folder, self._plan, self._framegen)
            if self._pausing and self._plan.steering:
                run["pauses"] = run.get("pauses", []) + self._pausing.entries(self._plan.steering.name)
            if (self._framegen.own.summary or {}).get("suspect"):
                self._progress.step("the times of the frames are suspect: summary.json says why, point by point")

    def _watch(self, check: Callable[[], None]) -> None:
        """Called while frames pass: signals, dead analysers, progress."""
        check()
        if self._pausing:
            self._pausing.look()
        for analyser in self._analysers:
            if not analyser.running() and (reason := analyser.wait().reason):
                raise AnalyserError(f"{analyser.spec.name}: {reason}")
        self._progress.update(self._state())

    def _state(self) -> str:
        parts, left = [], 0.0
        for analyser in self._analysers:
            spec, samples = analyser.spec, analyser.samples
            part = f"{spec.name} {count(samples)} samples"
            rate = spec.rate_hz or (spec.clock_mhz or 0) * 1e6
            if spec.samples and rate:
                part += f" ({100 * min(1.0, samples / spec.samples):.0f} %)"
                left = max(left, (spec.samples - samples) / rate)
            parts.append(part)
        if self._framegen:
            done = self._framegen.own.progress
            parts.append(f"frames {done.sent} sent, {done.received} received, {done.missing} lost or under way")
            left = max(left, done.seconds_left or 0.0)
        return "  ".join(parts) + (f"  {left:.0f} s left" if left >= 1 else "")


def _analyser(entry: AnalyserPlan) -> Analyser:
    return ReplayAnalyser(entry.spec, entry.replay) if entry.replay else SigrokAnalyser(entry.spec)


def _replay_facts(analyser: Analyser) -> Mapping[str, Any]:
    """Facts of the source where what is acquired from is a replay, started by this recording or by somebody else."""
    if isinstance(analyser, ReplayAnalyser):
        return analyser.facts
    spec = analyser.spec
    if spec.driver == "beaglelogic" and spec.conn.startswith("tcp/"):
        return ask_replay(spec.conn) or {}
    return {}


def _opener(folder: Path, analyser: Analyser, settings: Settings) -> OpenWriter:
    path = folder / describe.capture_file(analyser.spec.name)

    def open_writer(unit_size: int) -> SampleWriter:
        return SampleWriter(SrFile(path, settings.bits, unit_size, settings.rate_hz), unit_size)

    return open_writer
