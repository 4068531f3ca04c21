"""Channel names to lines: guessed, separated into buses, overridden, refused."""

from __future__ import annotations

from typing import Any

import pytest

from pcitrace import WiringError
from pcitrace.wiring import Wiring, resolve_wiring
from pcitrace.wiring.linenames import parse_name

CONTROL = ("CLK", "FRAME#", "IRDY#", "TRDY#")


def wired(*names: str | tuple[str, int], given: Any = None) -> Wiring:
    return resolve_wiring([(name, 1) if isinstance(name, str) else name for name in names], given)


@pytest.mark.parametrize(
    ("name", "group", "line", "active_low"),
    [
        ("FRAME#", (), "FRAME#", True),
        ("FRAME", (), "FRAME#", True),
        ("FRAME_N", (), "FRAME#", True),
        ("frame_n", (), "FRAME#", True),
        ("FRAMEn", (), "FRAME#", True),
        ("nFRAME", (), "FRAME#", True),
        ("n_frame", (), "FRAME#", True),
        ("/FRAME", (), "FRAME#", True),
        ("FRAME-", (), "FRAME#", True),
        ("FRAME*", (), "FRAME#", True),
        ("A_FRAME#", ("A",), "FRAME#", True),
        ("A_nIRDY", ("A",), "IRDY#", True),
        ("A IRDY#", ("A",), "IRDY#", True),
        ("pc1.frame_n", ("pc1",), "FRAME#", True),
        ("holdout_top.pci.FRAME", ("holdout_top", "pci"), "FRAME#", True),
        ("top.A_TRDY", ("top", "A"), "TRDY#", True),
        ("DEVSL-", (), "DEVSEL#", True),
        ("CLK", (), "CLK", False),
        ("CLK_N", (), "CLK", True),
        ("IDSEL", (), "IDSEL", False),
        ("IDSEL2", (), "IDSEL2", False),
        ("PAR", (), "PAR", False),
        ("AD0", (), "AD0", False),
        ("AD_31", (), "AD31", False),
        ("top.AD[7]", ("top",), "AD7", False),
        ("CBE0#", (), "CBE0#", True),
        ("C/BE3", (), "CBE3#", True),
        ("A_C/BE#[2]", ("A",), "CBE2#", True),
        ("GNT#", (), "GNT#", True),
        ("GNT_N", (), "GNT#", True),
        ("GNT2#", (), "GNT2#", True),
        ("gnt_n[2]", (), "GNT2#", True),
        ("A_GNT_NIC", ("A",), "GNT_NIC#", True),
        ("A_GNT_NIC#", ("A",), "GNT_NIC#", True),
        ("REQ_HOST_N", (), "REQ_HOST#", True),
        ("REQ64#", (), "REQ64#", True),
        ("INTA", (), "INTA#", True),
        ("A_TXEN", ("A",), "TXEN", False),
        ("A_TX_EN", ("A",), "TXEN", False),
        ("B_TXCLK", ("B",), "TXCLK", False),
        ("TXD3", (), "TXDATA3", False),
        ("A_TXDATA", ("A",), "TXDATA0", False),
        ("top.slot[1].FRAME_N", ("top", "slot[1]"), "FRAME#", True),
        ("node[0][0].u<2>.AD[7]", ("node[0][0]", "u<2>"), "AD7", False),
        ("e\x1b[2J_FRAME#", ("e\\x1b[2J",), "FRAME#", True),
    ],
)
def test_a_name_says_its_line(name: str, group: tuple[str, ...], line: str, active_low: bool) -> None:
    [found] = parse_name(name)
    assert (found.group, found.line, found.active_low, found.bit) == (group, line, active_low, 0)


@pytest.mark.parametrize(
    "name",
    [
        "MISO",
        "nCS",
        "D0",
        "A0",
        "READ",
        "/INT",
        "AD",
        "C/BE",
        "AD64",
        "CBE8#",
        "IR Toy IRRX",
        "",
        "3.3V",
        "FRAMES",
        "#",
    ],
)
def test_other_names_are_no_lines(name: str) -> None:
    assert parse_name(name) == []


@pytest.mark.parametrize(
    ("name", "width", "lines"),
    [
        ("AD[31:0]", 32, [f"AD{n}" for n in range(32)]),
        ("top.pci.AD[63:32]", 32, [f"AD{n}" for n in range(32, 64)]),
        ("AD", 32, [f"AD{n}" for n in range(32)]),
        ("AD[0:3]", 4, ["AD3", "AD2", "AD1", "AD0"]),
        ("CBE[3:0]", 4, ["CBE0#", "CBE1#", "CBE2#", "CBE3#"]),
        ("C/BE#[3:0]", 4, ["CBE0#", "CBE1#", "CBE2#", "CBE3#"]),
        ("C/BE[3:0]#", 4, ["CBE0#", "CBE1#", "CBE2#", "CBE3#"]),
        ("GNT[4:0]", 5, [f"GNT{n}#" for n in range(5)]),
        ("slot[0].AD[31..0]", 32, [f"AD{n}" for n in range(32)]),
        ("A_TXDATA[7:0]", 8, [f"TXDATA{n}" for n in range(8)]),
        ("AD[31:0]", 16, []),  # a range that the file does not hold
        ("FRAME#", 2, []),  # not a vector on any PCI bus
        ("AD", 4_000_000_000, []),
        ("GNT[3999999999:0]", 4_000_000_000, []),
        ("AD[999999999:0]", 1, []),
        ("GNT" + "9" * 5000, 1, []),
    ],
)
def test_a_vector_names_a_line_a_bit(name: str, width: int, lines: list[str]) -> None:
    found = parse_name(name, width)
    assert [(line.line, line.bit) for line in found] == [(line, bit) for bit, line in enumerate(lines)]


def test_a_capture_without_prefix_is_the_bus_pci() -> None:
    wiring = wired(*CONTROL, "STOP#", "MISO", ("AD[31:0]", 32))
    bus = wiring.bus()
    assert bus.name == "PCI"
    assert wiring.complete == ("PCI",)
    assert wiring.unused == ("MISO",)
    assert (bus.lines["AD31"].channel, bus.lines["AD31"].bit, bus.lines["AD31"].active_low) == (6, 31, False)
    assert bus.spec()["lines"]["STOP#"] == (4, 0, True)


def test_prefixes_separate_two_hosts() -> None:
    names = [f"{host}_{line}" for host in "AB" for line in (*CONTROL, "GNT_NIC", "TXEN", "TXCLK")]
    wiring = wired(*names, ("A_TXDATA[3:0]", 4))
    assert list(wiring.buses) == ["A", "B"]
    assert set(wiring.buses["B"].pci) == {*CONTROL, "GNT_NIC#"}
    assert wiring.buses["B"].lines["FRAME#"].channel == names.index("B_FRAME#")
    assert set(wiring.buses["A"].wire) == {"TXEN", "TXCLK", "TXDATA0", "TXDATA1", "TXDATA2", "TXDATA3"}
    assert wiring.unused == ()


@pytest.mark.parametrize(
    ("scopes", "names"),
    [
        (["pc1", "pc2"], ["pc1", "pc2"]),
        (["top.pc1.pci", "top.pc2.pci"], ["pc1", "pc2"]),
        (["holdout_top.pci"], ["pci"]),
        (["bus.A", "bus.B"], ["A", "B"]),
        (["top", "top.dut"], ["top", "dut"]),
        (["x.a.pci", "y.a.bus"], ["pci", "bus"]),
        (["x.a.p", "x.a.q", "y.a.p"], ["x.a.p", "x.a.q", "y.a.p"]),
    ],
)
def test_scopes_separate_buses_and_name_them(scopes: list[str], names: list[str]) -> None:
    wiring = wired(*[f"{scope}.{line}" for scope in scopes for line in CONTROL])
    assert list(wiring.complete) == names


def test_buses_share_a_clock_that_stands_alone() -> None:
    rest = ("FRAME#", "IRDY#", "TRDY#")
    wiring = wired("PCI_CLK", *[f"{host}_{line}" for host in "AB" for line in rest])
    assert wiring.complete == ("A", "B")
    assert {bus.lines["CLK"].channel for bus in wiring.buses.values()} == {0}
    assert wiring.buses["A"].lines["CLK"].source == "shared"
    assert wiring.unused == ()


def test_a_bus_does_not_take_the_clock_of_another() -> None:
    wiring = wired(*[f"A_{line}" for line in CONTROL], "B_FRAME#", "B_IRDY#", "B_TRDY#")
    assert wiring.complete == ("A",)
    assert wiring.buses["B"].missing == ("CLK",)
    assert wiring.bus().name == "A"


def test_the_nearest_clock_is_shared() -> None:
    rest = ("FRAME#", "IRDY#", "TRDY#")
    wiring = wired("top.CLK", "net.CLK", *[f"top.pc1.{line}" for line in rest])
    assert wiring.buses["pc1"].lines["CLK"].channel == 0


def test_of_two_clocks_around_a_bus_the_nearer_one_is_shared() -> None:
    rest = ("FRAME#", "IRDY#", "TRDY#")
    wiring = wired("top.CLK", "top.card.CLK", *[f"top.card.pc1.{line}" for line in rest])
    assert wiring.buses["pc1"].lines["CLK"].channel == 1


def test_an_agent_may_stand_before_its_line() -> None:
    wiring = wired(*[f"A_{line}" for line in CONTROL], "A_NIC_GNT#", "A_NIC_REQ#", "A_NIC_IDSEL")
    assert set(wiring.buses) == {"A"}
    assert {"GNT_NIC#", "REQ_NIC#", "IDSEL_NIC"} <= set(wiring.buses["A"].lines)


def test_of_a_differential_clock_the_positive_line_is_taken() -> None:
    wiring = wired("CLK_N", *CONTROL)
    assert wiring.bus().lines["CLK"].channel == 1
    assert not wiring.bus().lines["CLK"].active_low


def test_two_channels_for_one_line_are_not_guessed_between() -> None:
    wiring = wired(*CONTROL, "FRAME_N")
    with pytest.raises(WiringError, match=r"FRAME# may be any of the channels FRAME#, FRAME_N") as caught:
        wiring.bus()
    assert caught.value.available == ("FRAME#", "FRAME_N")
    assert wired(*CONTROL, "FRAME_N", given={"FRAME#": "FRAME_N"}).bus().lines["FRAME#"].channel == 4


def test_a_missing_line_is_named_when_the_bus_is_asked_for() -> None:
    wiring = wired("A_CLK", "A_FRAME#", "A_TRDY#", "A_STOP#")
    assert wiring.complete == ()
    with pytest.raises(WiringError, match=r"bus A: no channel for IRDY#; found A_CLK, A_FRAME#") as caught:
        wiring.bus("A")
    assert caught.value.missing == ("IRDY#",)
    assert caught.value.available == ("A_CLK", "A_FRAME#", "A_TRDY#", "A_STOP#")


def test_in_state_mode_clk_is_not_needed() -> None:
    assert wired(*CONTROL[1:], given={"clock_mhz": 33.0}).bus().missing == ()
    assert resolve_wiring([(name, 1) for name in CONTROL[1:]], clock_mhz=33.0).complete == ("PCI",)
    with pytest.raises(WiringError, match=r"no channel for CLK;"):
        wired(*CONTROL[1:]).bus()


def test_a_capture_without_pci_says_what_it_has() -> None:
    with pytest.raises(WiringError, match=r"no PCI bus.*SCL, SDA") as caught:
        wired("SCL", "SDA").bus()
    assert caught.value.missing == CONTROL


def test_an_unknown_bus_is_answered_with_the_nearest_name() -> None:
    wiring = wired(*[f"{host}.{line}" for host in ("sender", "receiver") for line in CONTROL])
    with pytest.raises(WiringError, match=r"no bus sendr; there are sender, receiver \(did you mean sender\?\)"):
        wiring.bus("sendr")
    with pytest.raises(WiringError, match=r"several buses: sender, receiver"):
        wiring.bus()


class TestStated:
    """What the user says, over the guess."""

    DEFAULT = tuple(f"D{n}" for n in range(8))

    def test_plain_channels_become_lines(self) -> None:
        wiring = wired(*self.DEFAULT, given={"CLK": "D0", "FRAME": "D1", "irdy_n": "D2", "TRDY#": 3})
        bus = wiring.bus()
        assert {name: line.channel for name, line in bus.lines.items()} == {
            "CLK": 0,
            "FRAME#": 1,
            "IRDY#": 2,
            "TRDY#": 3,
        }
        assert bus.lines["IRDY#"].active_low
        assert wiring.unused == self.DEFAULT[4:]

    def test_lines_whose_names_are_known_need_not_be_stated(self) -> None:
        given = {name: f"D{n}" for n, name in enumerate(CONTROL)}
        assert "GNT0#" in wired(*self.DEFAULT, "GNT0#", "STOP#", given=given).bus("PCI").lines
        assert "STOP#" in wired(*self.DEFAULT, "A_STOP#", given={"bus": {"A": given}}).bus("A").lines

    def test_a_toml_file_names_buses_rates_and_polarity(self, tmp_path: Any) -> None:
        path = tmp_path / "w.toml"
        path.write_text(
            'rate_hz = 100e6\n[bus.A]\n"CLK" = "D0"\n"FRAME#" = "D1"\n"IRDY#" = "D2"\n'
            '"TRDY#" = { channel = "D3", active_low = false }\nwidth = 64\n'
        )
        wiring = wired(*self.DEFAULT, given=path)
        assert wiring.rate_hz == 100e6
        assert wiring.bus("A").spec()["width"] == 64
        assert wiring.bus("A").spec()["lines"]["TRDY#"] == (3, 0, False)

    def test_a_line_moves_and_the_others_stay(self) -> None:
        wiring = wired(*CONTROL, "X", given={"FRAME#": "X", "IRDY#": {"active_low": False}})
        assert wiring.bus().lines["FRAME#"].channel == 4
        assert not wiring.bus().lines["IRDY#"].active_low
        assert wiring.unused == ("FRAME#",)

    def test_a_stated_channel_is_taken_from_its_guess(self) -> None:
        wiring = wired(*CONTROL, "STOP#", given={"PERR#": "STOP#"})
        assert "STOP#" not in wiring.bus().lines
        assert wiring.bus().lines["PERR#"].channel == 4

    def test_false_means_not_captured(self) -> None:
        assert "STOP#" not in wired(*CONTROL, "STOP#", given={"STOP#": False}).bus().lines
        without = wired(*CONTROL, ("AD[31:0]", 32), given={"AD": False})
        assert without.unused == ("AD[31:0]",)

    @pytest.mark.parametrize("value", ["P4[31:0]", {"channel": "P4[31:0]"}, [f"P4[{n}]" for n in range(32)]])
    def test_a_whole_vector(self, value: Any) -> None:
        bus = wired(*CONTROL, ("P4[31:0]", 32), given={"AD": value}).bus()
        assert [(bus.lines[f"AD{n}"].channel, bus.lines[f"AD{n}"].bit) for n in range(32)] == [
            (4, n) for n in range(32)
        ]

    def test_a_bit_of_a_vector(self) -> None:
        bus = wired(*CONTROL, ("P5[15:8]", 8), given={"GNT_NIC#": "P5[10]"}).bus()
        assert (bus.lines["GNT_NIC#"].channel, bus.lines["GNT_NIC#"].bit) == (4, 2)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"FRAME#": "FRAM"}, r"FRAME# = 'FRAM': no such channel \(did you mean FRAME#\?\); found CLK, FRAME#"),
            ({"FRAMES": "CLK"}, r"FRAMES is no line; lines are .*DEVSEL#"),
            ({"FRAME#": "X", "IRDY#": "X"}, r"both FRAME# and IRDY# claim channel X"),
            ({"FRAME": "X", "FRAME#": "IRDY#"}, r"both FRAME and FRAME# say what FRAME# is"),
            ({"AD": ["X"], "AD0": "CLK"}, r"both AD and AD0 say what AD0 is"),
            ({"FRAME#": 9}, r"no such channel"),
            ({"FRAME#": {"chanel": "X"}}, r"unknown key chanel"),
            ({"FRAME#": {"channel": "X", "active_low": "yes"}}, r"active_low = 'yes'"),
            ({"STOP#": {"active_low": False}}, r"no channel is stated"),
            ({"FRAME#": "V"}, r"channel V has 4 bits, 0 to 3; say which"),
            ({"FRAME#": {"channel": "V", "bit": 4}}, r"there is no bit 4"),
            ({"FRAME#": "V[7]"}, r"there is no bit 7"),
            ({"width": 16}, r"width = 16"),
            ({"rate_hz": 0}, r"rate_hz = 0; it must be a positive number"),
            ({"clock_mhz": "33"}, r"clock_mhz = '33'"),
            ({"bus": {"A": {"PERR#": "X"}, "B": {"SERR#": "X"}}}, r"both PERR# of bus A and SERR# of bus B claim"),
            ({"bus": {"A": {}}, "CLK": "X"}, r"CLK belongs into one of \[bus\.A\]"),
            ({"bus": "A"}, r"bus must be tables"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, given: Any, message: str) -> None:
        with pytest.raises(WiringError, match=message):
            wired(*CONTROL, "X", ("V", 4), given=given)

    def test_lines_without_a_bus_need_a_single_bus(self) -> None:
        names = [f"{host}_{line}" for host in "AB" for line in CONTROL]
        with pytest.raises(WiringError, match=r"several buses \(A, B\); say which with \[bus\.A\]"):
            wired(*names, "X", given={"PERR#": "X"})
        assert "PERR#" in wired(*names, "X", given={"bus": {"B": {"PERR#": "X"}}}).bus("B").lines

    @pytest.mark.parametrize(("text", "message"), [(None, "No such file"), ("CLK = ", "not a TOML file")])
    def test_a_file_that_cannot_be_read(self, tmp_path: Any, text: str | None, message: str) -> None:
        path = tmp_path / "w.toml"
        if text is not None:
            path.write_text(text)
        with pytest.raises(WiringError, match=rf"w\.toml: .*{message}"):
            wired(*CONTROL, given=path)
