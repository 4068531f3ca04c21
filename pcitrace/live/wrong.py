"""What is wrong on the buses, as it comes: problems, and rules that are broken."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pcitrace.instrument.rules import catalogue, seen
from pcitrace.streaming import Stream

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Wrong"]

SHOWN = 12
KEYS = ("time_us", "bus", "kind", "count", "text")


class Wrong:
    """Puts together what a stream tells of problems and of rules.

    Parameters
    ----------
    stream : Stream
    judged : mapping of str to set of str
        By bus the rules that can be judged there, where the stream judges at all.
    """

    def __init__(self, stream: Stream, judged: Mapping[str, Set[str]]) -> None:
        self._stream = stream
        self._judged = judged if stream.options["rules"] is not None else dict.fromkeys(stream.buses, frozenset())
        self.violations: dict[str, dict[str, int]] = {bus: {} for bus in stream.buses}
        """By bus how often each rule was broken since the start."""
        self._told = dict.fromkeys(stream.buses, 0)
        self._full: dict[str, set[str]] = {bus: set() for bus in stream.buses}
        self._last: deque[dict[str, Any]] = deque(maxlen=4 * SHOWN)

    def new(self, problems: pa.Table) -> pa.Table:
        """Return these problems and the violations since the last time, as rows of `problems`."""
        rows = list(self._violations())
        found = pa.concat_tables([problems, pa.Table.from_pylist(rows, problems.schema)]) if rows else problems
        if found.num_rows:
            first = max(problems.num_rows - SHOWN, 0)
            # What a rule says, too, is told once.
            others = (row for row in problems.slice(first).to_pylist() if row["rule"] not in self._judged[row["bus"]])
            self._last.extend({key: row[key] for key in KEYS} for row in [*others, *rows[-SHOWN:]])
        return found

    def last(self) -> list[dict[str, Any]]:
        """Return the last of all, in order of time."""
        return sorted(self._last, key=lambda row: float(row["time_us"]))[-SHOWN:]

    def _violations(self) -> Iterator[dict[str, Any]]:
        counted = dict(zip(self._stream.buses, self._stream.counted(), strict=False))
        grown = {bus: self._grown(bus, told["counts"]) for bus, told in counted.items()}
        if not any(grown[bus] - self._full[bus] for bus in grown):
            return
        for bus, (table, _) in zip(self._stream.buses, self._stream.judged(), strict=False):
            new = table.slice(self._told[bus])
            self._told[bus] = table.num_rows
            # The kernel keeps only so many places of a rule; the others are counted.
            self._full[bus] |= grown[bus] - set(new["rule"].to_pylist())
            for one in new.to_pylist():
                if one["rule"] in self._judged[bus]:
                    yield _row(bus, one, self._stream.options["rate_hz"])

    def _grown(self, bus: str, counts: Mapping[str, int]) -> set[str]:
        """Take the counts; return the rules that were broken again."""
        before = self.violations[bus]
        self.violations[bus] = {id: n for id, n in counts.items() if n and id in self._judged[bus]}
        return {id for id, n in self.violations[bus].items() if n != before.get(id, 0)}


def _row(bus: str, one: Mapping[str, Any], rate_hz: float | None) -> dict[str, Any]:
    unit_ns = None if rate_hz is None else 1e9 / rate_hz
    text = seen(one["asserted"], one["asserted_before"], one["value"], one["rule"], unit_ns)
    return {
        "bus": bus,
        "kind": one["rule"],
        "rule": one["rule"],
        "time_us": one["time_us"],
        "transaction": None,
        "count": 1,
        "first_clk": one["clk"],
        "last_clk": one["clk"],
        "text": f"{catalogue()[one['rule']].sentence} [{text}]",
    }
