"""Records of bytes, many at once: fields side by side in one table of bytes, of which each record keeps its own.

What other programs read are small records with numbers of varying length and texts. One by one Python would take
seconds for a million of them; here each field is a matrix with a row a record, and a mask says which bytes are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Packed", "codes", "decimals", "glued", "hexes", "joined", "values", "varints"]

Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

_HEX = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
_MOST_DIGITS = 20


class Packed:
    """Records that are put together field by field.

    Parameters
    ----------
    count : int
        Number of records.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._fields: list[tuple[Bytes, Mask]] = []

    def add(self, field: Bytes, mask: Mask | None = None, where: Mask | None = None) -> Packed:
        """Add a field.

        Parameters
        ----------
        field : array of uint8, shape (records, width) or (width,)
            The bytes; one row for all records where they are the same.
        mask : array of bool, optional
            Which of them are there, of the same shape; all without it.
        where : array of bool, shape (records,), optional
            Which records have the field.
        """
        shape = (self.count, field.shape[-1])
        kept = np.broadcast_to(np.True_ if mask is None else mask, shape)
        self._fields.append((np.broadcast_to(field, shape), kept if where is None else kept & where[:, None]))
        return self

    def fixed(self, content: bytes, where: Mask | None = None) -> Packed:
        """Add the same bytes to each record."""
        return self.add(np.frombuffer(content, dtype=np.uint8), where=where)

    def number(self, numbers: npt.ArrayLike, dtype: str, where: Mask | None = None) -> Packed:
        """Add a number as numpy's `dtype` has it, such as ``<u4``."""
        array = np.ascontiguousarray(np.asarray(numbers).astype(dtype))
        return self.add(array.view(np.uint8).reshape(len(array), array.itemsize), where=where)

    def varint(self, numbers: npt.ArrayLike, where: Mask | None = None) -> Packed:
        """Add a number as protobuf has it: 7 bits a byte, as many bytes as it needs."""
        return self.add(*varints(numbers), where=where)

    def text(self, texts: Sequence[bytes], code: npt.NDArray[Any], where: Mask | None = None) -> Packed:
        """Add one of a few texts to each record, by its number."""
        width = max(map(len, texts), default=0)
        table = np.zeros((max(len(texts), 1), width), dtype=np.uint8)
        length = np.zeros(max(len(texts), 1), dtype=np.int64)
        for row, content in enumerate(texts):
            table[row, : len(content)] = np.frombuffer(content, dtype=np.uint8)
            length[row] = len(content)
        return self.add(table[code], np.arange(width) < length[code][:, None], where)

    def length(self) -> npt.NDArray[np.int64]:
        """Bytes of each record so far."""
        total = np.zeros(self.count, dtype=np.int64)
        for _, mask in self._fields:
            total += np.count_nonzero(mask, axis=1)
        return total

    def inside(self, other: Packed, where: Mask | None = None) -> Packed:
        """Add the fields of another."""
        for field, mask in other._fields:
            self.add(field, mask, where)
        return self

    def joined(self) -> bytes:
        """All records, one behind the other."""
        return self._joined()[0]

    def array(self) -> pa.LargeBinaryArray:
        """The records as an array of binary."""
        content, length = self._joined()
        ends = np.r_[np.int64(0), np.cumsum(length)]
        return pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), self.count, [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(content)]
        )

    def _joined(self) -> tuple[bytes, npt.NDArray[np.int64]]:
        """All records, and the bytes of each."""
        if not self._fields or not self.count:
            return b"", np.zeros(self.count, dtype=np.int64)
        fields = np.concatenate([field for field, _ in self._fields], axis=1)
        mask = np.concatenate([mask for _, mask in self._fields], axis=1)
        kept: Bytes = fields[mask]
        return kept.tobytes(), mask.sum(axis=1, dtype=np.int64)


def varints(numbers: npt.ArrayLike) -> tuple[Bytes, Mask]:
    """Return numbers as protobuf's varints, and which bytes each has."""
    rest = np.asarray(numbers).astype(np.uint64)
    width = max((int(rest.max(initial=0)).bit_length() + 6) // 7, 1)
    shifts = np.arange(width, dtype=np.uint64) * np.uint64(7)
    parts = rest[:, None] >> shifts
    there = parts > 0
    there[:, 0] = True
    more = np.zeros_like(there)
    more[:, :-1] = there[:, 1:]
    return (parts & np.uint64(0x7F) | more.astype(np.uint64) << np.uint64(7)).astype(np.uint8), there


def hexes(numbers: npt.NDArray[np.uint64], digits: int) -> Bytes:
    """Return numbers as so many hexadecimal digits."""
    big = numbers.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - digits // 2 :]
    out = np.empty((len(numbers), digits), dtype=np.uint8)
    out[:, 0::2] = _HEX[big >> 4]
    out[:, 1::2] = _HEX[big & 15]
    return out


def decimals(numbers: npt.NDArray[Any]) -> tuple[Bytes, Mask]:
    """Return numbers, 0 or more, as decimal digits, right-aligned, and which digits each has."""
    rest = numbers.astype(np.uint64)
    width = min(len(str(int(rest.max(initial=0)))), _MOST_DIGITS)
    out = np.empty((len(rest), width), dtype=np.uint8)
    there = np.ones((len(rest), width), dtype=bool)
    for place in range(width - 1, -1, -1):
        there[:, place] = rest > 0
        rest, digit = np.divmod(rest, np.uint64(10))
        out[:, place] = digit + ord("0")
    there[:, -1] = True
    return out, there


def values(table: pa.Table, name: str, missing: int = 0) -> npt.NDArray[Any]:
    """A column of numbers as an array, with `missing` for null."""
    column = table[name]
    return np.asarray(column.fill_null(missing) if column.null_count else column)


def codes(table: pa.Table, name: str) -> tuple[list[bytes], npt.NDArray[Any], Mask]:
    """A column of a few texts: the texts, each row's number among them, and whether it is known."""
    column = table[name].combine_chunks()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], pa.string())
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    known = np.asarray(coded.is_valid())
    texts = [str(text).encode() for text in coded.dictionary.to_pylist()]
    return texts or [b""], np.asarray(coded.indices.fill_null(0)), known


def glued(*parts: pa.LargeBinaryArray | bytes) -> pa.LargeBinaryArray:
    """The parts of each record put together."""
    pieces = [pa.scalar(part, pa.large_binary()) if isinstance(part, bytes) else part for part in parts]
    made = pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.large_binary()))
    return made.combine_chunks() if isinstance(made, pa.ChunkedArray) else made


def joined(*parts: pa.LargeBinaryArray | bytes) -> bytes:
    """The parts of each record put together, and all records one behind the other."""
    made = glued(*parts)
    # Of no records the buffer may be of any size.
    return bytes(made.buffers()[2] or b"") if len(made) else b""
