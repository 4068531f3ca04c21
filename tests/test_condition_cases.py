"""The condition language, held to one file of cases in both its implementations: Python's and the view's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from browser import told

from pcitrace.errors import ConditionError
from pcitrace.instrument.conditions import condition
from pcitrace.schema import COMMAND_NAMES, TRANSACTIONS
from pcitrace.view.bundle import script
from pcitrace.view.packing import Packer

SHARED = json.loads((Path(__file__).parent / "condition_cases.json").read_text())
TYPES = {"double": pa.float64(), "uint64": pa.uint64(), "uint8": pa.uint8(), "bool": pa.bool_(), "string": pa.string()}


def table() -> pa.Table:
    types = {column.name: TYPES[column.dtype] for column in TRANSACTIONS.columns}
    return pa.table({name: pa.array(values, types[name]) for name, values in SHARED["columns"].items()})


def expected(case: dict[str, Any]) -> list[int] | None:
    return None if case.get("refused") else case["rows"]


@pytest.mark.parametrize("case", SHARED["cases"], ids=lambda case: case["condition"])
def test_in_python(case: dict[str, Any]) -> None:
    try:
        found = condition(case["condition"], TRANSACTIONS).fulfilled(table()).nonzero()[0].tolist()
    except ConditionError:
        found = None
    assert found == expected(case)


def test_in_the_view(tmp_path: Path) -> None:
    packer = Packer()
    about = packer.table(table(), TRANSACTIONS)
    texts = [case["condition"] for case in SHARED["cases"]]
    program = f"""
      const store = new Store("{packer.text()}");
      while (!store.has(ROWS)) await store.unpackNext();
      const table = new Table({json.dumps(about)}, store);
      const rows = [...Array(table.n).keys()];
      return {json.dumps(texts)}.map(text => {{
        try {{
          return rows.filter(condition(text, table, {json.dumps(COMMAND_NAMES)}));
        }} catch (error) {{
          if (!(error instanceof ConditionError)) throw error;
          return null;
        }}
      }});
    """
    assert dict(zip(texts, told(tmp_path, script(), program), strict=True)) == {
        case["condition"]: expected(case) for case in SHARED["cases"]
    }
