"""A slow, obvious PCI decoder: the oracle the kernel is compared with.

Written from the PCI operating rules and docs/decoding.md, one clock at a time, and sharing nothing with the kernel:
first the capture is cut into transactions (`segment`), then every column is read off the clocks of one transaction
(`describe`). Nothing here is clever, so that it can be checked by reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

Level = int | None  # the level on the wire: 0, 1, or None where it is not known

READS = {0x0, 0x2, 0x6, 0xA, 0xC, 0xE}
SPECIAL_CYCLE, DUAL_ADDRESS = 0x1, 0xD

COMMAND_NAMES = [
    "interrupt_acknowledge", "special_cycle", "io_read", "io_write", "reserved_4", "reserved_5", "memory_read",
    "memory_write", "reserved_8", "reserved_9", "config_read", "config_write", "memory_read_multiple",
    "dual_address_cycle", "memory_read_line", "memory_write_invalidate",
]  # fmt: skip

CONTROL = frozenset({"FRAME#", "IRDY#", "TRDY#", "STOP#", "DEVSEL#"})
ALL_LINES = CONTROL | {
    "AD", "AD_HIGH", "C/BE#", "C/BE_HIGH#", "PAR", "PERR#", "SERR#", "GNT#", "REQ64#", "ACK64#", "RST#",
}  # fmt: skip
"""What a bus may have had captured. AD and AD_HIGH are AD[31:0] and AD[63:32], C/BE# alike; GNT# is all grants."""


@dataclass(slots=True, repr=False)
class Clock:
    """What was on the wires at one rising edge: levels, so 0 is asserted for a line whose name ends in #."""

    frame: Level = 1
    irdy: Level = 1
    trdy: Level = 1
    stop: Level = 1
    devsel: Level = 1
    ad: int | None = None
    ad_high: int | None = None
    cbe: int | None = None
    cbe_high: int | None = None
    par: Level = None
    perr: Level = 1
    serr: Level = 1
    gnt: tuple[Level, ...] = ()
    req64: Level = 1
    ack64: Level = 1
    rst: Level = 1
    gap: bool = False  # samples are missing between the clock before and this one

    def __repr__(self) -> str:
        levels = (self.frame, self.irdy, self.trdy, self.stop, self.devsel)
        control = "".join(
            "?" if level is None else "." if level else name for name, level in zip("FITSD", levels, strict=True)
        )
        return f"<{control} AD {self.ad} C/BE {self.cbe} RST {self.rst}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """How hypothesis shows a falsifying example: a clock a line."""
        printer.text(repr(self))


@dataclass(slots=True)
class Span:
    """One transaction's clocks, first and last inclusive, and how its end came about."""

    first: int
    last: int
    address_phases: int
    ending: str  # "legal", "illegal" or "truncated"
    dac: bool


@dataclass
class Decoded:
    """Everything the oracle says of a bus; clocks are numbered from 0."""

    transactions: list[dict]
    data_phases: list[dict]
    classes: list[str]  # one a clock
    illegal: list[int] = field(default_factory=list)  # clocks at which an illegal sequence was seen


class State(Enum):
    """The state of the bus before a clock."""

    LOST = auto()
    IDLE = auto()
    ADDRESS2 = auto()
    OPEN = auto()
    FINAL = auto()
    DONE = auto()


def segment(clocks: Sequence[Clock], captured: frozenset[str]) -> tuple[list[Span], list[str], list[int]]:
    """Cut a capture into transactions.

    Returns the spans, "unknown", "idle" or "busy" for each clock, and the clocks at which something illegal was seen.
    """
    spans: list[Span] = []
    activity: list[str] = []
    illegal: list[int] = []
    state = State.LOST
    open_span: Span | None = None

    def close(last: int, ending: str) -> None:
        nonlocal open_span
        assert open_span is not None
        open_span.last, open_span.ending = last, ending
        spans.append(open_span)
        open_span = None

    for n, clock in enumerate(clocks):
        watched = [clock.frame, clock.irdy, clock.trdy] + ([clock.stop] if "STOP#" in captured else [])
        in_reset = "RST#" in captured and clock.rst == 0
        if clock.gap or in_reset or None in watched:
            # Nothing spans what is not known. In DONE every clock of the transaction was seen.
            if open_span is not None:
                close(n - 1, "legal" if state is State.DONE else "truncated")
            state = State.LOST
        if in_reset or None in watched:
            activity.append("unknown")
            continue

        f, i = clock.frame == 0, clock.irdy == 0
        completes = i and (clock.trdy == 0 or ("STOP#" in captured and clock.stop == 0))
        match state, f, i:
            case State.LOST, False, False:  # the first idle clock: in step again
                state, what = State.IDLE, "idle"
            case State.LOST, _, _:
                what = "unknown"

            case State.IDLE, False, False:
                what = "idle"
            case (State.IDLE, True, False) | (State.FINAL | State.DONE, True, False):
                # FRAME# asserted, IRDY# not: an address phase; without an idle clock before it, fast back-to-back.
                if open_span is not None:
                    close(n - 1, "legal")
                dac = "C/BE#" in captured and clock.cbe == DUAL_ADDRESS
                open_span = Span(n, n, 1, "", dac)
                state, what = State.ADDRESS2 if dac else State.OPEN, "busy"
            case State.IDLE, _, True:  # IRDY# without an address phase
                illegal.append(n)
                state, what = State.LOST, "unknown"

            case State.ADDRESS2, True, _:  # the second address phase: the real command and the high dword
                assert open_span is not None
                open_span.address_phases = 2
                state, what = State.OPEN, "busy"
            case State.ADDRESS2, False, False:  # FRAME# released after half an address
                illegal.append(n)
                close(n - 1, "illegal")
                state, what = State.IDLE, "idle"
            case State.ADDRESS2, False, True:
                illegal.append(n)
                close(n - 1, "illegal")
                state, what = State.LOST, "unknown"

            case State.OPEN, True, _:  # data phases, waits
                what = "busy"
            case State.OPEN, False, True:  # FRAME# released while IRDY# is asserted: the final data phase
                state, what = State.DONE if completes else State.FINAL, "busy"
            case State.OPEN, False, False:  # FRAME# released without IRDY#
                illegal.append(n)
                close(n - 1, "illegal")
                state, what = State.IDLE, "idle"

            case State.FINAL, False, True:
                state, what = State.DONE if completes else State.FINAL, "busy"
            case ((State.FINAL | State.DONE), False, False):  # both released: the bus is idle
                close(n - 1, "legal")
                state, what = State.IDLE, "idle"
            case State.FINAL, True, True:  # FRAME# returned within a transaction
                illegal.append(n)
                close(n - 1, "illegal")
                state, what = State.LOST, "unknown"
            case State.DONE, _, True:  # IRDY# held after the last data phase had ended
                illegal.append(n)
                close(n - 1, "legal")
                state, what = State.LOST, "unknown"
        activity.append(what)

    if open_span is not None:
        close(len(clocks) - 1, "legal" if state is State.DONE else "truncated")
    return spans, activity, illegal


def decode(
    clocks: Sequence[Clock],
    captured: frozenset[str] = ALL_LINES,
    grants: Sequence[str] = (),
    width: int | None = None,
) -> Decoded:
    """Decode one bus.

    Parameters: the clocks; which lines were captured (names of `ALL_LINES`; the others are not looked at); the names
    of the GNT# lines; `width` 64 where the wiring says so.
    """
    spans, classes, illegal = segment(clocks, captured)
    transactions, data_phases = [], []
    for number, span in enumerate(spans):
        row, phases = describe(clocks, span, captured, grants, width)
        row["transaction"] = number
        row["fast_back_to_back"] = classes[span.first - 1] != "idle"
        if gave_up(clocks, span, row, captured):
            illegal.append(span.last)
        transactions.append(row)
        data_phases += [{"transaction": number, **phase} for phase in phases]
    for span, row in zip(spans, transactions, strict=True):
        for n in range(span.first, span.last + 1):
            classes[n] = classify(clocks, n, span, row, captured)
    return Decoded(transactions, data_phases, classes, illegal)


def describe(
    clocks: Sequence[Clock], span: Span, captured: frozenset[str], grants: Sequence[str], width: int | None
) -> tuple[dict, list[dict]]:
    """All columns of one transaction, and its data phases."""
    has = captured.__contains__
    first_address, last_address = clocks[span.first], clocks[span.first + span.address_phases - 1]
    body = range(span.first + span.address_phases, span.last + 1)  # the clocks after the address phases
    complete_address = span.address_phases == (2 if span.dac else 1)

    command = last_address.cbe if has("C/BE#") and complete_address else None
    address = None
    if has("AD") and complete_address and (not has("C/BE#") or first_address.cbe is not None):
        if not span.dac:
            address = first_address.ad
        elif first_address.ad is not None and last_address.ad is not None:
            address = last_address.ad << 32 | first_address.ad

    moved = [n for n in body if clocks[n].irdy == 0 and clocks[n].trdy == 0]
    stops = [n for n in body if has("STOP#") and clocks[n].irdy == 0 and clocks[n].stop == 0]
    claims = [n for n in body if has("DEVSEL#") and clocks[n].devsel == 0]

    devsel_clks = None
    if claims and all(clocks[n].devsel is not None for n in range(body.start, claims[0])):
        devsel_clks = claims[0] - body.start + 1

    phases = [data_phase(clocks, n, first_address, captured, width) for n in moved]
    counted = [enabled_bytes(clocks[n], first_address, captured, width) for n in moved]

    row = {
        "start_clk": span.first,
        "clocks": span.last - span.first + 1,
        "command": command,
        "command_name": None if command is None else COMMAND_NAMES[command],
        "dac": span.dac if has("C/BE#") and first_address.cbe is not None else None,
        "address": address,
        "data_phases": len(moved),
        "bytes": sum(count for count, _ in counted),
        "bytes_exact": all(exact for _, exact in counted),
        "wait_clks": len(body) - len(moved),
        "target_wait_clks": sum(
            clocks[n].irdy == 0 and clocks[n].trdy == 1 and clocks[n].stop == 1 for n in body
        ) if has("STOP#") else None,
        "initiator_wait_clks": sum(clocks[n].irdy == 1 for n in body),
        "devsel_clks": devsel_clks,
        "termination": termination(clocks, span, body, command, moved, stops, claims, captured),
        "initiator": granted(clocks[span.first - 1], grants) if has("GNT#") else None,
        "address_parity_ok": address_parity(clocks, span, captured) if complete_address else None,
        "perr": low_within(clocks, "perr", body.start + 1, span.last + 2) if has("PERR#") else None,
        "serr": low_within(clocks, "serr", span.first + 2, span.last + 2) if has("SERR#") else None,
        "device": device(command, address),
        "idsel": None,  # a line that the clocks here do not have
        "first_data_clk": moved[0] if moved else None,
        "last_data_clk": moved[-1] if moved else None,
    }  # fmt: skip
    return row, phases


def device(command: int | None, address: int | None) -> int | None:
    """Device number of a configuration access: by AD[31:11] in one of type 0, in the address of one of type 1."""
    if command not in (0xA, 0xB) or address is None:
        return None
    selected = [n - 11 for n in range(11, 32) if address >> n & 1]
    match address & 3:
        case 0 if len(selected) == 1:
            return selected[0]
        case 1:
            return (address & 0xFFFF) >> 11
        case _:
            return None


def termination(
    clocks: Sequence[Clock],
    span: Span,
    body: range,
    command: int | None,
    moved: list[int],
    stops: list[int],
    claims: list[int],
    captured: frozenset[str],
) -> str:
    """How a transaction ended; the first rule that matches."""
    if span.ending == "truncated":
        return "truncated"
    if span.ending == "illegal":
        return "unknown"
    if stops:  # the first clock with IRDY# and STOP# decides
        clock = clocks[stops[0]]
        data_moved_before = any(n < stops[0] for n in moved)
        if clock.trdy == 0:
            return "disconnect_with_data"
        if "DEVSEL#" not in captured or clock.devsel is None:
            return "unknown"
        if clock.devsel == 1:
            return "target_abort"
        return "disconnect_without_data" if data_moved_before else "retry"
    if clocks[span.last].trdy == 0:
        return "completion" if "STOP#" in captured else "unknown"
    if command == SPECIAL_CYCLE:
        return "special_cycle"
    answered = any(clocks[n].trdy == 0 or ("STOP#" in captured and clocks[n].stop == 0) for n in body)
    if "DEVSEL#" in captured:
        if not claims and all(clocks[n].devsel is not None for n in body):
            return "master_abort"
    elif not answered and "STOP#" in captured:
        return "master_abort"
    return "unknown"


def gave_up(clocks: Sequence[Clock], span: Span, row: dict, captured: frozenset[str]) -> bool:
    """A claimed transaction that its initiator ended without TRDY# or STOP#; not to be told without STOP#."""
    body = range(span.first + span.address_phases, span.last + 1)
    stopped = any(clocks[n].irdy == 0 and clocks[n].stop == 0 for n in body)
    return "STOP#" in captured and span.ending == "legal" and not stopped and row["termination"] == "unknown"


def classify(clocks: Sequence[Clock], n: int, span: Span, row: dict, captured: frozenset[str]) -> str:
    """The one class of a clock within a transaction; the first that matches."""
    clock = clocks[n]
    i, t = clock.irdy == 0, clock.trdy == 0
    s = "STOP#" in captured and clock.stop == 0
    after_address = span.first + span.address_phases
    claimed_by_now = "DEVSEL#" not in captured or any(c.devsel == 0 for c in clocks[after_address : n + 1])
    if "DEVSEL#" in captured:
        claimed = any(c.devsel != 1 for c in clocks[after_address : span.last + 1])
    elif "STOP#" in captured:
        claimed = any(c.trdy == 0 or c.stop == 0 for c in clocks[after_address : span.last + 1])
    else:
        claimed = True  # or not: that cannot be told
    if n < after_address:
        return "address"
    if i and t:
        return "data"
    if i and s:
        return "stop"
    if n == span.last and row["termination"] in ("master_abort", "special_cycle") and not claimed:
        return "abort"
    if n == after_address and row["command"] in READS:
        return "turnaround"
    if not claimed_by_now:
        return "decode"
    if not i and not t:
        return "both"
    return "target" if i else "initiator"


def account(classes: Iterable[str], captured: frozenset[str] = ALL_LINES) -> dict[str, int | None]:
    """Count the clocks of each class, null where the lines that tell it were not captured."""
    classes = list(classes)
    waits = ("turnaround", "decode", "both", "target", "initiator")
    names = ("unknown", "idle", "address", "data", "stop", "abort", *waits)
    counts: dict[str, int | None] = {name: classes.count(name) for name in names}
    counts["wait"] = sum(classes.count(name) for name in waits)
    counts["total"] = len(classes)
    counts["busy"] = len(classes) - classes.count("idle") - classes.count("unknown")
    if "C/BE#" not in captured:
        counts["turnaround"] = None
    if "STOP#" not in captured:
        counts["stop"] = counts["target"] = None
    if "DEVSEL#" not in captured:
        counts["decode"] = counts["both"] = counts["target"] = None
    return counts


def is_64_bit(clock: Clock, first_address: Clock, captured: frozenset[str], width: int | None) -> bool:
    """A 64-bit data phase: asked for with REQ64# in the address phase, granted with ACK64# in the data phase.

    Where REQ64# was not captured, ACK64# alone says it, for it is only an answer; where ACK64# was not, the wiring.
    """
    asked = "REQ64#" not in captured or first_address.req64 == 0
    granted = clock.ack64 == 0 if "ACK64#" in captured else width == 64
    return asked and granted


def data_phase(
    clocks: Sequence[Clock], n: int, first_address: Clock, captured: frozenset[str], width: int | None
) -> dict:
    """Data, byte enables and parity of the data phase that ended at clock `n`."""
    clock = clocks[n]
    data = clock.ad if "AD" in captured else None
    enables = clock.cbe if "C/BE#" in captured else None
    if is_64_bit(clock, first_address, captured, width):
        high = clock.ad_high if "AD_HIGH" in captured else None
        data = None if data is None or high is None else high << 32 | data
        enables_high = clock.cbe_high if "C/BE_HIGH#" in captured else None
        enables = None if enables is None or enables_high is None else enables_high << 4 | enables
    even = parity_ok(clocks, n, captured)
    if even and is_64_bit(clock, first_address, captured, width):
        even = None  # PAR64, which covers the upper half, is none of the lines here
    return {"clk": n, "data": data, "byte_enables": enables, "parity_ok": even}


def enabled_bytes(clock: Clock, first_address: Clock, captured: frozenset[str], width: int | None) -> tuple[int, bool]:
    """Bytes of one data phase and whether that is exact; a lane whose enable is not known counts as enabled."""
    wide = is_64_bit(clock, first_address, captured, width)
    if "C/BE#" not in captured:
        return (8 if wide else 4), False
    lanes = [(clock.cbe, True)]
    if wide:
        lanes.append((clock.cbe_high, "C/BE_HIGH#" in captured))
    count, exact = 0, True
    for enables, known in lanes:
        if not known or enables is None:
            count, exact = count + 4, False
        else:
            count += 4 - enables.bit_count()
    return count, exact


def parity_ok(clocks: Sequence[Clock], n: int, captured: frozenset[str]) -> bool | None:
    """Even parity of AD[31:0], C/BE[3:0]# at clock `n` and PAR one clock later; None unless all are known."""
    if not {"AD", "C/BE#", "PAR"} <= captured or n + 1 >= len(clocks) or clocks[n + 1].gap:
        return None
    ad, cbe, par = clocks[n].ad, clocks[n].cbe, clocks[n + 1].par
    if ad is None or cbe is None or par is None:
        return None
    return (ad.bit_count() + cbe.bit_count() + par) % 2 == 0


def address_parity(clocks: Sequence[Clock], span: Span, captured: frozenset[str]) -> bool | None:
    """Parity of all address phases."""
    each = [parity_ok(clocks, span.first + k, captured) for k in range(span.address_phases)]
    return None if None in each else all(each)


def low_within(clocks: Sequence[Clock], line: str, first: int, last: int) -> bool | None:
    """Whether a line was low at any captured clock from first to last; None where an unknown level cannot tell."""
    known = True
    for n in range(first, min(last + 1, len(clocks))):
        if clocks[n].gap:
            break  # nothing spans a gap
        level = getattr(clocks[n], line)
        if level == 0:
            return True
        known = known and level is not None
    return False if known else None


def granted(clock: Clock, grants: Sequence[str]) -> str | None:
    """The only GNT# that is low; None where none or several are, or may be."""
    low = [name for name, level in zip(grants, clock.gnt, strict=True) if level == 0]
    return low[0] if len(low) == 1 and None not in clock.gnt else None
