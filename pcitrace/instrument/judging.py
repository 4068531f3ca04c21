"""How a bus is to be judged: which rules its lines allow, by what limits, and what a first look shows of the lines.

Imports neither numpy nor pyarrow: a listing begins with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pcitrace.instrument.causes import Cause, Look, look, of_lines
from pcitrace.instrument.rules import MASKED, Masks, catalogue, select, why_not

if TYPE_CHECKING:
    from pcitrace.run import Bus

__all__ = ["Judging", "judging", "no_grants", "not_kept"]

_UNGRANTED = 0.1
"""From this share of transactions without any GNT# on, that of an agent is taken to be missing (rule A03)."""

_SLOWEST_66_NS = 29.0
"""A median period of CLK from here on is judged as 33 MHz."""


@dataclass(frozen=True)
class Judging:
    """How a bus is to be judged, by a first look at it.

    Attributes
    ----------
    rules : dict of str to str or None
        All ids; None where the rule is evaluated, else why it is not.
    bus_mhz : int or None
        33 or 66: whose limits CLK has to keep.
    causes : list of Cause
        What is wrong with the lines themselves.
    """

    rules: dict[str, str | None]
    bus_mhz: int | None
    causes: list[Cause]

    @property
    def wanted(self) -> list[str]:
        """The rules that are evaluated and told."""
        return [id for id, reason in self.rules.items() if reason is None]

    @property
    def possible(self) -> list[str]:
        """The rules that are evaluated; some are masked, and what the decoder says of the same is not told either."""
        return [id for id, reason in self.rules.items() if reason in (None, MASKED)]


def judging(bus: Bus, masks: Masks | None = None, bus_mhz: int | None = None) -> Judging:
    """Tell which rules can be evaluated on a bus, and look at the beginning of the capture for what is wrong with it.

    Parameters
    ----------
    bus : pcitrace.Bus
    masks : Masks, optional
        Which rules count; default: all.
    bus_mhz : int, optional
        33 or 66: whose limits CLK has to keep; default: by its period.
    """
    masks = masks or select()
    # A pipe has no beginning to look at first.
    once = bool(bus.capture.decoder.together)
    clock = _clock(bus)
    if clock is None and bus_mhz is None and once:
        clock = "a pipe is read once, and CLK is not measured before; state its limits (check --limits)"
    reasons = {id: why_not(rule, bus.lines, masks, clock) for id, rule in catalogue().items()}
    if bus_mhz is None and not once and bus.clock_mhz is not None:
        bus_mhz = 33 if 1e3 / bus.clock_mhz >= _SLOWEST_66_NS else 66
    causes = []
    if not once:
        possible = [id for id, reason in reasons.items() if reason in (None, MASKED)]
        seen = look(bus, possible, bus_mhz)
        causes = of_lines(bus, seen, possible, bus_mhz)
        reasons["A03"] = reasons["A03"] or no_grants(seen)
    return Judging(reasons, bus_mhz, causes)


def _clock(bus: Bus) -> str | None:
    """Why CLK itself cannot be judged."""
    if bus.capture.clock_mhz is not None:
        return "state mode: every sample is a clock"
    return "CLK was recovered" if bus.capture.decoder.options["recover_clock"] else None


def no_grants(seen: Look) -> str | None:
    """Why nothing can be said about GNT# before an address phase."""
    if seen.ungranted < max(3, _UNGRANTED * seen.address_phases):
        return None
    return f"{seen.ungranted} of {seen.address_phases} transactions have no GNT#: that of an agent was not captured"


def not_kept(seen: Look, lines: Sequence[str]) -> dict[str, str]:
    """Rules that were broken nowhere and yet may have been, with the reason: lines of some agents were not captured."""
    grants = [line for line in lines if line.startswith("GNT")]
    silent = any(line.replace("GNT", "REQ", 1) not in lines for line in grants)
    missing = no_grants(seen)
    found = {} if missing is None else dict.fromkeys(("A01", "A02"), missing)
    for id, count in seen.unjudged.items():
        of_requests = silent and "REQ#" in catalogue()[id].needs
        if count and (of_requests or missing or len(grants) == 1):
            text = "could not be judged: GNT# or REQ# of whose they are was not captured"
            found[id] = f"{count} place{'s' * (count > 1)} {text}"
    return found
