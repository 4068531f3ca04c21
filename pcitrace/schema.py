"""Columns of every table: name, type, unit, meaning. The documentation and the tests read this."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "CLOCKS",
    "COMMAND_NAMES",
    "DATA_PHASES",
    "PROBLEMS",
    "TABLES",
    "TRANSACTIONS",
    "Column",
    "Table",
    "Termination",
]


class Termination(StrEnum):
    """How a transaction ended (column ``termination``)."""

    COMPLETION = "completion"
    RETRY = "retry"
    DISCONNECT_WITH_DATA = "disconnect_with_data"
    DISCONNECT_WITHOUT_DATA = "disconnect_without_data"
    TARGET_ABORT = "target_abort"
    MASTER_ABORT = "master_abort"
    SPECIAL_CYCLE = "special_cycle"
    TRUNCATED = "truncated"
    UNKNOWN = "unknown"


COMMAND_NAMES = (
    "interrupt_acknowledge",
    "special_cycle",
    "io_read",
    "io_write",
    "reserved_4",
    "reserved_5",
    "memory_read",
    "memory_write",
    "reserved_8",
    "reserved_9",
    "config_read",
    "config_write",
    "memory_read_multiple",
    "dual_address_cycle",
    "memory_read_line",
    "memory_write_invalidate",
)
"""Name of each bus command 0-15, as C/BE# carries it in the address phase."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes
    ----------
    name : str
        As it stands in the DataFrame and in every file that is written.
    dtype : str
        Arrow type: ``string``, ``bool``, ``uint64``, ``int32``, ``double`` ...
    unit : str
        ``us``, ``clocks``, ``bytes``, ``samples``, ``MB/s`` (1e6 bytes a second), or empty.
    meaning : str
        One sentence or two.
    nullable : bool
        Whether the value can be unknown (null).
    """

    name: str
    dtype: str
    unit: str
    meaning: str
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table: what one row is, and its columns in order."""

    name: str
    row: str
    columns: tuple[Column, ...]

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns in order."""
        return tuple(column.name for column in self.columns)


_BUS = Column("bus", "string", "", "Name of the bus in the capture.")

TRANSACTIONS = Table(
    "transactions",
    "One transaction: from the address phase to the last clock in which FRAME# or IRDY# is asserted.",
    (
        _BUS,
        Column("transaction", "uint64", "", "Number within the bus, from 0."),
        Column("start_us", "double", "us", "Rising edge of CLK of the address phase, from the capture's start."),
        Column("end_us", "double", "us", "Rising edge of CLK of the last clock."),
        Column(
            "start_sample",
            "uint64",
            "samples",
            "First sample with CLK high at `start_us`; in captures of changes (VCD ...) the time in the file's ticks.",
        ),
        Column("end_sample", "uint64", "samples", "The same at `end_us`."),
        Column("start_clk", "uint64", "clocks", "Number of the address phase's rising edge, from 0."),
        Column("clocks", "uint64", "clocks", "From the address phase to the last clock, both included."),
        Column(
            "command",
            "uint8",
            "",
            "Bus command 0-15; after a dual address cycle the real one. Null without C/BE#.",
            True,
        ),
        Column("command_name", "string", "", "The command in words, such as `memory_read`.", True),
        Column(
            "dac", "bool", "", "Whether the address came in two phases (dual address cycle). Null without C/BE#.", True
        ),
        Column("address", "uint64", "", "AD of the address phase; both halves after a dual address cycle.", True),
        Column("data_phases", "uint64", "", "Data phases in which data moved: clocks with IRDY# and TRDY#."),
        Column(
            "bytes",
            "uint64",
            "bytes",
            "Enabled bytes moved. Without C/BE# 4 (64-bit: 8) a data phase: an upper bound, `bytes_exact` is false.",
            True,
        ),
        Column("bytes_exact", "bool", "", "Whether `bytes` was counted from the byte enables."),
        Column(
            "wait_clks",
            "uint64",
            "clocks",
            "Clocks after the address phases in which no data moved, clocks with STOP# included.",
        ),
        Column(
            "target_wait_clks",
            "uint64",
            "clocks",
            "Clocks after the address phases with IRDY# but neither TRDY# nor STOP#. Null without STOP#.",
            True,
        ),
        Column("initiator_wait_clks", "uint64", "clocks", "Clocks after the address phases without IRDY#."),
        Column(
            "devsel_clks",
            "uint32",
            "clocks",
            "Last address phase to DEVSEL#: 1 fast, 2 medium, 3 slow, 4 subtractive. Null: never, or not captured.",
            True,
        ),
        Column("termination", "string", "", "How it ended: one of `Termination`."),
        Column(
            "initiator",
            "string",
            "",
            "The one GNT# line that was low a clock before the address phase. Null where none was, or several.",
            True,
        ),
        Column("fast_back_to_back", "bool", "", "Whether the clock before the address phase was not idle."),
        Column(
            "address_parity_ok",
            "bool",
            "",
            "Whether AD, C/BE# and PAR a clock later have even parity. Null unless all are captured and known.",
            True,
        ),
        Column("perr", "bool", "", "Whether PERR# was asserted for it. Null if not captured.", True),
        Column("serr", "bool", "", "Whether SERR# was asserted for it. Null if not captured.", True),
        Column(
            "suspect",
            "bool",
            "",
            "Whether a control line differs between the last two samples before an edge, so that the value read may "
            "be a moment too early or too late. Null except in timing-mode captures.",
            True,
        ),
        Column("first_data_us", "double", "us", "Rising edge of the first clock in which data moved.", True),
        Column("last_data_us", "double", "us", "Rising edge of the last clock in which data moved.", True),
    ),
)

DATA_PHASES = Table(
    "data_phases",
    "One data phase in which data moved.",
    (
        _BUS,
        Column("transaction", "uint64", "", "Number of its transaction within the bus."),
        Column("time_us", "double", "us", "Rising edge of CLK at which IRDY# and TRDY# were asserted."),
        Column("data", "uint64", "", "AD as it stood: 32 bits, or 64 in a 64-bit data phase.", True),
        Column(
            "byte_enables",
            "uint8",
            "",
            "C/BE# as it stood, active low: bit 0 low means byte 0 is enabled. 0-15; 0-255 in a 64-bit data phase.",
            True,
        ),
        Column("parity_ok", "bool", "", "Whether AD, C/BE# and PAR a clock later have even parity.", True),
    ),
)

PROBLEMS = Table(
    "problems",
    "Something that was wrong on the bus or in the capture.",
    (
        _BUS,
        Column("kind", "string", "", "What kind of problem, such as `illegal_sequence` or `data_parity`."),
        Column("time_us", "double", "us", "When, from the capture's start.", True),
        Column("transaction", "uint64", "", "Number of the transaction concerned within the bus.", True),
        Column("text", "string", "", "What was found, in words."),
    ),
)

CLOCKS = Table(
    "clocks",
    "The clocks of one bus in one window, each counted in exactly one class.",
    (
        _BUS,
        Column("start_us", "double", "us", "Start of the window."),
        Column("end_us", "double", "us", "End of the window."),
        Column("total", "uint64", "clocks", "All clocks of the window: the sum of the classes."),
        Column(
            "unknown", "uint64", "clocks", "RST#, a line without a known value, a gap, or before the first idle clock."
        ),
        Column("idle", "uint64", "clocks", "FRAME# and IRDY# both deasserted."),
        Column("address", "uint64", "clocks", "Address phases."),
        Column("data", "uint64", "clocks", "IRDY# and TRDY# asserted: data moves."),
        Column("stop", "uint64", "clocks", "IRDY# and STOP# without TRDY#. Null without STOP# (then in `wait`).", True),
        Column("abort", "uint64", "clocks", "The last clock of a transaction that nobody claimed."),
        Column("wait", "uint64", "clocks", "The rest of the transactions; the next five classes are parts of it."),
        Column("turnaround", "uint64", "clocks", "Of `wait`: the clock after a read's address phase.", True),
        Column("decode", "uint64", "clocks", "Of `wait`: DEVSEL# not seen yet.", True),
        Column("both", "uint64", "clocks", "Of `wait`: neither IRDY# nor TRDY#.", True),
        Column("target", "uint64", "clocks", "Of `wait`: IRDY# asserted, TRDY# not.", True),
        Column("initiator", "uint64", "clocks", "Of `wait`: TRDY# asserted, IRDY# not.", True),
        Column("busy", "uint64", "clocks", "`total` without `idle` and `unknown`."),
        Column("occupancy", "double", "", "`busy` / (`total` - `unknown`).", True),
        Column("utilisation", "double", "", "Another word for `occupancy`.", True),
        Column("data_occupancy", "double", "", "`data` / (`total` - `unknown`).", True),
        Column("efficiency", "double", "", "`data` / `busy`.", True),
        Column("bytes", "uint64", "bytes", "Bytes moved in the window; an upper bound where `bytes_exact` is false."),
        Column("bytes_exact", "bool", "", "Whether `bytes` was counted from the byte enables."),
        Column("throughput_mb_s", "double", "MB/s", "`bytes` over the length of the window.", True),
    ),
)

TABLES = {table.name: table for table in (TRANSACTIONS, DATA_PHASES, PROBLEMS, CLOCKS)}
"""Every table, by name."""
