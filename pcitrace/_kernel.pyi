from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, final

__all__ = [
    "LATTICE_BINS",
    "RULES",
    "Capture",
    "Decoded",
    "Listing",
    "News",
    "Part",
    "Parts",
    "Stream",
    "StretchRows",
    "Table",
    "Wire",
    "Writer",
    "__version__",
    "coverage",
    "decode",
    "decode_stretch",
    "decode_to_files",
    "from_samples",
    "join_stretches",
    "lattice_bins",
    "learn_costs",
    "likeliest_kinds",
    "line_levels",
    "measure_clock",
    "open",
    "open_raw",
    "parts",
    "read_lattice",
    "read_releases",
    "segment_units",
    "stretch_edges",
    "waves",
    "write_fst",
    "write_samples",
    "write_vcd",
]

__version__: str
RULES: list[str]

@final
class Capture:
    @property
    def format(self) -> str: ...
    @property
    def channels(self) -> list[tuple[str, int]]: ...
    @property
    def notes(self) -> list[str]: ...
    @property
    def captures(self) -> int: ...
    @property
    def rate_hz(self) -> float | None: ...
    @property
    def tick_s(self) -> float | None: ...
    @property
    def unit_size(self) -> int | None: ...
    @property
    def bits(self) -> list[int] | None: ...
    @property
    def sample_count(self) -> int | None: ...
    @property
    def duration_s(self) -> float | None: ...
    def read_samples(self, first: int = 0, last: int | None = None) -> bytes: ...

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
    def all_clocks(self) -> Table: ...
    @property
    def events(self) -> Table: ...
    @property
    def violations(self) -> Table | None: ...
    @property
    def judged(self) -> dict[str, Any] | None: ...
    @property
    def requests(self) -> tuple[dict[int, int], dict[int, int], dict[tuple[str, str], int]] | None: ...
    @property
    def clock_mhz(self) -> float | None: ...
    @property
    def duration_us(self) -> float: ...

@final
class Stream:
    def __new__(
        cls,
        buses: Sequence[Mapping[str, Any]],
        unit_size: int,
        *,
        rate_hz: float | None = None,
        clock_mhz: float | None = None,
        data_phases: bool = False,
        window_us: float | None = None,
        rules: Sequence[str] | None = None,
        bus_mhz: Sequence[int | None] | None = None,
        columns: Sequence[str] | None = None,
        portable: bool = False,
    ) -> Stream: ...
    def feed(self, samples: bytes) -> tuple[Table, Table, Table, Table, Table]: ...
    def gap(self, samples: int) -> tuple[Table, Table, Table, Table, Table]: ...
    def finish(self) -> tuple[Table, Table, Table, Table, Table]: ...
    def judged(self) -> list[tuple[Table, dict[str, Any]]]: ...
    def counted(self) -> list[dict[str, Any]]: ...

@final
class Part:
    def __len__(self) -> int: ...
    @property
    def transactions(self) -> Table: ...
    @property
    def data_phases(self) -> Table: ...
    @property
    def problems(self) -> Table: ...
    def clock_lines(self) -> bytes: ...
    def choose(self, wanted: bytes) -> Part: ...
    def tell(self, told: bytes) -> Part: ...

@final
class Parts:
    def __iter__(self) -> Parts: ...
    def __next__(self) -> Part: ...
    def decoded(self) -> list[Decoded]: ...

@final
class News:
    def __new__(cls, windows: Sequence[int], identity: Sequence[int]) -> News: ...
    def next(self, part: Part, start: int) -> tuple[int, str, int, int, int, list[tuple[float, int, int]]] | None: ...
    def renamed(self, bus: str, address: int) -> None: ...

@final
class Listing:
    def __new__(
        cls,
        *,
        layer: str = "transactions",
        zero_us: float | None = 0.0,
        width: int | None = None,
        colour: bool = False,
        all_data: bool = False,
        raw: bool = False,
        bus_width: int = 0,
        problems_of_us: tuple[float, float] | None = None,
        problems_of_clks: tuple[float, float] | None = None,
        initiator_width: int = 0,
    ) -> Listing: ...
    @staticmethod
    def columns() -> list[str]: ...
    def set_windows(self, bus: str, windows: Sequence[tuple[Any, ...]]) -> None: ...
    def set_initiator(self, bus: str, line: str, name: str) -> None: ...
    def set_rules(self, bus: str, sentences: Mapping[str, str]) -> None: ...
    def set_place(self, bus: str, address: int, name: str) -> None: ...
    def begin(self, part: Part) -> None: ...
    def cause(self, bus: str, time_us: float, text: str) -> bytes: ...
    def lines(self, part: Part, start: int, stop: int) -> bytes: ...
    def finish(self) -> bytes: ...

@final
class Writer:
    def __new__(cls, path: str, table: str) -> Writer: ...
    def write(self, table: Any) -> None: ...
    def close(self) -> None: ...

@final
class StretchRows:
    @property
    def transactions(self) -> Table: ...
    @property
    def data_phases(self) -> Table: ...
    @property
    def left(self) -> Sequence[int]: ...

@final
class Wire:
    def __new__(cls, capture: Capture, lines: Mapping[str, tuple[int, int, bool]]) -> Wire: ...
    @property
    def frames(self) -> Table | None: ...
    def read(self, capture: Capture, *, rate_hz: float | None = None) -> Table: ...

def open(path: str, *, timescale: str | None = None, device: int = 0) -> Capture: ...
def open_raw(path: str, unit_size: int, names: Sequence[str], rate_hz: float | None = None) -> Capture: ...
def from_samples(samples: bytes, unit_size: int, names: Sequence[str], rate_hz: float | None = None) -> Capture: ...
def decode(
    capture: Capture,
    buses: Sequence[Mapping[str, Any]],
    *,
    rate_hz: float | None = None,
    clock_mhz: float | None = None,
    recover_clock: bool = False,
    columns: Sequence[str] | None = None,
    coded: bool = True,
    data_phases: bool = False,
    events: bool = False,
    window_us: float | None = None,
    rules: Sequence[str] | None = None,
    every: Sequence[str] | None = None,
    bus_mhz: int | None = None,
    parameters: tuple[int, float] | None = None,
    requests: bool = False,
    problems: bool = True,
    until: int | None = None,
    threads: int = 0,
    progress: Callable[[float], None] | None = None,
    wires: Sequence[Wire] = ...,
    portable: bool = False,
) -> list[Decoded]: ...
def stretch_edges(capture: Capture, count: int) -> list[int]: ...
def decode_stretch(
    capture: Capture,
    buses: Sequence[Mapping[str, Any]],
    span: tuple[int, int | None],
    *,
    columns: Sequence[str] | None = None,
    data_phases: bool = False,
    rate_hz: float | None = None,
    clock_mhz: float | None = None,
    wires: Sequence[Wire] = ...,
) -> tuple[list[StretchRows], list[Table]]: ...
def join_stretches(
    capture: Capture,
    buses: Sequence[Mapping[str, Any]],
    left: Sequence[Sequence[bytes]],
    *,
    rate_hz: float | None = None,
    clock_mhz: float | None = None,
) -> list[Decoded]: ...
def decode_to_files(
    capture: Capture,
    buses: Sequence[Mapping[str, Any]],
    *,
    transactions: str,
    data_phases: str | None = None,
    problems: str | None = None,
    events: str | None = None,
    rate_hz: float | None = None,
    clock_mhz: float | None = None,
    recover_clock: bool = False,
    threads: int = 0,
    progress: Callable[[float], None] | None = None,
    portable: bool = False,
) -> dict[str, Any]: ...
def parts(
    capture: Capture,
    buses: Sequence[Mapping[str, Any]],
    *,
    rate_hz: float | None = None,
    clock_mhz: float | None = None,
    recover_clock: bool = False,
    columns: Sequence[str] | None = None,
    data_phases: bool = False,
    most_phases: int | None = None,
    events: bool = False,
    rules: Sequence[str] | None = None,
    keep_violations: bool = False,
    every: Sequence[str] | None = None,
    bus_mhz: Sequence[int | None] | None = None,
    parameters: tuple[int, float] | None = None,
    problems: bool = True,
    until: int | None = None,
    clocks: tuple[int, int, int, int] | None = None,
    threads: int = 0,
) -> Parts: ...
def write_samples(capture: Capture, rate_hz: int, write: Callable[[bytes], object]) -> tuple[int, int]: ...
def write_fst(
    capture: Capture,
    path: str,
    declarations: bytes,
    rate_hz: float,
    ticks_hz: float,
    texts: Iterable[tuple[bytes, bytes, bytes, bytes]],
) -> None: ...
def write_vcd(
    capture: Capture,
    ids: Sequence[str],
    rate_hz: float,
    ticks_hz: float,
    texts: Iterable[tuple[bytes, bytes, bytes, bytes]],
    write: Callable[[bytes], object],
) -> None: ...
def coverage(start: Any, end: Any, kind: Any, kinds: int, bins: tuple[int, int, int]) -> bytes: ...
def line_levels(stamps: Any, levels: Any, bins: tuple[int, int, int]) -> bytes: ...
def waves(capture: Capture, lines: Sequence[tuple[int, int]]) -> Table: ...
def measure_clock(capture: Capture, clk: tuple[int, int, bool], *, rate_hz: float | None = None) -> float | None: ...
def read_lattice(
    sequence: Any, goals: tuple[Any, Any], table: Any, *, states: int, cost: float, block: int, margins: bool
) -> tuple[bytes, bytes, bytes, bytes, float]: ...
def read_releases(
    sequence: Any, goals: Any, table: Any, *, nodes: int, cost: float, margins: bool
) -> tuple[bytes, bytes, bytes, bytes, float]: ...
def lattice_bins(times_us: Any) -> bytes: ...
def likeliest_kinds(costs: Any, group: Any) -> bytes: ...
def segment_units(units: Any, cut: Any, begins: Any, again: int) -> bytes: ...
def learn_costs(
    values: Any, group: Any, prior: Any, *, rows: int, columns: int, weight: float, times: bool, kept: Any = None
) -> tuple[bytearray, float]: ...

LATTICE_BINS: int
