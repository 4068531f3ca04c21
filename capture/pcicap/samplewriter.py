"""From the analyser's bytes to the ``.sr`` file: cut into chunks, deflated by several threads, written in order.

Falling behind would make a streaming analyser overflow, so a chunk is stored as it is when too many wait.
"""

from __future__ import annotations

import queue
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

from pcicap.srfile import SrFile

_CHUNK_BYTES = 4 << 20
_CHUNK_SECONDS = 0.25
_PACKERS = 2
_WAITING_DEFLATED = 6
_TRY_AGAIN = 8  # samples that do not compress cost the most time: then only every eighth chunk is tried
_WAITING_AT_ALL = 64

_Packed = tuple[bytes, int, int, int]


class SampleWriter:
    """Writes samples as they come; what was handed over for longer than a quarter of a second is in the file.

    Parameters
    ----------
    file : SrFile
        Open file; `close` closes it.
    unit_size : int
        Bytes a sample: chunks hold whole samples.
    """

    def __init__(self, file: SrFile, unit_size: int) -> None:
        self._file = file
        self._unit_size = unit_size
        self._chunk_bytes = _CHUNK_BYTES - _CHUNK_BYTES % unit_size
        self._buffer = bytearray()
        self._begun = time.monotonic()
        self._packers = ThreadPoolExecutor(_PACKERS, thread_name_prefix="pack")
        self._waiting: queue.Queue[tuple[bool, Future[_Packed]] | None] = queue.Queue(_WAITING_AT_ALL)
        self._error: OSError | None = None
        self._chunks = 0
        self._compressible = True
        self._writer = threading.Thread(target=self._write, name="write", daemon=True)
        self._writer.start()
        self.written = 0
        """Bytes of samples that are in the file."""

    def feed(self, data: bytes) -> None:
        """Take bytes over.

        Raises
        ------
        OSError
            An earlier chunk could not be written (disk full); nothing more is taken.
        """
        if self._error:
            raise self._error
        if not self._buffer:
            self._begun = time.monotonic()
        self._buffer += data
        while len(self._buffer) >= self._chunk_bytes:
            self._submit(self._chunk_bytes)
        self.flush_old()

    def flush_old(self) -> None:
        """Hand on a chunk that has been filling for a while; call it when nothing arrives."""
        if self._buffer and time.monotonic() - self._begun > _CHUNK_SECONDS:
            self._submit(len(self._buffer) - len(self._buffer) % self._unit_size)

    def close(self) -> int:
        """Write what is left and complete the file.

        Returns
        -------
        int
            Bytes that were no whole sample and are not in the file.

        Raises
        ------
        OSError
            Some of it could not be written. The file is complete nevertheless, with all that could.
        """
        rest = len(self._buffer) % self._unit_size
        if not self._error:
            self._submit(len(self._buffer) - rest)
        self._waiting.put(None)
        self._writer.join()
        self._packers.shutdown()
        self._file.close()
        if self._error:
            raise self._error
        return rest

    def _submit(self, size: int) -> None:
        if size:
            chunk = bytes(self._buffer[:size])
            del self._buffer[:size]
            worth_it = self._compressible or self._chunks % _TRY_AGAIN == 0
            compress = worth_it and self._waiting.qsize() < _WAITING_DEFLATED
            self._chunks += 1
            self._waiting.put((compress, self._packers.submit(SrFile.pack, chunk, compress)))
        self._begun = time.monotonic()

    def _write(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            if self._error:
                continue  # one chunk is missing: what follows it would stand at the wrong time
            tried, future = waiting
            packed = future.result()
            if tried:
                self._compressible = len(packed[0]) < 0.9 * packed[3]
            try:
                self._file.write(packed)
            except OSError as error:
                self._error = error
            else:
                self.written += packed[3]
