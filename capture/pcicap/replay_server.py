"""``pcicap replay``: a recorded capture served as a BeagleLogic, so that libsigrok itself acquires it.

The protocol is the one of libsigrok's ``beaglelogic`` driver over TCP: one line a command; without an argument the
answer is the value, with one it is ``ok``. ``get`` starts the samples, ``close`` ends them. ``version`` must begin
with ``BeagleLogic``; what follows tells `pcicap record` that this is a replay, and it then asks for ``replay``: the
facts of the source as one line of JSON.
"""

from __future__ import annotations

import enum
import json
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator

from pcicap.replay_source import ReplaySource

VERSION = "BeagleLogic 1.0 pcicap-replay"
_PIECE = 1 << 18
_ODD_PIECES = (1, 3, 4095, 7, 65537, 5, 511)
_BUFFER_BYTES = 2**31 - 1  # the driver reads it as a C int, and a one-shot capture ends there


class Fault(enum.Enum):
    """How a replay can go wrong on purpose; "half-way" is half of the samples."""

    NONE = "none"
    REFUSE = "refuse"
    STALL_BEFORE = "stall-before"
    STALL = "stall"
    CLOSE = "close"
    RESET = "reset"
    SHORT = "short"
    ODD = "odd"


class ReplayServer:
    """A BeagleLogic on loopback.

    Parameters
    ----------
    source : ReplaySource
        What to serve.
    port : int
        TCP port on 127.0.0.1; 0 takes a free one, see `port`.
    paced : bool
        Send at the capture's own rate, as the device would; otherwise as fast as the reader takes it.
    loop : bool
        Begin again at the end; otherwise the samples end there and the connection stays open, as when a bus falls
        silent.
    fault : Fault
        What to do wrong.
    """

    def __init__(
        self, source: ReplaySource, port: int = 0, *, paced: bool = False, loop: bool = False, fault: Fault = Fault.NONE
    ) -> None:
        self._source = source
        self._paced = paced
        self._loop = loop
        self._fault = fault
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port: int = self._listener.getsockname()[1]

    @property
    def conn(self) -> str:
        """What libsigrok takes as ``conn=``."""
        return f"tcp/127.0.0.1/{self.port}"

    def serve(self) -> None:
        """Answer one connection after the other until `close`; libsigrok opens one to scan and one to acquire."""
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(peer,), daemon=True).start()

    def close(self) -> None:
        """Stop listening; `serve` returns."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _answer(self, peer: socket.socket) -> None:
        values = {
            "samplerate": self._source.rate_hz,
            "sampleunit": 0 if len(self._source.channels) > 8 else 1,
            "memalloc": _BUFFER_BYTES,
            "bufunitsize": _PIECE,
            "triggerflags": 0,
        }
        with peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._fault is Fault.REFUSE:
                return
            try:
                for line in _lines(peer):
                    command, _, argument = line.partition(" ")
                    if command == "get":
                        if not self._send_samples(peer, 2 if values["sampleunit"] == 0 else 1):
                            return
                    elif command != "close":  # after the last sample the driver says it once more
                        peer.sendall(self._reply(values, command, argument).encode() + b"\n")
            except OSError:
                return  # the reader went away: nothing is owed to it

    def _reply(self, values: dict[str, int], command: str, argument: str) -> str:
        if command == "version":
            return VERSION
        if command == "replay":
            return json.dumps(self._source.facts())
        if command not in values:
            return f"error: unknown command {command}"
        if not argument:
            return str(values[command])
        if not argument.isdigit():
            return f"error: {command} takes a number"
        if command == "samplerate" and int(argument) != self._source.rate_hz:
            return f"error: this capture has {self._source.rate_hz} samples a second"
        values[command] = int(argument)
        return "ok"

    def _send_samples(self, peer: socket.socket, unit_size: int) -> bool:
        """Stream until the end, ``close`` or the fault; False when the connection is to be closed."""
        total = self._source.info.samples * unit_size
        end = {
            Fault.STALL_BEFORE: 0,
            Fault.STALL: total // 2,
            Fault.CLOSE: total // 2,
            Fault.RESET: total // 2,
            Fault.SHORT: total - 2 * unit_size + 1,
        }.get(self._fault)
        sent = 0
        begun = time.monotonic()
        for piece in self._pieces(unit_size):
            if end is not None:
                piece = piece[: end - sent]
            if self._paced:
                due = begun + (sent + len(piece)) / unit_size / self._source.rate_hz
                time.sleep(max(0.0, due - time.monotonic()))
            if not _send(peer, piece):
                return True
            sent += len(piece)
            if end is not None and sent >= end:
                break
        if self._fault is Fault.RESET:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return self._fault not in (Fault.CLOSE, Fault.RESET, Fault.SHORT)

    def _pieces(self, unit_size: int) -> Iterator[memoryview]:
        turn, largest = 0, _PIECE
        if self._paced:  # as often as a device would: a hundred times a second
            largest = max(1, min(_PIECE, self._source.rate_hz * unit_size // 100))
        while True:
            for block in self._source.stream(unit_size):
                view = memoryview(block)
                while view:
                    size = _ODD_PIECES[turn % len(_ODD_PIECES)] if self._fault is Fault.ODD else largest
                    turn += 1
                    yield view[:size]
                    view = view[size:]
            if not self._loop:
                return


def _send(peer: socket.socket, piece: memoryview) -> bool:
    """Send a piece while listening for ``close``; False once the reader has had enough."""
    while piece:
        readable, writable, _ = select.select([peer], [peer], [])
        if readable and (not (heard := peer.recv(4096, socket.MSG_PEEK)) or heard.startswith(b"close")):
            return False
        if writable:
            piece = piece[peer.send(piece) :]
    return True


def _lines(peer: socket.socket) -> Iterator[str]:
    """Commands as they come; a line over 4 KiB is nobody's command and ends the connection."""
    rest = b""
    while len(rest) < 4096:
        received = peer.recv(4096)
        if not received:
            return
        *lines, rest = (rest + received).split(b"\n")
        for line in lines:
            yield line.decode("ascii", "replace").strip()
