"""One frame: its bytes, and what became of it."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass, field

from .bus import Transaction


@dataclass(eq=False, slots=True)
class Frame:
    """One frame on its way; times in ns, pieces in order."""

    sender: str
    number: int
    user_bytes: int
    memory: bytes = b""
    release: float = 0.0
    submit: float = 0.0
    accesses: list[list[float]] = field(default_factory=list)
    doorbell: list[float] = field(default_factory=list)
    sent: list[Transaction] = field(default_factory=list)
    received: list[Transaction] = field(default_factory=list)
    wire_start: float | None = None
    wire_end: float | None = None
    lost: bool = False
    dropped: bool = False
    seen: float | None = None
    buffers: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        header = bytes.fromhex("020000c0ffee0200000dab1e88b5")
        head = bytes((ord(self.sender), 1)) + self.number.to_bytes(2, "big") + self.user_bytes.to_bytes(2, "big")
        body = random.Random(f"{self.sender}{self.number}").randbytes(self.user_bytes)
        self.memory = header + head[: self.user_bytes] + body[len(head[: self.user_bytes]) :]

    @property
    def on_wire(self) -> bytes:
        """From the first byte of the header to the last of the frame check sequence."""
        padded = self.memory.ljust(60, b"\0")
        return padded + zlib.crc32(padded).to_bytes(4, "little")

    @property
    def wire_bytes(self) -> int:
        return len(self.on_wire) + 8
