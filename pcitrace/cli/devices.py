"""``pcitrace devices``: what the configuration accesses of a capture show."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pcitrace.cli.options import add_capture, add_json, choose_buses, open_run, print_json
from pcitrace.cli.text import filled
from pcitrace.printable import printable
from pcitrace.run import format_bytes

if TYPE_CHECKING:
    from pcitrace.instrument.devices import Bar, Device

_EPILOG = """\
examples:
  pcitrace devices bus.vcd.gz
  pcitrace devices bus.vcd.gz --json
  pcitrace devices bus.vcd.gz --lspci space.txt && lspci -vv -F space.txt

What was not read is blank. A size is known where the sizing sequence was captured: all ones written to a base address
register, then read back. Names are those of pci.ids (BSD-3-Clause, https://pci-ids.ucw.cz).
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_capture(parser)
    parser.add_argument(
        "--lspci",
        metavar="OUT",
        type=Path,
        help="also write the bytes that were read, as `lspci -vv -F` takes them; - for here, and nothing else",
    )
    add_json(parser, "print JSON")
    parser.epilog = _EPILOG


def run(args: argparse.Namespace) -> int:
    """Show the devices of each bus."""
    from pcitrace.instrument.devices import of_bus
    from pcitrace.instrument.lspci import dump

    buses = choose_buses(open_run(args), args.bus)
    found = {bus.name: of_bus(bus).devices for bus in buses}
    if args.lspci is not None:
        if sum(1 for devices in found.values() if devices) > 1:
            names = ", ".join(name for name, devices in found.items() if devices)
            raise argparse.ArgumentError(
                None, f"--lspci takes the devices of one bus, there are {names}; name one with --bus"
            )
        text = "\n".join(dump(devices) for devices in found.values() if devices)
        if str(args.lspci) == "-":
            print(text, end="")
            return 0
        args.lspci.write_text(text, encoding="ascii")
    if args.json:
        print_json({name: [device.as_dict() for device in devices] for name, devices in found.items()})
        return 0
    for bus in buses:
        print(f"bus {printable(bus.name)}")
        for device in found[bus.name]:
            print("\n".join(_lines(device)))
        if not found[bus.name]:
            missing = [stem for stem, line in (("AD", "AD0"), ("C/BE#", "CBE0#")) if line not in bus.lines]
            why = f"{' and '.join(missing)} not captured" if missing else "no configuration access was answered"
            print(f"  no devices: {why}")
    for name, devices in found.items():
        for device in devices:
            if device.bdf is None:
                text = f"{name}: {device.where}: several AD lines were high as IDSEL; which one is its own is not known"
                print(f"pcitrace: finding: {text}", file=sys.stderr)
    return 0


def _lines(device: Device) -> list[str]:
    from pcitrace.instrument.configspace import COMMAND_BITS, STATUS_BITS
    from pcitrace.instrument.pciids import class_name, device_name, vendor_name

    vendor, number = device.vendor_id, device.device_id
    ids = f"{'????' if vendor is None else f'{vendor:04x}'}:{'????' if number is None else f'{number:04x}'}"
    title = " ".join(filter(None, (vendor_name(vendor), device_name(vendor, number))))
    name = f"{device.name}, " if device.short else ""
    select = f" (IDSEL {'+'.join(device.idsel)})" if device.idsel else ""
    lines = [filled(f"{device.where}  {name}{ids}{f' {title}' if title else ''}{select}", 2, 11)]

    def say(what: str, text: str | None) -> None:
        if text:
            lines.append(filled(f"{what:<13}{text}", 4, 17))

    code, revision = device.class_code, device.revision
    if code is not None:
        known = class_name(code)
        say(
            "class",
            f"{code:06x}{f' {known}' if known else ''}" + ("" if revision is None else f", revision {revision:02x}"),
        )
    for bar in device.bars:
        say(bar.name, _bar(bar))
    command, status = device.command, device.status
    if command is not None:
        bits = ", ".join(text for n, text in enumerate(COMMAND_BITS) if command >> n & 1)
        accesses = len(device.history)
        times = "1 access" if accesses == 1 else f"{accesses} accesses"
        say("command", f"{command:04x}{f' {bits}' if bits else ''}; {times}")
    if status is not None:
        say("status", f"{status:04x} " + ", ".join(text for n, text in STATUS_BITS.items() if status >> n & 1))
    say("capabilities", ", ".join(device.capabilities))
    say("interrupt", device.interrupt_pin)
    return lines


def _bar(bar: Bar) -> str:
    place = "not placed" if bar.base is None else f"{bar.base:08x}"
    size = "size not read" if bar.bytes is None else format_bytes(bar.bytes)
    kind = "I/O" if bar.kind == "io" else bar.kind or "memory or I/O"
    width = f", {bar.bits} bit" if bar.bits else ""
    return f"{place}  {kind}, {size}{width}" + (", prefetchable" if bar.prefetchable else "")
