"""Devices: what configuration accesses show, against generated devices; names; what the real lspci makes of it."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
import waveforms
from conftest import needed_program
from oracle import Clock

import pcitrace
from pcitrace.cli import main
from pcitrace.errors import WiringError
from pcitrace.instrument import devices, names

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "traces"
LINES = frozenset({"FRAME#", "IRDY#", "TRDY#", "DEVSEL#", "STOP#", "AD", "C/BE#", "GNT#"})
HOST, OTHER, NIC = 0, 1, 2  # positions of GNT0#, GNT1# and GNT_NIC#
MEMORY_READ, MEMORY_WRITE, IO_WRITE, CONFIG_READ, CONFIG_WRITE = 6, 7, 3, 10, 11


class Bench:
    """A bus on which single accesses are made one after the other; `registers` are a device's own answers."""

    def __init__(self) -> None:
        self.clocks = [Clock(ad=0, cbe=15, gnt=(1, 1, 1)) for _ in range(3)]

    def access(self, who: int, command: int, address: int, data: int, enables: int = 0, claimed: bool = True) -> None:
        grant = tuple(int(agent != who) for agent in range(3))
        self.clocks.append(Clock(ad=0, cbe=15, gnt=grant))
        self.clocks.append(Clock(frame=0, ad=address, cbe=command, gnt=grant))
        if claimed:
            self.clocks.append(Clock(irdy=0, devsel=0, ad=data, cbe=enables, gnt=(1, 1, 1)))
            self.clocks.append(Clock(irdy=0, devsel=0, trdy=0, ad=data, cbe=enables, gnt=(1, 1, 1)))
        else:
            self.clocks += [Clock(irdy=0, ad=0, cbe=enables, gnt=(1, 1, 1)) for _ in range(5)]
        self.clocks += [Clock(ad=0, cbe=15, gnt=(1, 1, 1)) for _ in range(2)]

    def open(self, folder: Path) -> pcitrace.Bus:
        sampled = waveforms.state_mode(waveforms.wires(self.clocks, LINES))
        return pcitrace.open(waveforms.write_sr(folder / "config.sr", sampled), clock_mhz=33.0).bus


@dataclass
class Region:
    """A base address register of a generated device: as the silicon has it, and where it is put."""

    index: int
    kind: str
    bits: int
    prefetchable: bool
    size: int
    base: int

    @property
    def flags(self) -> int:
        return 1 if self.kind == "io" else (4 if self.bits == 64 else 0) | 8 * self.prefetchable

    def register(self, value: int, half: int) -> int:
        """What the register, or the upper half of one, reads after `value` was written."""
        mask = ~(self.size - 1) & (1 << 64) - 1
        return value & mask >> 32 & 0xFFFFFFFF if half else (value & mask & 0xFFFFFFFF) | self.flags


def regions(rng: Random) -> list[Region]:
    """Registers of one device: any kinds, aligned to their sizes."""
    found, index = [], 0
    while index < 6:
        kind = rng.choice(("memory", "memory", "io", "wide", "none"))
        if kind == "none" or (kind == "wide" and index == 5):
            index += 1
            continue
        if kind == "io":
            size = 1 << rng.randint(2, 8)
            found.append(Region(index, "io", 0, False, size, rng.randrange(1, 1 << 16) // size * size + size))
        elif kind == "memory":
            size = 1 << rng.randint(4, 28)
            base = max(1, rng.randrange(1 << 31) // size) * size
            found.append(Region(index, "memory", 32, rng.random() < 0.5, size, base))
        else:
            size = 1 << rng.randint(4, 40)
            base = max(1, rng.randrange(1 << 44) // size) * size
            found.append(Region(index, "memory", 64, rng.random() < 0.5, size, base))
            index += 1
        index += 1
    return found


def configure(bench: Bench, address: int, shown: list[Region], sized: bool) -> None:
    """What firmware does: size each register, and place it."""
    for region in shown:
        for half in range(1 + (region.bits == 64)):
            at = address | 0x10 + 4 * (region.index + half)
            if sized:
                bench.access(HOST, CONFIG_READ, at, region.register(0, half))
                bench.access(HOST, CONFIG_WRITE, at, 0xFFFFFFFF)
                bench.access(HOST, CONFIG_READ, at, region.register((1 << 64) - 1, half))
            value = region.base >> 32 if half else region.base & 0xFFFFFFFF | (region.kind == "io")
            bench.access(HOST, CONFIG_WRITE, at, value)


@pytest.mark.parametrize("seed", range(12))
def test_generated_devices_come_back(seed: int, tmp_path: Path) -> None:
    rng = Random(seed)
    bench, wanted = Bench(), {}
    for number in rng.sample(range(21), 3):
        address, sized, shown = 1 << number + 11, rng.random() < 0.8, regions(rng)
        vendor, device, code = rng.randrange(0xFFFF), rng.randrange(0x10000), rng.randrange(1 << 24)
        bench.access(HOST, CONFIG_READ, address, device << 16 | vendor)
        bench.access(HOST, CONFIG_READ, address | 0x08, code << 8 | 0x5A)
        bench.access(HOST, CONFIG_READ, address | 0x0C, 0)
        configure(bench, address, shown, sized)
        bench.access(HOST, CONFIG_READ, address | 0x3C, 0x0000_0100 | rng.randrange(256), enables=0b1100)
        wanted[f"00:{number:02x}.0"] = (vendor, device, code, sized, shown)
    bench.access(HOST, CONFIG_READ, 1 << 11 | 0x700, 0, claimed=False)  # nobody is there
    found = {one.bdf: one for one in devices.of_bus(bench.open(tmp_path)).devices}
    assert found.keys() == wanted.keys()
    for bdf, (vendor, device, code, sized, shown) in wanted.items():
        one = found[bdf]
        assert (one.vendor_id, one.device_id, one.class_code, one.revision) == (vendor, device, code, 0x5A)
        assert one.interrupt_pin == "INTA#"
        got = [(bar.index, bar.base, bar.bytes, bar.kind) for bar in one.bars]
        if sized:
            assert got == [(region.index, region.base, region.size, region.kind) for region in shown]
            kinds = [(bar.bits, bar.prefetchable) for bar in one.bars if bar.kind == "memory"]
            assert kinds == [(region.bits, region.prefetchable) for region in shown if region.kind == "memory"]
        else:
            assert all(size is None for _, _, size, _ in got)
            assert {base for _, base, _, _ in got} >= {region.base for region in shown if region.bits == 32}


def test_what_was_not_read_is_null(tmp_path: Path) -> None:
    bench = Bench()
    bench.access(HOST, CONFIG_READ, 1 << 20, 0x1000FEED, enables=0b1100)  # the vendor's half only
    bench.access(HOST, CONFIG_READ, 1 << 20 | 0x34, 0x40)
    bench.access(HOST, CONFIG_READ, 1 << 20 | 0x40, 0x5001)
    [device] = devices.of_bus(bench.open(tmp_path)).devices
    assert (device.vendor_id, device.device_id, device.class_code, device.interrupt_pin) == (0xFEED, None, None, None)
    assert device.capabilities == ["power management"]
    assert sorted(device.bytes()) == [0, 1, *range(0x34, 0x38), *range(0x40, 0x44)]


@pytest.mark.parametrize(
    ("written", "bar"),
    [
        (0xE8000000, (0xE8000000, "memory")),
        (0x0000D001, (0xD000, "io")),
        (0x0000D000, (0xD000, None)),  # I/O without its bit, or memory
        (0x0000D008, (None, None)),  # 8 bytes of I/O, or prefetchable memory at d000
    ],
)
def test_a_register_that_was_only_written(written: int, bar: tuple[int | None, str | None], tmp_path: Path) -> None:
    bench = Bench()
    bench.access(HOST, CONFIG_WRITE, 1 << 20 | 0x10, written)
    bus = bench.open(tmp_path)
    [one] = devices.of_bus(bus).devices[0].bars
    assert (one.base, one.kind, one.bytes) == (*bar, None)
    assert [window.space for window in names.of_bus(bus).windows] == ([bar[1]] if bar[1] else [])


@pytest.mark.parametrize(
    ("accesses", "base", "size"),
    [
        # Registers that are not there take nothing.
        ([(CONFIG_READ, 0)], None, None),
        ([(CONFIG_WRITE, 0xFFFFFFFF), (CONFIG_READ, 0), (CONFIG_WRITE, 0xE0000000)], None, None),
        # What a register reads is where its window is: the write went elsewhere, or a reset came.
        ([(CONFIG_WRITE, 0xE8000000), (CONFIG_READ, 0xE9000000)], 0xE9000000, None),
        ([(CONFIG_WRITE, 0xFFFFFFFF), (CONFIG_READ, 0xFFFFF008), (CONFIG_READ, 8)], None, 4096),
        # Nobody drives AD.
        ([(CONFIG_WRITE, 0xE8000000), (CONFIG_READ, 0xFFFFFFFF)], 0xE8000000, None),
        ([(CONFIG_READ, 0xE8000000), (CONFIG_WRITE, 0xFFFFFFFF), (CONFIG_WRITE, 0xE8000000)], 0xE8000000, None),
        ([(CONFIG_WRITE, 0xFFFFFFF0), (CONFIG_READ, 0xFFFF0000), (CONFIG_WRITE, 0xD0000000)], 0xD0000000, 65536),
    ],
)
def test_where_a_register_is(
    accesses: list[tuple[int, int]], base: int | None, size: int | None, tmp_path: Path
) -> None:
    bench = Bench()
    for command, value in accesses:
        bench.access(HOST, command, 1 << 20 | 0x14, value)
    bars = devices.of_bus(bench.open(tmp_path)).devices[0].bars
    assert [(bar.index, bar.base, bar.bytes) for bar in bars] == ([(1, base, size)] if base or size else [])


def test_registers_of_a_cardbus_bridge(tmp_path: Path) -> None:
    bench = Bench()
    registers = {0x0C: 0x00820000, 0x10: 0x68000000, 0x14: 0x020000A0, 0x18: 0x00050200, 0x1C: 0x68400000, 0xA0: 1}
    for offset, value in registers.items():
        bench.access(HOST, CONFIG_READ, 1 << 20 | offset, value)
    space = devices.of_bus(bench.open(tmp_path))
    [device] = space.devices
    assert [(bar.name, bar.base) for bar in device.bars] == [("BAR0", 0x68000000)]
    assert device.capabilities == ["power management"]
    assert space.register(1 << 20 | 0x1C) == "00:09.0 memory base 0"


def test_type_1_and_absent_devices(tmp_path: Path) -> None:
    bench = Bench()
    bench.access(HOST, CONFIG_READ, 2 << 16 | 3 << 11 | 5 << 8 | 1, 0x12298086)
    bench.access(HOST, CONFIG_READ, 2 << 16 | 4 << 11 | 1, 0xFFFFFFFF)
    bench.access(HOST, CONFIG_READ, 1 << 31 | 1 << 12, 0x12345678)
    found = devices.of_bus(bench.open(tmp_path)).devices
    assert [(one.bdf, one.where, one.idsel) for one in found] == [
        (None, "AD12+AD31.0", ["AD12", "AD31"]),
        ("02:03.5", "02:03.5", []),
    ]
    assert found[1].as_dict()["vendor"] == "Intel Corporation"


def test_a_window_that_moves_names_what_was_accessed_then(tmp_path: Path) -> None:
    bench = Bench()
    bench.access(HOST, CONFIG_READ, 1 << 20 | 0x08, 0x02000001)
    bench.access(HOST, MEMORY_READ, 0xE8000018, 1)
    bench.access(HOST, CONFIG_WRITE, 1 << 20 | 0x10, 0xE8000000)
    bench.access(HOST, MEMORY_READ, 0xE8000018, 1)
    bench.access(HOST, CONFIG_WRITE, 1 << 20 | 0x10, 0xD0000000)
    bench.access(HOST, MEMORY_READ, 0xE8000018, 1)
    bench.access(HOST, MEMORY_WRITE, 0xD0000004, 1)
    bench.access(HOST, IO_WRITE, 0xD0000004, 1)
    bus = bench.open(tmp_path)
    learned = names.of_bus(bus)
    table = bus.arrow("transactions")
    assert learned.targets(table).to_pylist() == ["eth0", None, "eth0", "eth0", "eth0", None, "eth0", None]
    assert learned.targets(table, everywhere=True).to_pylist()[1] == "eth0"
    assert learned.describe(MEMORY_WRITE, 0xD0000004) == "eth0 BAR0+0x4"
    assert learned.describe(CONFIG_READ, 1 << 20 | 0x10) == "00:09.0 BAR0"
    assert learned.describe(MEMORY_WRITE, 0xC0000004) is None


@pytest.mark.parametrize("base", [0x7FFFFFFF_FFFF0000, 0x80000000_00000000, 0xF0000000_FFFF0000])
def test_a_window_anywhere_in_64_bits(base: int, tmp_path: Path) -> None:
    """Also where addresses do not fit into an integer with a sign."""
    bench = Bench()
    card = 1 << 20
    bench.access(HOST, CONFIG_READ, card | 0x08, 0x02000001)
    region = Region(0, "memory", 64, False, 1 << 16, base)
    configure(bench, card, [region], sized=True)
    bench.access(HOST, MEMORY_READ, 0xE8000018, 1)
    learned = names.of_bus(bench.open(tmp_path))
    placed = learned.windows[-1]
    assert (placed.base, placed.size, placed.size_known, placed.until) == (base, 1 << 16, True, None)
    for address, said in ((base, "0x0"), (base + 0xFFFC, "0xfffc"), (base - 4, None), (0xE8000018, None)):
        wanted = None if said is None else f"eth0 BAR0+{said}"
        assert learned.describe(MEMORY_WRITE, address) == wanted


@pytest.mark.parametrize("seed", range(12))
def test_accesses_that_say_nothing_new_change_no_name(seed: int, tmp_path: Path) -> None:
    """Who learns from all that does not repeat the access before it knows the same windows."""
    rng = Random(seed)
    bench = Bench()
    values = {
        0x00: (0x12298086, 0xFFFFFFFF), 0x04: (0x146, 0x147), 0x08: (0x02000001, 0x06040001), 0x0C: (0, 0x10000),
        0x10: (0xE8000000, 0xE8001000, 0xFFFFFFFF, 0xFFFFF000, 0xE100), 0x14: (0xE101, 0xE8000800), 0x30: (0xE8000001,),
        0x38: (0xE9000001, 0xFFFFFFFF),
    }  # fmt: skip
    for _ in range(120):
        offset = rng.choice(list(values))
        select = rng.choice([1 << 20, 1 << 20, 1 << 21, 1 << 20 | 1 << 12, 2 << 16 | 3 << 11 | 1])
        command = rng.choice([CONFIG_READ, CONFIG_WRITE])
        bench.access(HOST, command, select | offset, rng.choice(values[offset]), rng.choice([0, 0, 0, 0b1100]))
        bench.access(NIC, MEMORY_WRITE, rng.choice([0xE8000004, 0xE8001004, 0xE8000804, 0xE9000000, 0xE100]), 1)
    bus = bench.open(tmp_path)
    table = bus.arrow("transactions")
    every = names.Names()
    told = list(devices.accesses(table, bus.arrow("data_phases")))
    last, selected = {}, set()
    for access in told:
        said = (access.write, access.data, access.mask)
        by = (access.place, access.offset, access.select)
        if last.get(by[:2]) != said or by not in selected:
            every.see(access)
        last[by[:2]] = said
        selected.add(by)
    learned = names.of_bus(bus)
    assert len(list(devices.accesses(table, bus.arrow("data_phases"), of_names=True))) < len(told) == 120
    for everywhere in (False, True):
        expected = every.targets(table, everywhere).to_pylist()
        assert learned.targets(table, everywhere).to_pylist() == expected
        assert len(set(expected)) > 3
    assert [one.name for one in learned.space.devices] == [one.name for one in every.space.devices]


def test_initiators_are_named_by_what_they_do(tmp_path: Path) -> None:
    bench = Bench()
    bench.access(HOST, CONFIG_READ, 1 << 20 | 0x08, 0x02000001)
    bench.access(HOST, CONFIG_WRITE, 1 << 20 | 0x10, 0xE8000000)
    bench.access(HOST, CONFIG_READ, 1 << 21 | 0x08, 0x01010001)
    bench.access(HOST, CONFIG_WRITE, 1 << 21 | 0x10, 0xE9000000)
    for n in range(4):
        bench.access(HOST, MEMORY_WRITE, 0xE8000000 + 4 * n, n)
        bench.access(NIC, MEMORY_READ, 0x1000 + 4 * n, n)
        bench.access(HOST, MEMORY_WRITE, 0xE9000000 + 4 * n, n)
        bench.access(OTHER, MEMORY_WRITE, 0x2000 + 4 * n, n)
    bus = bench.open(tmp_path)
    assert names.of_bus(bus).initiators == {"GNT0#": "host", "GNT_NIC#": "eth0", "GNT1#": "ide0"}
    stated = names.check_grants(["disk=GNT1#"], bus.lines)
    assert names.of_bus(bus, stated).initiators["GNT1#"] == "disk"
    assert names.of_bus(bus).initiator("GNT7#") == "GNT7#"
    with pytest.raises(WiringError, match="GNT9# was not captured; there are GNT0#, GNT1#, GNT_NIC#"):
        names.check_grants(["disk=GNT9#"], bus.lines)


def test_nobody_is_named_by_chance() -> None:
    """The alternating masters of this test bench both configure, and their DMA follows nobody's writes."""
    bus = pcitrace.open(FIXTURES / "blue33_seq6" / "bus.vcd.gz").bus
    assert names.of_bus(bus).initiators == {}


@pytest.mark.parametrize("bus", ["A", "B"])
def test_the_card_of_a_trace(bus: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", str(FIXTURES / "nic_g_a" / "bus.vcd.gz"), "--bus", bus, "--json"]) == 0
    [device] = json.loads(capsys.readouterr().out)[bus]
    # As its README says: IDSEL, vendor, device and base address; the size was never asked for.
    wanted = {"bdf": "00:09.0", "idsel": ["AD20"], "vendor_id": 0xFEED, "device_id": 0x1000, "class": 0x020000}
    assert {key: device[key] for key in wanted} == wanted
    assert [(bar["index"], bar["base"], bar["bytes"], bar["kind"]) for bar in device["bars"]] == [
        (0, 0xE8000000, None, "memory")
    ]


def test_lspci_text_on_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, trace = tmp_path / "space.txt", str(FIXTURES / "nic_g_a" / "bus.vcd.gz")
    assert main(["devices", trace, "--bus", "A", "--lspci", str(out)]) == 0
    capsys.readouterr()
    assert main(["devices", trace, "--bus", "A", "--lspci", "-"]) == 0
    assert capsys.readouterr().out == out.read_text(encoding="ascii")


def test_lspci_reads_what_was_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = needed_program("lspci")
    bench, address = Bench(), 1 << 20
    whole = [0x12298086, 0x02900007, 0x02000008, 0x00004010, 0xE8000000, 0x0000D001, 0xE9000000, 0, 0, 0, 0, 0x000E8086]
    for n, value in enumerate([*whole, 0, 0xDC, 0, 0x0100010B]):
        bench.access(HOST, CONFIG_READ, address | 4 * n, value)
    bench.access(HOST, CONFIG_READ, 1 << 22, 0x71108086)
    # A command that is written only is known, its status is not.
    bench.access(HOST, CONFIG_READ, 1 << 22 | 0x3C, 0)  # lspci shows no command without it
    bench.access(HOST, CONFIG_WRITE, 1 << 22 | 4, 0x00000005, enables=0b1100)
    bus = bench.open(tmp_path)
    text = tmp_path / "space.txt"
    assert main(["devices", str(bus.capture.path), "--clock-mhz", "33", "--lspci", str(text)]) == 0
    shown = capsys.readouterr().out
    assert "00:09.0  eth0, 8086:1229 Intel Corporation 82557/8/9/0/1 Ethernet Pro 100 (IDSEL AD20)" in shown
    read = subprocess.run([program, "-vv", "-n", "-F", text], capture_output=True, text=True, check=True)
    # A container without kernel modules is remarked on; our file is not.
    assert [line for line in read.stderr.splitlines() if "libkmod" not in line] == []
    assert "00:09.0 0200: 8086:1229 (rev 08)" in read.stdout
    assert re.search(r"Region 0: Memory at e8000000 \(32-bit, non-prefetchable\)", read.stdout)
    assert "Region 1: I/O ports at d000" in read.stdout
    [other] = re.findall(r"^00:0b\.0 .*8086:7110.*(?:\n\t.*)*", read.stdout, re.MULTILINE)
    assert "Control: I/O+ Mem- BusMaster+ SpecCycle- MemWINV- " in other


def test_lspci_shows_what_the_accesses_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = needed_program("lspci")
    bench, address = Bench(), 1 << 20
    sizes = ((0x10, 0xFFFFF00C), (0x14, 0xFFFFFFFF), (0x18, 0xFFFFFFC1), (0x30, 0xFFF00000))
    for command, offset, value, enables in [
        (CONFIG_READ, 0x00, 0x12298086, 0),
        (CONFIG_READ, 0x04, 0x02900000, 0),
        (CONFIG_READ, 0x08, 0x02000008, 0),
        (CONFIG_READ, 0x3C, 0x000001FF, 0),
        *((kind, at, value, 0) for at, one in sizes
          for kind, value in ((CONFIG_WRITE, 0xFFFFFFFF), (CONFIG_READ, one))),
        (CONFIG_WRITE, 0x10, 0xE8000000, 0),
        (CONFIG_WRITE, 0x14, 0x00000012, 0),
        (CONFIG_WRITE, 0x18, 0x0000D000, 0),
        (CONFIG_WRITE, 0x30, 0xE9000001, 0),
        (CONFIG_WRITE, 0x3C, 0x0000000B, 0b1110),
        (CONFIG_WRITE, 0x04, 0x00000007, 0b1100),
    ]:  # fmt: skip
        bench.access(HOST, command, address | offset, value, enables=enables)
    text, bus = tmp_path / "space.txt", bench.open(tmp_path)
    assert main(["devices", str(bus.capture.path), "--clock-mhz", "33", "--lspci", str(text)]) == 0
    capsys.readouterr()
    read = subprocess.run([program, "-vv", "-F", text], capture_output=True, text=True, check=True)
    assert "!!!" not in read.stdout  # the header type was not read
    for line in (
        "Region 0: Memory at 12e8000000 (64-bit, prefetchable)",
        "Region 2: I/O ports at d000",
        "Expansion ROM at e9000000",
        "Interrupt: pin A routed to IRQ 11",
        "Control: I/O+ Mem+ BusMaster+ SpecCycle-",
    ):
        assert line in read.stdout


def test_lspci_shows_what_was_read_of_a_short_header(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Interrupt and latency registers were not read: 64 bytes all the same, or lspci shows no command and 32 bits."""
    bench = Bench()
    for command, offset, value in (
        (CONFIG_READ, 0x00, 0x56781234),
        (CONFIG_READ, 0x04, 0x02800006),
        (CONFIG_READ, 0x08, 0x03000001),
        (CONFIG_READ, 0x10, 0x4000000C),
        (CONFIG_READ, 0x14, 0x00000002),
    ):
        bench.access(HOST, command, 1 << 20 | offset, value)
    text, bus = tmp_path / "space.txt", bench.open(tmp_path)
    assert main(["devices", str(bus.capture.path), "--clock-mhz", "33", "--lspci", str(text)]) == 0
    assert "command      0006 memory space, bus master; 1 access\n" in capsys.readouterr().out
    read = subprocess.run([needed_program("lspci"), "-vv", "-F", text], capture_output=True, text=True, check=True)
    assert "Region 0: Memory at 240000000 (64-bit, prefetchable)" in read.stdout
    assert "Control: I/O- Mem+ BusMaster+ SpecCycle-" in read.stdout
    assert "Capabilities" not in read.stdout


def test_without_addresses_there_are_no_devices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", str(FIXTURES / "blue33_seq6" / "ctl_250MSs.sr")]) == 0
    assert "no devices: AD not captured" in capsys.readouterr().out
