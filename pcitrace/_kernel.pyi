from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

__all__ = [
    "Capture",
    "Decoded",
    "Table",
    "__version__",
    "decode",
    "decode_to_files",
    "from_samples",
    "measure_clock",
    "open",
    "wire",
]

__version__: str

@final
class Capture:
    @property
    def format(self) -> str: ...
    @property
    def channels(self) -> list[tuple[str, int]]: ...
    @property
    def rate_hz(self) -> float | None: ...
    @property
    def tick_s(self) -> float | None: ...
    @property
    def unit_size(self) -> int | None: ...
    @property
    def sample_count(self) -> int | None: ...
    @property
    def duration_s(self) -> float | None: ...
    def read_samples(self) -> bytes: ...

@final
class Table:
    @property
    def num_rows(self) -> int: ...
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...

@final
class Decoded:
    @property
    def transactions(self) -> Table: ...
    @property
    def data_phases(self) -> Table: ...
    @property
    def problems(self) -> Table: ...
    @property
    def clocks(self) -> Table: ...
    @property
    def clock_mhz(self) -> float | None: ...
    @property
    def duration_us(self) -> float: ...

def open(path: str) -> Capture: ...
def from_samples(samples: bytes, unit_size: int, names: Sequence[str], rate_hz: float | None = None) -> Capture: ...
def decode(
    capture: Capture,
    buses: Sequence[Mapping[str, Any]],
    *,
    rate_hz: float | None = None,
    clock_mhz: float | None = None,
    recover_clock: bool = False,
    columns: Sequence[str] | None = None,
    data_phases: bool = False,
    window_us: float | None = None,
    threads: int = 0,
    progress: Callable[[float], None] | None = None,
    portable: bool = False,
) -> list[Decoded]: ...
def decode_to_files(
    capture: Capture,
    buses: Sequence[Mapping[str, Any]],
    *,
    transactions: str,
    data_phases: str | None = None,
    problems: str | None = None,
    rate_hz: float | None = None,
    clock_mhz: float | None = None,
    recover_clock: bool = False,
    threads: int = 0,
    progress: Callable[[float], None] | None = None,
    portable: bool = False,
) -> dict[str, Any]: ...
def wire(capture: Capture, lines: Mapping[str, tuple[int, int, bool]], *, rate_hz: float | None = None) -> Table: ...
def measure_clock(capture: Capture, clk: tuple[int, int, bool], *, rate_hz: float | None = None) -> float | None: ...
