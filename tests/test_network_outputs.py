"""Outputs of other programs that are cut, damaged, of other versions and languages: one clear line, never a number."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import REPOSITORY

from pcitrace.errors import ConfigurationError
from pcitrace.network import importers
from pcitrace.network.result import Result

OUTPUTS = sorted((REPOSITORY / "fixtures/network").iterdir())
WRONG: tuple[Any, ...] = (None, "x", -1, 0, [], {}, 1e400, "12")


def content(path: Path) -> bytes:
    """What the program wrote."""
    raw = path.read_bytes()
    return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw


def tried(path: Path) -> Result | ConfigurationError:
    """What comes of a file."""
    try:
        return importers.read(path)
    except ConfigurationError as error:
        return error


def read(folder: Path, written: bytes) -> Result | ConfigurationError:
    """A result all of whose numbers can be, alone and among others; or an error that says what is wrong where."""
    path = folder / "output"
    path.write_bytes(written)
    found = tried(path)
    if isinstance(found, ConfigurationError):
        assert str(found).startswith(f"{path}: ")
        assert len(str(found).splitlines()) == 1
        return found
    importers.together([found, found])
    importers.calls([("1K", found), ("2K", found)])
    for one in found.parameters.values():
        assert one.value is None or 0 <= one.value < float("inf")
        assert one.sigma is None or one.sigma >= 0
        assert one.value is not None or one.reason
    return found


def replaced(output: Any) -> Iterator[Any]:
    """An output with one value left out, or another in its place."""

    def places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        inner = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
        for key, one in inner:
            yield (*before, key)
            yield from places(one, (*before, key))

    for *way, last in places(output):
        for new in ("left out", *WRONG):
            damaged = copy.deepcopy(output)
            at = damaged
            for key in way:
                at = at[key]
            if new == "left out":
                del at[last]
            else:
                at[last] = new
            yield damaged


@pytest.mark.parametrize("path", OUTPUTS, ids=lambda path: path.name)
def test_cut_anywhere_it_gives_nothing_else(path: Path, tmp_path: Path) -> None:
    whole = importers.read(path)
    text = content(path)
    for end in range(0, len(text) - 1, max(1, len(text) // 200)):
        found = read(tmp_path, text[:end])
        if isinstance(found, Result) and found.kind != "nptcp":  # whose lines are whole measurements each
            known = {name: one.value for name, one in found.parameters.items() if one.value is not None}
            assert known.items() <= {name: one.value for name, one in whole.parameters.items()}.items()
    for begin in range(1, len(text), len(text) // 50):
        read(tmp_path, text[begin:])


@pytest.mark.parametrize("path", [path for path in OUTPUTS if ".json" in path.name], ids=lambda path: path.name)
def test_a_value_of_another_kind_is_told(path: Path, tmp_path: Path) -> None:
    output = json.loads(content(path))
    if "round_trips" in output:
        output["round_trips"] = output["round_trips"][:8]
    for key in ("server_output_json", "intervals"):
        if key in output:
            output[key] = output[key][:2] if key == "intervals" else {}
    for damaged in replaced(output):
        read(tmp_path, json.dumps(damaged).encode())


@pytest.mark.parametrize("path", [path for path in OUTPUTS if ".json" not in path.name], ids=lambda path: path.name)
def test_two_calls_in_one_file_are_not_one(path: Path, tmp_path: Path) -> None:
    text = content(path)
    other = text.replace(b"996.7185", b"1993.437").replace(b"8332.6335", b"16665.2670") if b"996" in text else text
    other = other.replace(b"11.2045", b"22.409").replace(b"93.9814", b"187.9628")
    assert "its own file" in str(read(tmp_path, text + other))


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("ping-D.txt", lambda text: text.replace("bytes of data", "Bytes an Daten"), "of another version or language"),
        ("ping-D.txt", lambda text: text.replace("packets transmitted", "Pakete gesendet"), "version or language"),
        ("ping-D.txt", lambda text: text.replace("5 received", "7 received"), "received is 7, which cannot be"),
        ("iperf3-tcp.json", lambda text: text.replace("iperf 3.", "iperf 2."), "this reads iperf 3.x"),
        ("nuttcp-tcp.txt", lambda text: text.replace("996.7185", "99.67185"), "do not agree"),
        ("nuttcp-udp.txt", lambda text: text.replace("drop=0 ", ""), "damaged, or of another version"),
        ("np.out", lambda text: "\n \n", "is empty"),
    ],
)
def test_other_versions_and_languages_are_told(
    name: str, change: Callable[[str], str], said: str, tmp_path: Path
) -> None:
    text = (REPOSITORY / "fixtures/network" / name).read_text()
    assert said in str(read(tmp_path, change(text).encode()))


def test_intervals_of_one_call_are_no_calls(tmp_path: Path) -> None:
    """nuttcp -i1: a line a second, without one for the last, and the total."""
    text = (REPOSITORY / "fixtures/network/nuttcp-tcp.txt").read_text()
    whole = read(tmp_path, text.encode())
    found = read(tmp_path, b"megabytes=300.0625 real_sec=1.00 rate_Mbps=2517.1 retrans=0\n" + text.encode())
    assert isinstance(whole, Result)
    assert isinstance(found, Result)
    assert found.parameters == whole.parameters


def test_a_round_trip_that_iperf3_was_not_told_is_not_zero(tmp_path: Path) -> None:
    """Backwards (-R) the server sends, and its mean_rtt is 0 in the client's output."""
    output = json.loads((REPOSITORY / "fixtures/network/iperf3-tcp.json").read_text())
    output["end"]["streams"][0]["sender"]["mean_rtt"] = 0
    found = read(tmp_path, json.dumps(output).encode())
    assert isinstance(found, Result)
    assert found.tables["call"]["rtt_us"].isna().all()


def test_which_of_both_directions_is_told(tmp_path: Path) -> None:
    output = json.loads((REPOSITORY / "fixtures/network/iperf3-tcp.json").read_text())
    output["end"]["sum_received_bidir_reverse"] = {"bits_per_second": 7.25e9}
    found = read(tmp_path, json.dumps(output).encode())
    assert isinstance(found, Result)
    assert "of the one to the server, back came 7250 Mbit/s" in found.findings[0]


def test_nothing_came_back(tmp_path: Path) -> None:
    """All lost: counts, and no latency without an answer."""
    text = "PING 10.9.9.2 (10.9.9.2) 56(84) bytes of data.\n\n--- 10.9.9.2 ping statistics ---\n"
    found = read(tmp_path, f"{text}5 packets transmitted, 0 received, 100% packet loss, time 818ms\n\n".encode())
    assert isinstance(found, Result)
    assert (found.parameters["lost"].value, found.parameters["latency_us"].value) == (5, None)
    output = json.loads(content(REPOSITORY / "fixtures/network/irtt.json.gz"))
    output["stats"]["packets_received"] = 0
    for trip in output["round_trips"]:
        trip["lost"] = "true"
        trip.pop("delay", None)
    found = read(tmp_path, json.dumps(output).encode())
    assert isinstance(found, Result)
    assert found.parameters["lost"].value == found.parameters["sent"].value
    assert {found.parameters[name].value for name in ("latency_us", "fwhm_us", "sigma_us")} == {None}


def test_copies_are_no_answers(tmp_path: Path) -> None:
    """BusyBox and BSD say how many; their times are those of the first answer and some."""
    lines = "".join(f"64 bytes from x: icmp_seq={n} ttl=64 time=0.04{n} ms\n" for n in range(1, 7))
    copies = "64 bytes from x: icmp_seq=1 ttl=64 time=9.0 ms (DUP!)\n" * 6
    end = "6 packets transmitted, 6 packets received, +6 duplicates, 0.0% packet loss\n"
    found = read(tmp_path, f"PING x (10.9.9.2): 56 data bytes\n{lines}{copies}\n{end}".encode())
    assert isinstance(found, Result)
    assert found.parameters["duplicated"].value == 6
    assert 41 <= (found.parameters["latency_us"].value or 0) <= 46
