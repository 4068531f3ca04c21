"""What contents, bytes and times prove of frames that were read again."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pcitrace.frames.proved import proved
from pcitrace.traffic.content import HEAD, Heads
from pcitrace.traffic.goals import RECEIVE, SEND


@dataclass
class Wire:
    """Frames on a wire: when, and of how many bytes."""

    start_us: Any
    end_us: Any
    least: Any
    most: Any = None

    def __post_init__(self) -> None:
        self.most = self.least if self.most is None else self.most

    def __len__(self) -> int:
        return len(self.start_us)


@dataclass
class Case:
    """Three frames of 100 bytes, each read, sent and written before the next one; each in two pieces in one buffer."""

    sent_us: list[float] = field(default_factory=lambda: [0.0, 20.0, 40.0])
    wire_us: list[float] = field(default_factory=lambda: [5.0, 25.0, 45.0])
    wire_bytes: int = 100
    sent: list[list[tuple[int, int]]] = field(default_factory=lambda: [[(0, 64), (64, 36)]] * 3)
    received: list[list[tuple[int, int]]] = field(default_factory=lambda: [[(0, 64), (64, 36)]] * 3)
    ahead: int = 0
    says: int = 0x8000
    exact: bool = True
    receive_fcs: bool = False
    loose: tuple[float, int, int, int] | None = None

    def proved(self) -> tuple[list[bool], list[bool]]:
        """Return which sends are proved, and which receives."""
        a = self._end(np.array(self.sent_us), self.sent, "send_head")
        b = self._end(np.array(self.wire_us) + 8.0, self.received, "receive_head")
        start_us = np.array(self.wire_us)
        a.wire = Wire(start_us, start_us + 5.0, np.full(3, self.wire_bytes))
        rows = np.arange(3)
        bytes_ = [np.array([sum(size for _, size in one) for one in side]) for side in (self.sent, self.received)]
        columns = {
            "sender": np.array(["A"] * 3),
            "wire_row": rows,
            "send_row": rows,
            "receive_row": rows,
            "send_burst": rows,
            "receive_burst": rows,
            "send_bytes": bytes_[0],
            "receive_bytes": bytes_[1],
        }
        found = proved({"A": a, "B": b}, columns, np.ones(3, dtype=bool))
        return found[SEND].tolist(), found[RECEIVE].tolist()

    def _end(self, start_us: Any, bursts: list[list[tuple[int, int]]], which: str) -> Any:
        pieces = [(burst, *piece) for burst, some in enumerate(bursts) for piece in some]
        burst, address, size = np.array(pieces).T
        time_us, write = start_us[burst], np.full(len(burst), int(which != "send_head"))
        if self.loose is not None:
            # A piece of no frame: when, where, of how many bytes, and which way.
            extra = zip((time_us, address, size, write), self.loose, strict=True)
            time_us, address, size, write = (np.append(*one) for one in extra)
            burst = np.append(burst, 3)
        bus = SimpleNamespace(
            address=address, bytes=size, data_phases=size // 4, bytes_exact=self.exact, first_data_us=time_us
        )
        dma = SimpleNamespace(burst=burst, bus=bus, write=write)
        joined = SimpleNamespace(first_data_us=start_us, last_data_us=start_us + 2.0)
        host = SimpleNamespace(
            traffic=SimpleNamespace(dma=dma, joined=joined), profile=SimpleNamespace(receive_fcs=self.receive_fcs)
        )
        data = np.zeros((3, HEAD), np.uint8)
        data[:, 20] = np.arange(1, 4)
        data[:, 12:14] = divmod(self.says, 256)
        if which == "send_head":
            data = np.roll(data, self.ahead, axis=1)
        heads = Heads(data, np.full(3, HEAD))
        return SimpleNamespace(host=host, wire=None, send_head=heads, receive_head=heads)


ALL, NONE = [True] * 3, [False] * 3


@pytest.mark.parametrize(
    ("case", "found"),
    [
        (Case(), (ALL, ALL)),
        (Case(sent=[[(0, 64), (64, 39)]] * 3), (ALL, ALL)),
        (Case(sent=[[(0, 64), (64, 40)]] * 3), (NONE, ALL)),
        (Case(sent=[[(0, 64), (64, 35)]] * 3), (NONE, ALL)),
        (Case(sent=[[(0, 64), (64, 39)]] * 3, ahead=2), (NONE, ALL)),
        (Case(ahead=2), (ALL, ALL)),
        (Case(sent=[[(0, 14), (500, 86)]] * 3), (ALL, ALL)),
        (Case(sent=[[(0, 16), (500, 86)]] * 3), (NONE, ALL)),
        (Case(sent=[[(0, 14), (500, 86)]] * 2 + [[(0, 34), (500, 66)]]), ([True, True, False], ALL)),
        (Case(sent=[[(0, 14), (500, 60), (900, 26)]] * 3), (NONE, ALL)),
        (Case(received=[[(0, 64), (64, 40)]] * 3, receive_fcs=True), (ALL, ALL)),
        (Case(received=[[(0, 64), (64, 40)]] * 3), (ALL, NONE)),
        (Case(wire_bytes=60, sent=[[(0, 48)]] * 3, received=[[(0, 60)]] * 3, says=34), (ALL, ALL)),
        (Case(wire_bytes=60, sent=[[(0, 44)]] * 3, received=[[(0, 60)]] * 3, says=34), (NONE, ALL)),
        (Case(wire_bytes=60, sent=[[(0, 48)]] * 3, received=[[(0, 60)]] * 3), (NONE, ALL)),
        (Case(exact=False), (NONE, NONE)),
        (Case(loose=(15.0, 0, 16, 0)), ([False, False, True], ALL)),
        (Case(loose=(-5.0, 96, 16, 0)), ([False, True, True], ALL)),
        (Case(loose=(47.0, 60, 8, 0)), ([True, True, False], ALL)),
        (Case(loose=(15.0, 100, 16, 0)), (ALL, ALL)),
        (Case(loose=(21.0, 0, 16, 1)), (ALL, [False, False, True])),
        (Case(sent_us=[0.0, 20.0, 22.0]), ([True, True, False], [True, True, False])),
    ],
    ids=[
        "as long as on the wire",
        "not a data phase more",
        "a data phase more",
        "a byte is missing",
        "the first data phase has bytes before it",
        "the same, and it is as long",
        "in two buffers",
        "in two buffers, and more",
        "another header than most",
        "in three buffers",
        "with its check sequence",
        "with what may be a word of status",
        "padded, as long as it says",
        "padded, less than it says",
        "padded, and it says nothing",
        "its bytes are not known",
        "it was read between two",
        "it was read before the first",
        "it was read behind the last",
        "what was read lies behind it",
        "it was written",
        "another one was on the wire meanwhile",
    ],
)
def test_what_is_proved(case: Case, found: tuple[list[bool], list[bool]]) -> None:
    assert case.proved() == found
