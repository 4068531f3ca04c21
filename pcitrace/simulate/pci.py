"""The clocks of one PCI transaction, from what initiator and target do.

Lines are written as in the specification's rules: F I T S D are FRAME# IRDY# TRDY# STOP# DEVSEL# asserted.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

F, I, T, S, D = 1, 2, 4, 8, 16  # noqa: E741 - the specification's letters
LINES = ("FRAME#", "IRDY#", "TRDY#", "STOP#", "DEVSEL#")  # in the order of the bits above

CODE_BITS, CLASS_BITS = 5, 4  # of the lines and of the class in a packed run
READS = frozenset((0x0, 0x2, 0x6, 0xA, 0xC, 0xE))
IO_READ, IO_WRITE, MEMORY_READ, MEMORY_WRITE = 0x2, 0x3, 0x6, 0x7
CONFIG_READ, CONFIG_WRITE, READ_MULTIPLE, READ_LINE, WRITE_INVALIDATE = 0xA, 0xB, 0xC, 0xE, 0xF
COMMAND_NAMES = {
    IO_READ: "io_read",
    IO_WRITE: "io_write",
    MEMORY_READ: "memory_read",
    MEMORY_WRITE: "memory_write",
    CONFIG_READ: "config_read",
    CONFIG_WRITE: "config_write",
    READ_MULTIPLE: "memory_read_multiple",
    READ_LINE: "memory_read_line",
    WRITE_INVALIDATE: "memory_write_invalidate",
}


class Clock(IntEnum):
    """The class of a clock in the exact accounting; the first that matches counts. The bench has no aborts."""

    IDLE = 0
    ADDRESS = 1
    DATA = 2
    STOP = 3
    ABORT = 4
    TURNAROUND = 5
    DECODE = 6
    BOTH = 7
    TARGET = 8
    INITIATOR = 9


class Wait(NamedTuple):
    """Wait clocks before a data phase other than the first."""

    phase: int
    initiator_clks: int
    target_clks: int


class Shape(NamedTuple):
    """A transaction clock by clock, as runs of equal clocks."""

    clocks: int
    runs: tuple[tuple[int, int, int], ...]  # first clock of the run (0: the address phase), lines, class
    packed_runs: tuple[int, ...]  # the same, each as one number
    phase_ends: tuple[int, ...]  # the clock in which each data phase completes with data
    wait_clks: int  # after the address phase, no data moved
    target_wait_clks: int  # I & !T & !S
    initiator_wait_clks: int  # !I
    devsel_clks: int


@lru_cache(maxsize=1 << 16)
def shape(
    phases: int,
    *,
    read: bool,
    devsel_clks: int,
    target_first_clks: int = 0,
    initiator_first_clks: int = 1,
    waits: tuple[Wait, ...] = (),
    termination: str = "completion",
    single: bool = False,
    turnaround: bool = True,
) -> Shape:
    """Lay out a single-address-cycle transaction.

    Parameters
    ----------
    phases : int
        Data phases in which data moves (0 for a retry).
    read : bool
        Whether AD turns around after the address phase.
    devsel_clks : int
        Clocks from the address phase to DEVSEL#.
    target_first_clks, initiator_first_clks : int
        Clocks from the address phase to the first TRDY# (or STOP#) and to IRDY#; raised to what the rules ask for.
    waits : tuple of Wait
        Wait clocks before later phases, in order.
    termination : str
        `completion`, `retry`, `disconnect_with_data` (STOP# in the last phase that moves data) or
        `disconnect_without_data`.
    single : bool
        The initiator wanted one data phase only, so FRAME# is released as IRDY# is asserted.
    turnaround : bool
        Whether a read's turnaround clock is a class of its own (it is where C/BE# is captured).

    Returns
    -------
    Shape
    """
    clocks = [F]
    phase_ends: list[int] = []
    irdy = max(1, initiator_first_clks)
    cut = termination != "completion"

    def frame(last: bool, irdy_on: bool) -> int:
        # FRAME# is released with IRDY# asserted for the last phase the initiator wants, never before.
        return 0 if last and irdy_on else F

    trdy = max(target_first_clks, devsel_clks, 2 if read else 1)
    wants_more = cut and not (single and phases <= 1)
    for clock in range(1, max(irdy, trdy) + 1):
        on = clock >= irdy
        last = (single if phases == 0 else phases == 1) and not wants_more
        code = frame(last, on) | (I if on else 0) | (D if clock >= devsel_clks else 0)
        if clock >= trdy:
            code |= T if phases else S
            if phases == 1 and termination == "disconnect_with_data":
                code |= S
        clocks.append(code)
    if phases:
        phase_ends.append(len(clocks) - 1)

    by_phase = {wait.phase: wait for wait in waits}
    for phase in range(1, phases):
        last = phase == phases - 1 and not wants_more
        stop = S if phase == phases - 1 and termination == "disconnect_with_data" else 0
        wait = by_phase.get(phase, Wait(phase, 0, 0))
        for clock in range(max(wait.initiator_clks, wait.target_clks)):
            on = clock >= wait.initiator_clks
            ready = clock >= wait.target_clks
            clocks.append(frame(last, on) | (I if on else 0) | D | ((T | stop) if ready else 0))
        clocks.append(frame(last, True) | I | T | D | stop)
        phase_ends.append(len(clocks) - 1)

    if termination == "disconnect_without_data" and phases:
        clocks.append(F | I | S | D)
    if cut and clocks[-1] & F:
        # FRAME# is released in the clock after STOP# was seen; STOP# holds until then, TRDY# does not.
        clocks.append(I | S | D)
    return _finish(clocks, phase_ends, read, devsel_clks, turnaround)


def _finish(clocks: list[int], phase_ends: list[int], read: bool, devsel_clks: int, turnaround: bool) -> Shape:
    """Class every clock, then merge equal neighbours."""
    classes = [Clock.ADDRESS]
    claimed = False
    for number, code in enumerate(clocks[1:], start=1):
        claimed = claimed or bool(code & D)
        if code & I and code & T:
            kind = Clock.DATA
        elif code & I and code & S:
            kind = Clock.STOP
        elif number == 1 and read and turnaround:
            kind = Clock.TURNAROUND
        elif not claimed:
            kind = Clock.DECODE
        elif not code & (I | T):
            kind = Clock.BOTH
        elif not code & T:
            kind = Clock.TARGET
        else:
            kind = Clock.INITIATOR
        classes.append(kind)
    runs = []
    start = 0
    for (code, kind), run in groupby(zip(clocks, classes, strict=True)):
        runs.append((start, code, int(kind)))
        start += sum(1 for _ in run)
    rest = clocks[1:]
    return Shape(
        clocks=len(clocks),
        runs=tuple(runs),
        packed_runs=tuple((first << CODE_BITS | code) << CLASS_BITS | kind for first, code, kind in runs),
        phase_ends=tuple(phase_ends),
        wait_clks=len(rest) - len(phase_ends),
        target_wait_clks=sum(1 for code in rest if code & I and not code & (T | S)),
        initiator_wait_clks=sum(1 for code in rest if not code & I),
        devsel_clks=devsel_clks,
    )
