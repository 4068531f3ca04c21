"""Generated cards whose data were captured, that nobody had looked at when the analysis was made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tomli_w
from cardbench import Bench, score, write
from cardbench.files import profile as card_profile
from test_inorder import numbers, side

import pcitrace
from pcitrace import analysis
from pcitrace.frames.inorder import Followed
from pcitrace.frames.sides import whenever
from pcitrace.profiles import Register, load
from pcitrace.traffic.content import BRIEF_BYTES, HEAD, Heads, briefly, keys
from pcitrace.traffic.windows import Placed, Windows

ANOTHER = "another"
OWN = "card.toml"


@pytest.mark.parametrize(
    ("family", "seed", "profile", "least"),
    [
        ("groups", 35, "generic", {"csr_last": 46}),
        ("batched-status", 39, "generic", {"csr_last": 36}),
        ("other-master", 35, ANOTHER, {"csr_first": 61, "csr_last": 61}),
        ("groups", 46, ANOTHER, {"csr_first": 46, "csr_last": 46}),
        ("ring", 54, ANOTHER, {"csr_last": 51}),
        ("ring", 83, "generic", {"dma_start": 46, "wire_start": 46, "rx_dma_end": 46}),
        ("tiny", 48, "generic", {"dma_start": 60, "wire_start": 63, "rx_dma_start": 63}),
        ("scatter-gather", 66, "generic", {"dma_start": 27, "dma_end": 27, "length": 56}),
        ("cut-through", 64, OWN, {"rx_dma_start": 40, "rx_dma_end": 40}),
        ("cut-through", 64, "generic", {"dma_start": 40, "rx_dma_end": 40, "csr_first": 40}),
        ("tiny", 63, OWN, {"dma_start": 51, "rx_dma_end": 51, "csr_last": 51}),
        ("tiny", 50, OWN, {"dma_start": 42, "wire_start": 44, "rx_dma_start": 44}),
        ("tiny", 50, "generic", {"dma_start": 42, "wire_start": 44, "rx_dma_start": 44}),
        ("mid-stream", 3, OWN, {"dma_start": 16, "wire_start": 16, "rx_dma_start": 16}),
        ("mid-stream", 39, "generic", {"dma_start": 33, "wire_start": 34, "rx_dma_start": 34}),
        ("mid-stream", 45, OWN, {"dma_start": 42, "wire_start": 42, "rx_dma_start": 42}),
        ("mid-stream", 59, OWN, {"dma_start": 29, "wire_start": 29, "rx_dma_start": 29}),
        ("reread", 56, OWN, {"csr_first": 35, "csr_last": 35}),
        ("padding", 60, OWN, {"csr_first": 32, "csr_last": 32}),
        ("scatter-gather", 41, OWN, {"dma_start": 48, "rx_dma_start": 48}),
        ("wide66", 43, OWN, {"dma_start": 47, "rx_dma_end": 46}),
        ("cacheline", 37, OWN, {"dma_start": 64, "rx_dma_start": 64, "rx_dma_end": 64}),
        ("scatter-gather", 50, OWN, {"wire_start": 64, "length": 64}),
    ],
)
def test_nothing_is_wrong(family: str, seed: int, profile: str, least: dict[str, int], tmp_path: Path) -> None:
    """And as many values as `least` are right."""
    bench = Bench(family, seed)
    write(bench, tmp_path)
    kind = "csr-descriptors" if family == "ring" else "ring"
    other = card_profile(Bench(kind, seed + 1000, frames=2))
    (tmp_path / "another.toml").write_text(tomli_w.dumps(other))
    name = profile if profile == "generic" else str(tmp_path / f"{profile.removesuffix('.toml')}.toml")
    found = analysis.frames(pcitrace.open(tmp_path), profile=name)
    scored = score(bench, found.table, "vcd")
    assert scored.total()["wrong"] == scored.extra == scored.crossed == 0
    assert {field: min(scored.fields[field]["right"], count) for field, count in least.items()} == least
    if profile == ANOTHER:
        assert any(f"profile {other['name']}" in text for text in found.findings), found.findings


CROSSED = Followed(
    side([10.0, 20.0], [64] * 2, [2, 3]),
    side([15.0, 25.0, 35.0], [64] * 3, [0] * 3),
    side([18.0, 28.0, 38.0], [64] * 3, [1, 2, 3]),
    np.array([0, 2]),
    np.array([0, 1, 2]),
)


def test_a_send_is_the_frame_that_was_received_with_its_content() -> None:
    """The first of three frames was read before the capture began."""
    crossed = CROSSED
    assert numbers(crossed.as_received()) == ([1, 2], [0, 1, 2])
    both = replace(crossed, wire_of_send=np.array([0, 1]))
    assert numbers(both.as_received()) == ([1, 2], [0, 1, 2])
    behind = Followed(
        side([1.0, 2.0], [64] * 2, [1, 2]), crossed.on_wire, crossed.receive, np.array([1, 2]), np.array([0, 1, 2])
    )
    assert numbers(behind.as_received()) == ([0, 1], [0, 1, 2])


@pytest.mark.parametrize(
    ("keys", "right"),
    [([1, 2], [0, 1]), ([1, 9], [0, -1]), ([1, 0], [0, -1])],
    ids=["each other's", "nobody's", "not known"],
)
def test_a_frame_is_left_by_a_send_that_it_is_not(keys: list[int], right: list[int]) -> None:
    """Two sends have each other's frames; or one, which has none of its own, has what is the other's by its content."""
    found = Followed(
        side([1.0, 2.0], [64] * 2, keys), CROSSED.on_wire, CROSSED.receive, np.array([1, 0]), np.array([0, 1, 2])
    )
    assert numbers(found.as_received()) == (right, [0, 1, 2])


@pytest.mark.parametrize(
    "found",
    [
        replace(CROSSED, send=replace(CROSSED.send, end_us=np.array([28.0, 29.0]))),
        replace(CROSSED, on_wire=replace(CROSSED.on_wire, damaged=np.array([True, False, False]))),
        replace(CROSSED, send=replace(CROSSED.send, key=np.zeros(2, np.uint64))),
        replace(CROSSED, receive=replace(CROSSED.receive, key=np.array([0, 2, 3], np.uint64))),
        replace(CROSSED, receive=replace(CROSSED.receive, key=np.array([2, 2, 2], np.uint64))),
        replace(CROSSED, receive_of_wire=np.array([0, -1, 2])),
    ],
    ids=["too late for it", "damaged", "no content", "none in the receive", "several have it", "it was not received"],
)
def test_else_it_stays_the_frame_that_it_is(found: Followed) -> None:
    assert numbers(found.as_received()) == numbers(found)


def heads(rows: list[bytes]) -> Heads:
    data = np.zeros((len(rows), HEAD), np.uint8)
    for at, one in enumerate(rows):
        data[at, : len(one)] = np.frombuffer(one, np.uint8)
    return Heads(data, np.array([len(one) for one in rows]))


def frame(number: int, size: int) -> bytes:
    return (bytes(range(14)) + bytes([number]) * 46)[:size]


def test_a_short_send_has_the_key_of_the_receive_that_begins_alike() -> None:
    sent = heads([frame(1, 60), frame(2, 30), b"\xff\xff" + frame(3, 24), frame(4, BRIEF_BYTES - 1), frame(5, 30)])
    received = heads([frame(number, 60) for number in (3, 2, 1, 4)])
    found = briefly(keys(sent), sent, received)
    theirs = keys(received)
    assert found.tolist() == [keys(sent)[0], theirs[1], theirs[0], 0, 0]
    twice = heads([frame(2, 60), frame(2, 60)])
    assert briefly(keys(sent), sent, twice).tolist() == [keys(sent)[0], 0, 0, 0, 0]
    two = heads([frame(2, 30), frame(2, 30)])
    assert not briefly(keys(two), two, received).any()
    assert not briefly(keys(two), None, received).any()
    later = heads([frame(2, 24) + b"\x09" + frame(2, 60)[25:]])
    assert not briefly(keys(sent), sent, later)[1:].any()


class Bus(SimpleNamespace):
    """Writes to one register."""


class Data(SimpleNamespace):
    """What was written."""

    def first(self, rows: np.ndarray) -> np.ndarray:
        return np.array(self.values)[rows]


@pytest.mark.parametrize(
    ("values", "command", "own"),
    [
        ([0, 0, 0], 7, False),
        ([0, 0], 7, True),
        ([0, 0, 1], 7, True),
        ([-1, -1, -1], 7, True),
        ([0, 0, 0], 6, True),
    ],
    ids=["it never moves", "two writes", "it moves", "no values were captured", "it was read"],
)
def test_a_tail_that_never_moves_is_of_another_card(values: list[int], command: int, own: bool) -> None:
    register = Register("TAIL", "csr", 4, role="send_doorbell", value="tail")
    profile = replace(load("generic"), name="card", registers=(register,))
    windows = Windows(profile, (Placed("csr", 0x1000, 4096, "memory", ""),))
    count = len(values)
    bus = Bus(
        address=np.full(count, 0x1004),
        command=np.full(count, command),
        data_phases=np.ones(count),
        transaction=np.arange(count),
    )
    found = windows.tried(bus, Data(values=values))
    assert (found is windows) == own
    assert len(found.findings) == (0 if own else 1)


def test_nothing_bounds_when_a_frame_ended() -> None:
    since_us, until_us = whenever(3)
    assert (since_us == -np.inf).all()
    assert (until_us == np.inf).all()
