"""What sigrok-cli says of devices, and whether they suit PCI."""

from __future__ import annotations

import json

import pytest
from lab import TwoHosts, pcicap
from pcicap.analysers.sigrok_cli import Log, parse_show
from pcicap.devices import judge, text


def shown(model: str, channels: int, rates: str, options: str = "") -> str:
    """Output of ``sigrok-cli --show`` (0.7.2) for a logic analyser."""
    names = " ".join(str(number) for number in range(channels))
    return f"""Driver functions:
    Logic analyzer
Scan options:
    conn
box:conn=1.7 - {model} with {channels} channels: {names}
Channel groups:
    Logic: channels {names}
Supported configuration options:
    continuous: on, off
    limit_samples: 0 (current)
{rates}{options}    Supported triggers: 0 1 r f e
    captureratio: 50 (current)
"""


LISTED = "    samplerate - supported samplerates:\n      10 kHz\n      1 MHz (current)\n      {} MHz\n"
RANGE = "    samplerate (10 Hz - {} in steps of 1 Hz)\n"
EXTERNAL = "    external_clock: on, off (current)\n    clock_edge: r (current), f\n"


@pytest.mark.parametrize(
    ("output", "rate", "suits33", "suits66"),
    [
        (shown("Fast", 16, LISTED.format(100)), 100e6, True, False),
        (shown("Faster", 32, LISTED.format(500)), 500e6, True, True),
        (shown("Beagle", 14, RANGE.format("100 MHz")), 100e6, True, False),
        (shown("Slow", 8, LISTED.format(24)), 24e6, False, False),
        (shown("Clocked", 16, LISTED.format(50), EXTERNAL), 50e6, True, True),
        (shown("Narrow", 3, LISTED.format(500)), 500e6, False, False),
        (shown("Silent", 8, "    samplerate\n"), None, False, False),
    ],
)
def test_what_suits_pci(output: str, rate: float | None, suits33: bool, suits66: bool) -> None:
    device = parse_show(output, "box", "1.7")
    assert device
    assert device.max_rate_hz == rate
    assert device.triggers == "01rfe"
    verdicts = judge(device)
    assert [(verdict.clock_mhz, verdict.suits) for verdict in verdicts] == [(33, suits33), (66, suits66)]
    assert all(verdict.why for verdict in verdicts)


def test_state_mode_options_are_seen() -> None:
    device = parse_show(shown("Clocked", 16, LISTED.format(50), EXTERNAL), "box", "")
    assert device
    assert {"external_clock", "clock_edge", "continuous", "captureratio"} <= set(device.options)


def test_analog_channels_are_no_bits() -> None:
    output = shown("Mixed", 2, LISTED.format(100)).replace("with 2 channels: 0 1", "with 3 channels: A0 0 1")
    device = parse_show(output, "box", "")
    assert device
    assert device.channels == ("0", "1")


def test_no_device() -> None:
    assert parse_show("Driver functions:\n    Logic analyzer\nScan options:\n    conn\n", "box", "") is None


def test_log_of_an_acquisition() -> None:
    log = Log()
    for line in (
        "sr: [00:00.002346] session: bus: Received SR_DF_HEADER packet.",
        "cli: Received SR_DF_LOGIC (4 bytes, unitsize = 2).",
        "cli: Received SR_DF_TRIGGER.",
        "cli: Received SR_DF_LOGIC (996 bytes, unitsize = 2).",
        "sr: [00:01.000001] beaglelogic: Send error: Connection reset by peer.",
    ):
        log.line(line)
    assert log.header_ns is None, "libsigrok's own line is not the client's"
    log.line("cli: Received SR_DF_HEADER.")
    assert log.header_ns
    assert (log.unit_size, log.logic_bytes, log.trigger_byte, log.end) == (2, 1000, 4, False)
    assert log.complaint == "beaglelogic: Send error: Connection reset by peer"


def test_report_in_json_and_words() -> None:
    hosts = TwoHosts()
    try:
        done = pcicap("devices", "--json", before=hosts.a)
    finally:
        hosts.close()
    assert done.status == 0
    found = json.loads(done.out)
    (demo,) = [device for device in found["analysers"] if device["driver"] == "demo"]
    assert [entry["suits"] for entry in demo["pci"]] == [False, False]
    (left,) = [entry for entry in found["interfaces"] if entry["name"] == "left"]
    assert left["raw_frames"] is True
    assert "software receive" in text(found)
    assert found["problems"] == []


def test_a_device_that_is_asked_for() -> None:
    done = pcicap("devices", "--device", "beaglelogic:conn=tcp/127.0.0.1/1")
    assert done.status == 0
    assert "problem: beaglelogic:conn=tcp/127.0.0.1/1" in done.out
