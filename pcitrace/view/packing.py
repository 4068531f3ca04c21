"""Columns of a table as bytes that a page can hold: integers as byte planes, texts as numbers of words, then gzip.

The bytes are in parts, one for each of :class:`Part`, so that a page can draw before it has unpacked all of them.

A column of *n* whole numbers that fit in *w* bytes is *w* planes of *n* bytes, the lowest first. Neighbours in a plane
are alike, so it packs well; where the differences of neighbours pack better, these are stored, modulo 256**w. Of a
column with nulls one more plane says which rows are known.
`assets/columns.js` reads it.
"""

from __future__ import annotations

import base64
import threading
import zlib
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pcitrace.schema import Table

__all__ = ["Packer", "Part"]

_TRIED = 1 << 16  # rows by which it is decided whether a column is stored as differences
_AT_ONCE = 1 << 20  # bytes that are packed before it is asked whether to go on


class Part(IntEnum):
    """What a page unpacks together, in this order."""

    OVERVIEW = 0
    """What is drawn of the whole run."""
    ROWS = 1
    """What is drawn of single rows."""
    DETAILS = 2
    """What else is known of a row that is chosen."""
    LINES = 3
    """When lines change: they are drawn of the overview until one looks closely."""


@dataclass
class Packer:
    """Gathers the columns of all tables of a page."""

    parts: list[list[bytes]] = field(default_factory=lambda: [[] for _ in Part])
    sizes: list[int] = field(default_factory=lambda: [0 for _ in Part])

    def table(
        self,
        table: pa.Table,
        described: Table,
        expected: Mapping[str, Mapping[str, float]] | None = None,
        drawn: Collection[str] | None = None,
    ) -> dict[str, Any]:
        """Take a table; return what the page needs to know to read it.

        Parameters
        ----------
        table : pyarrow.Table
        described : pcitrace.schema.Table
            Unit and meaning of its columns.
        expected : mapping of str to mapping of str to float, optional
            Columns of which only the difference from what others lead to expect is stored: the factor of each of these,
            whose sum is rounded. They come before it in the table.
        drawn : collection of str, optional
            The columns that lanes are drawn of; all without it.
        """
        known = {column.name: column for column in described.columns}
        columns = []
        for name in table.column_names:
            values = _one(table[name])
            of = (expected or {}).get(name, {})
            if of:
                near = np.zeros(len(table))
                for other, factor in of.items():
                    near += factor * _one(table[other]).cast(pa.float64()).fill_null(0).to_numpy()
                rounded = np.floor(near + 0.5).astype(np.int64)
                values = _zigzag(pc.subtract(values.cast(pa.int64()), pa.array(rounded)))
            about = {"name": name, "unit": known[name].unit, "meaning": known[name].meaning}
            part = Part.ROWS if drawn is None or name in drawn else Part.DETAILS
            columns.append(about | self.column(values, part) | ({"expected": list(of.items())} if of else {}))
        return {"name": described.name, "row": described.row, "n": len(table), "columns": columns}

    def column(self, values: pa.Array, part: Part) -> dict[str, Any]:
        """Take one column; return its type and where its bytes are."""
        if pa.types.is_floating(values.type):
            numbers = values.cast(pa.float64()).fill_null(float("nan")).to_numpy(zero_copy_only=False)
            at = self.take(_planes(numbers.view(np.uint64), 8), part)
            return {"type": "real", "part": int(part), "at": at, "width": 8, "rows": len(values)}
        out: dict[str, Any] = {"type": "whole", "part": int(part), "rows": len(values)}
        if pa.types.is_boolean(values.type):
            out["type"], values = "truth", values.cast(pa.uint8())
        elif pa.types.is_string(values.type) or pa.types.is_dictionary(values.type):
            coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
            out |= {"type": "text", "words": [str(word) for word in coded.dictionary.to_pylist()]}
            values = coded.indices
        numbers = values.cast(pa.uint64()).fill_null(0).to_numpy(zero_copy_only=False)
        if values.null_count:
            out["known"] = self.take(np.asarray(values.is_valid()).astype(np.uint8).tobytes(), part)
        width = max((int(numbers.max(initial=0)).bit_length() + 7) // 8, 1)
        stored = numbers
        steps = np.diff(numbers, prepend=np.uint64(0))
        if _cost(steps[:_TRIED], width) < _cost(numbers[:_TRIED], width):
            stored, out["steps"] = steps, True
            if width < 8:
                stored = stored & np.uint64((1 << 8 * width) - 1)
        out["width"] = width
        out["at"] = self.take(_planes(stored, width), part)
        return out

    def text(self) -> str:
        """All parts, each packed, as text for a page; commas between them."""
        stopped = threading.Event()
        with ThreadPoolExecutor() as threads:  # zlib lets others work
            try:
                return ",".join(threads.map(partial(_packed, stopped=stopped), self.parts))
            except BaseException:
                # Ctrl-C: the threads are waited for.
                stopped.set()
                raise

    def take(self, content: bytes, part: Part) -> int:
        """Take bytes; return where they begin in their part."""
        at = self.sizes[part]
        self.parts[part].append(content)
        self.sizes[part] += len(content)
        return at


def _packed(contents: list[bytes], stopped: threading.Event) -> str:
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)
    packed = []
    for content in contents:
        whole = memoryview(content)
        for at in range(0, len(whole), _AT_ONCE):
            if stopped.is_set():
                return ""
            packed.append(packer.compress(whole[at : at + _AT_ONCE]))
    return base64.b64encode(b"".join([*packed, packer.flush()])).decode()


def _one(column: pa.ChunkedArray) -> pa.Array:
    whole = column.combine_chunks()
    return whole.unify_dictionaries() if isinstance(whole, pa.ChunkedArray) else whole


def _zigzag(values: pa.Array) -> pa.Array:
    """Return small numbers of any sign as small numbers without: 0, -1, 1, -2 ... as 0, 1, 2, 3 ..."""
    return pc.if_else(pc.less(values, 0), pc.subtract(-1, pc.multiply(values, 2)), pc.multiply(values, 2))


def _planes(numbers: np.ndarray[Any, np.dtype[np.uint64]], width: int) -> bytes:
    """Return the bytes of numbers, plane by plane, the lowest first."""
    return np.ascontiguousarray(numbers).view(np.uint8).reshape(-1, 8)[:, :width].T.tobytes()


def _cost(numbers: np.ndarray[Any, np.dtype[np.uint64]], width: int) -> int:
    return len(zlib.compress(_planes(numbers, width), 1))
