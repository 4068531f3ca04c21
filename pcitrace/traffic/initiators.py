"""Who began each transaction: the host, the NIC, or another agent; with what that rests on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum

import numpy as np

from pcitrace.bustable import BusTable
from pcitrace.columns import Booleans, Integers
from pcitrace.errors import WiringError

__all__ = ["REASONS", "Initiator", "decide", "nic_grant_line"]


class Initiator(IntEnum):
    """Who began a transaction."""

    UNKNOWN = 0
    HOST = 1
    NIC = 2
    OTHER = 3


REASONS = (
    "no GNT# and no address tells who began it",
    "the NIC's GNT# was low",
    "the NIC's GNT# was high",
    "another agent's GNT# was low",
    "a command that only a host bridge gives",
    "address in a window of the NIC",
    "address outside the windows of the NIC",
    "several data phases: hosts access registers singly",
    "DEVSEL# timing of the target that only single accesses reach",
    "DEVSEL# timing of the target that bursts reach",
    "address in memory that bursts reach",
    "address far from all that bursts reach",
)
"""What the decision rests on; :func:`decide` gives indices into this."""

REGION = 1 << 20
"""Bytes; host memory that a NIC uses lies in few regions of this size, its registers in another."""

Tell = Callable[[Booleans, Initiator, int], None]

# Commands that no NIC gives: interrupt acknowledge, special cycle, I/O, configuration.
HOST_COMMANDS = (0x0, 0x1, 0x2, 0x3, 0xA, 0xB)


def nic_grant_line(lines: Sequence[str], named: str | None = None) -> str | None:
    """Return the GNT# line of the NIC.

    Parameters
    ----------
    lines : sequence of str
        Lines that were captured.
    named : str, optional
        The line the user says it is.

    Returns
    -------
    str or None
        None where no GNT# of the NIC was captured.

    Raises
    ------
    WiringError
        The named line was not captured, or several GNT# lines were captured and no name tells which is the NIC's.
    """
    grants = [line for line in lines if line.startswith("GNT")]
    if named is not None:
        if named not in grants:
            text = f"nic_grant: {named} was not captured; there are {', '.join(grants) or 'no GNT# lines'}"
            raise WiringError(text, missing=[named], available=grants)
        return named
    nic = [line for line in grants if "NIC" in line.upper()]
    if len(nic) == 1:
        return nic[0]
    if len(grants) <= 1:
        return grants[0] if grants else None
    text = (
        f"which GNT# is the NIC's? Captured: {', '.join(grants)}; say it with --grant NAME={grants[-1]} "
        "or in run.toml: nic_grant of its host"
    )
    raise WiringError(text, missing=["GNT# of the NIC"], available=grants)


def decide(
    bus: BusTable, grant: str | None, single_grant: bool, in_window: Booleans | None
) -> tuple[Integers, Integers]:
    """Decide who began each transaction.

    Parameters
    ----------
    bus : BusTable
    grant : str or None
        The NIC's GNT# line; None if it was not captured.
    single_grant : bool
        Whether that is the only GNT# line captured, so that a null initiator means it was high.
    in_window : array of bool or None
        Whether the address lies in a window of the NIC; None if no window is known.

    Returns
    -------
    initiator, reason : arrays of int
        Values of :class:`Initiator`, and indices into :data:`REASONS`.
    """
    who = np.zeros(len(bus), dtype=np.int8)
    why = np.zeros(len(bus), dtype=np.int8)

    def told(rows: Booleans, initiator: Initiator, reason: int) -> None:
        rows = rows & (who == Initiator.UNKNOWN)
        who[rows] = initiator
        why[rows] = reason

    if grant is not None:
        code = bus.initiators.index(grant) if grant in bus.initiators else -2
        hosts = [
            i
            for i, name in enumerate(bus.initiators)
            if any(word in name.upper() for word in ("HOST", "CPU", "BRIDGE"))
        ]
        told((bus.initiator == code) & np.isin(bus.command, HOST_COMMANDS), Initiator.OTHER, 4)
        told(bus.initiator == code, Initiator.NIC, 1)
        told(np.isin(bus.initiator, hosts), Initiator.HOST, 2)
        told(bus.initiator >= 0, Initiator.OTHER, 3)
        if single_grant:
            told(np.ones(len(bus), dtype=bool), Initiator.HOST, 2)
    told(np.isin(bus.command, HOST_COMMANDS), Initiator.HOST, 4)
    if in_window is not None:
        known = bus.address >= 0
        told(known & in_window, Initiator.HOST, 5)
        told(known & ~in_window, Initiator.NIC, 6)
    _by_target(bus, who, told)
    return who, why


def _by_target(bus: BusTable, who: Integers, told: Tell) -> None:
    """Tell the rest by length; single accesses by their target: where it is, or how fast it claims them."""
    told(bus.data_phases > 1, Initiator.NIC, 7)
    burst = (who == Initiator.NIC) & (bus.data_phases > 1)
    if not burst.any():
        return
    known = (who == Initiator.UNKNOWN) & (bus.address >= 0)
    if known.any():
        near = np.isin(bus.address // REGION, np.unique(bus.address[burst] // REGION))
        told(known & near, Initiator.NIC, 10)
        told(known & ~near, Initiator.HOST, 11)
    # A target's DEVSEL# timing is its own: where singles show another one, they reach another target, the NIC itself.
    burst &= bus.devsel_clks > 0
    single = (who == Initiator.UNKNOWN) & (bus.devsel_clks > 0)
    if not burst.any() or not single.any():
        return
    memory = np.bincount(bus.devsel_clks[burst]).argmax()
    other = single & (bus.devsel_clks != memory)
    if (bus.devsel_clks[burst] == memory).mean() >= 0.95 and other.any():
        told(other, Initiator.HOST, 8)
        told(single & (bus.devsel_clks == memory), Initiator.NIC, 9)
