"""Columns of Arrow-backed tables as numpy arrays and back; nulls are kept apart, never turned into numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pcitrace.schema import Table

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Booleans",
    "Floats",
    "Integers",
    "alike",
    "booleans",
    "floats",
    "integers",
    "next_us",
    "packed_if_equal",
    "pick",
    "pick_us",
    "spread_us",
    "strings",
    "table",
]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.signedinteger[Any]]
Booleans = npt.NDArray[np.bool_]


def _arrow(frame: pd.DataFrame | pa.RecordBatch | pa.Table, name: str) -> pa.Array:
    column = frame[name]
    # A chunked array, given to pa.array, would become Python objects one by one.
    array = column if isinstance(column, pa.Array | pa.ChunkedArray) else pa.array(column, from_pandas=True)
    if isinstance(array, pa.ChunkedArray) and array.num_chunks == 1:
        return array.chunk(0)
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def floats(frame: pd.DataFrame | pa.RecordBatch | pa.Table, name: str) -> Floats:
    """Return a column as float64; null is NaN."""
    return np.asarray(_arrow(frame, name).cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)


def integers(
    frame: pd.DataFrame | pa.RecordBatch | pa.Table, name: str, missing: int = -1, width: int = 64
) -> Integers:
    """Return a column as integers of 64, 32, 16 or 8 bits; null is `missing`, which no value may be.

    64-bit values from 2**63 on wrap to negative numbers.
    """
    dtype = np.dtype(f"i{width // 8}")
    array = _arrow(frame, name)
    if pa.types.is_floating(array.type) or pa.types.is_null(array.type):
        array = array.cast(pa.int64())
    if not array.null_count:
        return np.asarray(array.to_numpy(zero_copy_only=False)).astype(dtype, copy=False)
    values = np.asarray(array.fill_null(pa.scalar(0, array.type)).to_numpy(zero_copy_only=False)).astype(dtype)
    values[np.asarray(array.is_null().to_numpy(zero_copy_only=False))] = missing
    return values


def strings(frame: pd.DataFrame | pa.RecordBatch | pa.Table, name: str) -> tuple[Integers, list[str]]:
    """Return a text column as codes and the texts they stand for, each once; null is -1."""
    array = _arrow(frame, name)
    if pa.types.is_null(array.type):
        return np.full(len(array), -1, dtype=np.int64), []
    coded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    codes = np.asarray(coded.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False))
    words = [str(text) for text in coded.dictionary.to_pylist()]
    texts = list(dict.fromkeys(words))
    if len(texts) < len(words):
        # A dictionary put together of several may have a text twice.
        codes = np.array([*map(texts.index, words), -1])[codes]
    return codes, texts


def booleans(frame: pd.DataFrame | pa.RecordBatch | pa.Table, name: str, missing: bool = False) -> Booleans:
    """Return a column as bool; null is `missing`."""
    return np.asarray(_arrow(frame, name).cast(pa.bool_()).fill_null(missing).to_numpy(zero_copy_only=False))


def table(schema: Table, columns: dict[str, Any]) -> pd.DataFrame:
    """Build an Arrow-backed table with the columns of a schema.

    Parameters
    ----------
    schema : Table
        What the columns are.
    columns : dict
        Values by column, which are taken out of it as the table comes to be: of a long capture both are much memory.
        NaN in a float array is null, a numpy masked array's masked values are null.

    Returns
    -------
    pandas.DataFrame
    """
    import pandas as pd

    arrays = {}
    for column in schema.columns:
        values = columns.pop(column.name)
        kind = pa.type_for_alias(column.dtype)
        if isinstance(values, np.ma.MaskedArray):
            array = pa.array(values.data, mask=np.ma.getmaskarray(values)).cast(kind)
        elif isinstance(values, np.ndarray) and values.dtype.kind == "f":
            array = pa.array(values, from_pandas=True).cast(kind)
        elif isinstance(values, np.ndarray):
            array = pa.array(values).cast(kind)
        elif isinstance(values, pa.Array):
            array = values.cast(kind)
        else:
            array = pa.array(values, type=kind)
        arrays[column.name] = array
    frame: pd.DataFrame = pa.table(arrays).to_pandas(types_mapper=pd.ArrowDtype)
    return frame


def alike(count: int, text: str | None) -> npt.NDArray[np.object_]:
    """Return an array of one text; ``numpy.full`` makes as many texts, of 50 bytes each."""
    out = np.empty(count, dtype=object)
    out.fill(text)
    return out


def packed_if_equal(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the array; one of which all elements are equal in the memory of one, to be read only.

    What a capture does not tell is -1 in every row, and that of millions of rows.
    """
    if len(values) < 2 or values.strides == (0,) or not (values == values[0]).all():
        return values
    return np.broadcast_to(values[0].copy(), values.shape)


def pick(values: Integers, rows: Integers) -> Integers:
    """Return the values at rows; -1 where the row is -1."""
    if not len(values):
        return np.full(len(rows), -1)
    out = values[rows]
    out[rows < 0] = -1
    return out


def pick_us(values: Floats, rows: Integers) -> Floats:
    """Return the times at rows; NaN where the row is -1."""
    if not len(values):
        return np.full(len(rows), np.nan)
    out = values[rows]
    out[rows < 0] = np.nan
    return out


def next_us(times: Floats, after: Floats) -> Floats:
    """Return the first of the ascending times after each given one; NaN where there is none."""
    at = np.searchsorted(times, after, side="right")
    known = ~np.isnan(after) & (at < len(times))
    return pick_us(times, np.where(known, at, -1))


def spread_us(times: Floats) -> float:
    """Return how irregular some times are: the width of the middle half of those that are known; 0 if none is."""
    times = times[np.isfinite(times)]
    return float(np.subtract(*np.percentile(times, (75, 25)))) if len(times) else 0.0
