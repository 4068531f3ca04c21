"""Campaigns: what is done once is not done again, whatever lies in the folder and whoever dies."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask.dataframe
import duckdb
import pandas as pd
import polars
import psutil
import pyarrow.dataset as ds
import pytest
from browser import measured
from conftest import REPOSITORY, needed_program
from distributed.comm import CommClosedError
from idle_captures import repeat

import pcitrace
from pcitrace import network
from pcitrace.campaign import Campaign, CampaignError, Limits, Options, cluster, connection, forks, sources, supervise
from pcitrace.campaign.inputs import Inputs
from pcitrace.campaign.layout import Destination
from pcitrace.campaign.sources import Source
from pcitrace.campaign.storage import Store
from pcitrace.campaign.supervise import Task
from pcitrace.cli import main
from pcitrace.windowed import QUIET_US


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


def test_a_run_of_another_program_is_not_empty(tmp_path: Path) -> None:
    """What pcicap tcp leaves: outputs of iperf3, no bus and no frame log."""
    runs = tmp_path / "runs"
    shutil.copytree(REPOSITORY / "fixtures/network-windows", runs / "windows")
    campaign = Campaign(f"{runs}/*", tmp_path / "out")
    [one] = campaign.one()
    assert one["state"] == "done", one["reason"]
    table = pd.concat([pd.read_parquet(part) for part in (tmp_path / "out").glob("constants/**/*.parquet")])
    [rate] = table[table["constant"] == "network.iperf3.user_mbit_s"].to_dict("records")
    [told] = network.of_paths([runs / "windows"]).results
    assert rate["value"] == told.parameters["user_mbit_s"].value


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


@pytest.mark.parametrize(
    ("named", "file"),
    [
        ("bus-10:30.sr", "bus-10:30.sr"),
        ("./capture", "capture"),
        ("../card.toml", "../card.toml"),
        ("companions/beside", "companions/beside/deep/log.npy"),
        ("disk/bus.sr", "disk/bus.sr"),
    ],
)
def test_every_file_that_a_run_names_counts(named: str, file: str, tmp_path: Path) -> None:
    """Whatever it is called, in a folder that is named, or behind a link to a folder."""
    folder = tmp_path / "run"
    (tmp_path / "elsewhere").mkdir()
    folder.mkdir()
    (folder / "disk").symlink_to(tmp_path / "elsewhere")
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / "run.toml").write_text(f'file = "{named}"\ntitle = "beside.txt"\n[simulation]\ntruth = "truth"\n')
    (folder / "truth").mkdir()

    def key() -> str:
        return Inputs(str(folder), tmp_path / "scratch", 1.0).key("1", Options())

    (folder / file).write_bytes(b"one")
    before, mark = key(), sources.stamp(Source(str(folder)))
    for other in ("beside.txt", "truth/beside.txt"):
        (folder / other).write_bytes(b"of no account")
    assert key() == before
    (folder / file).write_bytes(b"two")
    assert key() != before
    assert sources.stamp(Source(str(folder))) != mark


def test_a_link_to_nothing_is_no_fault_of_a_run(runs: Path, tmp_path: Path) -> None:
    (runs / "a" / "old.log").symlink_to("/nowhere")
    (runs / "a" / "round").symlink_to("..")
    assert [one["state"] for one in Campaign(runs, tmp_path / "out").one()] == ["done", "done"]
    (runs / "b" / "old.log").symlink_to("/nowhere")
    found = Campaign(runs, tmp_path / "out")
    assert {one["state"] for one in found.run(workers=1)["runs"]} == {"done"}


def test_a_capture_with_a_file_a_channel_is_one_run(tmp_path: Path) -> None:
    for at in (0, 1, 10):
        (tmp_path / f"digital_{at}.bin").write_bytes(b"%d" % at)
    (tmp_path / "digital_01.bin").write_bytes(b"named by somebody else")
    found = sources.expand([str(tmp_path), f"{tmp_path}/digital_1*.bin"])
    assert [Path(one.url).name for one in found] == ["digital_0.bin", "digital_01.bin"]

    def key() -> str:
        return Inputs(found[0].url, tmp_path / "scratch", 1.0).key("1", Options())

    before, mark = key(), sources.stamp(found[0])
    (tmp_path / "digital_01.bin").write_bytes(b"of no account")
    assert (key(), sources.stamp(found[0])) == (before, mark)
    (tmp_path / "digital_10.bin").write_bytes(b"other samples")
    assert key() != before
    assert sources.stamp(found[0]) != mark


def test_two_campaigns_at_once_do_each_run_once(base: Path, tmp_path: Path) -> None:
    """Who comes to a run that the other is at does others first: they share the work, and both are told the same."""
    runs, out = tmp_path / "runs", tmp_path / "out"
    for name in "abcdefgh":
        shutil.copytree(base, runs / name)
        text = (base / "run.toml").read_text()
        (runs / name / "run.toml").write_text(text.replace('title = "', f'title = "{name} ', 1))
    program = (
        "import os, sys, pcitrace.campaign as c, pcitrace.campaign.work as w\n"
        "real = w.supervise.run\n"
        "def counted(task, alive):\n"
        f"    open({str(tmp_path / 'begun')!r}, 'a').write(f'{{task.url}} {{os.getpid()}}\\n')\n"
        "    return real(task, alive)\n"
        "w.supervise.run = counted\n"
        "print(sorted((one['run'], one['state'], one['key']) for one in c.Campaign(sys.argv[1], sys.argv[2]).one()))\n"
    )
    first = subprocess.Popen([sys.executable, "-c", program, runs, out], stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(out.glob("leases/*/*/*.json")) and time.monotonic() < deadline:
        time.sleep(0.02)
    second = subprocess.run([sys.executable, "-c", program, runs, out], capture_output=True, text=True, timeout=120)
    told = first.communicate(timeout=120)[0]
    assert second.returncode == first.returncode == 0, second.stderr
    assert second.stdout == told
    assert told.count("'done'") == 8
    begun = [line.split() for line in (tmp_path / "begun").read_text().splitlines()]
    assert sorted(Path(one).name for one, _ in begun) == list("abcdefgh")
    assert len({pid for _, pid in begun}) == 2
    table = pd.read_parquet(out / "status")
    assert sorted(Path(one).name for one in table["run"]) == list("abcdefgh")
    assert not list(out.glob("leases/*/*/*.json"))


def test_of_many_who_take_a_run_at_once_one_has_it(tmp_path: Path) -> None:
    """Where nobody was at it, where the time of another's lease is over, and where that one is released meanwhile."""
    place = Destination(Store(str(tmp_path)), "by")
    for number in range(10):
        for seconds in (None, -1.0):
            run = f"run{number}{seconds}"
            old = None if seconds is None else place.take(run, seconds, "dead")
            together = threading.Barrier(8)

            def one(campaign: str, run: str = run, together: threading.Barrier = together) -> str | None:
                together.wait()
                return place.take(run, 60.0, campaign)

            with ThreadPoolExecutor(8) as pool:
                won = [lease for lease in pool.map(one, map(str, range(8))) if lease is not None]
            assert len(won) == 1
            assert place.leases() >= {run}
            assert place.take(run, 60.0, "another") is None
            if old is not None:
                place.release(old)
                assert place.take(run, 60.0, "another") is None
            place.release(won[0])
            assert run not in place.leases()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_run_that_another_campaign_left_is_done_when_its_lease_ends(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    campaign = Campaign(runs / "a", out)
    [(place, source)] = campaign.places()
    assert place.take(source.id, 2.0, "another")
    ends = time.time() + 2.0
    [status] = campaign.one()
    assert status["state"] == "done"
    assert status["started"] > ends - 0.1


def test_other_options_have_a_place_of_their_own(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    Campaign(runs / "a", out).one()
    before = written(out)
    Campaign(runs / "a", out, options=Options(recover_clock=True)).one()
    assert len(written(out)) == 2
    assert before.items() <= written(out).items()


def test_a_run_counts_once_with_the_options_that_it_had_last(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    Campaign(runs, out).one()
    Campaign(runs / "a", out, options=Options(recover_clock=True)).one()
    both = Campaign(destination=out)
    assert states(both) == {"a": "done", "b": "done"}
    assert not both.constants.duplicated(["run", "host", "constant"]).any()
    assert {place.by: Path(run.url).name for place, run in both.places()} == {
        Options().by(pcitrace.__version__): "b",
        Options(recover_clock=True).by(pcitrace.__version__): "a",
    }
    assert len(Campaign(destination=out, options=Options()).runs) == 2
    Campaign(runs, out).one()
    assert [place.by for place, _ in Campaign(destination=out).places()] == [Options().by(pcitrace.__version__)] * 2


def test_the_nic_of_bare_captures_is_stated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message of a report that cannot tell names an option, which report and campaign have."""
    capture, out = str(REPOSITORY / "fixtures/traces/blue33_seq6/bus.vcd.gz"), str(tmp_path / "out")
    assert main(["report", capture, "--json"]) == 3
    assert "say it with --grant NAME=GNT4#" in capsys.readouterr().err
    assert main(["report", capture, "--json", "--grant", "nic=GNT1#"]) == 0
    alone = json.loads(capsys.readouterr().out)
    assert main(["campaign", "one", capture, "-o", out]) == 3
    assert "say it with --grant" in capsys.readouterr().err
    assert main(["campaign", "one", capture, "-o", out, "--grant", "nic=GNT1#"]) == 0
    results = [json.loads(path.read_text()) for path in (tmp_path / "out").glob("results/*/*.json")]
    assert results == [alone | {"run": results[0]["run"]}]
    assert main(["campaign", "retry", out, "--workers", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"1 done -> {out}"


def test_failures_keep_their_reason_until_retry(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    capture = runs / "b" / "bus.sr"
    whole = capture.read_bytes()
    capture.write_bytes(whole[:-1000])
    os.mkfifo(runs / "hang.sr")
    campaign = Campaign(runs, out, limits=Limits(seconds=4, memory_mib=2000))
    reasons = {Path(one["run"]).name: one["reason"] for one in campaign.one()}
    assert states(campaign) == {"a": "done", "b": "failed", "hang.sr": "failed"}
    assert "cut off" in reasons["b"]
    assert "took longer than the 4 s" in reasons["hang.sr"]
    overview(out, tmp_path / "pages")
    before = written(out)
    campaign.one()
    assert written(out) == before
    capture.write_bytes(whole)
    (runs / "hang.sr").unlink()
    assert {Path(one).name for one in campaign.retry()} == {"b", "hang.sr"}
    assert states(campaign) == {"a": "done", "b": "pending", "hang.sr": "pending"}
    campaign.one()
    assert states(campaign) == {"a": "done", "b": "done", "hang.sr": "failed"}


def test_retry_goes_by_the_limits_and_options_of_the_campaign(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else what hung for a minute would hang for the hour that is the default."""
    out = tmp_path / "out"
    os.mkfifo(runs / "hang.sr")
    begin = ["campaign", "run", f"{runs}/*", "-o", str(out), "--workers", "1", "--time-limit", "3", "--recover-clock"]
    assert main(begin) == 0
    capsys.readouterr()
    assert main(["campaign", "retry", str(out), "--workers", "1"]) == 0
    said = capsys.readouterr()
    assert "1 failed runs are pending again" in said.err
    assert f"failed: {runs}/hang.sr: took longer than the 3 s" in said.err
    assert said.out.startswith("2 done, 1 failed")
    again = Campaign(destination=out)
    assert again.limits == Limits(seconds=3)
    assert {place.by for place, _ in again.places()} == {Options(recover_clock=True).by(pcitrace.__version__)}
    assert len(list(out.glob("markers/*"))) == 1


def test_a_failure_names_its_run_once(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "words.csv").write_text("no samples\n")
    assert main(["campaign", "one", str(runs / "words.csv"), "-o", str(tmp_path / "out")]) == 3
    assert main(["campaign", "status", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    for line in (said.err.splitlines()[0], said.out.splitlines()[-1]):
        assert line.count("words.csv") == 1, line


def overview(out: Path, pages: Path) -> None:
    """The report says what failed and why, and has a row a run, which links to its page."""
    assert main(["campaign", "report", str(out), "-o", str(pages)]) == 0
    text = (pages / "index.html").read_text()
    failed = text.partition(">Failed</h2>")[2].partition("<h2")[0]
    assert "cut off" in failed
    assert "took longer than" in failed
    assert re.findall(r'href="#([a-z]+)"', text) == re.findall(r'<h2 id="([a-z]+)"', text)
    assert text.count(".at_64<") == text.partition("<details>")[2].count(".at_64<") > 0
    rows = text.partition(">Runs</h2>")[2]
    assert rows.count("<tr>") == 1 + 3
    [page] = re.findall(r'href="(runs/a-[^"]+)"', rows)
    of_run = (pages / page).read_text()
    assert "R_PCI_send_us_per_byte" in of_run
    # Numbers to the right, the unit beside them with its sign.
    for one in (text, of_run):
        assert re.search(r'<td class="number">[\d.]+ ±\xa0[\d.]+</td><td>µs/byte</td>', one)
        assert not re.search(r"<td>us\b", one)
    # On a phone, too, each number is in sight with its unit.
    place = (pages / "index.html").as_uri()
    outer = pages / "outer.html"
    frame = f'<iframe src="{place}" width=360 height=900></iframe>'
    outer.write_text(f"<!doctype html><meta charset=utf-8><body>{frame}</body>")
    units = """
    const frame = document.querySelector("iframe");
    while (!frame.contentDocument?.querySelector("td")) await new Promise(then => setTimeout(then, 50));
    const page = frame.contentDocument;
    const cells = [...page.querySelectorAll("td.number + td")].filter(cell => cell.textContent.startsWith("µs"));
    const rights = cells.map(cell => cell.getBoundingClientRect().right);
    return [cells.length, page.documentElement.scrollWidth, Math.max(...rights)];
    """
    count, width, right = measured(outer, pages, units, "--allow-file-access-from-files")
    assert count > 10
    assert width <= 360
    assert right <= 360


def test_a_run_that_needs_too_much_memory_fails_alone(runs: Path, tmp_path: Path) -> None:
    campaign = Campaign(runs / "a", tmp_path / "out", limits=Limits(memory_mib=90))
    [status] = campaign.one()
    assert status["reason"] == "memory: needs more than the 90 MiB it may take (--memory-limit)"


def test_what_failed_has_the_memory_to_say_so(tmp_path: Path) -> None:
    """A child that had none left ended without a word, and seemed to have crashed."""
    (tmp_path / "task.json").write_text(
        json.dumps({"limits": asdict(Limits(memory_mib=200)), "options": asdict(Options())})
    )
    code = f"""
import os, resource
from pathlib import Path
from pcitrace.campaign import child
before = resource.getrlimit(resource.RLIMIT_DATA)
def fails(*_):
    assert resource.getrlimit(resource.RLIMIT_DATA)[0] == 200 << 20
    bytearray(300 << 20)
child._analyse = fails
child.main(Path({str(tmp_path)!r}), os.getppid())
assert resource.getrlimit(resource.RLIMIT_DATA) == (before[1], before[1])
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert json.loads((tmp_path / "outcome.json").read_text())["kind"] == "memory"


def test_a_campaign_of_which_no_run_is_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "runs" / "empty").mkdir(parents=True)
    out = tmp_path / "out"
    Campaign(tmp_path / "runs", out).one()
    assert (
        main(["campaign", "collect", str(out), "-o", f"{tmp_path}/all.csv", "--combined", f"{tmp_path}/means.csv"]) == 0
    )
    assert (tmp_path / "all.csv").read_text().startswith("run,host,card,constant,value,sigma,n,source,findings,unit,")
    assert main(["campaign", "report", str(out), "-o", str(tmp_path / "pages")]) == 0
    capsys.readouterr()
    assert main(["compare", str(out)]) == 3
    assert capsys.readouterr().err.endswith("no run is done; `pcitrace campaign status` says why\n")


def test_the_parts_are_one_table(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    Campaign(runs, out).one()
    parts = f"{out}/constants/**/*.parquet"
    arrow = ds.dataset(out / "constants", partitioning="hive").to_table()
    found = duckdb.sql(f"select count(*), count(distinct run) from read_parquet('{parts}', hive_partitioning=true)")
    assert found.fetchall() == [(arrow.num_rows, 2)]
    assert polars.scan_parquet(parts, hive_partitioning=True).collect().height == arrow.num_rows
    assert len(pd.read_parquet(out / "constants")) == arrow.num_rows
    assert len(dask.dataframe.read_parquet(out / "constants")) == arrow.num_rows
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
    # Side by side, from what is there.
    figure = tmp_path / "compared.svg"
    capsys.readouterr()
    assert main(["compare", str(out), "--constant", row["constant"], "--json", "-o", str(figure)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["a"] for one in told["numbers"] if not one["host"]] == [alone.value]
    assert figure.stat().st_size > 1000


def test_a_sweep_is_drawn_against_what_was_swept(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for point, value in enumerate((10, 20)):
        folder = tmp_path / "sweep" / f"point{point}"
        shutil.copytree(base, folder)
        with (folder / "run.toml").open("a") as file:
            file.write(f'\n[sweep]\nkey = "test.interval_us"\nvalue = {value}\npoint = {point}\npoints = 2\n')
    figure = tmp_path / "curves.svg"
    capsys.readouterr()
    wanted = ["R_PCI_send_us_per_byte", "R_PCI_recv_us_per_byte", "gap_us_per_byte"]
    chosen = [word for name in wanted for word in ("--constant", name)]
    assert main(["compare", str(tmp_path / "sweep"), "--json", "-o", str(figure), *chosen]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["swept"] == "test.sweep.value"
    assert [one["parameter"] for one in told["differences"]] == ["test.sweep.point", "test.sweep.value"]
    assert {one["constant"] for one in told["numbers"] if one["point1"] is not None} == set(wanted)
    assert figure.read_text().count("<!-- test.interval_us -->") == len(wanted), "an axis a number"


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
        (["compare", "{0}/run", "-o", "x.xyz"], "x.xyz: end the name in .svg, .png, .pdf"),
    ],
)
def test_bad_input_is_one_clear_line(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pcitrace.campaign.connection.CONNECT_S", 1.0)
    (tmp_path / "run").mkdir()
    command = [] if arguments[0] == "compare" else ["campaign"]
    assert main([*command, *[one.format(tmp_path) for one in arguments]]) == 3
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("pcitrace: ")
    assert words in said


def test_what_a_run_imported_the_next_one_has(base: Path) -> None:
    """The process that forks holds what analyses need, and has one thread, beside jemalloc's, which knows of forks."""
    known = []
    for _ in range(2):
        outcome = supervise.run(Task(str(base), pcitrace.__version__, None, Options(), Limits()), lambda: None)
        assert outcome.told["state"] == "done"
        with forks.forker() as one:
            process = Path(f"/proc/{one.number}")
        known.append({line.split()[-1] for line in (process / "maps").read_text().splitlines() if ".so" in line})
        threads = [path.read_text().strip() for path in process.glob("task/*/comm")]
        assert len(set(threads) - {"jemalloc_bg_thd"}) == len(threads) - threads.count("jemalloc_bg_thd") == 1
    assert any("iminuit" in path for path in known[0])
    assert known[0] < known[1]


def test_nothing_outlives_a_worker(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "hang.sr")
    code = (
        "import pcitrace; from pcitrace.campaign import *\n"
        f"Campaign({str(tmp_path / 'hang.sr')!r}, {str(tmp_path / 'out')!r}).one(scratch={str(tmp_path)!r})"
    )
    worker = psutil.Popen([sys.executable, "-c", code])
    until = time.monotonic() + 60
    while not list(tmp_path.glob("*/words")) and time.monotonic() < until:
        time.sleep(0.05)
    below = worker.children(recursive=True)
    assert len(below) == 2, "the one that forks, and the child"
    worker.kill()
    worker.wait()
    _, left = psutil.wait_procs(below, timeout=10)
    assert not left


def test_ctrl_c_ends_it_all_without_a_word_too_many(base: Path, tmp_path: Path) -> None:
    """The workers get it, too, as on a terminal."""
    for number in range(12):
        shutil.copytree(base, tmp_path / "runs" / str(number))
    program, out = Path(sys.executable).parent / "pcitrace", tmp_path / "out"
    command = [program, "campaign", "run", tmp_path / "runs", "-o", out, "--workers", "2"]
    # It may be ignored where the tests run, and would be inherited.
    script = "import os, signal, sys; signal.signal(2, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    process = psutil.Popen(
        [sys.executable, "-c", script, *command], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    until = time.monotonic() + 60
    while not list(out.glob("markers/*/*")) and time.monotonic() < until:
        time.sleep(0.05)
    below = process.children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=60)[1].splitlines()
    assert process.returncode == 130
    assert [line for line in said if not line.startswith("pcitrace: ")] == []
    assert said[-1] == "pcitrace: interrupted"
    assert len(below) > 2
    assert not psutil.wait_procs(below, timeout=10)[1]
    assert set(states(Campaign(destination=out)).values()) >= {"done", "pending"}


def test_ctrl_c_while_the_cluster_begins_waits_until_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask cannot close half a cluster, and processes that begin would each print where they were."""
    told = []

    class Begins:
        def __init__(self, **_: object) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            told.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))

        def close(self, timeout: float) -> None:
            told.append("closed")

    monkeypatch.setattr("distributed.LocalCluster", Begins)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), connection.connect(None, 1, print):
            pass
        assert told == [True, "closed"]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    finally:
        signal.signal(signal.SIGINT, before)


def test_dask_says_nothing_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client prints where it was when a scheduler goes away; ours says it in one line."""
    monkeypatch.setattr("distributed.LocalCluster", lambda **_: (_ for _ in ()).throw(OSError("none")))
    logging.getLogger("distributed.client").setLevel(logging.WARNING)
    with pytest.raises(CampaignError), connection.connect(None, 1, print):
        pass
    loud = {name: logging.getLogger(name).getEffectiveLevel() for name in logging.root.manager.loggerDict}
    assert not [name for name, level in loud.items() if name.startswith("distributed") and level < logging.CRITICAL]


def test_a_script_without_a_main_block_is_told(runs: Path, tmp_path: Path) -> None:
    """Processes of this machine import the script; standard input cannot be imported."""
    script = f"import pcitrace; pcitrace.Campaign({str(runs)!r}, {str(tmp_path / 'out')!r}).run(workers=1)"
    done = subprocess.run([sys.executable, "-"], input=script, capture_output=True, text=True)
    assert "a script needs to be a file, with `if __name__ == " in done.stderr.splitlines()[-1]


FULL = """\
mount -t tmpfs -o size=64k none {out} || exit 9
{pcitrace} campaign one {runs} -o {out} && exit 8
cp -a {out} {kept}
mount -o remount,size=16m {out}
{pcitrace} campaign one {runs} -o {out} || exit 7
cp -a {out} {whole}
"""


def test_a_full_disk_keeps_what_is_done(runs: Path, tmp_path: Path) -> None:
    """A file system in memory with room for the results of one run, then for all."""
    needed_program("unshare")
    places = {name: tmp_path / name for name in ("out", "kept", "whole")}
    places["out"].mkdir()
    script = FULL.format(pcitrace=Path(sys.executable).parent / "pcitrace", runs=runs, **places)
    user = [] if os.getuid() == 0 else ["--map-root-user"]
    done = subprocess.run(["unshare", "--mount", *user, "sh", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stderr.splitlines() if "No space left on device" in line]
    assert line.endswith("what is done is kept: run the same command again to go on")
    kept, whole = written(places["kept"]), written(places["whole"])
    assert (len(kept), len(whole)) == (1, 2)
    assert kept.items() < whole.items(), "what was done was done again"


FULL_SCRATCH = """\
mount -t tmpfs -o size={size}k none {scratch} || exit 9
{pcitrace} campaign run {runs} -o {out} --workers 1 --scratch {scratch}
[ $? = 3 ] || exit 8
{pcitrace} campaign status {out} --json > {told}
mount -o remount,size=16m {scratch}
{pcitrace} campaign run {runs} -o {out} --workers 1 --scratch {scratch} || exit 7
"""


@pytest.mark.parametrize("size", [4, 24])
def test_a_full_scratch_is_no_fault_of_the_runs(size: int, runs: Path, tmp_path: Path) -> None:
    """Full before the run has begun, and when it has results."""
    needed_program("unshare")
    (scratch := tmp_path / "scratch").mkdir()
    places = {"out": tmp_path / "out", "told": tmp_path / "told", "scratch": scratch, "runs": runs, "size": size}
    script = FULL_SCRATCH.format(pcitrace=Path(sys.executable).parent / "pcitrace", **places)
    user = [] if os.getuid() == 0 else ["--map-root-user"]
    done = subprocess.run(["unshare", "--mount", *user, "sh", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stderr.splitlines() if "No space left on device" in line]
    assert "no scratch" in line
    assert line.endswith("what is done is kept: run the same command again to go on")
    told = json.loads((tmp_path / "told").read_text())
    assert (told["failed"], told["done"]) == (0, 0)
    assert set(states(Campaign(destination=tmp_path / "out")).values()) == {"done"}


def test_workers_of_another_version_are_refused_and_nothing_is_lost(runs: Path, tmp_path: Path) -> None:
    """A real worker, which says that it has 0.0.1; then one as it should be."""
    other = tmp_path / "other.py"
    other.write_text("import pcitrace\npcitrace.__version__ = '0.0.1'\n")
    dask, address = Path(sys.executable).parent / "dask", f"tcp://127.0.0.1:{free_port()}"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = [
        subprocess.Popen([dask, "scheduler", "--host", "127.0.0.1", "--port", address.rpartition(":")[2]], **quiet)
    ]
    campaign = Campaign(runs / "a", tmp_path / "out")
    worker = [dask, "worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    try:
        started.append(subprocess.Popen([*worker, "--preload", other], **quiet))
        with pytest.raises(CampaignError, match=r"a worker has pcitrace 0\.0\.1, the campaign .*: install the same"):
            campaign.run(address)
        assert states(campaign) == {"a": "pending"}
        started[-1].kill()
        started.append(subprocess.Popen(worker, **quiet))
        assert campaign.run(address)["done"] == 1
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_a_scheduler_that_goes_away_with_a_result_loses_nothing(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is done, its status not yet fetched. A worker that dies just then has it done again."""
    dask, address = Path(sys.executable).parent / "dask", f"tcp://127.0.0.1:{free_port()}"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    command = [dask, "scheduler", "--host", "127.0.0.1", "--port", address.rpartition(":")[2]]
    scheduler = subprocess.Popen(command, **quiet)
    work_on = [dask, "worker", address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
    workers = [subprocess.Popen(work_on, **quiet)]
    fetched = cluster._result
    asked: list[str] = []

    def late(future: Any, task: Task, destination: str) -> dict[str, Any]:
        asked.append(task.url)
        if len(asked) == 1:
            workers[0].kill()
            workers[0].wait()
            monkeypatch.setattr(cluster, "FETCH_S", 1.0)
            with pytest.raises(TimeoutError) as error:
                fetched(future, task, destination)
            workers.append(subprocess.Popen(work_on, **quiet))
            monkeypatch.setattr(cluster, "FETCH_S", 30.0)
            raise error.value
        scheduler.kill()
        while future.status != "cancelled":
            time.sleep(0.05)
        return fetched(future, task, destination)

    monkeypatch.setattr(cluster, "_result", late)
    campaign = Campaign(runs / "a", tmp_path / "out")
    try:
        with pytest.raises(CampaignError, match="the scheduler went away, with 1 runs to go; what is done is kept"):
            campaign.run(address)
    finally:
        for process in (scheduler, *workers):
            process.kill()
            process.wait()
    assert len(asked) == 2
    assert states(campaign) == {"a": "done"}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_a_scheduler_that_goes_away_while_it_is_asked_is_named(tmp_path: Path) -> None:
    """Its connection closes under the question, before the client knows that it has gone."""

    class Asked:
        key = "one"

        def result(self, timeout: float) -> None:
            raise CommClosedError("Stream is closed")

    under_way = cluster._UnderWay(SimpleNamespace(status="running"), str(tmp_path), lambda line: None)  # type: ignore[arg-type]
    under_way._tasks["one"] = SimpleNamespace()  # type: ignore[assignment]
    under_way._ended.put(Asked())  # type: ignore[arg-type]
    with pytest.raises(CampaignError, match="the scheduler went away, with 3 runs to go"):
        under_way.next(3)


@pytest.mark.timeout(600)
def test_nothing_is_lost_when_workers_and_scheduler_are_killed(tmp_path: Path) -> None:
    command = [sys.executable, REPOSITORY / "tools" / "campaign_faults.py", tmp_path / "trial", "--runs", "8"]
    command += ["--frames", "2", "--every", "1.5", "--limit", "3", "--compared", "3", "--patience", "250"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["kills"] > 2, "the scheduler counts for two"


def test_a_long_run_is_analysed_by_all_workers_and_the_others_meanwhile(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its worker is free for tasks of its own: of one worker it takes all."""
    repeat(runs / "a", runs / "long", 4, 1.5 * QUIET_US)
    samples = [pcitrace.open(runs / name).captures[0].sample_count for name in ("a", "long")]
    assert samples[0] < samples[1]
    asked: list[str] = []
    campaign = Campaign(f"{runs}/*", tmp_path / "out", limits=Limits(long_samples=samples[0]))
    found = campaign.run(workers=1, say=asked.append)
    assert (found["done"], found["failed"]) == (3, 0), found
    [stored] = (tmp_path / "out").glob("results/*/long-*.json")
    here = json.loads(stored.read_text())
    here.pop("network", None)
    capsys.readouterr()
    assert main(["report", str(runs / "long"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == here
    assert states(campaign) == dict.fromkeys(("a", "b", "long"), "done")
    assert [one["state"] for one in campaign.run(workers=1)["runs"]] == ["done"] * 3


def test_long_runs_are_left_to_the_cluster_one_by_one_and_taken_ones_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, bool | str]] = []

    class Client:
        id, status, scheduler = "c", "running", SimpleNamespace(address="tcp://head:8786")

        def submit(self, function: Callable[..., Any], task: Task, destination: str, key: str, pure: bool) -> Any:
            asked.append((task.url, task.together))
            long = task.together is True and task.url in ("one", "two")
            state = "taken" if task.url == "elsewhere" and not task.patient else "long" if long else "done"
            status = {"run": task.url, "state": state}
            future = SimpleNamespace(key=key, status="finished", result=lambda timeout: status, release=lambda: None)
            future.add_done_callback = lambda call: call(future)
            return future

    tasks = [Task(url, "1", None, Options(), Limits()) for url in ("one", "elsewhere", "short", "two")]
    done = [one["run"] for one in cluster.gather(Client(), tasks, "out")]
    assert done == ["short", "one", "elsewhere", "two"]
    assert asked[:4] == [("one", True), ("elsewhere", True), ("short", True), ("two", True)]
    # what another campaign is at is asked for again when all else is begun
    assert asked[4:] == [("one", "tcp://head:8786"), ("elsewhere", True), ("two", "tcp://head:8786")]


def test_that_no_worker_is_left_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "GONE_S", 1.0)
    asked: list[int] = []

    class Client:
        id, status, scheduler = "c", "running", SimpleNamespace(address="tcp://head:8786")
        ended: Callable[[Any], None]

        def submit(self, function: Callable[..., Any], task: Task, destination: str, key: str, pure: bool) -> Any:
            future = SimpleNamespace(key=key, status="finished", release=lambda: None)
            future.result = lambda timeout: {"run": task.url, "state": "done"}
            future.add_done_callback = lambda call: setattr(self, "ended", lambda: call(future))
            return future

        def scheduler_info(self, n_workers: int) -> dict[str, Any]:
            asked.append(n_workers)
            if len(asked) == 3:
                self.ended()
            return {"workers": {} if len(asked) < 3 else {"tcp://there": {}}}

    said: list[str] = []
    assert len(list(cluster.gather(Client(), [Task("one", "1", None, Options(), Limits())], "out", said.append))) == 1
    assert said == ["no worker is there, with 1 runs to go: `dask worker tcp://head:8786 --nthreads 1` starts one"]


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("head", "'head' is no address of a scheduler: write tcp://host:8786"),
        ("tcp://", "'tcp://' is no address of a scheduler"),
        ("tcp://127.0.0.1:port", "is no address of a scheduler"),
        ("ucx://head:8786", "is no address of a scheduler"),
        ("tcp://127.0.0.1:1", "the scheduler tcp://127.0.0.1:1 does not answer"),
    ],
)
def test_a_scheduler_that_cannot_be_is_one_line(
    address: str, said: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["campaign", "run", f"{runs}/*", "-o", str(tmp_path / "out"), "--scheduler", address]) == 3
    assert said in capsys.readouterr().err.splitlines()[-1]
    assert states(Campaign(f"{runs}/*", tmp_path / "out")) == {"a": "pending", "b": "pending"}


def test_no_workers_are_refused(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["campaign", "run", f"{runs}/*", "-o", str(tmp_path / "out"), "--workers", "0"])
    assert "0 is too few: at least 1 is needed" in capsys.readouterr().err
    with pytest.raises(CampaignError, match="0 workers analyse nothing"):
        Campaign(f"{runs}/*", tmp_path / "out").run(workers=0)


def test_a_plain_loop_like_an_array_of_jobs_is_a_campaign(runs: Path, tmp_path: Path) -> None:
    """As docs/campaigns.md has it for Slurm: a process a run, two at a time, and what failed is told by its status."""
    (runs / "words.csv").write_text("no samples\n")
    out, program = tmp_path / "out", str(Path(sys.executable).with_name("pcitrace"))
    words = f"printf '%s\\n' {runs}/* | xargs -P 2 -I RUN {program} campaign one RUN -o {out}"
    loop = subprocess.run(["sh", "-c", words], capture_output=True, text=True, timeout=300)
    assert loop.returncode == 123, "one of them ended with a status of 1 to 125"
    found = Campaign(destination=out).status()
    assert {Path(one["run"]).name: one["state"] for one in found["runs"]} == {
        "a": "done",
        "b": "done",
        "words.csv": "failed",
    }
    assert set(Campaign(destination=out).constants["run"]) == {str(runs / "a"), str(runs / "b")}


def test_places_that_cannot_be_are_one_line(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for pattern, out, said in (
        ("", "out", "'' names no run: write . for the folder where you are"),
        (str(runs), str(runs), "all its runs lie in the destination: choose another"),
    ):
        assert main(["campaign", "one", pattern, "-o", str(tmp_path / out)]) == 3
        [line] = capsys.readouterr().err.splitlines()
        assert said in line


@pytest.mark.parametrize("pattern", ["{}/*", "{}"])
def test_runs_may_be_called_anything_and_so_may_their_results(pattern: str, base: Path, tmp_path: Path) -> None:
    names = ("a::b", "12:30", "br[1]", "a=b", "tést 100%", "#?", "{c,d}", "-x", "new\nline")
    for name in names:
        shutil.copytree(base, tmp_path / "runs" / name)
    out = tmp_path / "out [1]::*=?"
    expected = dict.fromkeys(names, "pending")
    assert states(Campaign(pattern.format(tmp_path / "runs"), out)) == expected
    Campaign([tmp_path / "runs" / names[0], tmp_path / "runs" / names[2]], out).one()
    assert states(Campaign(pattern.format(tmp_path / "runs"), out)) == expected | {"a::b": "done", "br[1]": "done"}
    assert len(Campaign(destination=out).constants["run"].unique()) == 2


def test_a_run_that_is_named_in_two_ways_is_one(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs / "a")
    patterns = [str(runs / "a"), ".", "../a", f"{runs}//a/", f"{runs}/./a", "../../runs/a*", f"file://{runs}/a"]
    assert Campaign(patterns, "../../out").runs == [str(runs / "a")]
    Campaign(runs, "../results").one()
    assert Campaign("../../runs", f"{runs}//results").status()["done"] == 2


def test_a_folder_that_cannot_be_read_fails_alone(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = Store.info

    def refused(self: Store, name: str) -> dict[str, Any] | None:
        if Path(self.root) == runs / "a" and name:
            raise CampaignError("refused") from PermissionError()
        return info(self, name)

    monkeypatch.setattr(Store, "info", refused)
    for pattern in (runs, f"{runs}/*"):
        assert set(states(Campaign(pattern, tmp_path / "out"))) == {"a", "b"}


def test_a_link_to_itself_fails_alone(runs: Path, tmp_path: Path) -> None:
    (runs / "loop").symlink_to("loop")
    campaign = Campaign(f"{runs}/*", tmp_path / "out")
    assert {Path(one["run"]).name: one["reason"] for one in campaign.one() if one["state"] == "failed"} == {
        "loop": f"{runs}/loop/run.toml: Too many levels of symbolic links"
    }
    assert states(campaign) == {"a": "done", "b": "done", "loop": "failed"}


@pytest.mark.parametrize("pattern", ["{}", "{}/*"])
def test_a_run_that_is_being_recorded_is_left_out_unless_it_is_named(pattern: str, runs: Path, tmp_path: Path) -> None:
    (runs / "b").rename(runs / "b.partial")
    assert set(states(Campaign(pattern.format(runs), tmp_path / "out"))) == {"a"}
    assert set(states(Campaign(runs / "b.partial", tmp_path / "out"))) == {"b.partial"}
    shutil.rmtree(runs / "a")
    with pytest.raises(CampaignError, match="all its runs are being recorded"):
        Campaign(pattern.format(runs), tmp_path / "out")


def test_a_name_that_is_no_text_is_said(base: Path, tmp_path: Path) -> None:
    shutil.copytree(base, tmp_path / "runs" / os.fsdecode(b"l\xe9tin"))
    with pytest.raises(CampaignError, match=r"l\\udce9tin': its name is not UTF-8: rename it"):
        Campaign(tmp_path / "runs", tmp_path / "out")


def test_results_of_another_campaign_among_the_runs_are_no_runs(runs: Path, tmp_path: Path) -> None:
    Campaign(runs / "a", runs / "results").one()
    assert set(states(Campaign(runs, tmp_path / "out"))) == {"a", "b"}
    assert set(states(Campaign(f"{runs}/*", tmp_path / "out"))) == {"a", "b"}


@pytest.mark.parametrize("table", ["campaigns", "markers"])
def test_what_a_campaign_wrote_down_and_is_damaged_is_named(
    table: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    Campaign(runs / "a", out).one()
    [file] = (out / table).rglob("*.json")
    file.write_bytes(file.read_bytes()[:20])
    capsys.readouterr()
    assert main(["campaign", "status", str(out)]) == 3
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"pcitrace: {file}: damaged (")
    file.unlink()
    assert [one["state"] for one in Campaign(runs / "a", out).one()] == ["done"]
