"""An analyser driven through sigrok-cli, a child process that is watched and never believed.

Success is: SR_DF_END was seen, the child ended by itself within a second of it, and enough whole samples came.
Everything else is incomplete, with the reason; what arrived is kept. A child whose device is gone spins or waits for
ever, hence the three timeouts.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import subprocess
import threading
import time
from typing import IO

from pcicap import children
from pcicap.analysers import sigrok_cli
from pcicap.analysers.base import AnalyserSpec, OpenWriter, Outcome, Settings, TriggerBy
from pcicap.errors import AnalyserError
from pcicap.intake import Intake

_END_GRACE_S = 1.0
_STOP_GRACE_S = 2.0
_ARMED_SECONDS = 15.0
_TICK_S = 0.05
_READ_BYTES = 1 << 20


class SigrokAnalyser:
    """One device behind libsigrok; implements `pcicap.analysers.base.Analyser`."""

    def __init__(self, spec: AnalyserSpec) -> None:
        self._spec = spec
        self._argument = sigrok_cli.device_argument(spec.driver, spec.conn, spec.options)
        self._settings: Settings | None = None
        self._log = sigrok_cli.Log()
        self._stop = threading.Event()
        self._reason: str | None = None
        self._intake: Intake | None = None

    @property
    def spec(self) -> AnalyserSpec:
        """What was asked for."""
        return self._spec

    @property
    def samples(self) -> int:
        """Samples that have arrived so far."""
        return self._intake.received if self._intake else 0

    def configure(self) -> Settings:
        """Find the device, check channels, trigger and rate, read the rate back.

        Raises
        ------
        AnalyserError
            The device is not there or cannot do what is asked.
        """
        spec = self._spec
        device = sigrok_cli.show(spec.driver, spec.conn, spec.options)
        bits = {}
        for channel, line in spec.channels.items():
            if channel not in device.channels:
                raise AnalyserError(f"{self._argument}: has no channel {channel}; it has {', '.join(device.channels)}")
            bits[device.channels.index(channel)] = line
        if spec.trigger and spec.trigger.by is TriggerBy.DEVICE and not device.triggers:
            raise AnalyserError(f'{self._argument}: the driver has no trigger; write trigger.by = "search"')
        if self._continuous and "continuous" not in device.options:
            raise AnalyserError(
                f"{self._argument}: cannot record until told to stop; give samples or duration_ms, and let the "
                'device itself look for a trigger (trigger.by = "device")'
            )
        if unknown := [key for key in spec.config if key not in device.options]:
            raise AnalyserError(
                f"{self._argument}: has no option {', '.join(unknown)}; it has {', '.join(device.options)}"
            )
        effective = None
        if spec.rate_hz is not None:
            effective = sigrok_cli.effective_rate(self._argument, spec.rate_hz, spec.config)
        self._settings = Settings(device.model, bits, effective or spec.rate_hz, effective is not None)
        return self._settings

    def start(self, open_writer: OpenWriter) -> None:
        """Start the child; call from the main thread (see `children.spawn`)."""
        assert self._settings, "configure comes first"
        self._intake = Intake(self._spec, self._settings.bits, open_writer, self._unit_size)
        child = children.spawn(self._command(), parent=os.getpid(), stdin=subprocess.PIPE)
        assert child.stdout
        assert child.stderr
        with contextlib.suppress(OSError):  # a larger pipe rides out a pause of this process; the limit may forbid it
            fcntl.fcntl(child.stdout, fcntl.F_SETPIPE_SZ, _READ_BYTES)
        self._stderr_thread = threading.Thread(target=self._follow, args=(child.stderr,), daemon=True)
        self._stderr_thread.start()
        self._begun = time.monotonic()
        self._thread = threading.Thread(target=self._acquire, args=(child, self._intake), daemon=True)
        self._thread.start()

    def wait_armed(self) -> None:
        """Return once libsigrok has started the device.

        Raises
        ------
        AnalyserError
            The acquisition ended before, or nothing was heard for 15 s.
        """
        while self._log.header_ns is None:
            if not self._thread.is_alive() or time.monotonic() - self._begun > _ARMED_SECONDS:
                self.stop()
                self._thread.join()
                raise AnalyserError(f"{self._argument}: did not start ({self._log.complaint or self._reason})")
            time.sleep(0.005)

    def running(self) -> bool:
        """Whether it still acquires."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End the acquisition: a byte on stdin if it runs until then, SIGINT otherwise."""
        self._stop.set()

    def wait(self) -> Outcome:
        """Wait for the end and for the last sample to be written."""
        self._thread.join()
        assert self._intake
        trigger_sample = self._intake.trigger_sample
        if self._log.trigger_byte is not None and self._log.unit_size:  # the device's own trigger
            trigger_sample = self._log.trigger_byte // self._log.unit_size
        return Outcome(self._intake.written, trigger_sample, self._log.header_ns, self._reason)

    @property
    def _continuous(self) -> bool:
        """With a search of our own nobody knows how many samples come before the trigger."""
        trigger = self._spec.trigger
        return self._spec.samples is None or (trigger is not None and trigger.by is TriggerBy.SEARCH)

    def _command(self) -> list[str]:
        spec = self._spec
        config = [f"{key}={value}" for key, value in spec.config.items()]
        if spec.rate_hz is not None:
            config.insert(0, f"samplerate={spec.rate_hz}")
        command = [sigrok_cli.find_program(), "-l", "4", "-d", self._argument]
        if spec.trigger and spec.trigger.by is TriggerBy.DEVICE:
            # The device keeps a share of its memory for what came before.
            share = round(100 * spec.trigger.pre_samples / spec.samples) if spec.samples else 0
            if share:
                config.append(f"captureratio={share}")
            command += ["-t", spec.trigger.condition, "-w"]
        if config:
            command += ["-c", ":".join(config)]
        command += ["-C", ",".join(f"{channel}={line}" for channel, line in spec.channels.items())]
        command += ["--continuous"] if self._continuous else ["--samples", str(spec.samples)]
        return [*command, "-O", "binary"]

    def _acquire(self, child: subprocess.Popen[bytes], intake: Intake) -> None:
        by_itself = False
        try:
            self._read(child, intake)
            if self._reason is None:
                by_itself = self._let_end(child, intake)
        except OSError as error:
            self._reason = f"the samples cannot be written: {error.strerror}"
        except AnalyserError as error:
            self._reason = str(error)
        finally:
            children.stop(child)
            self._stderr_thread.join()
            for pipe in (child.stdin, child.stdout, child.stderr):
                if pipe:
                    pipe.close()
            try:
                intake.close()
            except OSError as error:
                self._reason = self._reason or f"the samples cannot be written: {error.strerror}"
        self._reason = self._reason or self._judge(intake, by_itself)

    def _read(self, child: subprocess.Popen[bytes], intake: Intake) -> None:
        """Take data until the child closes the pipe, enough is there, a timeout passes or somebody says stop."""
        assert child.stdout
        limits = self._spec.timeouts
        last: float | None = None
        ended: float | None = None
        while not self._stop.is_set() and not intake.done:
            readable, _, _ = select.select([child.stdout], [], [], _TICK_S)
            now = time.monotonic()
            if readable:
                data = os.read(child.stdout.fileno(), _READ_BYTES)
                if not data:
                    return
                last = now
                intake.feed(data)
            elif self._log.end:  # the last data were in the pipe before END was announced
                ended = ended or now
                if now - ended > _END_GRACE_S:
                    return
            elif last is None and now - self._begun > limits.first_data_s:
                self._reason = f"no data within {limits.first_data_s:g} s of the start (timeouts.first_data_s)"
                return
            elif last is not None and now - last > limits.idle_s:
                self._reason = f"no data for {limits.idle_s:g} s (timeouts.idle_s)"
                return
            else:
                intake.idle()
            if now - self._begun > limits.total_s:
                self._reason = f"not finished after {limits.total_s:g} s (timeouts.total_s)"
                return

    def _let_end(self, child: subprocess.Popen[bytes], intake: Intake) -> bool:
        """Tell a child that runs until then to end, take what it still has; whether it ended by itself."""
        assert child.stdin
        assert child.stdout
        if self._continuous and child.poll() is None:
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(b"\n")
        elif self._stop.is_set():
            return False
        until = time.monotonic() + _STOP_GRACE_S
        while time.monotonic() < until:
            if not select.select([child.stdout], [], [], _TICK_S)[0]:
                continue
            data = os.read(child.stdout.fileno(), _READ_BYTES)
            if not data:
                break
            if not intake.done:
                intake.feed(data)
        try:
            child.wait(_END_GRACE_S)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _judge(self, intake: Intake, by_itself: bool) -> str | None:
        """Why the acquisition is no success; None if it is one. The exit status is not asked: it is 0 in any case."""
        log, wanted = self._log, self._spec.samples
        if intake.searching:
            return f"the trigger was not met in {intake.received} samples"
        if not intake.done and wanted is not None and intake.written < wanted:
            why = log.complaint or ("stopped" if self._stop.is_set() else "the analyser ended early")
            return f"{intake.written} of {wanted} samples: {why}"
        if not log.end:
            return f"the analyser went away: {log.complaint or 'no end of data was announced'}"
        if not by_itself:
            return "sigrok-cli had to be ended by force after its last data"
        if log.logic_bytes != intake.received_bytes and not intake.done:
            return f"{log.logic_bytes} bytes were announced and {intake.received_bytes} arrived"
        if intake.lost_bytes:
            return f"the data end {intake.lost_bytes} bytes into a sample"
        return None

    def _unit_size(self) -> int:
        """Bytes a sample, announced on stderr just before the first data; the two pipes may be read in any order."""
        until = time.monotonic() + _END_GRACE_S
        while self._log.unit_size is None:
            if time.monotonic() > until:
                raise AnalyserError("sigrok-cli sends data without saying how many bytes a sample has")
            time.sleep(0.001)
        return self._log.unit_size

    def _follow(self, stderr: IO[bytes]) -> None:
        rest = b""
        while data := stderr.read(1 << 16):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                self._log.line(line.decode("utf-8", "replace"))
        self._log.line(rest.decode("utf-8", "replace"))
