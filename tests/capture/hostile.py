"""Frames that framegen itself would not send, for the tests of what it does with them."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct
import threading
import time
import zlib
from types import TracebackType
from typing import Any

from network import INTERFACE, Host

MAGIC = bytes.fromhex("6c4647b1")
CONTROL, SYNC, LOG, DATA, REQUEST, RESPONSE, MARK = 1, 2, 3, 16, 17, 18, 19


def user_data(
    kind: int,
    payload: bytes = b"",
    *,
    flags: int = 0,
    session: int = 0,
    number: int = 0,
    stream: int = 0,
    node: int = 0,
    send_ns: int = 0,
    length: int | None = None,
    version: int = 1,
    good_crc: bool = True,
) -> bytes:
    """Header and payload; whatever is asked for, sense or nonsense."""
    total = 36 + len(payload) if length is None else length
    head = MAGIC + struct.pack(
        ">BBHIHHIqHH", version, kind, flags, session, stream, node, number, send_ns, total & 0xFFFF, 0
    )
    return head + struct.pack(">I", zlib.crc32(head) ^ (not good_crc)) + payload


def protected(content: bytes) -> bytes:
    """Content behind its CRC, as in control and log frames."""
    return struct.pack(">I", zlib.crc32(content)) + content


def control(message: Any, *, flags: int = 0, session: int = 0, number: int = 0) -> bytes:
    """A control message."""
    content = message if isinstance(message, bytes) else json.dumps(message).encode()
    return user_data(CONTROL, protected(content), flags=flags, session=session, number=number)


def hello(*, session: int, number: int, flags: int = 0, version: int = 1) -> bytes:
    """A hello of any version."""
    content = protected(json.dumps({"hello": {"program": "x"}}).encode())
    return user_data(CONTROL, content, flags=flags, session=session, number=number, version=version)


def message(frame: bytes) -> Any:
    """The JSON of a control frame as received."""
    length = int.from_bytes(frame[42:44], "big")
    return json.loads(frame[14 + 40 : 14 + length])


class Raw:
    """A packet socket in a host's namespace."""

    def __init__(self, host: Host) -> None:
        self._host = host
        made: list[socket.socket] = []

        # A thread of its own enters the namespace; the socket stays there.
        def enter() -> None:
            descriptor = os.open(f"/run/netns/{host.namespace}", os.O_RDONLY)
            try:
                if ctypes.CDLL(None, use_errno=True).setns(descriptor, 0x40000000) != 0:
                    raise OSError(ctypes.get_errno(), "setns")
                made.append(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)))
                made[0].bind((INTERFACE, 3))
            finally:
                os.close(descriptor)

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        self.socket = made[0]

    def __enter__(self) -> Raw:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def send(self, destination: str, user: bytes, *, field: int | None = None, source: str | None = None) -> None:
        """Send user data; `field` stands where the length should."""
        addresses = bytes.fromhex((destination + (source or self._host.mac)).replace(":", ""))
        length = len(user) if field is None else field
        self.socket.send(addresses + struct.pack(">H", length) + user)

    def receive(self, timeout: float = 5) -> bytes:
        """The next frame of framegen's that is for this host."""
        until = time.monotonic() + timeout
        while True:
            self.socket.settimeout(max(0.001, until - time.monotonic()))
            frame, address = self.socket.recvfrom(4096)
            if address[2] == 0 and frame[14:18] == MAGIC:
                return frame
