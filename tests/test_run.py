"""open(), Run, Capture and Bus."""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars
import pytest

import pcitrace
from pcitrace import CaptureFormatError, DecodeError, WiringError
from pcitrace.decode import progress
from pcitrace.run import joined

TRACES = Path(__file__).resolve().parent.parent / "fixtures" / "traces"
SINGLE = TRACES / "blue33_seq6" / "ctl_250MSs.sr"
HOSTS = TRACES / "nic_g_a" / "control16.sr"
VCD = TRACES / "blue33_seq1" / "bus.vcd.gz"
TRANSACTIONS = 5976


def write_sr(path: Path, names: list[str], samples: bytes, rate: str | None = "100 MHz", unit_size: int = 1) -> Path:
    probes = "".join(f"probe{n}={name}\n" for n, name in enumerate(names, 1))
    rated = "" if rate is None else f"samplerate={rate}\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("version", "2")
        archive.writestr(
            "metadata",
            f"[global]\nsigrok version=0.5.2\n\n[device 1]\ncapturefile=logic-1\ntotal probes={len(names)}\n{rated}"
            f"total analog=0\n{probes}unitsize={unit_size}\n",
        )
        archive.writestr("logic-1-1", samples)
    return path


@pytest.fixture
def other_capture(tmp_path: Path) -> Path:
    return write_sr(tmp_path / "spi.sr", ["SCK", "MOSI", "nCS"], bytes([1, 2, 3, 4, 5]), "4 MHz")


class TestRun:
    def test_one_bus(self) -> None:
        run = pcitrace.open(SINGLE)
        assert list(run.buses) == ["PCI"]
        assert run.bus is run["PCI"]
        assert len(run.bus.transactions) == TRANSACTIONS
        assert run.folder is None

    def test_two_hosts(self) -> None:
        run = pcitrace.open(str(HOSTS))
        assert list(run.buses) == ["A", "B"]
        assert set(run["B"].transactions["bus"]) == {"B"}
        with pytest.raises(WiringError, match=r"control16\.sr: several buses: A, B; name one"):
            _ = run.bus

    def test_any_capture_opens_and_the_error_comes_with_the_bus(self, other_capture: Path) -> None:
        run = pcitrace.open(other_capture)
        assert run.buses == {}
        assert repr(run) == "<Run spi.sr: sigrok, 3 channels, 4 MS/s, 5 samples, 1.25 us; no PCI bus>"
        for asked in (lambda: run.bus, lambda: run["A"]):
            with pytest.raises(WiringError, match=r"spi\.sr: no PCI bus: none of the channels SCK, MOSI, nCS"):
                asked()

    def test_an_unknown_bus_names_the_known_ones(self) -> None:
        with pytest.raises(WiringError, match=r"no bus C; there are A, B"):
            pcitrace.open(HOSTS)["C"]

    def test_wiring_is_taken_as_an_argument(self, tmp_path: Path) -> None:
        names = ["CLK", "FRAME#", "IRDY#", "TRDY#", "DEVSEL#", "STOP#"]
        plain = tmp_path / "plain.sr"
        with zipfile.ZipFile(SINGLE) as source, zipfile.ZipFile(plain, "w", zipfile.ZIP_DEFLATED) as target:
            for member in source.namelist():
                content = source.read(member)
                if member == "metadata":
                    for number, name in enumerate(names, 1):
                        content = content.replace(
                            f"probe{number}={name}\n".encode(), f"probe{number}=D{number}\n".encode()
                        )
                target.writestr(member, content)
        assert pcitrace.open(plain).buses == {}
        stated = {name: f"D{number}" for number, name in enumerate(names, 1)}
        assert (
            pcitrace.open(plain, wiring=stated)
            .bus.arrow("transactions")
            .equals(pcitrace.open(SINGLE).bus.arrow("transactions"))
        )
        with pytest.raises(WiringError, match=r"plain\.sr: wiring, bus PCI: CLK = 'D9': no such channel"):
            pcitrace.open(plain, wiring={"CLK": "D9"})


class TestCapture:
    def test_channels_rate_and_samples(self, other_capture: Path) -> None:
        [capture] = pcitrace.open(other_capture).captures
        assert capture.format == "sigrok"
        assert capture.channels == ["SCK", "MOSI", "nCS"]
        assert capture.rate_hz == 4e6
        assert capture.duration_s == 1.25e-6
        samples = capture.samples()
        assert (samples.dtype, samples.shape) == (np.uint8, (5, 1))
        assert samples[:, 0].tolist() == [1, 2, 3, 4, 5]
        assert repr(capture) == "<Capture spi.sr: sigrok, 3 channels, 4 MS/s, 5 samples, 1.25 us>"

    def test_samples_of_several_bytes(self) -> None:
        [capture] = pcitrace.open(SINGLE).captures
        with zipfile.ZipFile(SINGLE) as archive:
            members = sorted(
                (name for name in archive.namelist() if name.startswith("logic-1")),
                key=lambda name: int(name.rpartition("-")[2]),
            )
            raw = b"".join(archive.read(member) for member in members)
        assert capture.samples().shape == (len(raw) // 2, 2)
        assert capture.samples().tobytes() == raw

    def test_a_capture_of_changes_has_no_samples(self) -> None:
        [capture] = pcitrace.open(VCD).captures
        assert capture.rate_hz is None
        assert capture.sample_count is None
        with pytest.raises(CaptureFormatError, match=r"bus\.vcd\.gz: a vcd capture lists changes and has no samples"):
            capture.samples()

    def test_no_rate_is_none_and_can_be_given(self, tmp_path: Path) -> None:
        names = ["CLK", "FRAME#", "IRDY#", "TRDY#"]
        idle = bytes([0b1110, 0b1111] * 50)
        path = write_sr(tmp_path / "x.sr", names, idle, rate=None)
        run = pcitrace.open(path)
        assert run.captures[0].rate_hz is None
        assert run.captures[0].duration_s is None
        with pytest.raises(CaptureFormatError, match=r"x\.sr: states no sample rate"):
            _ = run.bus.transactions
        timed = pcitrace.open(path, rate_hz=66e6)
        assert timed.captures[0].rate_hz == 66e6
        assert timed.bus.clocks()["total"].tolist() == [50]
        assert timed.bus.clock_mhz == pytest.approx(33)
        state = pcitrace.open(path, clock_mhz=33.0)
        assert state.bus.clocks()["total"].tolist() == [100]
        assert state.bus.clock_mhz == 33.0
        unclocked = write_sr(tmp_path / "state.sr", names[1:], bytes([0b111] * 50), rate=None)
        assert pcitrace.open(unclocked).buses == {}
        assert pcitrace.open(unclocked, clock_mhz=33.0).bus.clocks()["total"].tolist() == [50]

    @pytest.mark.parametrize("value", [0, -1e6, float("nan"), float("inf")])
    @pytest.mark.parametrize("name", ["rate_hz", "clock_mhz"])
    def test_a_rate_is_positive(self, name: str, value: float) -> None:
        with pytest.raises(DecodeError, match=rf"ctl_250MSs\.sr: {name} = .*; it must be a positive number"):
            pcitrace.open(SINGLE, **{name: value})

    def test_the_wire_of_a_host(self) -> None:
        wire = pcitrace.open(HOSTS)["A"].wire
        assert list(wire.columns) == ["start_us", "end_us", "bytes"]
        assert len(wire) == 80
        assert wire["bytes"].isna().all()
        with pytest.raises(WiringError, match=r"no channel for TXEN of PCI"):
            _ = pcitrace.open(SINGLE).bus.wire


class TestBus:
    def test_repr_says_what_it_is(self) -> None:
        bus = pcitrace.open(SINGLE).bus
        assert repr(bus).startswith("<Bus PCI of ctl_250MSs.sr: 33.")
        assert "CLK FRAME# IRDY# TRDY# DEVSEL# STOP# CBE0-3# GNT0-3# PERR# SERR#" in repr(bus)
        assert "\n" not in repr(bus)

    def test_tables_are_decoded_once_and_yours_to_change(self) -> None:
        bus = pcitrace.open(SINGLE).bus
        first = bus.transactions
        first["mine"] = 1
        assert "mine" not in bus.transactions
        assert bus.arrow("transactions").column("clocks").chunk(0).buffers()[1].address == (
            bus.arrow("transactions").column("clocks").chunk(0).buffers()[1].address
        )

    def test_data_phases_agree_with_their_transactions(self) -> None:
        bus = pcitrace.open(VCD).bus
        counted = bus.data_phases.groupby("transaction").size()
        moved = bus.transactions.set_index("transaction")["data_phases"]
        assert counted.sum() == moved.sum() > 0
        assert (counted == moved[moved > 0]).all()

    def test_addresses_stay_integers_and_unknown_stays_null(self) -> None:
        transactions = pcitrace.open(VCD).bus.transactions
        assert transactions["address"].dtype == pd.ArrowDtype(__import__("pyarrow").uint64())
        assert pcitrace.open(SINGLE).bus.transactions["address"].isna().all()

    def test_windows_add_up(self) -> None:
        bus = pcitrace.open(SINGLE).bus
        [whole] = bus.clocks().to_dict("records")
        windows = bus.clocks(window_us=50)
        assert len(windows) > 3
        for name in ("total", "unknown", "idle", "address", "data", "stop", "abort", "wait", "bytes"):
            assert windows[name].sum() == whole[name], name
        with pytest.raises(DecodeError, match=r"window_us = 0; it must be a positive number"):
            bus.clocks(window_us=0)

    def test_polars_and_duckdb_read_the_arrow_tables(self) -> None:
        arrow = pcitrace.open(SINGLE).bus.arrow("transactions")
        assert len(polars.from_arrow(arrow)) == TRANSACTIONS
        [(count, clocks)] = duckdb.sql("select count(*), sum(clocks) from arrow").fetchall()
        assert (count, clocks) == (TRANSACTIONS, polars.from_arrow(arrow)["clocks"].sum())

    def test_polars_reads_the_kernel_without_a_copy(self) -> None:
        bus = pcitrace.open(SINGLE).bus
        kernel = bus.capture.decoder.table(bus.spec, "transactions")
        assert hasattr(kernel, "__arrow_c_stream__")
        assert polars.DataFrame(kernel).equals(polars.from_arrow(bus.arrow("transactions")))

    def test_strict_turns_problems_into_an_error(self) -> None:
        run = pcitrace.open(SINGLE)
        assert len(run.bus.problems) > 0
        with pytest.raises(DecodeError, match=r"ctl_250MSs\.sr, bus PCI: .* at [\d.]+ us: .* and \d+ more problems"):
            _ = pcitrace.open(SINGLE, strict=True).bus.transactions
        clean = pcitrace.open(HOSTS, strict=True)["A"]
        assert len(clean.transactions) > 100
        assert len(clean.problems) == 0


class TestProgress:
    """A bar only where somebody looks, and only when there is something to wait for."""

    def test_none_without_a_terminal(self) -> None:
        with progress("decode") as report:
            assert report is None

    @pytest.mark.parametrize(("seconds", "shown"), [(0.5, False), (1.5, True)])
    def test_it_comes_after_a_second(self, monkeypatch: pytest.MonkeyPatch, seconds: float, shown: bool) -> None:
        terminal = io.StringIO()
        monkeypatch.setattr(terminal, "isatty", lambda: True)
        monkeypatch.setattr(sys, "stderr", terminal)
        clock = iter([0.0, seconds, seconds])
        monkeypatch.setattr("pcitrace.decode.time.monotonic", lambda: next(clock))
        with progress("decode x.sr") as report:
            assert report is not None
            report(0.25)
            written = terminal.getvalue()
        assert ("decode x.sr" in written and "25%" in written) is shown


@pytest.mark.parametrize(
    ("lines", "short"),
    [
        (["CLK", "AD0", "AD1", "AD2"], ["CLK", "AD0-2"]),
        (["CBE0#", "CBE1#", "CBE3#"], ["CBE0-1#", "CBE3#"]),
        (["AD31", "AD32", "GNT#", "GNT_NIC#", "REQ64#", "ACK64#"], ["AD31-32", "GNT#", "GNT_NIC#", "REQ64#", "ACK64#"]),
        (["GNT0#", "REQ1#"], ["GNT0#", "REQ1#"]),
        ([], []),
    ],
)
def test_line_names_are_drawn_together(lines: list[str], short: list[str]) -> None:
    assert joined(lines) == short
