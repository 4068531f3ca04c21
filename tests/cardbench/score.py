"""Compare frames with the truth of a bench: each value is right, null or wrong."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from .bench import Bench

TIMES = {
    "dma_start": "tx_dma_first_ns",
    "dma_end": "tx_dma_last_ns",
    "wire_start": "wire_start_ns",
    "wire_end": "wire_end_ns",
    "rx_dma_start": "rx_dma_first_ns",
    "rx_dma_end": "rx_dma_last_ns",
}
ENDS = (("dma_start", "dma_end"), ("rx_dma_start", "rx_dma_end"), ("wire_start", "wire_end"))
CSR = ("csr_first", "csr_last")
FIELDS = (*TIMES, "length", *CSR)

Row = dict[str, Any]


@dataclass
class Score:
    """What was found of the true frames that arrived.

    Attributes
    ----------
    fields : dict of str to Counter
        ``right``, ``null`` and ``wrong`` of each field. What lies on a bus that was not captured cannot be known: where
        that is null, it does not count.
    extra : int
        Rows that are no true frame, or a second row of one.
    crossed : int
        Rows with parts of two frames.
    lost_rx : int
        Rows of a frame that was lost or dropped, with a receive.
    wrong_frames : int
        True frames with any wrong value.
    cases : list of str
        Each thing that is wrong, in words.
    """

    fields: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in FIELDS})
    frames: int = 0
    extra: int = 0
    crossed: int = 0
    lost_rx: int = 0
    wrong_frames: int = 0
    cases: list[str] = field(default_factory=list)

    def total(self, *names: str) -> Counter[str]:
        """Right, null and wrong of some fields, or of all."""
        return sum((self.fields[name] for name in names or FIELDS), Counter())

    @property
    def clean(self) -> bool:
        return not (self.total()["wrong"] or self.extra or self.crossed or self.lost_rx)


class _Judge:
    """The tolerance of a capture, and its crystal."""

    def __init__(self, bench: Bench, kind: str) -> None:
        self.sampled = kind != "vcd"
        self.scale = 1 + bench.drawn["sr_ppm"] * 1e-6 if self.sampled else 1.0
        self.tolerance = (2 if self.sampled else 1) * max(host.bus.period for host in bench.hosts.values()) + 1.0
        self.slack = 8 if bench.drawn["width"] == 64 else 6
        self.hosts = bench.drawn.get("hosts", "AB")

    def near(self, given: float | None, true_ns: float | None) -> bool:
        return given is not None and true_ns is not None and abs(given - true_ns / self.scale) <= self.tolerance

    def time(self, given: float | None, *true_ns: float | None) -> str:
        return "null" if given is None else "right" if any(self.near(given, t) for t in true_ns) else "wrong"

    def unseen(self, name: str, way: str) -> bool:
        """Return whether a value of a frame from one host to another (``A->B``) lies on a bus that was not captured."""
        where = way if name == "length" else way[-1] if name.startswith("rx_") else way[0]
        return not any(host in where for host in self.hosts)

    def length(self, row: Row, user_bytes: int) -> str:
        given = row.get("length_bytes")
        if given is None:
            return "null"
        off = given - user_bytes
        if row["length_exact"]:
            return "wrong" if off else "right"
        if -4 * self.sampled <= off <= self.slack:
            return "right"
        return "null" if off > 0 else "wrong"


def _rows(frames: pd.DataFrame) -> list[Row]:
    names = [f"{name}_us" for name in (*TIMES, *CSR)]
    wanted = frames[["frame", "sender", "length_bytes", "length_exact", *names]].astype(object)
    records: list[Row] = wanted.where(wanted.notna(), None).to_dict("records")
    for record in records:
        for name in names:
            time = record.pop(name)
            record[name[:-3]] = None if time is None else float(time) * 1e3
    return records


def score(bench: Bench, frames: pd.DataFrame, kind: str) -> Score:
    """Compare the table ``frames`` of a capture with the truth.

    Parameters
    ----------
    bench : Bench
    frames : pandas.DataFrame
        Columns of ``pcitrace.schema.FRAMES``.
    kind : str
        ``vcd`` (times right within 1 clock and 1 ns), ``control16`` or ``control14`` (2 clocks and 1 ns).
    """
    judge, found, truth = _Judge(bench, kind), Score(), bench.truth()
    matched: dict[int, list[tuple[int, Row]]] = defaultdict(list)
    for row in _rows(frames):
        votes: Counter[int] = Counter()
        mine = [i for i, frame in enumerate(truth) if row["sender"] in (None, frame["dir"][0])]
        for names in ENDS:
            hits = {i: sum(judge.near(row[name], truth[i][TIMES[name]]) for name in names) for i in mine}
            best = max(mine, key=hits.__getitem__, default=None)
            if best is not None and hits[best]:
                votes[best] += hits[best]
        if not votes:
            found.extra += 1
            found.cases.append(f"row {row['frame']}: no true frame")
            continue
        if len(votes) > 1:
            found.crossed += 1
            found.cases.append(f"row {row['frame']}: parts of {', '.join(_name(truth[i]) for i in votes)}")
        best, weight = votes.most_common(1)[0]
        matched[best].append((weight, row))
    for i, frame in enumerate(truth):
        rows = sorted(matched.get(i, []), key=lambda pair: -pair[0])
        found.extra += max(0, len(rows) - 1)
        found.cases += [f"row {row['frame']}: second row of {_name(frame)}" for _, row in rows[1:]]
        _judge_frame(judge, found, frame, rows[0][1] if rows else {})
    return found


def _name(frame: Row) -> str:
    return f"{frame['dir']}#{frame['seq']}"


def _judge_frame(judge: _Judge, found: Score, frame: Row, row: Row) -> None:
    received = frame["rx_dma_first_ns"] is not None
    if row.get("rx_dma_start") is not None and (frame["lost"] or frame["dropped"]) and not received:
        found.lost_rx += 1
        found.cases.append(f"row {row['frame']}: {_name(frame)} was lost or dropped, yet has a receive")
    if not (frame["rx_ok"] and frame["tx_dma_first_ns"] is not None and received):
        return
    verdicts = {name: judge.time(row.get(name), frame[key]) for name, key in TIMES.items()}
    verdicts["length"] = judge.length(row, frame["user_bytes"])
    verdicts |= {name: judge.time(row.get(name), *frame[f"{name}_ns"]) for name in CSR if frame[f"{name}_ns"]}
    unseen = {name for name in verdicts if judge.unseen(name, frame["dir"])}
    for name, verdict in verdicts.items():
        if verdict == "null" and name in unseen:
            continue
        found.fields[name][verdict] += 1
        if verdict == "wrong":
            found.cases.append(f"{_name(frame)} row {row['frame']} {name}: {row.get(name, row.get('length_bytes'))}")
    found.frames += 1
    found.wrong_frames += "wrong" in verdicts.values()
