"""A long capture in stretches, cut where its buses rest: any process decodes one, and together they are the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pcitrace import _kernel
from pcitrace.errors import CaptureFormatError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LEAST_BYTES", "Rows", "Spread", "Stretch", "edges", "join"]

LEAST_BYTES = 1 << 28
"""Of samples: a stretch of fewer is not worth a task."""

Lines = Mapping[str, tuple[int, int, bool]]
"""Channel, bit and whether it is active low, by the names of lines."""


@dataclass(frozen=True)
class Rows:
    """What a stretch holds; lists have an entry a bus, or a wire.

    Attributes
    ----------
    transactions, data_phases : lists of pyarrow.Table
        Numbered from the start of the stretch.
    left : list of bytes
        What else is to be put together, for the kernel.
    frames : list of pyarrow.Table
        On the wires.
    """

    transactions: list[pa.Table]
    data_phases: list[pa.Table]
    left: list[bytes]
    frames: list[pa.Table]


@dataclass(frozen=True)
class Stretch:
    """What it takes to decode a stretch; it is done by calling it.

    Attributes
    ----------
    path, device : pathlib.Path and int
        The file, and which of its captures.
    stamp : tuple of int
        Size and time of the file, so that no other is taken for it.
    specs : sequence of dict
        The buses.
    wires : sequence of mapping
        The lines of each wire.
    columns : sequence of str
        Of transactions; none that counts from the start of the capture.
    data_phases : bool
        Whether these are wanted, too.
    options : dict
        ``rate_hz`` and ``clock_mhz``.
    span : tuple
        Bytes of the capture from which on, and before which, its chunks begin; None for the end.
    """

    path: Path
    device: int
    stamp: tuple[int, int]
    specs: Sequence[Mapping[str, Any]]
    wires: Sequence[Lines]
    columns: Sequence[str]
    data_phases: bool
    options: Mapping[str, Any]
    span: tuple[int, int | None]

    def __call__(self) -> Rows:
        """Decode it.

        Raises
        ------
        CaptureFormatError
            The file is not there, is another one, or is damaged.
        """
        import pyarrow as pa

        if stamp(self.path) != self.stamp:
            raise CaptureFormatError(f"{self.path}: this is not the file that was opened", self.path)
        capture = _kernel.open(str(self.path), device=self.device)
        found, frames = _kernel.decode_stretch(
            capture,
            self.specs,
            self.span,
            columns=self.columns,
            data_phases=self.data_phases,
            wires=[_kernel.Wire(capture, lines) for lines in self.wires],
            **self.options,
        )
        return Rows(
            [pa.table(one.transactions) for one in found],
            [pa.table(one.data_phases) for one in found],
            [bytes(one.left) for one in found],
            [pa.table(one) for one in frames],
        )


@dataclass(frozen=True)
class Spread:
    """Who decodes stretches.

    Attributes
    ----------
    do : callable
        Does them, wherever, and gives the rows of each, in their order.
    many : int
        About how many there should be.
    """

    do: Callable[[Sequence[Stretch]], Iterable[Rows]]
    many: int


def stamp(path: Path) -> tuple[int, int]:
    """Return what tells a file from another one of its name; zeros where there is none."""
    try:
        told = path.stat()
    except OSError:
        return 0, 0
    return told.st_size, told.st_mtime_ns


def edges(capture: _kernel.Capture, many: int) -> list[int]:
    """Return the bytes of a capture at which stretches begin; the only one where it is too short, or cannot be cut."""
    size = (capture.sample_count or 0) * (capture.unit_size or 0)
    count = min(many, size // LEAST_BYTES)
    return [0, *(_kernel.stretch_edges(capture, count) if count > 1 else ())]


def join(
    capture: _kernel.Capture, specs: Sequence[Mapping[str, Any]], options: Mapping[str, Any], found: Sequence[Rows]
) -> tuple[list[SimpleNamespace], list[pa.Table]]:
    """Put stretches together.

    Returns
    -------
    buses : list
        Of each bus `transactions`, `data_phases`, `problems`, `clocks` and `clock_mhz`.
    frames : list of pyarrow.Table
        Of each wire.

    Raises
    ------
    DecodeError
        As from decoding the whole.
    """
    import pyarrow as pa

    joined = _kernel.join_stretches(capture, specs, [one.left for one in found], **options)
    buses = []
    for number, decoded in enumerate(joined):
        tables = {name: getattr(decoded, name) for name in ("problems", "clocks", "clock_mhz")}
        tables["transactions"] = pa.concat_tables([one.transactions[number] for one in found])
        tables["data_phases"] = _numbered([(len(one.transactions[number]), one.data_phases[number]) for one in found])
        buses.append(SimpleNamespace(**tables))
    wires = len(found[0].frames)
    return buses, [pa.concat_tables([one.frames[number] for one in found]) for number in range(wires)]


def _numbered(parts: Sequence[tuple[int, pa.Table]]) -> pa.Table:
    """Put data phases together; before each part so many transactions were counted as its predecessors have."""
    import pyarrow as pa
    import pyarrow.compute as pc

    before, tables = 0, []
    for count, table in parts:
        numbers = table["transaction"]
        moved = pc.add(numbers, pa.scalar(before, numbers.type))
        tables.append(
            table.set_column(table.schema.get_field_index("transaction"), table.schema.field("transaction"), moved)
        )
        before += count
    return pa.concat_tables(tables)
