"""The generator of cards: what it writes is what it says, and legal."""

import gzip
import json

import numpy as np
import pandas as pd
import pytest
from cardbench import FAMILIES, Bench, score, tables, write
from cardbench.cards import draw

import pcitrace
from pcitrace import profiles


def differences(decoded: pd.DataFrame, generated: pd.DataFrame) -> list[str]:
    """Columns that differ; times may differ by rounding."""
    if len(decoded) != len(generated):
        return [f"{len(decoded)} rows decoded, {len(generated)} generated"]
    found = [f"{column}: columns" for column in set(decoded) ^ set(generated)]
    for column in generated:
        left, right = decoded[column], generated[column]
        there = left.notna()
        if not (there == right.notna()).all():
            found.append(f"{column}: nulls")
        elif column.endswith("_us"):
            if not np.allclose(left[there].astype(float), right[there].astype(float), rtol=0, atol=1e-7):
                found.append(f"{column}: times")
        elif not (left[there] == right[there]).all():
            found.append(f"{column}: values")
    return found


@pytest.fixture(scope="module", params=FAMILIES)
def bench(request: pytest.FixtureRequest) -> Bench:
    return Bench(request.param, 1, frames=10)


def test_decoding_gives_what_was_generated(bench: Bench, tmp_path):
    write(bench, tmp_path, control14=True)
    for kind, stated in (("vcd", "run.toml"), ("control16", "run-control16.toml"), ("control14", "run-control14.toml")):
        (tmp_path / "run.toml").write_text((tmp_path / stated).read_text())
        run = pcitrace.open(tmp_path)
        for name, table in tables(bench, kind).items():
            assert run[name].problems.empty, run[name].problems
            assert not differences(run[name].transactions, table.transactions)
            assert not differences(run[name].data_phases, table.data_phases)
            if table.wire is not None:
                assert not differences(run[name].wire, table.wire)
    with gzip.open(tmp_path / "truth.jsonl.gz", "rt") as file:
        assert [json.loads(line) for line in file] == bench.truth()
    if len(bench.drawn["hosts"]) == 1:
        assert list(tables(bench)) == ["A"]


def test_truth_is_what_the_bus_carried(bench: Bench):
    """Times lie on data phases, and the words that moved there are the frame."""
    for frame in bench.frames:
        for host, pieces, sent in (
            (bench.hosts[frame.sender], frame.sent, True),
            (bench.hosts[frame.sender].peer, frame.received, False),
        ):
            memory: dict[int, int] = {}
            for txn in pieces:
                assert txn in host.bus.done
                size = 8 if txn.wide else 4
                for i in range(txn.moved):
                    word = int(txn.words[i]).to_bytes(size, "little")
                    on = [byte for byte in range(size) if not int(txn.enables[i]) >> byte & 1]
                    memory.update({txn.address + i * size + byte: word[byte] for byte in on})
            moved = bytes(memory[at] for at in sorted(memory))
            whole = frame.memory if sent else frame.on_wire[: None if bench.drawn["fcs"] else -4]
            if pieces and not bench.drawn["split" if sent else "rx_split"]:
                assert whole in moved
                assert moved == whole or sent
    truth = bench.truth()
    edges = {name: host.bus for name, host in bench.hosts.items()}
    for row in truth:
        for key, bus in (("tx", edges[row["dir"][0]]), ("rx", edges[row["dir"][3]])):
            for end in ("first", "last"):
                time = row[f"{key}_dma_{end}_ns"]
                clock = None if time is None else (time + bench.begin - bus.phase) / bus.period
                assert clock is None or abs(clock - round(clock)) < 1e-3
        if row["rx_ok"]:
            assert row["csr_first_ns"][0] <= row["csr_last_ns"][0] <= row["tx_dma_first_ns"]
            assert row["wire_start_ns"] < row["rx_dma_last_ns"]
            assert row["tx_dma_last_ns"] < row["wire_end_ns"]
            assert bench.drawn["tx_threshold"] or row["tx_dma_last_ns"] < row["wire_start_ns"]
            assert bench.drawn["rx_chunk"] or row["wire_end_ns"] < row["rx_dma_first_ns"]


def test_seed_decides_everything(bench: Bench):
    again = Bench(bench.drawn["family"], bench.drawn["seed"], frames=10)
    other = Bench(bench.drawn["family"], bench.drawn["seed"] + 1, frames=10)
    assert again.truth() == bench.truth()
    assert other.truth() != bench.truth()
    assert all(again.hosts[name].registers == bench.hosts[name].registers for name in "AB")


def runs(family: str, count: int = 3, frames: int = 16) -> list[Bench]:
    return [Bench(family, seed, frames) for seed in range(20, 20 + count)]


def kinds(bench: Bench) -> set[str]:
    return {txn.kind for host in bench.hosts.values() for txn in host.bus.done}


CLAIMS = {
    "ring": lambda b: "tx_desc" in kinds(b) and "status" in kinds(b),
    "csr-descriptors": lambda b: not kinds(b) & {"tx_desc", "rx_desc"},
    "cacheline": lambda b: all(
        t.address % b.drawn["line"] + t.moved * 4 <= b.drawn["line"] for f in b.frames for t in f.sent
    ),
    "reread": lambda b: (
        sum(t.moved for f in b.frames for t in f.sent)
        > sum(len({t.address + 4 * i for t in f.sent for i in range(t.moved)}) for f in b.frames)
    ),
    "scatter-gather": lambda b: bool(b.drawn["split"] or b.drawn["rx_split"]),
    "cut-through": lambda b: any(
        r["tx_dma_last_ns"] > r["wire_start_ns"] or r["rx_dma_first_ns"] < r["wire_end_ns"]
        for r in b.truth()
        if r["rx_ok"]
    ),
    "tiny": lambda b: max(f.user_bytes for f in b.frames) <= 60,
    "other-master": lambda b: any(t.owner == "X" for h in b.hosts.values() for t in h.bus.done),
    "wide66": lambda b: b.drawn["width"] == 64 or b.drawn["mhz"] == 66.0,
    "groups": lambda b: (
        len({tuple(f.doorbell) for f in b.frames}) < len(b.frames) or b.drawn["doorbell"] == "descriptor"
    ),
    "fcs": lambda b: b.drawn["fcs"],
    "mid-stream": lambda b: any(row["partial"] for row in b.truth()) and any(row["rx_ok"] for row in b.truth()),
    "equal-lengths": lambda b: len({f.user_bytes for f in b.frames if f.sender == "B"}) == 1,
}


@pytest.mark.parametrize("family", CLAIMS)
def test_family_is_what_it_claims(family: str):
    assert all(CLAIMS[family](bench) for bench in runs(family))


def test_some_runs_of_a_family_show_it():
    """What depends on chance is there in one run of several."""
    assert any(f.dropped for b in runs("overload", 6, 40) for f in b.frames)
    cut = [
        txn
        for b in runs("latency-timer")
        for h in b.hosts.values()
        for txn in h.bus.done
        if txn.owner == "NIC" and txn.moved < len(txn.words) and txn.plan.stop is None
    ]
    assert cut
    frames = [frame for b in runs("padding") for frame in b.frames]
    assert any(sum(txn.moved for txn in frame.sent) * 4 >= len(frame.memory) + 12 for frame in frames)


def true_frames(bench: Bench) -> pd.DataFrame:
    """A table of frames without a fault."""
    rows = []
    for number, frame in enumerate(row for row in bench.truth() if row["rx_ok"]):
        row = {"frame": number, "sender": frame["dir"][0], "length_bytes": frame["user_bytes"], "length_exact": True}
        keys = {
            "dma_start": "tx_dma_first",
            "dma_end": "tx_dma_last",
            "wire_start": "wire_start",
            "wire_end": "wire_end",
        }
        keys |= {"rx_dma_start": "rx_dma_first", "rx_dma_end": "rx_dma_last"}
        row |= {f"{name}_us": frame[f"{key}_ns"] / 1e3 for name, key in keys.items()}
        row |= {f"{name}_us": frame[f"{name}_ns"][0] / 1e3 for name in ("csr_first", "csr_last")}
        rows.append(row)
    return pd.DataFrame(rows)


def test_score_tells_right_null_and_wrong():
    bench = Bench("ring", 5, frames=12)
    frames = true_frames(bench)
    best = score(bench, frames, "vcd")
    assert best.clean
    assert best.total() == {"right": 9 * len(frames)}
    worse = frames.copy()
    worse.loc[0, "dma_end_us"] += 0.5
    worse.loc[1, "csr_last_us"] = None
    worse.loc[2, ["length_bytes", "length_exact"]] = [worse.loc[2, "length_bytes"] + 1, True]
    found = score(bench, worse, "vcd")
    assert (found.fields["dma_end"]["wrong"], found.fields["csr_last"]["null"], found.fields["length"]["wrong"]) == (
        1,
        1,
        1,
    )
    assert found.wrong_frames == 2
    swapped = frames.copy()
    receives = ["rx_dma_start_us", "rx_dma_end_us"]
    swapped.loc[[0, 2], receives] = frames.loc[[2, 0], receives].to_numpy()
    assert score(bench, swapped, "vcd").crossed == 2
    assert score(bench, pd.concat([frames, frames.tail(1)]), "vcd").extra == 1
    assert score(bench, frames.drop(0), "vcd").total()["null"] == 9


def test_what_lies_on_no_captured_bus_is_not_null():
    """Of a frame to the host that was not captured the receive, of one from it all but the receive and the length."""
    bench = Bench("one-host", 4, frames=12)
    frames = true_frames(bench)
    sent = frames["sender"] == "A"
    assert 0 < sent.sum() < len(frames)
    seen = frames.copy()
    seen.loc[sent, ["rx_dma_start_us", "rx_dma_end_us"]] = None
    columns = [f"{name}_us" for name in ("dma_start", "dma_end", "wire_start", "wire_end", "csr_first", "csr_last")]
    seen.loc[~sent, columns] = None
    assert score(bench, seen, "vcd").total() == {"right": 7 * sent.sum() + 3 * (~sent).sum()}
    # What was found all the same is held against the truth.
    seen.loc[sent, "rx_dma_start_us"] = frames.loc[sent, "rx_dma_start_us"] + 1.0
    assert score(bench, seen, "vcd").total()["wrong"] == sent.sum()
    seen.loc[sent, "dma_start_us"] = None
    assert score(bench, seen, "vcd").total()["null"] == sent.sum()


def test_a_driver_has_room_for_what_it_rings_once_for() -> None:
    """Three cards of a hundred never sent a frame: their drivers waited for room before they rang."""
    drawn = [draw(family, seed) for family in ("mixed", "groups", "overload") for seed in range(100)]
    assert all(one["together"] <= one["slots"] for one in drawn)
    assert len(Bench("mixed", 61).truth()) == 62


def test_a_capture_of_two_hosts_has_transactions_of_both() -> None:
    bench = Bench("mid-stream", 62)
    ends = [max(host.bus.time(txn.last_clock) for txn in host.bus.done) for host in bench.hosts.values()]
    assert 0.0 < bench.begin < min(ends)


def test_drawn_parameters_are_wide():
    """No parameter that a family draws is the same in 40 cards, but those that it fixes."""
    drawn = [draw("mixed", seed) for seed in range(40)]
    same = {key for key in drawn[0] if len({json.dumps(d.get(key)) for d in drawn}) == 1}
    assert same == {"family", "jitter", "hosts"}


def test_profiles_are_valid(bench: Bench, tmp_path):
    write(bench, tmp_path, vcd=False)
    profiles.load("card.toml", tmp_path)
    assert pcitrace.open(tmp_path).folder is not None
