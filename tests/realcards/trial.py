"""One run of a design, written, checked against its own truth, analysed and scored."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w
from cardbench.files import _bus_truth, _lines, card, run, write_sr, write_vcd
from cardbench.score import CSR, TIMES, Score, score

import pcitrace
from pcitrace import analysis

from .bench import RealBench

CAPTURES = {"vcd": "bus.vcd.gz", "control16": "control16.sr", "control14": "control14.sr"}


def write(bench: RealBench, folder: Path, kinds: tuple[str, ...] = tuple(CAPTURES)) -> None:
    """A folder a capture (``FOLDER/vcd`` ...) with its run.toml, and the truth in the form of score_cards.py."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "card.json").write_text(json.dumps(card(bench), indent=1))
    for kind in kinds:
        (folder / kind).mkdir(exist_ok=True)
        name = CAPTURES[kind]
        if kind == "vcd":
            write_vcd(bench, folder / kind / name)
        else:
            write_sr(bench, folder / kind / name, kind)
        (folder / kind / "run.toml").write_text(tomli_w.dumps(run(bench, name, "generic")))
    _lines(folder / "truth.jsonl.gz", bench.truth())
    rows = [_bus_truth(bench, host, txn) for host in bench.hosts.values() for txn in host.bus.done if txn.kind != "csr"]
    _lines(folder / "truth_dma.jsonl.gz", [row for row in rows if row["type"] == "dma"])
    _lines(folder / "truth_other.jsonl.gz", [row for row in rows if row["type"] == "other"])
    csr = [
        {key: bench.moment(value) if key.endswith("_ns") else value for key, value in row.items()}
        for host in bench.hosts.values()
        for row in host.csr_log
    ]
    _lines(folder / "truth_csr.jsonl.gz", csr)


@dataclass
class Trial:
    """What came of one capture; `bells`: CSR times given to frames for which truth has none.

    `header`: how many values are wrong only because a header before the frame in its burst is not the frame.
    """

    kind: str
    scored: Score | None = None
    bells: int = 0
    header: int = 0
    seconds: float = 0.0
    failed: str = ""
    unlike: list[str] = field(default_factory=list)

    def line(self) -> str:
        if self.scored is None:
            return f"{self.kind:10} FAILED {self.failed}"
        dma, csr = self.scored.total(*TIMES, "length"), self.scored.total(*CSR)
        counts = [f"{c['right']}/{c['null']}/{c['wrong']}" for c in (dma, csr)]
        rows = f"extra {self.scored.extra} crossed {self.scored.crossed} lost {self.scored.lost_rx}"
        text = f"{self.kind:10} dma {counts[0]:14} csr {counts[1]:12} {rows} bells {self.bells}"
        return f"{text} header {self.header} {self.seconds:.1f} s"


def unlike(bench: RealBench, opened: Any, kind: str) -> list[str]:
    """What the decoder gives of each transaction that is not what the bench did, and frames that truth has wrong."""
    found = [f"{f.sender}#{f.number} {way}: not its bytes" for f in bench.frames for way in wrong_bytes(bench, f)]
    scale = 1.0 if kind == "vcd" else 1 + bench.drawn["sr_ppm"] * 1e-6
    for name, host in bench.hosts.items():
        given = opened[name].transactions.reset_index(drop=True)
        given["initiator"] = given["initiator"].astype(object).where(given["initiator"].notna(), None)
        if len(given) != len(host.bus.done):
            found.append(f"{name}: {len(given)} transactions, not {len(host.bus.done)}")
            continue
        for i, txn in enumerate(host.bus.done):
            row = given.loc[i]
            off = abs(row["start_us"] * 1e3 * scale - bench.stamp(host, txn.clock))
            same = row["data_phases"] == txn.moved and off < 1.2 * host.bus.period
            if kind == "vcd":
                same = same and row["address"] == txn.address
                same = same and (row["initiator"] == "GNT_NIC#") == (txn.owner == "NIC")
            if not same:
                found.append(f"{name} {i}: {dict(row)} not {txn.command} {txn.address:x} x{txn.moved} off {off}")
    return found


def wrong_bytes(bench: RealBench, frame: Any) -> list[str]:
    """Ways (sent, received) in which the words that are said to carry a frame are not its bytes, once and in order."""
    found = []
    sent = frame.sending if frame.wire_start is not None else b""
    received = frame.on_wire if bench.drawn["fcs"] else frame.on_wire[:-4]
    for way, wanted in (("sent", sent), ("received", b"" if frame.lost or frame.dropped else received)):
        data = b""
        for txn, first, last in frame.carried[way]:
            size = 8 if txn.wide else 4
            data += txn.words[first : last + 1].astype(f"<u{size}").tobytes()
        at = data.find(wanted)
        if at < 0 or at >= 8 or len(data) - len(wanted) > 14:
            found.append(way)
    return found


def analyse(bench: RealBench, folder: Path, kind: str, check: bool = True) -> Trial:
    trial = Trial(kind)
    start = time.process_time()
    try:
        opened: Any = pcitrace.open(folder / kind)
        frames = analysis.frames(opened, profile="generic").table
    except Exception as error:  # a crash is a result here
        trial.failed = f"{type(error).__name__}: {error}"
        return trial
    trial.seconds = time.process_time() - start
    trial.scored = score(bench, frames, kind)
    bench.loose = True
    trial.header = trial.scored.total()["wrong"] - score(bench, frames, kind).total()["wrong"]
    bench.loose = False
    silent = [f for f in bench.truth() if f["rx_ok"] and not f["csr_last_ns"]]
    near = frames["dma_start_us"].dropna().astype(float) * 1e3
    for frame in silent:
        mine = frames.loc[near.index[(near - frame["tx_dma_first_ns"]).abs() < 100]]
        trial.bells += int(mine["csr_last_us"].notna().sum())
    if check:
        trial.unlike = unlike(bench, opened, kind)
    return trial
