"""``[[companions]]`` of a plan: tests that are under way at the same time, begun together with the plan's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcicap.errors import PlanError
from pcicap.fields import Fields
from pcicap.framegen import Framegen
from pcicap.plan_frames import FrameTest, check_host_address, is_ipv4, read_test

ROLES = ("background", "pair", "other")
_LEAD_NS = 300_000_000
"""From the word to begin until the first frame: enough for every framegen to have read it."""


@dataclass(frozen=True)
class CompanionPlan:
    """A test beside the plan's own.

    Attributes
    ----------
    name : str
        Of its run folder, ``companions/NAME``.
    role : str
        One of `ROLES`.
    interface : str or None
        On this machine; None: that of the host that steers.
    peers : tuple of str
        Addresses of the other ends.
    test : FrameTest
    """

    name: str
    role: str
    interface: str | None
    peers: tuple[str, ...]
    test: FrameTest


def read_companion(fields: Fields, index: int, folder: Path) -> CompanionPlan:
    """Check an entry of ``[[companions]]``.

    Raises
    ------
    PlanError
        Names the key, what was found and what to write.
    """
    name = fields.text("name", f"companion{index}")
    if not name.replace("-", "").replace("_", "").isalnum():
        fields.refuse("name", f"is {name!r}", "write letters, digits, - and _: it names a folder")
    role = fields.choice("role", ROLES)
    interface = fields.text("interface") if fields.has("interface") else None
    test = read_test(fields.table("test"), folder)
    peers = tuple(fields.texts("peers", []))
    if not peers:
        fields.refuse("peers", "is empty", "list the addresses that 'framegen serve' prints on the other hosts")
    for number, peer in enumerate(peers):
        if not (test.options.get("udp") and is_ipv4(peer)):
            check_host_address(fields, f"peers[{number}]", peer, test.allow)
    fields.end()
    return CompanionPlan(name, role, interface, peers, test)


def check_names(companions: tuple[CompanionPlan, ...]) -> None:
    """Two companions have two folders.

    Raises
    ------
    PlanError
        They have one name.
    """
    names = [one.name for one in companions]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise PlanError(f"companions[{index}].name", f"{name!r} is taken", "give every companion its own")


class Together:
    """The plan's own test and its companions, stepped together.

    Parameters
    ----------
    own : Framegen
        Of the plan's own test.
    companions : sequence of (CompanionPlan, Framegen)
    """

    def __init__(self, own: Framegen, companions: Sequence[tuple[CompanionPlan, Framegen]]) -> None:
        self.own = own
        self._companions = companions

    @property
    def _all(self) -> tuple[Framegen, ...]:
        return (self.own, *(one for _, one in self._companions))

    def start(self) -> None:
        """Start every child; call from the main thread."""
        for one in self._all:
            one.start()

    def wait_ready(self, keep_going: Callable[[], None]) -> None:
        """Wait until all peers have answered and the clocks have been compared."""
        for one in self._all:
            one.wait_ready(keep_going)

    def go(self) -> None:
        """Send the frames; with companions all begin at one time."""
        at = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) + _LEAD_NS if self._companions else None
        for one in self._all:
            one.go(at)

    def wait_sent(self, keep_going: Callable[[], None]) -> None:
        """Wait until all frames are through, the companions' too."""
        for one in self._all:
            one.wait_sent(keep_going)

    def finish(self, keep_going: Callable[[], None]) -> None:
        """Let them compare clocks again, fetch the peers' logs and write."""
        for one in self._all:
            one.finish(keep_going)

    def stop(self) -> None:
        """End them early."""
        for one in self._all:
            one.stop()

    def reason(self) -> str | None:
        """Why one of them is not complete; None when all are."""
        said = [(plan.name, one.reason()) for plan, one in self._companions]
        return self.own.reason() or next((f"{name}: {why}" for name, why in said if why), None)

    def entries(self) -> list[dict[str, Any]]:
        """``[[companions]]`` of run.toml: those that left a run folder."""
        begun = _begun(self.own)
        entries = []
        for plan, one in self._companions:
            if one.summary is None:
                continue
            entry: dict[str, Any] = {"folder": f"companions/{plan.name}", "role": plan.role}
            if begun is not None and (own := _begun(one)) is not None:
                entry["lag_us"] = (own - begun) / 1e3
            entries.append(entry)
        return entries


def _begun(framegen: Framegen) -> int | None:
    """When its first point began, ns of this host's clock; None where none did."""
    points = (framegen.summary or {}).get("points")
    return int(points[0]["started_unix_ns"]) if points else None
