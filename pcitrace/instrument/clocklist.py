"""A state listing: one line a clock, with all lines of the bus; the kernel writes the lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pcitrace.instrument.moments import Moment, Unit

if TYPE_CHECKING:
    from pcitrace.run import Bus

__all__ = ["HEAD", "clock_lines"]

_LAST = 2**64 - 1
"""Beyond any clock or sample."""

HEAD = (
    "# time, clock; F I T S D: FRAME# IRDY# TRDY# STOP# DEVSEL# asserted, ? of no known level; AD, C/BE# and PAR as\n"
    "# on the bus, where captured; then the other lines that are asserted\n"
)


def clock_lines(bus: Bus, start: Moment | None = None, stop: Moment | None = None) -> Iterator[bytes]:
    """List the clocks of a bus.

    Parameters
    ----------
    bus : pcitrace.Bus
    start, stop : Moment, optional
        From here on, and before this.

    Yields
    ------
    bytes
        Some lines, UTF-8, each with its end; two that begin with # say what the columns are.
    """
    stamps, clks = [0, _LAST], [0, _LAST]
    for place, limit in enumerate((start, stop)):
        if limit is None:
            continue
        if limit.unit is Unit.CLOCK:
            clks[place] = int(limit.value)
        elif limit.unit is Unit.SAMPLE:
            stamps[place] = int(limit.value)
        else:
            stamps[place] = -int(-limit.value * _stamps_per_us(bus) // 1)
    until = None if stamps[1] == _LAST else stamps[1]
    yield HEAD.encode()
    for part in bus.capture.decoder.parts(
        [bus.spec], ["transaction"], rules=[], until=until, clocks=(stamps[0], stamps[1], clks[0], clks[1])
    ):
        yield part.clock_lines()


def _stamps_per_us(bus: Bus) -> float:
    """Samples, or ticks, in a microsecond."""
    capture = bus.capture
    if capture.clock_mhz is not None:
        return capture.clock_mhz
    if capture.sample_count is not None or capture.tick_s is None:
        return (capture.rate_hz or 1e6) * 1e-6
    return 1e-6 / capture.tick_s
