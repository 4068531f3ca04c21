"""All numbers of a campaign as one tidy table."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from pcitrace.campaign import numbers
from pcitrace.campaign.errors import CampaignError

__all__ = ["constants", "write"]

FIRST = ("run", "host", "card", "constant", "value", "sigma", "n", "source", "findings")


def constants(parts: Iterable[bytes]) -> pd.DataFrame:
    """Return one table of Parquet parts.

    Parameters
    ----------
    parts : iterable of bytes
        As a campaign has them under ``constants/``.

    Returns
    -------
    pandas.DataFrame
        A row a number: ``run``, ``host`` (null: of the run as a whole), ``card``, ``constant``, ``value``, ``sigma``,
        ``n``, ``source``, ``findings`` of the run, ``unit``, ``reason`` (why a value is null), ``bench``,
        ``sigma_measurement``, ``sigma_frames``, and a column ``test.KEY`` a parameter of the tests, null where a run
        has it not.
    """
    table = pa.concat_tables(
        [numbers.table("", {}, None, {}, {}), *(pq.read_table(io.BytesIO(part)) for part in parts)]
    )
    rest = [name for name in table.column_names if name not in (*FIRST, "test")]
    found = table.select([*FIRST, *rest]).to_pandas(types_mapper=pd.ArrowDtype)
    said = table["test"].to_pylist()
    told = {text: json.loads(text) for text in set(said)}
    keys = sorted({key for one in told.values() for key in one})
    named = {key if key.startswith("test.") else f"test.{key}": key for key in keys}
    wide = {name: [_cell(told[text].get(key)) for text in said] for name, key in named.items()}
    joined: pd.DataFrame = pd.concat([found, pd.DataFrame(wide, index=found.index)], axis=1)
    return joined


def _cell(value: Any) -> Any:
    """A list as text, so that a column is of one kind and its values can be grouped."""
    return json.dumps(value) if isinstance(value, list) else value


def write(table: pd.DataFrame, path: str | Path) -> None:
    """Write a table as CSV, Parquet or JSON lines, by the end of the name.

    Raises
    ------
    CampaignError
        The name ends otherwise.
    """
    file = Path(path)
    flat = table.assign(
        **{name: ["\n".join(one) for one in table[name]] for name in ("findings", "outliers") if name in table}
    )
    if file.suffix == ".csv":
        flat.to_csv(file, index=False)
    elif file.suffix == ".parquet":
        mixed = {name: flat[name].astype("string") for name in flat.columns if _mixed(flat[name])}
        flat.assign(**mixed).to_parquet(file, index=False)
    elif file.suffix == ".json":
        flat.to_json(file, orient="records", lines=True)
    else:
        raise CampaignError(f"{file}: end the name in .csv, .parquet or .json, by the format that is wanted")


def _mixed(column: pd.Series[Any]) -> bool:
    return column.dtype == object and len({type(one) for one in column.dropna()}) > 1
