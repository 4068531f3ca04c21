"""Parts of captures, register files, and SQL: what `cut`, `--registers` and `sql` read and write."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import rule_traffic
from conftest import REPOSITORY
from waveforms import write_sr

import pcitrace
from pcitrace.cli import main
from pcitrace.errors import ConfigurationError
from pcitrace.instrument.registers import Registers

TRACES = REPOSITORY / "fixtures" / "traces"
SEQ6, SR = TRACES / "blue33_seq6" / "bus.vcd.gz", TRACES / "blue33_seq6" / "ctl_250MSs.sr"
NIC = TRACES / "nic_g_a" / "bus.vcd.gz"

WHAT = ["command_name", "address", "data_phases", "bytes", "wait_clks", "termination", "initiator", "clocks"]


def rows_between(path: Path, low_us: float, high_us: float, **options: object) -> list[tuple]:
    rows = pcitrace.open(path, **options).bus.transactions
    return list(rows[(rows["start_us"] >= low_us) & (rows["end_us"] <= high_us)][WHAT].itertuples(index=False))


class TestCut:
    @pytest.mark.parametrize(("capture", "name"), [(SR, "part.sr"), (SEQ6, "part.vcd")])
    def test_a_part_holds_the_same_transactions(
        self, capture: Path, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        part = tmp_path / name
        assert main(["cut", str(capture), "--from", "100us", "--to", "160us", "-o", str(part)]) == 0
        assert str(part) in capsys.readouterr().out
        bus = pcitrace.open(part).bus
        got = list(bus.transactions[WHAT].itertuples(index=False))
        wanted = rows_between(capture, 100, 160)
        assert str(wanted)[1:-1] in str(got)
        assert len(wanted) > 100
        assert len(got) <= len(wanted) + 60
        kinds = set(bus.problems["kind"])
        assert not kinds & {"starts_inside", "truncated"}, "it is cut where the bus is idle"

    @pytest.mark.parametrize(("capture", "name"), [(SR, "part.sr"), (SEQ6, "part.vcd")])
    def test_every_command_reads_a_part(
        self, capture: Path, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A VCD keeps its times: CLK does not run in the first 1.5 ms of this one."""
        part = tmp_path / name
        assert main(["cut", str(capture), "--from", "1500us", "--to", "1510us", "-o", str(part)]) == 0
        for command in ("info", "decode", "list", "check", "stats", "devices", "bursts"):
            assert main([command, str(part)]) == 0
        for command, *more in (("find", "retry"), ("sql", "select count(*) from transactions"), ("diff", str(part))):
            assert main([command, str(part), *more]) == 0
        assert not capsys.readouterr().err.strip().startswith("pcitrace: /")

    def test_around_a_transaction(self, tmp_path: Path) -> None:
        part = tmp_path / "part.sr"
        assert main(["cut", str(SR), "--transaction", "200", "--around", "2us", "-o", str(part)]) == 0
        [row] = pcitrace.open(SR).bus.where("transaction == 200")[WHAT].itertuples(index=False)
        assert str(row) in {str(one) for one in pcitrace.open(part).bus.transactions[WHAT].itertuples(index=False)}

    def test_one_idle_clock_is_enough(self, tmp_path: Path) -> None:
        traffic = rule_traffic.Traffic()
        for number in range(60):
            traffic.put(f"read {number}", 0x6, 0x1000 + 4 * number, gap=1)
        whole, part = tmp_path / "whole.sr", tmp_path / "part.sr"
        write_sr(whole, rule_traffic.sampled(traffic.finish()))
        for number in (0, 30, 59):
            wanted = ["--transaction", str(number), "--around", "100ns"]
            assert main(["cut", str(whole), "--clock-mhz", "33", *wanted, "-o", str(part)]) == 0
            bus = pcitrace.open(part, wiring=part.with_suffix(".wiring.toml")).bus
            assert 0x1000 + 4 * number in set(bus.transactions["address"])
            assert len(bus.transactions) <= 3
            assert not {"starts_inside", "truncated"} & set(bus.problems["kind"])

    def test_both_buses_are_idle(self, tmp_path: Path) -> None:
        part = tmp_path / "part.sr"
        whole = TRACES / "nic_g_a" / "control16.sr"
        for start in range(100, 500, 40):
            assert main(["cut", str(whole), "--from", str(start), "--to", str(start + 37), "-o", str(part)]) == 0
            run = pcitrace.open(part)
            assert len(run.buses) == 2
            for bus in run.buses.values():
                assert not {"starts_inside", "truncated"} & set(bus.problems["kind"])

    def test_the_wiring_that_was_stated_lies_beside_it(self, tmp_path: Path) -> None:
        wiring = tmp_path / "w.toml"
        wiring.write_text('[bus.PCI]\n"PERR#" = { channel = "SERR#", active_low = true }\n')
        part = tmp_path / "part.sr"
        assert main(["cut", str(SR), "--wiring", str(wiring), "--from", "0", "--to", "9us", "-o", str(part)]) == 0
        beside = part.with_suffix(".wiring.toml")
        again = pcitrace.open(part, wiring=beside).bus
        assert again.wiring.lines["PERR#"] == pcitrace.open(SR, wiring=wiring).bus.wiring.lines["PERR#"]

    def test_that_every_sample_is_a_clock_lies_beside_it(self, tmp_path: Path) -> None:
        traffic = rule_traffic.Traffic()
        for number in range(8):
            traffic.put(f"read {number}", 0x6, 0x1000 + 4 * number, gap=9)
        whole, part = tmp_path / "whole.sr", tmp_path / "part.sr"
        write_sr(whole, rule_traffic.sampled(traffic.finish()))
        around = ["--clock-mhz", "33", "--transaction", "3", "--around", "100ns"]
        assert main(["cut", str(whole), *around, "-o", str(part)]) == 0
        rows = pcitrace.open(part, wiring=part.with_suffix(".wiring.toml")).bus.transactions
        assert 0x100C in set(rows["address"])
        assert len(rows) < 8
        # So is a capture of states compared with a simulation.
        wiring = ["--wiring", str(part.with_suffix(".wiring.toml"))]
        assert main(["diff", str(part), str(part), *wiring]) == 0

    def test_of_a_vcd_it_can_be_samples(self, tmp_path: Path) -> None:
        """The same rows from its own beginning on, both buses, and wiring that was stated."""
        wiring, part = tmp_path / "w.toml", tmp_path / "part.sr"
        wiring.write_text('[bus.A]\n"INTA#" = { channel = "bus.A_INTA", active_low = false }\n')
        options = ["--wiring", str(wiring), "--from", "500us", "--to", "600us"]
        assert main(["cut", str(NIC), *options, "-o", str(part)]) == 0
        run = pcitrace.open(part, wiring=part.with_suffix(".wiring.toml"))
        assert run["A"].wiring.lines["INTA#"].active_low is False
        columns = ["command", "address", "data_phases", "bytes", "wait_clks", "termination", "initiator"]
        for name in ("A", "B"):
            rows = pcitrace.open(NIC)[name].transactions
            inside = rows[(rows["start_us"] > 500) & (rows["end_us"] < 600)].reset_index(drop=True)
            cut = run[name].transactions
            first = int((cut["start_us"] + 500 - inside["start_us"].iloc[0]).abs().argmin())
            same = cut.iloc[first : first + len(inside)].reset_index(drop=True)
            assert len(inside) > 10
            assert same[columns].equals(inside[columns])
            shift = inside["start_us"] - same["start_us"]
            assert shift.max() - shift.min() < 0.02  # CLK is sampled
            assert cut["start_us"].iloc[0] < 20

    @pytest.mark.parametrize(
        ("arguments", "status"),
        [
            (["-o", "x.sr"], 2),
            (["--transaction", "3", "--from", "1", "-o", "x.sr"], 2),
            (["--transaction", "99999999", "-o", "x.sr"], 3),
            (["--from", "5us", "--to", "4us", "-o", "x.sr"], 3),
            (["--from", "soon", "-o", "x.sr"], 3),
            (["--from", "5us", "-o", "x.vcd"], 3),
            (["--from", "5s", "--to", "6s", "-o", "x.sr"], 3),
        ],
    )
    def test_what_cannot_be_cut(
        self, arguments: list[str], status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        if status == 2:
            with pytest.raises(SystemExit) as stop:
                main(["cut", str(SR), *arguments])
            assert stop.value.code == status
        else:
            assert main(["cut", str(SR), *arguments]) == status
        assert not [*tmp_path.iterdir()]


SVD = """<?xml version="1.0" encoding="utf-8"?>
<device schemaVersion="1.1"><name>card</name><version>1</version><description>d</description>
<addressUnitBits>8</addressUnitBits><width>32</width><size>32</size>
<peripherals><peripheral><name>NIC</name><baseAddress>0xe8000000</baseAddress>
<addressBlock><offset>0</offset><size>0x100</size><usage>registers</usage></addressBlock>
<registers><register><name>STATUS</name><addressOffset>0x10</addressOffset><size>32</size><fields>
<field><name>LINK</name><bitOffset>0</bitOffset><bitWidth>1</bitWidth></field>
<field><name>SENT</name><bitOffset>7</bitOffset><bitWidth>1</bitWidth><enumeratedValues>
<enumeratedValue><name>yes</name><value>1</value></enumeratedValue></enumeratedValues></field>
</fields></register></registers></peripheral></peripherals></device>
"""
RDL = """addrmap card {
  reg { field { sw = rw; } LINK[0:0] = 0; field { sw = rw; } SENT[7:7] = 0; } STATUS @ 0x10;
};
"""
IPXACT = """<?xml version="1.0"?>
<ipxact:component xmlns:ipxact="http://www.accellera.org/XMLSchema/IPXACT/1685-2014">
<ipxact:vendor>v</ipxact:vendor><ipxact:library>l</ipxact:library><ipxact:name>nic</ipxact:name>
<ipxact:version>1</ipxact:version><ipxact:memoryMaps><ipxact:memoryMap><ipxact:name>csr</ipxact:name>
<ipxact:addressBlock><ipxact:name>card</ipxact:name><ipxact:baseAddress>'h0</ipxact:baseAddress>
<ipxact:range>'h30</ipxact:range><ipxact:width>32</ipxact:width>
<ipxact:register><ipxact:name>STATUS</ipxact:name><ipxact:addressOffset>'h10</ipxact:addressOffset>
<ipxact:size>32</ipxact:size>
<ipxact:field><ipxact:name>LINK</ipxact:name><ipxact:bitOffset>0</ipxact:bitOffset><ipxact:bitWidth>1</ipxact:bitWidth>
<ipxact:access>read-only</ipxact:access></ipxact:field>
<ipxact:field><ipxact:name>SENT</ipxact:name><ipxact:bitOffset>7</ipxact:bitOffset><ipxact:bitWidth>1</ipxact:bitWidth>
<ipxact:access>read-only</ipxact:access></ipxact:field></ipxact:register>
</ipxact:addressBlock></ipxact:memoryMap></ipxact:memoryMaps></ipxact:component>
"""
TOML = """format = 1
[[windows]]
name = "csr"
bar = 0
size_bytes = 256
[[registers]]
name = "STATUS"
offset = 0x10
fields = [{ name = "LINK", bit = 0 }, { name = "SENT", bit = 7, values = { yes = 1 } }]
"""


class TestRegisters:
    @pytest.mark.parametrize(
        ("name", "text", "place", "sent"),
        [
            ("card.toml", TOML, "", "SENT=yes"),
            ("card.svd", SVD, "", "SENT=yes"),
            ("card.svd", SVD, "@BAR0", "SENT=yes"),
            ("card.rdl", RDL, "@BAR0", "SENT"),
            ("card.rdl", RDL, "@0xe8000000", "SENT"),
            ("card.xml", SVD, "", "SENT=yes"),
            ("card.xml", IPXACT, "@BAR0", "SENT"),
            ("card.xml", IPXACT, "@0xe8000000", "SENT"),
        ],
    )
    def test_registers_and_fields_by_name(
        self, name: str, text: str, place: str, sent: str, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
    ) -> None:
        file = tmp_path / name
        file.write_text(text)
        where = ["--where", "address == 0xe8000010"]
        assert main(["list", str(NIC), "--bus", "A", "--two-pass", "--registers", f"{file}{place}", *where]) == 0
        shown = capsysbinary.readouterr().out.decode().splitlines()
        assert len(shown) > 50
        # IP-XACT has address blocks, which name their registers.
        assert all(" STATUS = " in line.replace("card.STATUS", "STATUS") for line in shown)
        words = {line.split("= ")[1].split("  ")[0] for line in shown}
        assert {"00000001 (LINK)", f"00000080 ({sent})"} <= words
        assert not [line for line in shown if "()" in line], "where no field is set nothing is said of fields"

    def test_of_two_files_for_one_window_both_are_known(
        self, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
    ) -> None:
        """The last one counts where both name the same bytes."""
        first, second = tmp_path / "first.toml", tmp_path / "second.toml"
        first.write_text(TOML.replace("STATUS", "OLD") + '[[registers]]\nname = "BELL"\noffset = 0x2c\n')
        second.write_text(TOML)
        files = ["--registers", str(first), "--registers", str(second)]
        assert main(["list", str(NIC), "--bus", "A", "--two-pass", *files, "--where", "target == 'eth0'"]) == 0
        shown = capsysbinary.readouterr().out.decode()
        assert " BAR0+0x2c BELL = " in shown
        assert " BAR0+0x10 STATUS = " in shown
        assert "OLD" not in shown

    def test_registers_of_an_array_are_one_after_the_other(self, tmp_path: Path) -> None:
        file = tmp_path / "ring.rdl"
        file.write_text("addrmap card { reg { field { sw = rw; } V[32] = 0; } RING[3] @ 0x20; };")
        [block] = Registers.load(None, [str(file)]).blocks
        places = [(one.name, one.offset, one.size) for one in block.registers]
        assert places == [("RING[0]", 0x20, 4), ("RING[1]", 0x24, 4), ("RING[2]", 0x28, 4)]

    def test_ip_xact_wants_a_program(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = tmp_path / "card.xml"
        file.write_text(IPXACT)
        monkeypatch.setattr("shutil.which", lambda *_, **__: None)
        with pytest.raises(ConfigurationError, match="pip install peakrdl"):
            Registers.load(None, [str(file)])

    def test_a_nic_profile_is_a_register_file(self) -> None:
        profile = REPOSITORY / "pcitrace" / "nics" / "i82558.toml"
        blocks = Registers.load(None, [str(profile)]).blocks
        assert [block.as_tuples() for block in blocks] == [
            one.as_tuples() for one in Registers.load("i82558", []).blocks
        ]

    @pytest.mark.parametrize(
        ("name", "text", "message"),
        [
            ("x.toml", TOML + '[[registers]]\nname = "B"\noffset = 0x10\n', "STATUS and B overlap at 0x10"),
            (
                "x.toml",
                TOML.replace("offset = 0x10", "offset = 0x10\nsize_bytes = 8")
                + '[[registers]]\nname = "B"\noffset = 0x14\n',
                "STATUS and B overlap at 0x10",
            ),
            ("x.toml", TOML + '[[registers]]\nname = "B"\noffset = 0\nwindow = "no"\n', "none of the windows csr"),
            ("x.toml", "format = 1\n", "is missing"),
            ("x.svd", "<nothing", "not a CMSIS-SVD file"),
            ("x.rdl", "addrmap {", "not a SystemRDL file"),
            ("x.svd", '<?xml version="1.0"?><note/>', "it has no peripherals"),
            ("x.xml", "", "not a CMSIS-SVD file"),
            ("x.xml", IPXACT.replace("memoryMap", "nothing"), "peakrdl cannot read it: .*memoryMaps"),
            ("x.pdf", "", "ends in .toml, .svd, .rdl or .xml"),
        ],
    )
    def test_what_is_no_register_file(self, name: str, text: str, message: str, tmp_path: Path) -> None:
        file = tmp_path / name
        file.write_text(text)
        with pytest.raises(ConfigurationError, match=message):
            Registers.load(None, [str(file)])

    def test_a_file_that_is_not_there(self) -> None:
        with pytest.raises(ConfigurationError, match="no such file"):
            Registers.load(None, ["nowhere.svd"])


class TestSql:
    def test_every_table_is_there(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        query = (
            "select t.command_name, count(*) as n from transactions t join data_phases d using (bus, transaction) "
            "where d.data is not null group by 1 order by n desc"
        )
        assert main(["sql", str(SEQ6), query, "-o", str(tmp_path / "a.jsonl")]) == 0
        told = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
        bus = pcitrace.open(SEQ6).bus
        joined = bus.data_phases.merge(bus.transactions[["transaction", "command_name"]], on="transaction")
        assert {row["command_name"]: row["n"] for row in told} == joined["command_name"].value_counts().to_dict()
        assert main(["sql", str(SEQ6), "select (select count(*) from problems), total from clocks"]) == 0
        assert capsys.readouterr().out.splitlines()[1] == f"{len(bus.problems)},{bus.clocks()['total'].iloc[0]}"

    def test_names_are_as_in_sql_of_any_case(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["sql", str(SEQ6), "SELECT COUNT(*) AS n FROM Transactions"]) == 0
        assert capsys.readouterr().out.splitlines() == ['"n"', "5976"]

    @pytest.mark.parametrize(
        "table", ["transactions", "data_phases", "events", "clocks", "problems", "bursts", "csr_accesses"]
    )
    def test_one_bus_is_asked(self, table: str, capsys: pytest.CaptureFixture[str]) -> None:
        capture, query = str(SEQ6.parents[1] / "nic_g_a" / "bus.vcd.gz"), f"select distinct bus from {table}"
        assert main(["sql", capture, "--bus", "B", query]) == 0
        assert set(capsys.readouterr().out.splitlines()[1:]) <= {'"B"'}
        assert main(["sql", capture, "--bus", "C", query]) == 3
        assert "no bus C" in capsys.readouterr().err

    @pytest.mark.parametrize(("table", "each"), [("bursts", 1), ("pieces", 1), ("csr_accesses", 0)])
    def test_whose_traffic_is_told_as_by_the_commands(
        self, table: str, each: int, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Several GNT# of a bare capture: of each agent, or of those that are named."""
        for more, agents in ((), 2), (("--grant", "disk=GNT1#"), 1):
            assert main(["sql", str(SEQ6), f"select bus, count(*) n from {table} group by 1", *more]) == 0
            assert len(capsys.readouterr().out.splitlines()) == 1 + agents * each

    def test_frames_are_those_of_one_nic(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Which it is, what it does tells, or --grant; where several may be it that is asked, also by `frames`."""
        query = "select count(*) n, count(distinct sender) s, min(length_bytes) l from frames"
        capture = str(REPOSITORY / "fixtures" / "faults" / "bad-parity.sr")
        assert main(["sql", capture, query]) == 0
        assert capsys.readouterr().out.splitlines()[1] == "8,1,50"
        assert main(["frames", capture, "--where", "frame < 2"]) == 0
        assert len(capsys.readouterr().out.splitlines()) == 3
        for command in (["sql", str(SEQ6), "select * from drop_log"], ["frames", str(SEQ6)]):
            assert main(command) == 3
            assert "which of GNT0#, GNT1# is the NIC? Say it with --grant NAME=GNT1#" in capsys.readouterr().err
            assert main([*command, "--grant", "nic=GNT1#"]) == 0
            capsys.readouterr()

    def test_a_wrong_query_is_one_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        for query in ("selekt", "select nothing from transactions", "select * from nowhere"):
            assert main(["sql", str(SEQ6), query]) == 3
            assert capsys.readouterr().err.count("\n") == 1

    def test_without_duckdb_it_says_so(self) -> None:
        script = (
            "import sys; sys.modules['duckdb'] = None\n"
            f"from pcitrace.cli import main; sys.exit(main(['sql', {str(SEQ6)!r}, 'select 1']))"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        assert (done.returncode, "pip install duckdb" in done.stderr) == (3, True)
