"""Random PCI traffic, clock by clock, with what a decoder must make of it.

`transaction` draws one transaction, `drive` puts a list of them on the wires and says which rows they are;
`disturb` makes legal traffic illegal. All take a `random.Random`, so the same code serves hypothesis (which shrinks
it) and long seeded runs.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from random import Random

from hypothesis import strategies as st
from oracle import COMMAND_NAMES, DUAL_ADDRESS, READS, SPECIAL_CYCLE, Clock

GRANTS = ("GNT0#", "GNT1#", "GNT_NIC#")

ENDINGS = {
    "completion": "completion",
    "disconnect_a": "disconnect_with_data",  # STOP# and TRDY# come before IRDY#
    "disconnect_b": "disconnect_with_data",  # STOP# and TRDY# come while IRDY# is asserted, FRAME# still held
    "disconnect_last": "disconnect_with_data",  # STOP# in what was the last data phase anyway
    "disconnect_without_data": "disconnect_without_data",
    "retry": "retry",
    "target_abort": "target_abort",
    "master_abort": "master_abort",
    "special_cycle": "special_cycle",
}
"""How a transaction is made to end, and the termination that is."""


@dataclass
class Phase:
    """One data phase: wait clocks of both sides before they are ready, and what moves."""

    initiator_waits: int
    target_waits: int
    data: int
    enables: int
    bad_parity: bool = False
    perr: bool = False


@dataclass
class Transaction:
    """One transaction as the initiator and the target mean it."""

    command: int
    address: int
    dac: bool
    wide: str  # "no", "asked" (REQ64# but no ACK64#) or "yes"
    agent: int | None  # whose GNT# is low a clock before the address phase
    idle_before: int  # idle clocks before the address phase; 0 is fast back-to-back
    stepping: int  # of these, clocks with AD and C/BE# valid already
    devsel: int | None
    phases: list[Phase]
    ending: str
    burst: bool  # where it ends early: the initiator wanted more
    tail_clks: int  # how long nobody answers an unclaimed transaction
    bad_address_parity: bool
    serr: bool


@dataclass
class Traffic:
    """Clocks of a bus and the rows they must decode to; `clk` counts from 0."""

    clocks: list[Clock]
    transactions: list[dict] = field(default_factory=list)
    data_phases: list[dict] = field(default_factory=list)


def few(rng: Random, most: int) -> int:
    """A small number, mostly 0."""
    return rng.choice((0, 0, 0, 1, 1, 2, rng.randint(0, most)))


def transaction(rng: Random, fill: Random, wide_bus: bool = False) -> Transaction:
    """Draw one legal transaction; `rng` its shape, `fill` the values on AD and C/BE#."""
    ending = rng.choice(list(ENDINGS))
    command = rng.choice([c for c in range(16) if c not in (DUAL_ADDRESS, SPECIAL_CYCLE)])
    if ending == "special_cycle":
        command = SPECIAL_CYCLE
    memory = COMMAND_NAMES[command].startswith("memory")
    wide = rng.choice(("no", "asked", "yes")) if wide_bus and memory else "no"
    dac = memory and rng.random() < 0.3
    unclaimed = ending in ("master_abort", "special_cycle")
    least = 2 if ending in ("disconnect_without_data",) else 1
    count = 0 if unclaimed else least + rng.choice((0, 0, 1, 2, rng.randint(0, 20)))
    if ending == "retry":
        count = 1
    phases = [
        Phase(
            initiator_waits=few(rng, 7),
            target_waits=few(rng, 500 if rng.random() < 0.02 else 16),
            data=fill.getrandbits(64 if wide == "yes" else 32),
            enables=rng.choice((0, 0, 0, fill.getrandbits(8 if wide == "yes" else 4))),
            bad_parity=rng.random() < 0.1,
            perr=rng.random() < 0.1,
        )
        for _ in range(count)
    ]
    idle_before = rng.choice((0, 1, 1, 2, 3, rng.randint(1, 70)))
    return Transaction(
        command=command,
        address=fill.getrandbits(64 if dac else 32),
        dac=dac,
        wide=wide,
        agent=rng.choice((None, 0, 1, 2)),
        idle_before=idle_before,
        stepping=min(idle_before, few(rng, 4)),
        devsel=None if unclaimed else rng.randint(1, 4),
        phases=phases,
        ending=ending,
        burst=rng.random() < 0.5,
        tail_clks=rng.randint(4, 8),
        bad_address_parity=rng.random() < 0.1,
        serr=rng.random() < 0.1,
    )


def control(tx: Transaction) -> list[tuple[str, int | None]]:
    """The clocks after the address phases: which of F I T S D are asserted, and the data phase in progress."""
    if tx.devsel is None:
        # Nobody answers: the initiator gives up after the decode window, FRAME# released with IRDY# asserted.
        waits = 2 if tx.burst else 0
        steps = []
        for n in range(1, tx.tail_clks + 1):
            ready = n > waits
            holds_frame = n < tx.tail_clks if tx.burst else not ready
            steps.append(("F" * holds_frame + "I" * ready, None))
        return steps

    steps = []
    for k, phase in enumerate(tx.phases):
        last = k == len(tx.phases) - 1
        ending = tx.ending if last else "data"
        start = len(steps)
        initiator_at = start + 1 + phase.initiator_waits
        target_at = start + 1 + phase.target_waits
        if k == 0:
            # The target answers with DEVSEL# at the earliest, and a read's data not in the turnaround clock.
            turnaround = tx.command in READS and ending not in ("retry", "target_abort")
            target_at = max(tx.devsel, 2 if turnaround else 1) + phase.target_waits
            if ending == "target_abort":
                target_at = max(target_at, tx.devsel + 1)
        elif ending == "target_abort":
            target_at = max(target_at, tx.devsel + 1)
        if ending == "disconnect_a":
            initiator_at = max(initiator_at, target_at + 1)
        if ending == "disconnect_b":
            target_at = max(target_at, initiator_at)
        answer = {
            "data": "TD", "completion": "TD", "disconnect_a": "TSD", "disconnect_b": "TSD", "disconnect_last": "TSD",
            "retry": "SD", "disconnect_without_data": "SD", "target_abort": "S",
        }[ending]  # fmt: skip
        # Does the initiator release FRAME# with this phase's IRDY#? It does in its last phase, and where it has seen
        # STOP# by then.
        stopped_early = ending in ("retry", "disconnect_without_data", "target_abort") and tx.burst
        releases = last and ending != "disconnect_b" and (not stopped_early or target_at < initiator_at)
        for n in range(start + 1, max(initiator_at, target_at) + 1):
            ready, answers = n >= initiator_at, n >= target_at
            asserted = "I" if ready else ""
            if not (releases and ready):
                asserted += "F"
            if answers:
                asserted += answer
            elif n >= tx.devsel:
                asserted += "D"
            steps.append((asserted, k))
        if last and not releases:
            # STOP# came while FRAME# was held: one more clock to release it, in which no data moves.
            steps.append(("I" + answer.replace("T", ""), None))
    return steps


def drive(transactions: list[Transaction], fill: Random, wide_bus: bool = False, parked: bool = True) -> Traffic:
    """Put transactions on the wires, two idle clocks before and four after."""
    clocks = [idle_clock(fill, wide_bus, parked) for _ in range(2)]
    traffic = Traffic(clocks)
    pulled: list[tuple[int, str]] = []  # clocks at which PERR# or SERR# is low
    bad: set[int] = set()  # clocks whose PAR, one later, is wrong

    for number, tx in enumerate(transactions):
        ended_by_idle = number == 0 or tx.idle_before > 0
        clocks += [idle_clock(fill, wide_bus, parked) for _ in range(max(tx.idle_before, number == 0))]
        for clock in clocks[len(clocks) - tx.stepping :] if tx.stepping else []:
            clock.ad, clock.cbe = tx.address & 0xFFFFFFFF, tx.command
        grant = tuple(0 if agent == tx.agent else 1 for agent in range(len(GRANTS)))
        clocks[-1].gnt = grant

        first = len(clocks)
        asked = 0 if tx.wide != "no" else 1
        address = Clock(frame=0, ad=tx.address & 0xFFFFFFFF, cbe=tx.command, req64=asked, gnt=grant)
        if wide_bus:
            address.ad_high, address.cbe_high = tx.address >> 32, tx.command
        if tx.dac:
            clocks.append(replace(address, cbe=DUAL_ADDRESS))
            address.ad = tx.address >> 32
        clocks.append(address)
        if tx.bad_address_parity:
            bad.add(fill.randrange(first, len(clocks)))

        steps = control(tx)
        moved: list[int] = []
        current: Phase | None = None
        for asserted, k in steps:
            current = current if k is None else tx.phases[k]
            clock = idle_clock(fill, wide_bus, parked)
            clock.frame, clock.irdy, clock.trdy, clock.stop, clock.devsel = (int(c not in asserted) for c in "FITSD")
            clock.req64 = asked or clock.frame
            clock.ack64 = clock.devsel if tx.wide == "yes" else 1
            if current is not None:
                clock.cbe = current.enables & 15
                if wide_bus:
                    clock.cbe_high = current.enables >> 4
            if current is not None and "I" in asserted and "T" in asserted:
                clock.ad = current.data & 0xFFFFFFFF
                if wide_bus:
                    clock.ad_high = current.data >> 32
                n = len(clocks)
                moved.append(n)
                if current.bad_parity:
                    bad.add(n)
                if current.perr:
                    pulled.append((n + 2, "perr"))
                traffic.data_phases.append(
                    {
                        "transaction": number,
                        "clk": n,
                        "data": current.data,
                        "byte_enables": current.enables,
                        # There is no PAR64: the upper half may be wrong.
                        "parity_ok": None if tx.wide == "yes" and not current.bad_parity else not current.bad_parity,
                    }
                )
            clocks.append(clock)
        if tx.serr:
            pulled.append((first + 2, "serr"))

        phases = tx.phases[: len(moved)]
        lanes = 8 if tx.wide == "yes" else 4
        traffic.transactions.append(
            {
                "transaction": number,
                "start_clk": first,
                "clocks": len(clocks) - first,
                "command": tx.command,
                "command_name": COMMAND_NAMES[tx.command],
                "dac": tx.dac,
                "address": tx.address,
                "data_phases": len(phases),
                "bytes": sum(lanes - phase.enables.bit_count() for phase in phases),
                "bytes_exact": True,
                "wait_clks": len(steps) - len(phases),
                "initiator_wait_clks": sum("I" not in asserted for asserted, _ in steps),
                "devsel_clks": tx.devsel,
                "termination": ENDINGS[tx.ending],
                "initiator": None if tx.agent is None else GRANTS[tx.agent],
                "fast_back_to_back": not ended_by_idle,
                "address_parity_ok": not tx.bad_address_parity,
                "perr": any(phase.perr for phase in phases),
                "serr": tx.serr,
            }
        )

    clocks += [idle_clock(fill, wide_bus, parked) for _ in range(4)]
    for n, line in pulled:
        setattr(clocks[n], line, 0)
    for n, (clock, after) in enumerate(itertools.pairwise(clocks)):
        if clock.ad is not None and clock.cbe is not None:
            after.par = (clock.ad.bit_count() + clock.cbe.bit_count() + (n in bad)) % 2
    return traffic


def idle_clock(fill: Random, wide_bus: bool, parked: bool) -> Clock:
    """A clock on which nobody says anything: AD, C/BE# and PAR are driven by a parked agent, or not at all."""
    low = fill.choice((None, *range(len(GRANTS))))
    clock = Clock(gnt=tuple(0 if agent == low else 1 for agent in range(len(GRANTS))))
    if parked:
        clock.ad, clock.cbe, clock.par = fill.getrandbits(32), fill.getrandbits(4), fill.getrandbits(1)
        if wide_bus:
            clock.ad_high, clock.cbe_high = fill.getrandbits(32), fill.getrandbits(4)
    return clock


def disturb(clocks: list[Clock], rng: Random, unknown: bool, flips: int) -> list[Clock]:
    """Make traffic illegal: flip, and where `unknown` blur, lines of some clocks; drop and repeat clocks; reset."""
    clocks = [replace(clock) for clock in clocks]
    control_lines = ("frame", "irdy", "trdy", "stop", "devsel")
    others = ("ad", "ad_high", "cbe", "cbe_high", "par", "perr", "serr", "req64", "ack64", "rst")
    for _ in range(flips):
        n = rng.randrange(len(clocks))
        match rng.randrange(6 if unknown else 4):
            case 0 | 1:
                line = rng.choice(control_lines)
                level = getattr(clocks[n], line)
                setattr(clocks[n], line, None if level is None else 1 - level)
            case 2:
                del clocks[n : n + rng.randint(1, 3)]
                clocks = clocks or [Clock(gnt=(1,) * len(GRANTS))]
            case 3:
                for clock in clocks[n : n + rng.randint(1, 3)]:
                    clock.rst = 0
            case 4:
                setattr(clocks[n], rng.choice(control_lines), None)
            case _:
                if rng.random() < 0.2:
                    clocks[n].gnt = tuple(rng.choice((0, 1, None)) for _ in GRANTS)
                else:
                    setattr(clocks[n], rng.choice(others), None)
    return clocks


def noise(rng: Random, count: int, unknown: bool) -> list[Clock]:
    """Clocks with no protocol at all."""

    def level() -> int | None:
        return rng.choice((0, 1, 1, None)) if unknown and rng.random() < 0.05 else rng.choice((0, 1))

    return [
        Clock(
            frame=level(), irdy=level(), trdy=level(), stop=level(), devsel=level(), ad=rng.getrandbits(32),
            ad_high=rng.getrandbits(32), cbe=rng.choice((6, 7, 13, 13, 1, 0)), cbe_high=rng.getrandbits(4),
            par=level(), perr=level(), serr=level(), gnt=tuple(level() for _ in GRANTS), req64=level(), ack64=level(),
            rst=0 if rng.random() < 0.02 else 1,
        )
        for _ in range(count)
    ]  # fmt: skip


@st.composite
def legal(draw: st.DrawFn, most: int = 12, wide: bool | None = None, parked: bool = True) -> Traffic:
    """Legal traffic of up to `most` transactions; on a 64-bit bus or not (`wide` None: either)."""
    rng = draw(st.randoms(use_true_random=False))
    fill = Random(draw(st.integers(0, 2**32)))
    wide_bus = draw(st.booleans()) if wide is None else wide
    count = draw(st.integers(1, most))
    return drive([transaction(rng, fill, wide_bus) for _ in range(count)], fill, wide_bus, parked)


@st.composite
def illegal(draw: st.DrawFn, unknown: bool) -> list[Clock]:
    """Clocks as no bus should show them: disturbed traffic, or noise; `unknown`: with levels that are not known."""
    seed = draw(st.integers(0, 2**32))
    rng = Random(seed)
    if draw(st.booleans()):
        return noise(rng, draw(st.integers(1, 300)), unknown)
    traffic = draw(legal(parked=not unknown))
    clocks = disturb(traffic.clocks, rng, unknown, draw(st.integers(1, 10)))
    first = draw(st.integers(0, len(clocks) - 1))  # a capture may begin and end anywhere
    last = draw(st.integers(first, len(clocks) - 1))
    return clocks[first : last + 1]


def long_run(seed: int, count: int, wide_bus: bool = False, parked: bool = True) -> Traffic:
    """`count` seeded transactions."""
    rng = Random(seed)
    return drive([transaction(rng, rng, wide_bus) for _ in range(count)], rng, wide_bus, parked)
