"""Who began a transaction, what it is, and what belongs together: small traffic written by hand."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from conftest import REPOSITORY
from nicruns import documented_profiles

from pcitrace import WiringError, profiles
from pcitrace.cli import main
from pcitrace.cli.traffic import rows
from pcitrace.frames import sendstart
from pcitrace.frames.sendupdate import updates
from pcitrace.frames.starts import CardTimes
from pcitrace.profiles import Profile
from pcitrace.traffic import Nic, Traffic, analyse
from pcitrace.traffic.content import WireFrames
from pcitrace.traffic.dma import Memory
from pcitrace.traffic.initiators import nic_grant_line

NIC, HOST = "GNT_NIC#", "GNT_HOST#"
READ, WRITE, CONFIG_READ, CONFIG_WRITE, READ_MULTIPLE = 0x6, 0x7, 0xA, 0xB, 0xC
CLOCK_US = 0.03


class Bus:
    """Writes down transactions one behind the other."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.phases: list[dict[str, Any]] = []
        self.clock = 0

    def add(
        self,
        who: str | None,
        command: int | None,
        address: int | None,
        data: list[int],
        *,
        termination: str = "completion",
        enables: list[int] | None = None,
        first_clks: int = 2,
        devsel: int = 2,
    ) -> int:
        """Add a transaction that moves `data`; return its number."""
        number, start = len(self.rows), self.clock
        times = [(start + first_clks + n) * CLOCK_US for n in range(len(data))]
        enables = enables or [0] * len(data)
        clocks = first_clks + len(data) + 1
        self.rows.append(
            {
                "transaction": number,
                "start_us": start * CLOCK_US,
                "end_us": (start + clocks - 1) * CLOCK_US,
                "clocks": clocks,
                "command": command,
                "address": address,
                "data_phases": len(data),
                "bytes": sum(4 - one.bit_count() for one in enables),
                "bytes_exact": command is not None,
                "devsel_clks": devsel,
                "termination": termination,
                "initiator": who,
                "first_data_us": times[0] if times else None,
                "last_data_us": times[-1] if times else None,
            }
        )
        self.phases += [
            {"transaction": number, "time_us": time, "data": value, "byte_enables": enable}
            for time, value, enable in zip(times, data, enables, strict=True)
        ]
        self.clock += clocks + 4
        return number

    def analyse(self, profile: Profile, lines: tuple[str, ...] = (NIC, HOST), **options: Any) -> Traffic:
        table = pd.DataFrame(self.rows).astype(
            {
                "transaction": "uint64[pyarrow]",
                "command": "uint8[pyarrow]",
                "address": "uint64[pyarrow]",
                "initiator": "string[pyarrow]",
                "first_data_us": "double[pyarrow]",
                "last_data_us": "double[pyarrow]",
            }
        )
        columns = ["transaction", "time_us", "data", "byte_enables"]
        phases = pd.DataFrame(self.phases, columns=columns).astype({"data": "uint64[pyarrow]"})
        return analyse(table, phases, bus="A", nic=Nic(profile, lines, **options))


@pytest.fixture(scope="module")
def rings(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    path = tmp_path_factory.mktemp("profiles") / "rings.toml"
    path.write_text(documented_profiles()["ring-model"])
    return profiles.load(path)


GENERIC = profiles.load("generic")
CSR = 0xE800_0000


def test_a_retried_read_is_one_access(rings: Profile) -> None:
    bus = Bus()
    bus.add(HOST, READ, CSR + 0x10, [], termination="retry")
    bus.add(NIC, WRITE, 0x5000, [1])
    bus.add(HOST, READ, CSR + 0x10, [], termination="retry")
    bus.add(HOST, READ, CSR + 0x10, [0x81])
    bus.add(HOST, READ, CSR + 0x10, [0])
    found = bus.analyse(rings).csr_accesses
    assert found["attempts"].tolist() == [3, 1]
    assert found["first_attempt_us"].tolist() == [bus.rows[0]["start_us"], bus.rows[4]["start_us"]]
    assert found["last_attempt_us"].tolist() == [bus.rows[3]["start_us"], bus.rows[4]["start_us"]]
    assert found["data_us"].tolist() == [bus.rows[3]["first_data_us"], bus.rows[4]["first_data_us"]]
    assert found["value"].tolist() == [0x81, 0]
    assert found["register"].tolist() == ["ICR", "ICR"]
    assert found["command_name"].tolist() == ["memory_read"] * 2


def test_a_burst_into_registers_is_one_access_a_data_phase(rings: Profile) -> None:
    bus = Bus()
    bus.add(HOST, WRITE, CSR + 0x20, [0x80000, 64, 5])
    found = bus.analyse(rings).csr_accesses
    assert found["register"].tolist() == ["TDBA", "TDLEN", "csr+0x28"]
    assert found["address"].tolist() == [CSR + 0x20, CSR + 0x24, CSR + 0x28]
    assert found["value"].tolist() == [0x80000, 64, 5]


def test_an_access_that_nobody_claims(rings: Profile) -> None:
    bus = Bus()
    bus.add(HOST, CONFIG_READ, 0x200000, [], termination="master_abort")
    found = bus.analyse(rings).csr_accesses
    assert found["data_us"].isna().all()
    assert found["value"].isna().all()
    assert found["why"].tolist() == ["no data moved: nobody claimed it, or the capture ends"]


def test_byte_enables_tell_registers_that_share_a_dword() -> None:
    bus = Bus()
    base = 0xFEB0_0000
    bus.add(HOST, CONFIG_WRITE, 0x100010, [base])
    bus.add(HOST, WRITE, base, [0x0020_0000], enables=[0b1011])
    bus.add(HOST, READ, base, [0x50], enables=[0b1100])
    bus.add(HOST, WRITE, base, [0x0100_0000], enables=[0b0111])
    found = bus.analyse(profiles.load("i82558")).csr_accesses
    assert found["register"].tolist()[1:] == ["SCB_COMMAND", "SCB_STATUS", "SCB_INTERRUPT_MASK"]


def test_configuration_writes_place_the_windows(rings: Profile) -> None:
    bus = Bus()
    select = 0x100000
    bus.add(HOST, CONFIG_READ, select, [0x1000FEED])
    bus.add(HOST, CONFIG_READ, 0x200000, [0x12378086])
    bus.add(HOST, CONFIG_WRITE, select | 0x10, [0xFFFF_FFFF])
    bus.add(HOST, CONFIG_WRITE, 0x200010, [0x1230_0000])
    bus.add(HOST, CONFIG_WRITE, select | 0x10, [0xD000_0000])
    bus.add(HOST, WRITE, 0xD000_002C, [1])
    bus.add(HOST, WRITE, 0xE800_002C, [1])
    traffic = bus.analyse(rings)
    assert traffic.csr_accesses["register"].dropna().tolist() == ["TDT"]
    assert len(traffic.csr_accesses) == 6
    assert traffic.other == 1, "a host access of another device is none of the NIC"
    assert traffic.findings == ("window csr: the trace places it at 0xd0000000, profile ring-model says 0xe8000000",)


def test_a_profile_of_another_card_is_a_finding(rings: Profile) -> None:
    bus = Bus()
    bus.add(HOST, CONFIG_READ, 0x100000, [0x000112AE])
    assert bus.analyse(rings).findings == ("profile ring-model is of another card: the trace shows 12ae:0001",)
    assert bus.analyse(profiles.load("acenic")).findings == ()


def test_nothing_is_named_by_a_profile_of_another_card(rings: Profile) -> None:
    """What rings on one card acknowledges interrupts on another: 19 of 46 times were wrong (`cardbench`, mixed 5)."""
    bus = Bus()
    bus.add(HOST, CONFIG_READ, 0x100000, [0x000112AE])
    bus.add(HOST, CONFIG_WRITE, 0x100010, [0xD000_0000])
    bus.add(HOST, WRITE, 0xD000_002C, [1])
    traffic = bus.analyse(rings)
    assert traffic.windows.profile == profiles.load("generic")
    assert traffic.csr_accesses["register"].dropna().tolist() == ["BAR0+0x2c"]
    assert len(traffic.csr_accesses) == 3
    assert not traffic.csr.doorbell.any()


def test_which_grant_is_the_nics() -> None:
    assert nic_grant_line(["CLK", NIC, HOST]) == NIC
    assert nic_grant_line(["CLK", "GNT0#"]) == "GNT0#"
    assert nic_grant_line(["CLK"]) is None
    assert nic_grant_line(["GNT0#", "GNT1#"], "GNT1#") == "GNT1#"
    with pytest.raises(WiringError, match=r"which GNT# is the NIC's.*GNT0#, GNT1#"):
        nic_grant_line(["GNT0#", "GNT1#"])
    with pytest.raises(WiringError, match="GNT2# was not captured; there are GNT0#"):
        nic_grant_line(["GNT0#"], "GNT2#")


def test_grants_of_other_agents_are_not_the_host(rings: Profile) -> None:
    bus = Bus()
    bus.add(NIC, READ_MULTIPLE, 0x1000, [1] * 20)
    bus.add("GNT3#", READ_MULTIPLE, 0x9000, [1] * 20)
    traffic = bus.analyse(rings, lines=(NIC, HOST, "GNT3#"))
    assert (len(traffic.pieces), traffic.other) == (1, 1)


def test_a_single_grant_that_is_high_means_the_host() -> None:
    bus = Bus()
    bus.add(None, None, None, [1])
    bus.add("GNT#", None, None, [1] * 9)
    bus.add(None, None, None, [1])
    traffic = bus.analyse(GENERIC, lines=("GNT#",))
    assert len(traffic.csr_accesses) == 2
    assert traffic.csr_accesses["register"].isna().all()
    assert traffic.csr_accesses["address"].isna().all()
    assert traffic.pieces["transaction"].tolist() == [1]


def test_without_grant_and_address_singles_stay_unknown() -> None:
    bus = Bus()
    bus.add(None, None, None, [1])
    bus.add(None, None, None, [1] * 9)
    traffic = bus.analyse(GENERIC, lines=())
    assert traffic.unknown["no GNT# and no address tells who began it"] == 1
    assert len(traffic.pieces) == 1
    bus.add(None, None, None, [1], devsel=1)
    told = bus.analyse(GENERIC, lines=())
    assert len(told.csr_accesses) == 1, "another target than the memory that bursts reach"
    assert "no GNT# and no address tells who began it" not in told.unknown


def frame(number: int, size: int = 64) -> list[int]:
    """Words of a frame: two addresses, a type, a number, a ramp."""
    return [0x32221202, 0x1202BB42, 0xAA423222, 0xB588, number, *range(size // 4 - 5)]


def test_pieces_are_joined_over_what_comes_between(rings: Profile) -> None:
    """Retry, disconnect and burst limit cut two frames in opposite directions that take turns."""
    bus = Bus()
    sent, got = frame(1, 256), frame(2, 128)
    bus.add(NIC, READ_MULTIPLE, 0x10000, [], termination="retry")
    bus.add(NIC, READ_MULTIPLE, 0x10000, sent[:30], termination="disconnect_with_data")
    bus.add(NIC, WRITE, 0x20000, got[:16])
    bus.add(NIC, READ_MULTIPLE, 0x10000 + 120, sent[30:50])
    bus.add(NIC, WRITE, 0x20000 + 64, [], termination="retry")
    bus.add(NIC, READ_MULTIPLE, 0x10000 + 200, sent[50:])
    bus.add(NIC, WRITE, 0x20000 + 64, got[16:])
    found = bus.analyse(rings).bursts
    assert found["kind"].tolist() == ["send_data", "receive_data"]
    assert found["direction"].tolist() == ["read", "write"]
    assert found["pieces"].tolist() == [4, 3]
    assert found["data_phases"].tolist() == [64, 32]
    assert found["bytes"].tolist() == [256, 128]
    assert found["address"].tolist() == [0x10000, 0x20000]
    assert found["first_data_us"].tolist() == [bus.rows[1]["first_data_us"], bus.rows[2]["first_data_us"]]
    assert found["last_data_us"].tolist() == [bus.rows[5]["last_data_us"], bus.rows[6]["last_data_us"]]
    assert found["start_us"].tolist()[0] == bus.rows[0]["start_us"]


def test_a_buffer_that_is_used_again_is_another_burst(rings: Profile) -> None:
    bus = Bus()
    for number in range(3):
        bus.add(NIC, READ_MULTIPLE, 0x10000, [], termination="retry")
        bus.add(NIC, READ_MULTIPLE, 0x10000, frame(number))
    found = bus.analyse(rings).bursts
    assert found["kind"].tolist() == ["send_data"] * 3
    assert found["pieces"].tolist() == [2] * 3


@pytest.mark.parametrize("back", [0, 64])
def test_what_was_cut_and_is_moved_again_at_once_is_one_burst(rings: Profile, back: int) -> None:
    """From the beginning of what was cut, or from a line inside it; its words count once for the frame's length."""
    bus = Bus()
    sent = frame(1, 256)
    bus.add(NIC, READ_MULTIPLE, 0x10000, sent[:20], termination="disconnect_with_data")
    bus.add(NIC, READ_MULTIPLE, 0x10000 + back, sent[back // 4 :])
    bus.clock += 60
    bus.add(NIC, READ_MULTIPLE, 0x10000, sent)
    found = bus.analyse(rings)
    assert found.bursts["pieces"].tolist() == [2, 1]
    assert found.bursts["bytes"].tolist() == [256 + 80 - back, 256]
    size, phases = found.joined.once
    assert (size.tolist(), phases.tolist()) == ([256, 256], [64, 64])


def test_what_was_cut_and_comes_later_again_is_another_frame(rings: Profile) -> None:
    """One buffer for all frames: STOP# came with the last words of one, and the next lies where it lay."""
    bus = Bus()
    bus.add(NIC, READ_MULTIPLE, 0x10000, frame(1, 256), termination="disconnect_with_data")
    bus.clock += 60
    bus.add(NIC, READ_MULTIPLE, 0x10000, frame(2, 256))
    assert bus.analyse(rings).bursts["pieces"].tolist() == [1, 1]


def test_rings_that_registers_name(rings: Profile) -> None:
    bus = Bus()
    bus.add(HOST, WRITE, CSR + 0x20, [0x80000])
    bus.add(HOST, WRITE, CSR + 0x24, [64])
    bus.add(NIC, READ, 0x80000, [0x10000, 64, 0, 0])
    bus.add(NIC, READ_MULTIPLE, 0x10000, frame(1))
    bus.add(NIC, WRITE, 0x80008, [1])
    bus.add(NIC, WRITE, 0x80000 + 64 * 16, [1])
    found = bus.analyse(rings).bursts
    assert found["kind"].tolist() == ["descriptor_fetch", "send_data", "status_write", "status_write"]
    assert found["why"].tolist()[0] == "in the descriptor ring the trace or the run names"
    assert found["why"].tolist()[2] == "in the descriptor ring the trace or the run names"
    assert found["why"].tolist()[3] == "write shorter than any received frame"


def test_nothing_known_descriptors_are_told_by_what_they_hold() -> None:
    bus = Bus()
    for number in range(4):
        bus.add(NIC, READ, 0x80000 + 16 * number, [0x10000 + 2048 * number, 64, 0, 0])
        bus.add(NIC, READ_MULTIPLE, 0x10000 + 2048 * number, frame(number))
        bus.add(NIC, WRITE, 0x80008 + 16 * number, [1])
    bus.add(NIC, READ_MULTIPLE, 0x30000, frame(9)[:8])
    bus.add(NIC, READ_MULTIPLE, 0x40000, [1, 2, 3])
    traffic = bus.analyse(GENERIC)
    kinds = traffic.bursts["kind"].tolist()
    assert kinds == ["descriptor_fetch", "send_data", "status_write"] * 4 + ["send_data", "unknown"]
    assert traffic.bursts["why"].tolist()[-2] == "read that begins with the sender's own address"
    assert traffic.unknown == {"short read: a descriptor or a short frame": 1}


def test_a_frame_may_carry_the_address_of_a_buffer() -> None:
    """The buffers it shares a page with hold frames all the same."""
    bus = Bus()
    for number in range(6):
        carried = [0x10800] if number == 2 else [number]
        bus.add(NIC, READ_MULTIPLE, 0x10000 + 2048 * (number % 2), frame(number)[:19] + carried)
    assert bus.analyse(GENERIC).bursts["kind"].tolist() == ["send_data"] * 6


def test_status_words_side_by_side_are_no_frame() -> None:
    bus = Bus()
    for number in range(40):
        bus.add(NIC, WRITE, 0x90000 + 4 * number, [number])
        bus.clock += 20
    found = bus.analyse(GENERIC).bursts
    assert found["kind"].tolist() == ["status_write"] * 40


def test_words_that_come_faster_than_frames_are_one() -> None:
    """A card that bursts nothing writes a frame word by word."""
    bus = Bus()
    for number in range(3):
        for word in range(20):
            bus.add(NIC, WRITE, 0x20000 + 2048 * number + 4 * word, [word])
        bus.clock += 1000
    found = bus.analyse(GENERIC).bursts
    assert found["kind"].tolist() == ["receive_data"] * 3
    assert found["pieces"].tolist() == [20] * 3


@pytest.mark.parametrize("between", [None, "read", "write"])
def test_pieces_with_nothing_between_that_they_are_the_status_of_are_a_frame(between: str | None) -> None:
    """A card writes 16 bytes whenever it has received as many: later than whole frames could follow each other."""
    bus = Bus()
    for piece in range(20):
        bus.add(NIC, WRITE, 0x20000 + 16 * piece, [piece] * 4)
        bus.clock += 100
        if between or not piece:
            bus.add(NIC, WRITE if between == "write" else READ, 0x80000 + 2048 * piece, [piece] * 100)
    found = bus.analyse(GENERIC).bursts
    kinds = found["kind"][found["address"] < 0x80000].tolist()
    assert kinds == (["status_write"] * 20 if between else ["receive_data"])


def test_descriptors_that_no_frame_ever_used_are_not_sent() -> None:
    """A host that only sends hands its card receive descriptors too: a read as long as a short frame."""
    bus = Bus()
    bus.add(NIC, READ_MULTIPLE, 0x90000, [0x20000 + 2048 * (word // 4) if word % 4 == 0 else 0 for word in range(16)])
    for number in range(12):
        bus.add(NIC, READ, 0x80000 + 16 * number, [0x10000 + 2048 * number, 64, 0, 0])
        bus.add(NIC, READ_MULTIPLE, 0x10000 + 2048 * number, frame(number))
        bus.add(NIC, WRITE, 0x80008 + 16 * number, [1])
    traffic = bus.analyse(GENERIC)
    kinds = traffic.bursts["kind"].tolist()
    assert kinds == ["unknown"] + ["descriptor_fetch", "send_data", "status_write"] * 12


def test_stop_with_the_last_data_cuts_nothing() -> None:
    """FRAME# was high: what comes behind is no rest of it, though its address goes on."""
    bus = Bus()
    bus.add(NIC, WRITE, 0x90000, [1], termination="disconnect_with_data")
    bus.rows[-1]["end_us"] = bus.rows[-1]["last_data_us"]
    bus.add(NIC, WRITE, 0x90004, [2])
    bus.clock += 40
    bus.add(NIC, WRITE, 0x90010, [3, 4], termination="disconnect_with_data")
    bus.add(NIC, WRITE, 0x90018, [5, 6])
    assert bus.analyse(GENERIC).bursts["pieces"].tolist() == [1, 1, 2]


def test_windows_of_memory_that_the_run_names() -> None:
    bus = Bus()
    bus.add(NIC, READ_MULTIPLE, 0x10000, [1, 2, 3])
    bus.add(NIC, READ_MULTIPLE, 0x80000, [1, 2, 3])
    bus.add(NIC, WRITE, 0x20000, [1, 2, 3])
    bus.add(NIC, WRITE, 0x70000, [1])
    memory = Memory(
        send_buffers=[[0x10000, 4096]],
        receive_buffers=[[0x20000, 4096]],
        send_descriptors=[[0x80000, 4096]],
        status=[[0x70000, 4]],
    )
    found = bus.analyse(GENERIC, memory=memory).bursts
    assert found["kind"].tolist() == ["send_data", "descriptor_fetch", "receive_data", "status_write"]


def test_no_nic_traffic(rings: Profile) -> None:
    bus = Bus()
    bus.add(HOST, READ, CSR + 0x10, [0])
    traffic = bus.analyse(rings)
    assert (len(traffic.bursts), len(traffic.pieces), len(traffic.csr_accesses)) == (0, 0, 1)
    assert repr(traffic) == "<Traffic of bus A: 1 CSR accesses, 0 bursts, 0 transactions unknown>"


def test_commands_on_a_bare_capture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture = str(REPOSITORY / "fixtures" / "traces" / "nic_g_a" / "control16.sr")
    out = tmp_path / "bursts.csv"
    assert main(["bursts", capture, "--profile", "acenic", "-o", str(out)]) == 0
    table = pd.read_csv(out)
    assert set(table["bus"]) == {"A", "B"}
    assert table["address"].isna().all()
    assert "bus A:" in capsys.readouterr().out
    out = tmp_path / "csr.jsonl"
    assert main(["csr", capture, "--bus", "A", "-o", str(out), "--json"]) == 0
    assert set(pd.read_json(out, lines=True)["bus"]) == {"A"}
    capsys.readouterr()
    assert main(["csr", capture, "--bus", "A"]) == 0
    assert set(pd.read_csv(io.StringIO(capsys.readouterr().out))["bus"]) == {"A"}
    assert main(["bursts", capture, "--profile", "acenik", "-o", str(tmp_path / "none.csv")]) == 3
    assert "no NIC profile 'acenik'" in capsys.readouterr().err
    assert not (tmp_path / "none.csv").exists()


def test_an_access_of_the_receive_side_is_no_update_of_the_sent_queue(rings: Profile) -> None:
    """It comes before the update, and like that it is the only one of its register after the send."""
    bus = Bus()
    bus.add(HOST, WRITE, CSR + 0x2C, [1])
    sent = bus.add(NIC, READ_MULTIPLE, 0x40_0000, [0] * 95, first_clks=6)
    bus.add(HOST, WRITE, CSR + 0x3C, [7])
    update = bus.add(HOST, READ, CSR + 0x10, [1])
    csr = bus.analyse(rings).csr
    assert [csr.registers[code] for code in csr.register] == ["TDT", "RDT", "ICR"]
    assert csr.of_role("receive_doorbell").tolist() == [1]
    ends = np.array([bus.rows[sent]["last_data_us"]])
    begin, none = np.array([bus.rows[sent]["first_data_us"]]), np.zeros(0)
    card = CardTimes(begin, ends, none, none, none)
    starts = sendstart.find(csr, rings, card, np.array([0x40_0000]))
    assert (starts.first.tolist(), starts.last.tolist()) == ([0], [0])
    assert updates(csr, starts, card).tolist() == [bus.rows[update]["start_us"]]


@pytest.mark.parametrize(
    ("parts", "lengths", "pieces"),
    [([256, 256, 22], [530] * 4, [3] * 4), ([256, 60, 60], [530, 256, 60, 60], [1] * 12)],
)
def test_a_frame_longer_than_its_buffers_is_one_burst(
    rings: Profile, parts: list[int], lengths: list[int], pieces: list[int]
) -> None:
    """Buffers of 256 bytes; the wire tells whether a full one goes on, and a long frame that is lost joins nothing."""
    bus, buffer = Bus(), 0x8000
    for _ in range(4):
        for part in parts:
            bus.add(NIC, WRITE, buffer, [1] * -(-part // 4))
            bus.add(NIC, WRITE, 0x2000 + buffer // 64, [1])
            buffer += 0x800
    length = np.array(lengths)
    start = np.arange(len(length), dtype=float)
    wire = WireFrames(start, start + 0.5, length, length, length, None, np.full(len(length), -1))
    found = bus.analyse(rings, received=wire, memory=Memory(receive_buffers=[[0x8000, 0x10000]])).bursts
    found = found[found["kind"] == "receive_data"]
    assert found["pieces"].tolist() == pieces


def test_what_may_be_of_any_agent_is_there_once() -> None:
    """Of two agents nothing tells which is the card: both have the host's accesses, and each its own."""

    def traffic(*times: float) -> Traffic:
        return cast(
            Traffic, SimpleNamespace(bus="A", csr_accesses=pd.DataFrame({"bus": "A", "first_attempt_us": times}))
        )

    found = rows({"A GNT1#": traffic(1.0, 2.0), "A GNT2#": traffic(1.0, 3.0)}, "csr_accesses")
    assert found.to_numpy().tolist() == [["A", 1.0], ["A GNT1#", 2.0], ["A GNT2#", 3.0]]
