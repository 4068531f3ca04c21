"""The command pcitrace as a user meets it: output, files, exit statuses, messages."""

from __future__ import annotations

import csv
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest
from test_run import HOSTS, SINGLE, TRANSACTIONS, VCD, write_sr

from pcitrace import schema
from pcitrace.cli import COMMANDS, main

FIXTURES = Path(__file__).parent.parent / "fixtures"
PROGRAM = Path(sys.executable).with_name("pcitrace")


def run(*arguments: object) -> int:
    """Run in this process; a SystemExit (argparse) is its status."""
    try:
        return main([str(argument) for argument in arguments])
    except SystemExit as stop:
        return int(stop.code or 0)


class TestInfo:
    def test_it_shows_what_was_guessed(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("info", HOSTS) == 0
        shown = capsys.readouterr().out
        assert "16 channels, 100 MS/s" in shown
        assert "bus A, clock 33.3" in shown
        assert [line.split() for line in shown.splitlines() if "B_FRAME#" in line] == [
            ["FRAME#", "B_FRAME#", "active", "low"]
        ]

    def test_vectors_take_one_row(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("info", VCD) == 0
        rows = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert ["AD0", "to", "AD31", "holdout_top.pci.AD[31:0]"] in rows

    def test_json(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("info", SINGLE, "--json") == 0
        [capture] = json.loads(capsys.readouterr().out)["captures"]
        assert capture["rate_hz"] == 250e6
        assert capture["buses"]["PCI"]["complete"]
        assert capture["buses"]["PCI"]["lines"]["TRDY#"] == {
            "channel": "TRDY#", "bit": 0, "active_low": True, "source": "name",
        }  # fmt: skip
        assert capture["buses"]["PCI"]["clock_mhz"] == pytest.approx(33.3, abs=0.3)

    def test_one_bus(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("info", HOSTS, "--bus", "B") == 0
        shown = capsys.readouterr().out
        assert "bus B, clock" in shown
        assert "bus A" not in shown
        assert run("info", HOSTS, "--bus", "B", "--json") == 0
        [capture] = json.loads(capsys.readouterr().out)["captures"]
        assert list(capture["buses"]) == ["B"]
        for option in ([], ["--json"]):
            assert run("info", HOSTS, "--bus", "C", *option) == 3
            captured = capsys.readouterr()
            assert captured.out == ""
            assert "no bus C; there are A, B" in captured.err

    def test_a_capture_without_pci_is_shown_too(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = write_sr(tmp_path / "spi.sr", ["SCK", "MOSI"], b"\0\1\2\3", rate=None)
        assert run("info", path) == 0
        shown = capsys.readouterr().out
        assert "no rate" in shown
        assert "no PCI bus" in shown
        assert "not used: SCK MOSI" in shown

    def test_what_keeps_a_bus_from_being_decoded_is_said(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = write_sr(tmp_path / "x.sr", ["CLK", "FRAME#", "FRAME_N", "IRDY#"], b"\0\1\2\3")
        assert run("info", path) == 0
        assert "cannot be decoded: no FRAME#, no TRDY#, several channels for FRAME#" in capsys.readouterr().out


class TestDecode:
    def test_every_format_holds_the_same_rows(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        for suffix in ("csv", "jsonl", "parquet"):
            assert run("decode", SINGLE, "-o", tmp_path / f"t.{suffix}") == 0
            assert f"bus PCI: {TRANSACTIONS} transactions" in capsys.readouterr().out
        rows = csv_rows(tmp_path / "t.csv")
        lines = json_rows(tmp_path / "t.jsonl")
        table = pyarrow.parquet.read_table(tmp_path / "t.parquet").to_pylist()
        assert tuple(rows[0]) == tuple(table[0]) == schema.TRANSACTIONS.column_names
        assert len(rows) == len(lines) == len(table) == TRANSACTIONS
        for row, line, values in zip(rows, lines, table, strict=True):
            assert {name: line.get(name) for name in values} == values
            assert row == {name: csv_text(value) for name, value in values.items()}

    def test_data_phases_and_problems_go_to_files_of_their_own(self, tmp_path: Path) -> None:
        d, p = tmp_path / "d.csv", tmp_path / "p.jsonl"
        assert run("decode", VCD, "-o", tmp_path / "t.csv", "--data-phases", d, "--problems", p) == 0
        moved = sum(int(row["data_phases"]) for row in csv_rows(tmp_path / "t.csv"))
        phases = csv_rows(d)
        assert tuple(phases[0]) == schema.DATA_PHASES.column_names
        assert len(phases) == moved > 0
        assert p.exists()

    def test_without_o_the_rows_are_printed(self, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
        assert run("decode", SINGLE) == 0
        rows = list(csv.DictReader(capfdbinary.readouterr().out.decode().splitlines()))
        assert len(rows) == TRANSACTIONS
        assert run("decode", SINGLE, "--json") == 0
        assert len([json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]) == TRANSACTIONS

    def test_remarks_of_the_fst_library_are_not_among_the_rows(self, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
        assert run("decode", FIXTURES / "readers" / "unsigned.fst") == 0
        streams = capfdbinary.readouterr()
        assert streams.out.startswith(b"bus,transaction,")
        assert b"Unsigned" in streams.err

    def test_one_bus_or_all(self, tmp_path: Path) -> None:
        path = tmp_path / "t.csv"
        assert run("decode", HOSTS, "-o", path) == 0
        both = [row["bus"] for row in csv_rows(path)]
        assert run("decode", HOSTS, "--bus", "B", "-o", path) == 0
        assert [row["bus"] for row in csv_rows(path)] == ["B"] * both.count("B")
        assert both.count("A") > 100

    def test_json_summary(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("decode", SINGLE, "-o", tmp_path / "t.csv", "--json") == 0
        assert json.loads(capsys.readouterr().out)["PCI"]["transactions"] == TRANSACTIONS

    def test_strict_is_status_1_and_the_tables_are_there(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / "t.csv"
        assert run("decode", SINGLE, "-o", path, "--strict") == 1
        assert "more problems (--strict)" in capsys.readouterr().err
        assert len(path.read_text().splitlines()) == TRANSACTIONS + 1
        assert run("decode", HOSTS, "-o", path, "--strict") == 0

    def test_neither_numpy_nor_pandas_is_imported(self, tmp_path: Path) -> None:
        script = (
            "import sys; from pcitrace.cli import main; status = main(sys.argv[1:]); "
            "print(*sys.modules, file=sys.stderr); sys.exit(status)"
        )
        for command in (["decode", SINGLE, "-o", tmp_path / "t.parquet"], ["info", SINGLE]):
            done = subprocess.run([sys.executable, "-c", script, *command], capture_output=True, text=True, check=True)
            loaded = set(done.stderr.split())
            assert "pcitrace._kernel" in loaded
            assert not loaded & {"numpy", "pandas", "pyarrow", "scipy", "matplotlib", "tqdm"}


def csv_rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def json_rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def csv_text(value: object) -> str:
    """A value as it stands in a CSV file of ours."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


class TestStats:
    def test_counts_agree_with_the_table(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("stats", SINGLE, "--json", "--window-us", 100) == 0
        statistics = json.loads(capsys.readouterr().out)["PCI"]
        assert run("decode", SINGLE, "-o", tmp_path / "t.jsonl") == 0
        rows = json_rows(tmp_path / "t.jsonl")
        retries = sum(row["termination"] == "retry" for row in rows)
        moved = [row for row in rows if row["data_phases"]]
        assert statistics["transactions"] == len(rows)
        assert statistics["terminations"]["retry"] == retries > 0
        assert sum(statistics["commands"].values()) == len(rows)
        assert statistics["burst_bytes"]["max"] == max(row["bytes"] for row in moved)
        assert statistics["burst_data_phases"]["n"] == len(moved)
        clocks = statistics["clocks"]
        classes = ("unknown", "idle", "address", "data", "stop", "abort", "wait")
        assert clocks["total"] == sum(clocks[name] for name in classes)
        assert clocks["occupancy"] == clocks["busy"] / (clocks["total"] - clocks["unknown"])
        seconds = (clocks["end_us"] - clocks["start_us"]) * 1e-6
        assert statistics["retry_rate"] == pytest.approx(
            {
                "per_attempt": retries / len(rows),
                "per_completed": retries / len(moved),
                "per_second": retries / seconds,
            }
        )
        assert sum(window["total"] for window in statistics["windows"]) == clocks["total"]

    def test_first_data_counts_clocks(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("stats", VCD, "--json") == 0
        [statistics] = json.loads(capsys.readouterr().out).values()
        first = statistics["first_data_clks"]
        assert 1 <= first["min"] <= first["median"] <= first["max"] <= 40

    def test_text_says_when_throughput_is_an_upper_bound(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("stats", HOSTS, "--bus", "A") == 0
        assert "MB/s at most (C/BE# not captured)" in capsys.readouterr().out
        assert run("stats", SINGLE) == 0
        assert "at most" not in capsys.readouterr().out

    def test_a_profile_tells_dma_from_csr_accesses(self, capsys: pytest.CaptureFixture[str]) -> None:
        folder = HOSTS.parent
        assert run("stats", folder / "bus.vcd.gz", "--bus", "A", "--profile", "generic", "--json") == 0
        traffic = json.loads(capsys.readouterr().out)["A"]["traffic"]
        truth = gzip.decompress((folder / "truth_dma.jsonl.gz").read_bytes()).splitlines()
        rows = [row for row in map(json.loads, truth) if row["pc"] == "A"]
        assert sum(burst["pieces"] for burst in traffic["bursts"].values()) == len(rows)
        assert sum(burst["bytes"] for burst in traffic["bursts"].values()) == pytest.approx(
            4 * sum(row["n"] for row in rows), rel=0.05
        )

    def test_each_of_several_agents_has_its_traffic(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Nothing tells which GNT# is the card's: they are told apart by their names."""
        assert run("stats", SINGLE, "--profile", "generic", "--grant", "x=GNT0#", "--grant", "y=GNT1#", "--json") == 0
        [statistics] = json.loads(capsys.readouterr().out).values()
        assert set(statistics["traffic_of"]) == {"x", "y"}
        assert run("stats", SINGLE, "--profile", "generic", "--grant", "x=GNT0#", "--grant", "y=GNT1#") == 0
        assert "traffic of" in capsys.readouterr().out

    def test_strict(self) -> None:
        assert run("stats", SINGLE, "--strict") == 1
        assert run("stats", SINGLE) == 0


class TestWrongUse:
    @pytest.mark.parametrize(
        "arguments",
        [
            [],
            ["decod", "x.sr"],
            ["decode"],
            ["decode", "x.sr", "-o", "t.xlsx"],
            ["decode", "x.sr", "--rate", "-3"],
            ["decode", "x.sr", "--clock-mhz", "fast"],
            ["stats", "x.sr", "--window-us", "0"],
            ["decode", "x.sr", "--clock-mhz", "33", "--recover-clock"],
            ["decode", "x.csv", "-o", "./x.csv"],
            ["decode", "x.sr", "-o", "t.csv", "--problems", "t.csv"],
        ],
    )
    def test_it_is_status_2(self, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert run(*arguments) == 2
        assert "usage: pcitrace" in capsys.readouterr().err

    @pytest.mark.parametrize("command", COMMANDS)
    def test_help_teaches(self, command: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(command, "--help") == 0
        shown = capsys.readouterr().out
        assert "examples:" in shown
        assert f"pcitrace {command}" in shown

    def test_help_lists_the_commands(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("--help") == 0
        shown = capsys.readouterr().out
        assert all(f"    {command} " in shown for command in COMMANDS)

    def test_version(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("--version") == 0
        assert capsys.readouterr().out.startswith("pcitrace 0.")


class TestBadInput:
    """Each: status 3, one line that names the file, no traceback, no output left behind."""

    def refused(self, capsys: pytest.CaptureFixture[str], tmp_path: Path, *arguments: object) -> str:
        before = set(tmp_path.rglob("*"))
        assert run("decode", *arguments, "-o", tmp_path / "t.csv", "--data-phases", tmp_path / "d.parquet") == 3
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("pcitrace: ")
        assert captured.err.count("\n") == 1
        assert set(tmp_path.rglob("*")) == before
        return captured.err

    def test_no_such_file(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        assert "nothing.sr" in self.refused(capsys, tmp_path, tmp_path / "nothing.sr")

    def test_not_a_capture(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        (tmp_path / "x.sr").write_bytes(b"this is no capture")
        assert "x.sr" in self.refused(capsys, tmp_path, tmp_path / "x.sr")

    def test_an_empty_file(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        (tmp_path / "x.sr").write_bytes(b"")
        assert "empty" in self.refused(capsys, tmp_path, tmp_path / "x.sr")

    def test_no_pci(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        path = write_sr(tmp_path / "spi.sr", ["SCK", "MOSI"], b"\0\1\2\3")
        assert "no PCI bus" in self.refused(capsys, tmp_path, path)

    def test_no_such_bus(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        assert "no bus C; there are A, B" in self.refused(capsys, tmp_path, HOSTS, "--bus", "C")

    def test_a_bad_wiring_file(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        (tmp_path / "w.toml").write_text('"FRAME#" = "D99"\n')
        error = self.refused(capsys, tmp_path, SINGLE, "--wiring", tmp_path / "w.toml")
        assert "w.toml" in error
        assert "'D99': no such channel" in error

    def test_no_rate(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        path = write_sr(tmp_path / "x.sr", ["CLK", "FRAME#", "IRDY#", "TRDY#"], b"\x0e\x0f" * 9, rate=None)
        error = self.refused(capsys, tmp_path, path)
        assert "--rate" in error
        assert "--clock-mhz" in error

    def test_a_chunk_that_is_damaged(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        content = bytearray(SINGLE.read_bytes())
        content[len(content) // 2] ^= 0xFF
        (tmp_path / "x.sr").write_bytes(content)
        assert "x.sr" in self.refused(capsys, tmp_path, tmp_path / "x.sr")

    def test_a_folder_that_is_no_run(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        assert "run.toml" in self.refused(capsys, tmp_path, tmp_path)

    def test_an_output_that_cannot_be_written(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        assert run("decode", SINGLE, "-o", tmp_path / "no" / "t.csv") == 3
        captured = capsys.readouterr()
        assert "no/t.csv" in captured.err
        assert captured.err.count("\n") == 1


class TestAsAProcess:
    def test_a_closed_pipe_is_no_error(self) -> None:
        with subprocess.Popen(
            [PROGRAM, "decode", SINGLE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline().startswith("bus,transaction,")
            process.stdout.close()
            assert process.stderr.read() == ""
            assert process.wait() == 0

    def test_an_interrupt_is_one_line(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def interrupted(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("pcitrace._kernel.decode_to_files", interrupted)
        assert run("decode", SINGLE) == 130
        assert capsys.readouterr().err == "pcitrace: interrupted\n"

    def test_the_program_and_the_module_are_the_same(self) -> None:
        environment = {**os.environ, "COLUMNS": "80"}
        program = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, check=True, env=environment)
        module = subprocess.run(
            [sys.executable, "-m", "pcitrace", "--help"], capture_output=True, text=True, check=True, env=environment
        )
        assert program.stdout == module.stdout


@pytest.mark.parametrize("command", ["info", "decode", "list", "stats", "check", "devices"])
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_error(command: str, closed: str, tmp_path: Path) -> None:
    said = tmp_path / "said.txt"
    shell = f'"$0" -m pcitrace {command} "$1" >"$2" 2>&1 {closed}'
    assert subprocess.run(["sh", "-c", shell, sys.executable, str(VCD), str(said)]).returncode == 0
    assert "Traceback" not in said.read_text()
