"""Trigger search in the recorded samples, with what came before the trigger.

A trigger is written as sigrok-cli writes it, ``A_FRAME#=f,A_IRDY#=1``: all channels at once, and successive
characters are successive samples. ``0 1`` are levels, ``r f e`` a rise, a fall, either. The search runs here and not
in libsigrok because its software trigger counts the samples before the trigger against the number asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

Condition = tuple[tuple[tuple[int, str], ...], ...]
"""One entry a stage: (bit, one of ``01rfe``) of every channel the stage looks at."""


def parse_trigger(text: str, bits: Mapping[str, int]) -> Condition:
    """Stages of a trigger.

    Parameters
    ----------
    text : str
        ``CHANNEL=chars,...``.
    bits : mapping of str to int
        Channel name -> bit of a sample.

    Raises
    ------
    ValueError
        Unknown channel, unknown character, or nothing to look at; the text says which.

    Examples
    --------
    >>> parse_trigger("FRAME#=f0,IRDY#=1", {"FRAME#": 1, "IRDY#": 2})
    (((1, 'f'), (2, '1')), ((1, '0'),))
    """
    stages: list[list[tuple[int, str]]] = []
    for part in text.split(","):
        name, equals, matches = part.strip().partition("=")
        if not equals or not matches:
            raise ValueError(f"{part.strip()!r} is not CHANNEL=chars")
        if name not in bits:
            raise ValueError(f"no channel {name!r}; there are {', '.join(bits)}")
        if wrong := set(matches) - set("01rfe"):
            raise ValueError(f"{name}: {''.join(sorted(wrong))!r} is none of 0 1 r f e")
        for stage, match in enumerate(matches):
            if stage == len(stages):
                stages.append([])
            stages[stage].append((bits[name], match))
    return tuple(tuple(stage) for stage in stages)


class TriggerSearch:
    """Finds the first sample at which a trigger is met, in a stream of blocks, and keeps what came before it.

    Parameters
    ----------
    condition : Condition
        From `parse_trigger`.
    unit_size : int
        Bytes a sample.
    pre_samples : int
        Samples to keep from before the trigger; fewer are there when it comes early.
    """

    def __init__(self, condition: Condition, unit_size: int, pre_samples: int) -> None:
        self._condition = condition
        self._unit_size = unit_size
        self._pre_samples = pre_samples
        self._kept: deque[bytes] = deque()
        self._kept_samples = 0
        self._seen = 0
        self._tail = b""
        self.searched = 0
        """Samples that have been looked at."""

    def feed(self, block: bytes) -> tuple[int, bytes] | None:
        """Look at whole samples more.

        Returns
        -------
        tuple of (int, bytes) or None
            Once found: how many samples before the trigger the kept bytes begin, and those bytes, which end with
            `block`. None while it is not found.
        """
        unit = self._unit_size
        # Stages and edges reach over the seam: the last samples of the block before are looked at once more.
        overlap = len(self._tail) // unit
        joined = self._tail + block
        samples = np.frombuffer(joined, np.uint8).reshape(-1, unit)
        hit = self._first(samples)
        self._kept.append(block)
        self._kept_samples += len(block) // unit
        self.searched += len(block) // unit
        if hit is not None:
            first = self.searched - len(block) // unit - overlap + hit  # sample number of the trigger in the stream
            everything = b"".join(self._kept)
            begin = self.searched - len(everything) // unit
            start = max(begin, first - self._pre_samples)
            return first - start, everything[(start - begin) * unit :]
        self._tail = joined[max(0, len(joined) - len(self._condition) * unit) :]
        reach = self._pre_samples + len(self._condition)
        while self._kept_samples - len(self._kept[0]) // unit >= reach:
            self._kept_samples -= len(self._kept.popleft()) // unit
        return None

    def kept(self) -> bytes:
        """Samples held back so far: what is left of a capture whose trigger never came."""
        return b"".join(self._kept)

    def _first(self, samples: NDArray[np.uint8]) -> int | None:
        stages = len(self._condition)
        count = len(samples) - stages + 1
        if count <= 0:
            return None
        met = np.ones(count, bool)
        for stage, matches in enumerate(self._condition):
            for bit, match in matches:
                level = (samples[:, bit // 8] >> bit % 8 & 1).astype(bool)
                met &= _meets(level, match)[stage : stage + count]
        index = int(met.argmax())
        return index if met[index] else None


def _meets(level: NDArray[np.bool_], match: str) -> NDArray[np.bool_]:
    """Samples that meet one character. The first sample has none before it: no edge is seen there."""
    match match:
        case "0":
            return ~level
        case "1":
            return level
    before = np.concatenate((level[:1], level[:-1]))
    match match:
        case "r":
            return level & ~before
        case "f":
            return ~level & before
        case _:
            return level ^ before
