"""What happens to the bytes of one analyser: whole samples, the trigger search, the capture file."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pcicap.analysers.base import AnalyserSpec, OpenWriter, TriggerBy
from pcicap.samplewriter import SampleWriter
from pcicap.trigger import TriggerSearch, parse_trigger


class Intake:
    """Takes what an analyser sends and keeps what the plan wants.

    Parameters
    ----------
    spec : AnalyserSpec
        What the plan wants.
    bits : mapping of int to str
        Bit of a sample -> PCI line.
    open_writer : OpenWriter
        Opens the capture file.
    unit_size : callable
        Tells the bytes a sample, when the first data are there.
    """

    def __init__(
        self, spec: AnalyserSpec, bits: Mapping[int, str], open_writer: OpenWriter, unit_size: Callable[[], int]
    ) -> None:
        self._spec = spec
        self._bits = {line: bit for bit, line in bits.items()}
        self._open_writer = open_writer
        self._ask_unit_size = unit_size
        self._unit_size = 1
        self._writer: SampleWriter | None = None
        self._search: TriggerSearch | None = None
        self._rest = b""
        self._kept = 0
        self.received_bytes = 0
        self.lost_bytes = 0
        """Bytes at the end that were no whole sample."""
        self.trigger_sample: int | None = None
        self.done = False
        """A search of our own has all it wants; the rest is not looked at."""

    @property
    def received(self) -> int:
        """Samples that have arrived."""
        return self.received_bytes // self._unit_size

    @property
    def written(self) -> int:
        """Samples that are in the file."""
        return self._writer.written // self._unit_size if self._writer else 0

    @property
    def searching(self) -> bool:
        """The trigger has not been met yet."""
        return self._search is not None

    def feed(self, data: bytes) -> None:
        """Take bytes of any number.

        Raises
        ------
        OSError
            They cannot be written.
        """
        if self._writer is None:
            self._open()
        self.received_bytes += len(data)
        data = self._rest + data
        whole = len(data) - len(data) % self._unit_size
        data, self._rest = data[:whole], data[whole:]
        if self._search and data:
            found = self._search.feed(data)
            if found is None:
                return
            self.trigger_sample, data = found
            self._search = None
        self._keep(data)

    def idle(self) -> None:
        """Nothing arrives just now."""
        if self._writer:
            self._writer.flush_old()

    def close(self) -> None:
        """Write what is left; without the trigger, what was held back for it.

        Raises
        ------
        OSError
            Not all could be written; the file is complete with what could.
        """
        if self._writer is None:
            return
        self.lost_bytes = len(self._rest)
        try:
            if self._search:
                self._writer.feed(self._search.kept())
        finally:
            self._writer.close()

    def _open(self) -> None:
        self._unit_size = self._ask_unit_size()
        self._writer = self._open_writer(self._unit_size)
        trigger = self._spec.trigger
        if trigger and trigger.by is TriggerBy.SEARCH:
            condition = parse_trigger(trigger.condition, self._bits)
            self._search = TriggerSearch(condition, self._unit_size, trigger.pre_samples)

    def _keep(self, data: bytes) -> None:
        assert self._writer
        if self.trigger_sample is not None and self._spec.samples is not None:
            data = data[: (self._spec.samples - self._kept) * self._unit_size]
            self.done = self._kept + len(data) // self._unit_size >= self._spec.samples
        self._kept += len(data) // self._unit_size
        self._writer.feed(data)
