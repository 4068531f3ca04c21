"""A condition that ends the watch: the samples around it are kept."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pcitrace import schema
from pcitrace.errors import ConditionError, PciTraceError
from pcitrace.instrument.conditions import condition

if TYPE_CHECKING:
    import pyarrow as pa

    from pcitrace.live.recent import Recent
    from pcitrace.streaming import Found

__all__ = ["Trigger"]


@dataclass
class Trigger:
    """Waits for a row that fulfils a condition.

    Parameters
    ----------
    text : str
        On the columns of ``transactions``, or of ``problems``: ``address == 0xe8000000``, ``kind == "data_parity"``.
    pre_us, post_us : float
        What is kept before and after it.
    path : pathlib.Path or None
        Where that is written; None: nowhere.

    Raises
    ------
    ConditionError
        It is no condition on either.
    PciTraceError
        Nothing can be written there.
    """

    text: str
    pre_us: float
    post_us: float
    path: Path | None = None

    def __post_init__(self) -> None:
        self.fired_us: float | None = None
        try:
            self._condition, self._problems = condition(self.text, schema.TRANSACTIONS), False
        except ConditionError as error:
            try:
                self._condition, self._problems = condition(self.text, schema.PROBLEMS), True
            except ConditionError:
                raise error from None
        if self.path is not None and self.path.suffix != ".sr":
            raise PciTraceError(f"{self.path}: what is kept is written as a sigrok session: end the name in .sr")
        if self.path is not None:
            _writable(self.path)

    def see(self, found: Found) -> bool:
        """Look at rows; return whether the condition was fulfilled now, for the first time."""
        if self.fired_us is not None:
            return False
        rows: pa.Table = self._condition.filter(found.problems if self._problems else found.transactions)
        times = [time for time in rows["time_us" if self._problems else "start_us"].to_pylist() if time is not None]
        if times:
            self.fired_us = min(times)
        return bool(times)

    def over(self, time_us: float) -> bool:
        """Whether all that is to be kept is there."""
        return self.fired_us is not None and time_us >= self.fired_us + self.post_us

    def save(self, recent: Recent) -> int | None:
        """Write what is kept; return how many samples, None where nothing is to be written."""
        if self.path is None or self.fired_us is None:
            return None
        per_us = recent.rate_hz / 1e6
        first = max(int((self.fired_us - self.pre_us) * per_us), 0)
        return recent.save(self.path, first, int((self.fired_us + self.post_us) * per_us) + 1)


def _writable(path: Path) -> None:
    """See that a file can be written, before it is waited for what shall be in it."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise PciTraceError(f"{path}: there is no folder {folder}")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise PciTraceError(f"{path}: nothing can be written there: {error.strerror}") from error
