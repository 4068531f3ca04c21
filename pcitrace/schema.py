"""Columns of every table: name, type, unit, meaning. The documentation and the tests read this."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "BURSTS",
    "CLOCKS",
    "COMMAND_NAMES",
    "CSR_ACCESSES",
    "DATA_PHASES",
    "DROP_LOG",
    "EVENTS",
    "FRAMES",
    "PIECES",
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
            "uint64",
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
        Column(
            "device",
            "uint8",
            "",
            "Device number of a configuration access: type 0 the one of AD[31:11] that carries IDSEL, less 11; type 1 "
            "what the address says. Null for other commands, without C/BE# or AD, or where not just one line is high.",
            True,
        ),
        Column(
            "idsel",
            "string",
            "",
            "Of a configuration access the one captured IDSEL line that was high in its address phase. Null where none "
            "was, or several.",
            True,
        ),
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
    "Something that was wrong on the bus or in the capture, once or again and again: what repeats with no transaction "
    "begun and no gap in between, or within one transaction, is one row.",
    (
        _BUS,
        Column("kind", "string", "", "What kind of problem, such as `illegal_sequence` or `data_parity`; or the rule."),
        Column("rule", "string", "", "Rule of the bus that is broken, such as `M07`, where one says the same.", True),
        Column("time_us", "double", "us", "When first, from the capture's start.", True),
        Column("transaction", "uint64", "", "Number of the transaction concerned within the bus.", True),
        Column("count", "uint64", "", "How often."),
        Column(
            "first_clk", "uint64", "clocks", "Number of the clock at which it was first seen; of a gap the next one."
        ),
        Column("last_clk", "uint64", "clocks", "Number of the clock at which it was last seen."),
        Column("text", "string", "", "What was found, in words."),
    ),
)

EVENTS = Table(
    "events",
    "One change of INTA#, INTB#, INTC#, INTD# or LOCK#, at the first rising edge of CLK with the new level.",
    (
        _BUS,
        Column("time_us", "double", "us", "That rising edge, from the capture's start."),
        Column("clk", "uint64", "clocks", "Its number, from 0."),
        Column("line", "string", "", "`INTA#`, `INTB#`, `INTC#`, `INTD#` or `LOCK#`."),
        Column("edge", "string", "", "`falling` (the line was asserted) or `rising` (released)."),
        Column(
            "transaction", "uint64", "", "Number of the transaction on the bus at this clock. Null between two.", True
        ),
    ),
)

CLOCKS = Table(
    "clocks",
    "The clocks of one bus in one window in which CLK rises, each counted in exactly one class.",
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

BURSTS = Table(
    "bursts",
    "One logical DMA burst of the NIC: what retry, disconnect, latency timer or burst limit cut to pieces, joined.",
    (
        _BUS,
        Column("burst", "uint64", "", "Number within the bus, from 0."),
        Column("start_us", "double", "us", "Address phase of its first attempt."),
        Column("first_data_us", "double", "us", "First data phase.", True),
        Column("last_data_us", "double", "us", "Last data phase. Null where another piece may be the last.", True),
        Column("kind", "string", "", "`descriptor_fetch`, `send_data`, `receive_data`, `status_write` or `unknown`."),
        Column("direction", "string", "", "`read` (from memory) or `write`. Null where nothing tells.", True),
        Column("address", "uint64", "", "Address of its first piece.", True),
        Column("data_phases", "uint64", "", "Data phases of all pieces."),
        Column("bytes", "uint64", "bytes", "Bytes moved; an upper bound where C/BE# was not captured.", True),
        Column("pieces", "uint64", "", "Transactions that make it up, retried ones included."),
        Column("frame", "uint64", "", "Row of `frames` it belongs to.", True),
        Column(
            "margin",
            "float",
            "nats",
            "How much less likely, as a logarithm, any other reading of it is. Null where nothing was weighed.",
            True,
        ),
        Column("why", "string", "", "What the kind rests on."),
    ),
)

PIECES = Table(
    "pieces",
    "One DMA transaction of the NIC, before joining.",
    (
        _BUS,
        Column("burst", "uint64", "", "The burst it belongs to."),
        Column("transaction", "uint64", "", "Its number in `transactions`."),
        Column("start_us", "double", "us", "Address phase."),
        Column("first_data_us", "double", "us", "First data phase.", True),
        Column("last_data_us", "double", "us", "Last data phase.", True),
        Column("address", "uint64", "", "Address.", True),
        Column("data_phases", "uint64", "", "Data phases; 0 for a retried attempt."),
        Column("bytes", "uint64", "bytes", "Bytes moved; an upper bound where C/BE# was not captured.", True),
        Column("kind", "string", "", "As in `bursts`."),
        Column("direction", "string", "", "As in `bursts`.", True),
    ),
)

CSR_ACCESSES = Table(
    "csr_accesses",
    "One access of the host to the NIC's registers or configuration space, with all its attempts.",
    (
        _BUS,
        Column("first_attempt_us", "double", "us", "Address phase of the first attempt."),
        Column("last_attempt_us", "double", "us", "Address phase of the last attempt."),
        Column("data_us", "double", "us", "Its data phase.", True),
        Column("command_name", "string", "", "The command in words. Null without C/BE#.", True),
        Column("address", "uint64", "", "Address on the bus. Null without AD.", True),
        Column("register", "string", "", "Register, or `window+0xoffset`. Null where no window is known.", True),
        Column("value", "uint64", "", "Data read or written, all byte lanes as on the bus.", True),
        Column("attempts", "uint64", "", "Transactions it took: 1 without a retry."),
        Column("frame", "uint64", "", "Row of `frames` whose send it starts.", True),
        Column(
            "margin",
            "float",
            "nats",
            "How much less likely the best reading is in which it is something else. Null where nothing was decided.",
            True,
        ),
        Column("why", "string", "", "What makes it an access of the NIC."),
    ),
)

FRAMES = Table(
    "frames",
    "One frame on its way from memory to memory; all times on the run's axis.",
    (
        Column("frame", "uint64", "", "Number of the row, from 0, in order of time."),
        Column(
            "sequence", "uint64", "", "The frame's own number, or the order per sender from 0: see `sequence_source`."
        ),
        Column("sequence_source", "string", "", "`frame` (read in its data), `log` (a frame log) or `order`."),
        Column("sender", "string", "", "Sending host."),
        Column("receiver", "string", "", "Receiving host. Null where the run has one host.", True),
        Column(
            "length_bytes", "uint64", "bytes", "User bytes b: the frame without header and frame check sequence.", True
        ),
        Column(
            "length_exact", "bool", "", "Whether `length_bytes` is exact; else an upper bound from the data phases."
        ),
        Column("csr_first_us", "double", "us", "Address phase of the first CSR access that starts this send.", True),
        Column(
            "csr_last_us", "double", "us", "Address phase of the last CSR access that starts it, before its DMA.", True
        ),
        Column(
            "csr_done_us", "double", "us", "The update of the sent queue after its DMA: its first CSR access.", True
        ),
        Column("dma_start_us", "double", "us", "First data phase of the frame's data, sending side.", True),
        Column("dma_end_us", "double", "us", "Last data phase of the frame's data, sending side.", True),
        Column("status_us", "double", "us", "First status write after the sending DMA.", True),
        Column("wire_start_us", "double", "us", "TX_EN rises, preamble included.", True),
        Column("wire_end_us", "double", "us", "TX_EN falls.", True),
        Column("rx_dma_start_us", "double", "us", "First data phase of the frame's data, receiving side.", True),
        Column("rx_dma_end_us", "double", "us", "Last data phase of the frame's data, receiving side.", True),
        Column("rx_status_us", "double", "us", "First status write after the receiving DMA.", True),
        Column("rx_csr_us", "double", "us", "First CSR access after the receiving DMA.", True),
        Column("dma_us", "double", "us", "`dma_end_us` - `dma_start_us`.", True),
        Column("gap_us", "double", "us", "`rx_dma_start_us` - `dma_end_us`.", True),
        Column("rx_dma_us", "double", "us", "`rx_dma_end_us` - `rx_dma_start_us`.", True),
        Column("wire_us", "double", "us", "Wire time (max(b, 46) + 18 + preamble) R_net.", True),
        Column("t_nic_us", "double", "us", "(`gap_us` - `wire_us`)/2; negative: wire and DMA overlap.", True),
        Column("t_nic_tx_us", "double", "us", "`wire_start_us` - `dma_end_us`; negative: overlap.", True),
        Column("t_nic_rx_us", "double", "us", "`rx_dma_start_us` - `wire_end_us`; negative: overlap.", True),
        Column(
            "queued",
            "bool",
            "",
            "Whether wire or receiving bus was still busy with an earlier frame; null if that cannot be told.",
            True,
        ),
        Column(
            "fcs_ok", "bool", "", "Whether the frame check sequence on the wire is right. Null without its bytes.", True
        ),
        Column("pieces", "uint64", "", "DMA transactions of the send.", True),
        Column("rx_pieces", "uint64", "", "DMA transactions of the receive.", True),
        Column(
            "margin_send",
            "float",
            "nats",
            "How much less likely, as a logarithm, any other reading of the sending DMA's edges is; an edge below "
            "12 is null, below 6 where the rules found the same. Null without a send, or where nothing doubts it.",
            True,
        ),
        Column("margin_receive", "float", "nats", "The same of the receiving DMA.", True),
        Column(
            "margin_csr",
            "float",
            "nats",
            "The same of the accesses that start its send; 0 where only rules tell them. Null where none was found.",
            True,
        ),
        Column(
            "margin_match",
            "float",
            "nats",
            "The same of which frame on the wire the DMA is: at least so much. Null where nothing was weighed.",
            True,
        ),
        Column("send_burst", "uint64", "", "Row of the sender's `bursts`.", True),
        Column("receive_burst", "uint64", "", "Row of the receiver's `bursts`.", True),
    ),
)

DROP_LOG = Table(
    "drop_log",
    "Something that belongs to no row of `frames`, or a frame that is not complete, with the reason.",
    (
        Column("host", "string", "", "Host on whose bus or wire it was seen."),
        Column("kind", "string", "", "`send_data`, `receive_data` or `wire`."),
        Column("time_us", "double", "us", "Its first data phase, or the rise of TX_EN."),
        Column("length_bytes", "uint64", "bytes", "User bytes, as far as they are known.", True),
        Column("frame", "uint64", "", "Row of `frames` that stays incomplete.", True),
        Column("reason", "string", "", "Why."),
    ),
)

TABLES = {
    table.name: table
    for table in (
        TRANSACTIONS,
        DATA_PHASES,
        PROBLEMS,
        EVENTS,
        CLOCKS,
        BURSTS,
        PIECES,
        CSR_ACCESSES,
        FRAMES,
        DROP_LOG,
    )
}
"""Every table, by name."""
