"""A part of a VCD as samples, for those who have PulseView: small, and cut where the bus is idle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pcitrace.export import sigrok
from pcitrace.export.source import Source
from pcitrace.instrument.excerpt import Excerpt, cut, write_wiring
from pcitrace.run import Capture, Run
from pcitrace.wiring import Line

if TYPE_CHECKING:
    from pcitrace.run import Bus

__all__ = ["cut_as_samples"]


def cut_as_samples(
    buses: Sequence[Bus], start_us: float, stop_us: float, path: Path, timescale: str | None = None
) -> tuple[Excerpt, tuple[str, ...]]:
    """Write a part of a VCD as a ``.sr``; the parameters are those of :func:`pcitrace.instrument.excerpt.cut`.

    Parameters
    ----------
    timescale : str, optional
        Of a VCD that states none.

    Returns
    -------
    Excerpt
    tuple of str
        What samples cannot hold, in a sentence each.
    """
    with TemporaryDirectory() as folder:
        part = cut(buses, start_us, stop_us, Path(folder) / "part.vcd", from_zero=True)
        capture = Capture(part.path, part.wiring, timescale=timescale)
        copy = Source(Run(part.path, [capture], {name: (capture, name) for name in capture.wiring.complete}))
        sigrok.write_samples(copy, capture, path)
        names = sigrok.channel_names(copy, capture)
        widths = [channel.width for channel in capture.wiring.channels]
    first_bit = list(accumulate(widths, initial=0))

    def named(line: Line) -> str:
        return names[first_bit[line.channel] + line.bit]

    return replace(part, path=path, wiring=write_wiring(buses, path, named)), tuple(copy.left_out)
