from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

__version__: str

@final
class Capture:
    format: str
    channels: list[tuple[str, int]]
    rate_hz: float | None
    unit_size: int | None
    sample_count: int | None
    duration_s: float | None
    def read_samples(self) -> bytes: ...

@final
class Table:
    num_rows: int
    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...

@final
class Decoded:
    transactions: Table
    data_phases: Table
    problems: Table
    clocks: Table

def open(path: str) -> Capture: ...
def decode(
    capture: Capture,
    buses: Sequence[Mapping[str, Any]],
    *,
    rate_hz: float | None = None,
    clock_mhz: float | None = None,
    recover_clock: bool = False,
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
def measure_clock(
    capture: Capture, clk: tuple[int, int, bool], *, rate_hz: float | None = None
) -> float | None: ...
