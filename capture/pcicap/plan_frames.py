"""``[test]`` of a plan: which frames framegen sends."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcicap.fields import Fields

_MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")

KINDS = (
    "request-response",
    "ping-pong",
    "stream",
    "max-rate",
    "background",
    "one-to-many",
    "many-to-one",
    "clock",
)
_LEAST, _MOST, _MOST_JUMBO = 36, 1500, 9216
"""User bytes: framegen's header, the length field's most, with an EtherType."""
_MAX_FRAMES = 10_000_000
_ALLOW = ("default-route", "multicast", "broadcast", "unknown", "pause")
_CHOICES = {
    "arrivals": ("regular", "poisson", "burst", "file"),
    "late": ("slip", "catch-up", "skip"),
    "direction": ("to-peer", "from-peer", "both"),
    "payload": ("constant", "ramp", "random"),
    "receive": ("busy", "batch", "ring", "hardware"),
    "transmit": ("send", "batch", "ring"),
    "answers": ("unicast", "group"),
}
_INTEGERS = (
    "count",
    "seed",
    "burst",
    "request_bytes",
    "marks",
    "priority",
    "histogram_ns",
    "quanta",
    "link_mbit",
    "max_frames",
    "max_bytes",
    "max_rate_mbit",
)
_NUMBERS = ("seconds", "spacing_us", "timeout_ms", "drain_ms", "max_seconds", "pause_seconds", "pause_after_ms")
_FILES = {"key": "give a file that every host has", "times": "give a file with one time in µs a line"}
_CPUS = re.compile(r"\d+(,\d+)?")
_SIZES = re.compile(r"\d+(,\d+)*|\d+:\d+(:\d+)?|\d+\+-\d+")


@dataclass(frozen=True)
class FrameTest:
    """Frames to send.

    Attributes
    ----------
    kind : str
        One of `KINDS`.
    sizes : str or None
        User bytes, as framegen takes them: ``64,512``, ``64:1500:1``, ``1000+-3``.
    options : mapping
        framegen's options by name; paths are resolved.
    allow : tuple of str
        Safety rules that are lifted on purpose.
    extra_peers : tuple of str
        Addresses of peers beyond the second host.
    bystanders : tuple of str
        Addresses of nodes that count what a switch floods to them.
    max_seconds : float
        Bound of the whole test.
    """

    kind: str
    sizes: str | None
    options: Mapping[str, Any]
    allow: tuple[str, ...]
    extra_peers: tuple[str, ...]
    bystanders: tuple[str, ...]
    max_seconds: float

    def arguments(self) -> list[str]:
        """Command line of framegen, without interface and peers."""
        out = [self.kind]
        if self.sizes:
            out += ["--sizes", self.sizes]
        for key, value in self.options.items():
            option = "--" + key.replace("_", "-")
            if value is True:
                out.append(option)
            elif value is not False:
                out += [option, str(value)]
        for bystander in self.bystanders:
            out += ["--bystander", bystander]
        return out + [f"--allow-{rule}" for rule in self.allow]


def read_test(fields: Fields, folder: Path) -> FrameTest:
    """Check ``[test]``.

    Raises
    ------
    PlanError
        Names the key, what was found and what to write.
    """
    kind = fields.choice("kind", KINDS)
    options: dict[str, Any] = {}
    for key, choices in _CHOICES.items():
        if fields.has(key):
            options[key] = fields.choice(key, choices)
    for key in _INTEGERS:
        if fields.has(key):
            options[key] = fields.integer(key, least=1 if key in ("count", "burst") else 0)
    for key in _NUMBERS:
        if fields.has(key):
            options[key] = fields.number(key, positive=key not in ("spacing_us", "pause_after_ms"))
    for key in ("ethertype", "udp"):
        if fields.has(key):
            options[key] = fields.flag(key)
    if options.get("udp") and options.get("ethertype"):
        fields.refuse("udp", "given beside ethertype", "give one of them")
    if fields.has("cpu"):
        options["cpu"] = fields.text("cpu")
        if not _CPUS.fullmatch(options["cpu"]):
            fields.refuse("cpu", f"is {options['cpu']!r}", 'write "2", or "2,3": sending and receiving')
    if fields.has("group"):
        group = fields.text("group")
        options["group"] = group if options.get("udp") and is_ipv4(group) else _address(fields, "group", group)
    for key, wanted in _FILES.items():
        if fields.has(key):
            options[key] = (folder / fields.text(key)).resolve()
            if not options[key].is_file():
                fields.refuse(key, f"{options[key]} does not exist", wanted)
    if "count" in options and "seconds" in options:
        fields.refuse("seconds", "given beside count", "give one of them")
    if (options.get("arrivals") == "file") != ("times" in options):
        fields.refuse("times", 'goes with arrivals = "file"', "give both or neither")
    test = FrameTest(
        kind,
        _sizes(fields),
        options,
        tuple(_listed(fields, "allow", _ALLOW)),
        tuple(fields.texts("extra_peers", [])),
        tuple(fields.texts("bystanders", [])),
        float(options.get("max_seconds", 60.0)),
    )
    for index, mac in enumerate(test.extra_peers):
        if not (options.get("udp") and is_ipv4(mac)):
            check_host_address(fields, f"extra_peers[{index}]", mac, test.allow)
    for index, mac in enumerate(test.bystanders):
        check_host_address(fields, f"bystanders[{index}]", mac)
    most = options.get("max_frames", _MAX_FRAMES)
    if options.get("count", 1) > most:
        fields.refuse("count", f"is {options['count']}", f"a stream has at most max_frames = {most}")
    _check_sizes(fields, test)
    fields.end()
    return test


def is_ipv4(text: str) -> bool:
    """Whether a text is an IPv4 address: what peers have where frames go by UDP."""
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def _address(fields: Fields, name: str, mac: str) -> str:
    """An Ethernet address as it is; anything else is refused."""
    if not _MAC.fullmatch(mac):
        fields.refuse(name, f"{mac!r} is no address", "write six bytes like 02:00:00:00:00:0b")
    return mac


def check_host_address(fields: Fields, name: str, mac: str, allow: Collection[str] = ()) -> str:
    """Address of one host: no group's, nor nobody's, unless the plan allows it."""
    if _MAC.fullmatch(_address(fields, name, mac)):
        if int(mac.replace(":", ""), 16) == 0:
            fields.refuse(name, f"{mac} is nobody's address", "write the one that 'framegen serve' prints there")
        elif int(mac[:2], 16) & 1 and not {"multicast", "broadcast"} & set(allow):
            fields.refuse(name, f"{mac} is a group's address", "write the one that 'framegen serve' prints there")
    return mac


def _check_sizes(fields: Fields, test: FrameTest) -> None:
    """User bytes that a frame can have: framegen's header is the least."""
    most = _MOST_JUMBO if test.options.get("ethertype") or test.options.get("udp") else _MOST
    numbers = [int(number) for number in re.findall(r"\d+", test.sizes or "")]
    if test.sizes and ":" in test.sizes:
        numbers = numbers[:2]
    elif test.sizes and "+-" in test.sizes:
        numbers = [numbers[0] - numbers[1], numbers[0] + numbers[1]]
    for name, sizes in (("sizes", numbers), ("request_bytes", [test.options.get("request_bytes", _LEAST)])):
        for size in sizes:
            if not _LEAST <= size <= most:
                fields.refuse(name, f"has {size}", f"a frame has {_LEAST} to {most} user bytes")
                break


def _listed(fields: Fields, name: str, known: tuple[str, ...]) -> list[str]:
    values = fields.texts(name, [])
    for index, value in enumerate(values):
        if value not in known:
            fields.refuse(f"{name}[{index}]", f"{value!r} is not known", f"write some of {', '.join(known)}")
    return values


def _sizes(fields: Fields) -> str | None:
    """A list of sizes, one size, or framegen's own short forms."""
    if not fields.has("sizes"):
        return None
    value = fields.raw("sizes")
    values = value if isinstance(value, list) else [value]
    if values and all(type(size) is int and size > 0 for size in values):
        return ",".join(map(str, values))
    if isinstance(value, str) and _SIZES.fullmatch(value):
        return value
    fields.refuse("sizes", f"is {value!r}", 'write user bytes: [64, 512], "64:1500:1" (first:last:step) or "1000+-3"')
    return None
