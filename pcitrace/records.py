"""Rows of tables as plain values, the way JSON has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["plain", "records"]


def plain(value: Any) -> Any:
    """Return a value of a table as int, float, bool, str, or None where it is null or not a number."""
    import pandas as pd

    if value is None or value is pd.NA or (isinstance(value, float) and value != value):
        return None
    return value.item() if hasattr(value, "item") else value


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table; what is not known is None."""
    return [{str(key): plain(value) for key, value in row.items()} for row in table.to_dict("records")]
