"""Latencies, waits and retried accesses, against a slow count of the same rows."""

from __future__ import annotations

import itertools
import json
import zipfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

import pcitrace
from pcitrace.cli import main
from pcitrace.instrument.delayed import delayed
from pcitrace.instrument.latencies import latencies

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "traces"
WRITES = (3, 7, 11, 15)


@pytest.mark.parametrize(("name", "bus"), [("blue33_seq6", None), ("nic_g_a", "A")])
def test_latencies_equal_a_slow_count(name: str, bus: str | None) -> None:
    run = pcitrace.open(FIXTURES / name / "bus.vcd.gz")
    chosen = run[bus] if bus else run.bus
    found = latencies(chosen)
    rows = chosen.arrow("transactions").to_pylist()
    first = [row["first_data_us"] - row["start_us"] for row in rows if row["first_data_us"] is not None]
    times = defaultdict(list)
    for phase in chosen.arrow("data_phases").to_pylist():
        times[phase["transaction"]].append(phase["time_us"])
    following = [b - a for one in times.values() for a, b in itertools.pairwise(one)]
    for key, wanted in (("first_data", first), ("next_data", following)):
        got = found["latency_us"][key]
        assert got["n"] == len(wanted)
        assert [got["min"], got["median"], got["p99"], got["max"]] == pytest.approx(
            [min(wanted), np.median(wanted), np.percentile(wanted, 99), max(wanted)]
        )
    accesses, pending, took = [], {}, []
    for row in rows:
        key = (row["initiator"], row["address"], row["command"] in WRITES)
        attempts = pending.setdefault(key, [])
        attempts.append(row)
        if row["termination"] != "retry":
            accesses.append(pending.pop(key))
    retried = [one for one in [*accesses, *pending.values()] if one[0]["termination"] == "retry"]
    took = [one[-1]["first_data_us"] - one[0]["start_us"] for one in retried if one[-1]["first_data_us"] is not None]
    assert found["delayed"]["accesses"] == len(retried)
    assert found["delayed"]["attempts"] == sum(map(len, retried))
    assert found["delayed"]["completed"] == len(took)
    assert found["delayed"]["never_completed"] == sum(one[-1]["termination"] == "retry" for one in retried)
    got = found["latency_us"]["retry_to_completion"]
    assert got["n"] == len(took)
    if took:
        assert [got["min"], got["max"]] == pytest.approx([min(took), max(took)])
    assert sum(one["transactions"] for one in found["waits"]["initiators"].values()) == sum(
        row["initiator"] is not None for row in rows
    )


def test_a_doorbell_leads_to_dma() -> None:
    found = latencies(pcitrace.open(FIXTURES / "nic_g_a" / "bus.vcd.gz")["A"])["latency_us"]["doorbell_to_dma"]
    # The card fetches its descriptors soon after each of 80 doorbells; other register writes may follow them.
    assert 80 <= found["n"] <= 160
    assert 0 < found["min"] <= found["median"] < 2


def test_json_keeps_its_keys_and_says_why_a_value_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", str(FIXTURES / "nic_g_a" / "control16.sr"), "--bus", "A", "--json"]) == 0
    stats = json.loads(capsys.readouterr().out)["A"]
    assert {"clocks", "commands", "terminations", "retry_rate", "latency_us", "waits", "delayed"} <= stats.keys()
    kinds = ["arbitration", "acquisition", "first_data", "next_data", "retry_to_completion", "doorbell_to_dma"]
    assert list(stats["latency_us"]) == kinds
    assert all(one["n"] or one["reason"] for one in stats["latency_us"].values())
    assert stats["delayed"] is None


@pytest.mark.parametrize("line", ["STOP#", "DEVSEL#"])
def test_retries_are_unknown_without_the_lines_that_tell_them(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Null, and never 0: how an access without data ended cannot be seen."""
    part = tmp_path / "part.sr"
    with zipfile.ZipFile(FIXTURES.parent / "faults" / "endless-retry.sr") as whole, zipfile.ZipFile(part, "w") as out:
        for name in whole.namelist():
            out.writestr(name, whole.read(name).replace(f"={line}\n".encode(), b"=spare\n"))
    assert main(["stats", str(part), "--json"]) == 0
    [stats] = json.loads(capsys.readouterr().out).values()
    assert stats["retry_rate"] == {"per_attempt": None, "per_completed": None, "per_second": None}
    assert stats["delayed"] is None
    assert stats["latency_us"]["retry_to_completion"]["reason"] == f"{line} not captured"
    assert {one["retries"] for one in stats["views"]["commands"]} == {None}
    assert main(["stats", str(part), "--by", "retries"]) == 0
    assert f"retries       unknown: {line} not captured" in capsys.readouterr().out


@pytest.mark.parametrize("condition", ["termination == retry", "start_us < 700"])
def test_what_became_of_an_access_does_not_hang_on_what_is_chosen(
    condition: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its last attempt and what others did between need not be among the rows that were asked for."""
    told = []
    for arguments in ([], ["--where", condition]):
        assert main(["stats", str(FIXTURES / "blue33_seq6" / "bus.vcd.gz"), "--json", *arguments]) == 0
        [stats] = json.loads(capsys.readouterr().out).values()
        told.append((stats["delayed"], stats["latency_us"]["retry_to_completion"]))
    (whole, took), (some, some_took) = told
    known = {one["transaction"]: one for one in whole["longest"]}
    assert some["longest"]
    assert all(known.get(one["transaction"], one) == one for one in some["longest"])
    if condition == "termination == retry":
        assert (some, some_took) == (whole, took)


def test_only_accesses_are_counted_of_which_an_attempt_was_chosen() -> None:
    table = pcitrace.open(FIXTURES / "blue33_seq6" / "bus.vcd.gz").bus.arrow("transactions")
    whole = delayed(table)
    some = np.array([0, 3, len(whole.first) - 1])
    chosen = np.zeros(len(table), dtype=bool)
    chosen[whole.last[some[:2]]] = True
    chosen[whole.first[some[2]]] = True
    found = delayed(table, chosen=chosen)
    assert found.first.tolist() == whole.first[some].tolist()
    assert found.last.tolist() == whole.last[some].tolist()
    np.testing.assert_array_equal(found.took_us, whole.took_us[some])
    assert not len(delayed(table, chosen=np.zeros(len(table), dtype=bool)).first)
