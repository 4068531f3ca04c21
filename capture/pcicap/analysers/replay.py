"""A replayed capture as an analyser: the emulated BeagleLogic of `pcicap.replay_server`, acquired through libsigrok."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import socket
import subprocess
import sys
from typing import Any

from pcicap import children
from pcicap.analysers import sigrok_cli
from pcicap.analysers.base import AnalyserSpec, OpenWriter, Outcome, Settings
from pcicap.analysers.sigrok import SigrokAnalyser
from pcicap.errors import AnalyserError
from pcicap.plan_analysers import ReplayPlan
from pcicap.replay_server import VERSION

_START_SECONDS = 30.0
_ASK_SECONDS = 2.0


class ReplayAnalyser:
    """Starts the replay, then is a `SigrokAnalyser`; implements `pcicap.analysers.base.Analyser`."""

    def __init__(self, spec: AnalyserSpec, replay: ReplayPlan) -> None:
        self._spec = spec
        self._replay = replay
        self._server: subprocess.Popen[bytes] | None = None
        self._inner: SigrokAnalyser | None = None
        self.facts: dict[str, Any] = {}
        """Of the source, see `pcicap.replay_source.ReplaySource.facts`."""

    @property
    def spec(self) -> AnalyserSpec:
        """What was asked for; channels, rate and length are the source's once it is configured."""
        return self._inner.spec if self._inner else self._spec

    @property
    def samples(self) -> int:
        """Samples that have arrived so far."""
        return self._inner.samples if self._inner else 0

    def configure(self) -> Settings:
        """Start the server (call from the main thread) and ask it what it serves.

        Raises
        ------
        AnalyserError
            The capture cannot be replayed.
        """
        self.facts = self._serve()
        conn = self.facts.pop("conn")
        names: list[str] = self.facts["channels"]
        options = {"logic_channels": "8"} if len(names) <= 8 else {}
        device = sigrok_cli.show("beaglelogic", conn, options)
        spec = dataclasses.replace(
            self._spec,
            conn=conn,
            options=options,
            channels=dict(zip(device.channels, names, strict=False)),
            rate_hz=self.facts["rate_hz"],
            clock_mhz=self.facts["clock_mhz"],
            samples=self._spec.samples or self.facts["samples"],
        )
        self._inner = SigrokAnalyser(spec)
        settings = self._inner.configure()
        # samples that are clocks of a bus stay that, whatever rate they are served at
        return dataclasses.replace(settings, rate_hz=None) if spec.clock_mhz else settings

    def start(self, open_writer: OpenWriter) -> None:
        """Begin to acquire."""
        assert self._inner, "configure comes first"
        self._inner.start(open_writer)

    def wait_armed(self) -> None:
        """Return once the device acquires."""
        assert self._inner, "start comes first"
        self._inner.wait_armed()

    def running(self) -> bool:
        """Whether it still acquires."""
        return self._inner is not None and self._inner.running()

    def stop(self) -> None:
        """End the acquisition."""
        if self._inner:
            self._inner.stop()

    def wait(self) -> Outcome:
        """Wait for the end, then end the server."""
        assert self._inner, "start comes first"
        outcome = self._inner.wait()
        self.close()
        return outcome

    def close(self) -> None:
        """End the server."""
        if self._server:
            children.stop(self._server)
            for pipe in (self._server.stdout, self._server.stderr):
                if pipe:
                    pipe.close()

    def _serve(self) -> dict[str, Any]:
        """Start the server; what it serves and where."""
        plan = self._replay
        command = [sys.executable, "-m", "pcicap", "replay", str(plan.source), "--json", "--fault", plan.fault.value]
        if plan.channels:
            command += ["--channels", ",".join(plan.channels)]
        if plan.paced:
            command.append("--paced")
        self._server = children.spawn(command, parent=os.getpid())
        assert self._server.stdout
        assert self._server.stderr
        if select.select([self._server.stdout], [], [], _START_SECONDS)[0]:
            with contextlib.suppress(ValueError):
                facts: dict[str, Any] = json.loads(self._server.stdout.readline())
                return facts
        children.stop(self._server)
        said = self._server.stderr.read().decode("utf-8", "replace").strip()
        raise AnalyserError(said or f"{plan.source}: the replay did not start in {_START_SECONDS:g} s")


def ask_replay(conn: str) -> dict[str, Any] | None:
    """Facts of the capture behind a BeagleLogic connection; None where a real device answers, or nothing.

    Parameters
    ----------
    conn : str
        ``tcp/HOST/PORT``.
    """
    _, _, address = conn.partition("/")
    host, _, port = address.partition("/")
    try:
        with socket.create_connection((host, int(port)), _ASK_SECONDS) as peer, peer.makefile("rwb") as stream:
            stream.write(b"version\n")
            stream.flush()
            if stream.readline(256).strip() != VERSION.encode():
                return None
            stream.write(b"replay\n")
            stream.flush()
            facts: dict[str, Any] = json.loads(stream.readline(1 << 20))
            return facts
    except (OSError, ValueError):
        return None
