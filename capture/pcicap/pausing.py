"""``[pause]`` of a plan: the port to the host that steers is asked to stop for a while, while frames come to it."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcicap import children
from pcicap.fields import Fields
from pcicap.framegen import find_program

FILE = "frames/pauses.csv"
_MOST_QUANTA = 0xFFFF
_STOP_GRACE_S = 2.0


@dataclass(frozen=True)
class PausePlan:
    """PAUSE frames (IEEE 802.3 annex 31B) beside a test.

    Attributes
    ----------
    after_ms : float
        From the word to begin until the first of them.
    seconds : float
        For so long; the last one takes the pause back.
    quanta : int
        What each asks for, in 512 bit times.
    link_mbit : float or None
        Rate of the link; None: as the card tells.
    """

    after_ms: float
    seconds: float
    quanta: int
    link_mbit: float | None

    def arguments(self, interface: str) -> list[str]:
        """Command line of framegen."""
        out = ["pause", "-i", interface, "--allow-pause", "--seconds", f"{self.seconds:g}"]
        out += ["--max-seconds", f"{self.seconds:g}", "--quanta", str(self.quanta)]
        return out if self.link_mbit is None else [*out, "--link-mbit", f"{self.link_mbit:g}"]


def read_pause(fields: Fields) -> PausePlan:
    """Check ``[pause]``.

    Raises
    ------
    PlanError
        Names the key, what was found and what to write.
    """
    if not fields.flag("allow", False):
        fields.refuse("allow", "is not true", "PAUSE frames stop whatever is behind this cable: write true if so meant")
    quanta = fields.integer("quanta", _MOST_QUANTA, least=1)
    if quanta > _MOST_QUANTA:
        fields.refuse("quanta", f"is {quanta}", f"a PAUSE frame holds at most {_MOST_QUANTA}")
    plan = PausePlan(
        fields.number("after_ms", 0.0, positive=False),
        fields.number("seconds"),
        quanta,
        fields.number("link_mbit") if fields.has("link_mbit") else None,
    )
    fields.end()
    return plan


class Pausing:
    """The child that sends them.

    Parameters
    ----------
    plan : PausePlan
    interface : str
        That of the host that steers.
    options : sequence of str
        What the plan's test says of that interface.
    folder : Path
        Run folder.
    """

    def __init__(self, plan: PausePlan, interface: str, options: list[str], folder: Path) -> None:
        self._plan, self._folder = plan, folder
        self._command = [find_program(), *plan.arguments(interface), *options, "-o", str((folder / FILE).parent)]
        self._begin: float | None = None
        self._child: subprocess.Popen[bytes] | None = None

    def go(self) -> None:
        """Frames begin now."""
        self._begin = time.monotonic() + self._plan.after_ms / 1e3

    def look(self) -> None:
        """Start the child when it is time; call often, from the main thread (see `children.spawn`)."""
        if self._child is None and self._begin is not None and time.monotonic() >= self._begin:
            self._child = children.spawn(self._command, parent=os.getpid(), stdout=subprocess.DEVNULL)

    def stop(self) -> None:
        """End it early: the pause is taken back."""
        if self._child is not None:
            children.stop(self._child, _STOP_GRACE_S)

    def reason(self) -> str | None:
        """Why frames were not paused as planned; None when they were."""
        if self._child is None:
            return "the frames were through before [pause] began: see its after_ms"
        self.stop()
        assert self._child.stderr
        said = self._child.stderr.read().decode("utf-8", "replace").strip().removeprefix("framegen: ")
        self._child.stderr.close()
        return f"pause: {said or 'framegen failed'}" if self._child.returncode else None

    def entries(self, host: str) -> list[dict[str, Any]]:
        """``[[pauses]]`` of run.toml."""
        return [{"host": host, "file": FILE}] if (self._folder / FILE).is_file() else []
