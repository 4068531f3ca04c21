"""Campaigns: what is done once is not done again, whatever lies in the folder and whoever dies."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pandas as pd
import polars
import pyarrow.dataset as ds
import pytest
from conftest import REPOSITORY

import pcitrace
from pcitrace.campaign import Campaign, CampaignError, Limits, Options
from pcitrace.cli import main


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base") / "run"
    command = ["simulate", "acenic-fig3.1", "-o", str(folder), "--set", "test.count=18", "sweep.loops=2"]
    assert main(command) == 0
    return folder


@pytest.fixture
def runs(base: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    for name in ("a", "b"):
        shutil.copytree(base, folder / name)
        text = (base / "run.toml").read_text()
        (folder / name / "run.toml").write_text(text.replace('title = "', f'title = "{name} ', 1))
    return folder


def states(campaign: Campaign) -> dict[str, str]:
    return {Path(one["run"]).name: one["state"] for one in campaign.status()["runs"]}


def written(out: Path) -> dict[str, int]:
    return {str(path.relative_to(out)): path.stat().st_mtime_ns for path in out.glob("constants/**/*.parquet")}


def test_a_campaign_on_this_machine(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "empty").mkdir()
    out = tmp_path / "out"
    assert main(["campaign", "run", f"{runs}/*", "-o", str(out), "--workers", "2"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("2 done, 1 failed")
    assert "dashboard: http://127.0.0.1:" in said.err
    assert "about 0 s left" in said.err
    assert main(["campaign", "status", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {key: told[key] for key in told if key != "runs"} == {"pending": 0, "running": 0, "done": 2, "failed": 1}
    assert [set(one) for one in told["runs"]] == [{"run", "state", "reason", "seconds", "peak_mib"}] * 3
    by_name = {Path(one["run"]).name: one for one in told["runs"]}
    assert "empty run" in by_name["empty"]["reason"]
    assert by_name["a"]["seconds"] > 0
    assert 20 < by_name["a"]["peak_mib"] < 2000
    # What stands there is what a single report says.
    [stored] = out.glob("results/*/a-*.json")
    assert main(["report", str(runs / "a"), "--json"]) == 0
    here = json.loads(stored.read_text())
    assert json.loads(capsys.readouterr().out) == {key: one for key, one in here.items() if key != "network"}


def test_what_is_done_is_not_done_again_and_what_changed_is(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    campaign = Campaign(f"{runs}/*", out)
    campaign.one()
    first = written(out)
    assert len(first) == 2
    # A new campaign, files that were only touched, and then one that differs.
    os.utime(runs / "a" / "bus.sr")
    Campaign(runs, out).one()
    assert written(out) == first
    text = (runs / "b" / "run.toml").read_text()
    (runs / "b" / "run.toml").write_text(text.replace("rate_mbit_s = 1000", "rate_mbit_s = 100"))
    assert Campaign(runs, out).one()[1]["state"] == "done"
    assert {name.partition("run_id=")[2][0] for name, at in written(out).items() if first[name] != at} == {"b"}
    assert {path.name for path in out.rglob("*") if path.is_file() and path.name.startswith(".")} == set()


def test_other_options_have_a_place_of_their_own(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    Campaign(runs / "a", out).one()
    before = written(out)
    Campaign(runs / "a", out, options=Options(recover_clock=True)).one()
    assert len(written(out)) == 2
    assert before.items() <= written(out).items()


def test_failures_keep_their_reason_until_retry(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    capture = runs / "b" / "bus.sr"
    whole = capture.read_bytes()
    capture.write_bytes(whole[:-1000])
    os.mkfifo(runs / "hang.sr")
    campaign = Campaign(runs, out, limits=Limits(seconds=6, memory_mib=2000))
    reasons = {Path(one["run"]).name: one["reason"] for one in campaign.one()}
    assert states(campaign) == {"a": "done", "b": "failed", "hang.sr": "failed"}
    assert "cut off" in reasons["b"]
    assert "took longer than the 6 s" in reasons["hang.sr"]
    started = time.monotonic()
    campaign.one()
    assert time.monotonic() - started < 6
    capture.write_bytes(whole)
    (runs / "hang.sr").unlink()
    assert {Path(one).name for one in campaign.retry()} == {"b", "hang.sr"}
    assert states(campaign) == {"a": "done", "b": "pending", "hang.sr": "pending"}
    campaign.one()
    assert states(campaign) == {"a": "done", "b": "done", "hang.sr": "failed"}


def test_a_run_that_needs_too_much_memory_fails_alone(runs: Path, tmp_path: Path) -> None:
    campaign = Campaign(runs / "a", tmp_path / "out", limits=Limits(memory_mib=90))
    [status] = campaign.one()
    assert status["reason"] == "memory: needs more than the 90 MiB it may take (--memory-limit)"


def test_the_parts_are_one_table(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    Campaign(runs, out).one()
    parts = f"{out}/constants/**/*.parquet"
    arrow = ds.dataset(out / "constants", partitioning="hive").to_table()
    found = duckdb.sql(f"select count(*), count(distinct run) from read_parquet('{parts}', hive_partitioning=true)")
    assert found.fetchall() == [(arrow.num_rows, 2)]
    assert polars.scan_parquet(parts, hive_partitioning=True).collect().height == arrow.num_rows
    assert len(pd.read_parquet(out / "constants")) == arrow.num_rows
    assert set(arrow["schema"].to_pylist()) == {1}
    status = ds.dataset(out / "status", partitioning="hive").to_table().to_pylist()
    assert [one["state"] for one in status] == ["done", "done"]
    table = Campaign(destination=out).constants
    assert list(table.columns[:9]) == [
        "run", "host", "card", "constant", "value", "sigma", "n", "source", "findings"
    ]  # fmt: skip
    assert set(table["test.kind"]) == {"request-response"}
    alone = pcitrace.open(runs / "a").results.constants["R_PCI_send_us_per_byte"]
    here = table[(table["run"] == str(runs / "a")) & (table["constant"] == "R_PCI_send_us_per_byte")]
    [row] = here[here["host"].isna()].to_dict("records")
    assert (row["value"], row["sigma"], row["n"]) == (alone.value, alone.sigma, alone.n)


def test_a_shell_loop_does_the_same(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    pcitrace_ = Path(sys.executable).parent / "pcitrace"
    loop = f"for run in {runs}/*; do {pcitrace_} campaign one $run -o {out} || exit; done"
    subprocess.run(["sh", "-c", loop], check=True, stdout=subprocess.DEVNULL)
    assert set(states(Campaign(destination=out)).values()) == {"done"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "{0}/nothing*", "-o", "{0}/out"], "no run folder and no capture"),
        (["status", "{0}"], "no campaign here"),
        (["run", "{0}/run", "-o", "{0}/out", "--scheduler", "tcp://127.0.0.1:9"], "does not answer"),
        (["run", "{0}/run", "-o", "/proc/none"], "/proc/none"),
        (["run", "nosuch://place/*", "-o", "{0}/out"], "nosuch"),
    ],
)
def test_bad_input_is_one_clear_line(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pcitrace.campaign.cluster.CONNECT_S", 1.0)
    (tmp_path / "run").mkdir()
    assert main(["campaign", *[one.format(tmp_path) for one in arguments]]) == 3
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("pcitrace: ")
    assert words in said


def test_a_worker_of_another_version_is_refused(base: Path, tmp_path: Path) -> None:
    from pcitrace.campaign import work
    from pcitrace.campaign.supervise import Task

    task = Task(str(base), "0.0.1", None, Options(), Limits())
    with pytest.raises(CampaignError, match=r"the campaign 0\.0\.1: install the same"):
        work.one(task, str(tmp_path))


@pytest.mark.timeout(600)
def test_nothing_is_lost_when_workers_and_scheduler_are_killed(tmp_path: Path) -> None:
    command = [sys.executable, REPOSITORY / "tools" / "campaign_faults.py", tmp_path / "trial", "--runs", "10"]
    command += ["--frames", "2", "--every", "2.5", "--limit", "6", "--compared", "5", "--patience", "250"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["kills"] > 2, "the scheduler counts for two"
