"""The rules of the bus, clock by clock: slow, obvious, and written from their sentences alone.

Shares nothing with the kernel: first the clocks are cut into transactions (`walk`), then each rule looks at the clocks
of one transaction, or at one clock and those before it. Nothing here is clever.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

READS = {0x0, 0x2, 0x6, 0xA, 0xC, 0xE}
WRITES = {0x3, 0x7, 0xB, 0xF}
MEMORY = {0x6, 0x7, 0xC, 0xE, 0xF}
RESERVED = {0x4, 0x5, 0x8, 0x9}
SPECIAL, DUAL, INVALIDATE = 0x1, 0xD, 0xF


@dataclass
class Clk:
    """One clock; lines are True where asserted, None where they have no known level."""

    f: bool = False
    i: bool = False
    t: bool = False
    s: bool = False
    d: bool = False
    known: bool = True  # control lines are, and RST# is off
    gap: bool = False
    ad: int | None = None
    cbe: int | None = None
    par: int | None = None
    perr: bool | None = False
    serr: bool | None = False
    lock: bool = False
    req64: bool = False
    ack64: bool = False
    gnt: tuple[bool | None, ...] = ()
    req: tuple[bool, ...] = ()


@dataclass(eq=False)
class Tx:
    """One transaction: numbers of its clocks."""

    first: int
    last_address: int
    dual: bool
    body: list[int] = field(default_factory=list)  # clocks after the address phases
    over: set[int] = field(default_factory=set)  # of these, those after the last data phase
    ended: list[int] = field(default_factory=list)  # data phases that ended
    last: int | None = None  # the last data phase
    lasts: set[int] = field(default_factory=set)  # where FRAME# came back, several
    owner: int | None = None
    ending: int | None = None  # the clock after the last one


@dataclass
class Bus:
    """Clocks, and the transaction of each: `after[n]` is what clock n follows without being an address phase."""

    clocks: Sequence[Clk]
    start: list[int | None]  # first clock in step of the stretch that clock n lies in
    tx: list[Tx | None]
    after: list[Tx | None]
    all: list[Tx]

    def before(self, n: int, by: int = 1) -> Clk:
        """An earlier clock; before the stretch in step everything was released."""
        start = self.start[n]
        return self.clocks[n - by] if start is not None and n - by >= start else Clk(gnt=(), lock=True, serr=True)

    def judged(self, n: int, by: int) -> bool:
        """Whether the clock that much earlier lies in the same stretch."""
        start = self.start[n]
        return start is not None and n - by >= start

    def tx_at(self, n: int, by: int) -> Tx | None:
        """The transaction of an earlier clock of the same stretch."""
        return self.tx[n - by] if self.judged(n, by) else None


def walk(clocks: Sequence[Clk]) -> Bus:
    """Cut the clocks into transactions."""
    bus = Bus(clocks, [None] * len(clocks), [None] * len(clocks), [None] * len(clocks), [])
    start: int | None = None
    open_tx: Tx | None = None
    for n, c in enumerate(clocks):
        if c.gap or not c.known:
            start, open_tx = None, None
        if not c.known:
            continue
        if start is None:
            if c.f or c.i:
                continue
            start = n
        bus.start[n] = start
        p = bus.before(n)
        begins = c.f and not p.f
        new = begins
        if begins and p.i and open_tx is not None:
            # FRAME# comes back: a new one begins only where IRDY# is released and the last phase is
            # over, or nobody ever claimed it.
            new = not c.i and (p.t or p.s or not any(clocks[k].d for k in range(open_tx.first, n)))
        elif begins and p.i:
            new = not c.i
        if new:
            if open_tx is not None:
                open_tx.ending = n
            dual = c.cbe == DUAL
            open_tx = Tx(n, n, dual, owner=owner(bus, n))
            bus.all.append(open_tx)
            bus.tx[n] = open_tx
            continue
        bus.after[n] = open_tx
        if not (c.f or c.i):
            if open_tx is not None:
                open_tx.ending = n
            open_tx = None
        if open_tx is None:
            continue
        bus.tx[n] = open_tx
        if open_tx.dual and n == open_tx.first + 1:
            if c.f:
                open_tx.last_address = n
                bus.after[n] = open_tx
                continue
            open_tx.last_address = -1
        open_tx.body.append(n)
        ends = c.i and (c.t or c.s)
        follows_last = open_tx.last == n - 1 and not begins
        if c.i and open_tx.last is not None and (follows_last or n - 1 in open_tx.over):
            open_tx.over.add(n)
        if n in open_tx.over:
            continue
        if ends:
            open_tx.ended.append(n)
            if not c.f:
                open_tx.last = n
                open_tx.lasts.add(n)
    return bus


def owner(bus: Bus, n: int) -> int | None:
    """The agent whose GNT# alone was asserted in the clock before."""
    if not bus.judged(n, 1):
        return None
    granted = bus.before(n).gnt
    if None in granted:
        return None
    held = [k for k, on in enumerate(granted) if on]
    return held[0] if len(held) == 1 else None


def command(bus: Bus, tx: Tx) -> int | None:
    """The command of the last address phase."""
    return bus.clocks[tx.last_address].cbe if tx.last_address >= 0 else None


def is_open(bus: Bus, n: int) -> bool:
    """The data phase is open at this clock, also where the bus just became idle."""
    tx = bus.after[n]
    if tx is None or n <= tx.last_address or (tx.last_address < 0 and n == tx.first):
        return False
    p = bus.before(n)
    return not (p.i and (p.t or p.s)) and n not in tx.over and n - 1 not in tx.over


def claimed(bus: Bus, tx: Tx, until: int) -> bool:
    """DEVSEL# was seen in this transaction, up to and with clock `until`."""
    return any(bus.clocks[n].d for n in range(tx.first, until + 1) if bus.tx[n] is tx)


def onset(hits: list[int]) -> list[int]:
    """Of clocks in a row only the first."""
    return [n for n in hits if n - 1 not in set(hits)]


def hits(bus: Bus, broken) -> list[int]:
    """Clocks in step at which a predicate of (n, this clock, the one before) holds."""
    return [n for n, c in enumerate(bus.clocks) if bus.start[n] is not None and broken(n, c, bus.before(n))]


def control(bus: Bus) -> dict[str, list[int]]:
    """M01 to M12 and T01 to T13: control lines alone."""
    seen = lambda tx, until: claimed(bus, tx, until)  # noqa: E731
    last_before = lambda n: bus.judged(n, 1) and (tx := bus.tx[n - 1]) is not None and n - 1 in tx.lasts  # noqa: E731

    def body(n: int) -> Tx | None:
        tx = bus.tx[n]
        return tx if tx is not None and n in tx.body else None

    def moving(n: int, p: Clk) -> bool:
        return p.i and is_open(bus, n) and seen(bus.after[n], n)

    def stopped(tx: Tx, until: int) -> bool:
        return any(bus.clocks[n].s for n in range(tx.first, until + 1) if bus.tx[n] is tx)

    def refused(tx: Tx, until: int) -> bool:
        """STOP# came after the address phases."""
        return any(bus.clocks[n].s for n in tx.body if n <= until)

    def gave_up(n: int, c: Clk, p: Clk) -> bool:
        tx = bus.tx_at(n, 1)
        if tx is None or not p.i or c.i or seen(tx, n):
            return False
        # Clock 5 after the address, 6 after the first of two.
        return 1 <= n - tx.first <= 4 + tx.dual

    def first_claim(n: int, c: Clk) -> bool:
        tx = bus.tx[n]
        return tx is not None and c.d and not seen(tx, n - 1)

    def in_time(n: int) -> bool:
        tx = body(n)
        return tx is not None and 1 <= n - tx.first - tx.dual <= 4

    def aborting(n: int) -> bool:
        tx = body(n)
        return tx is not None and any(
            bus.clocks[k].s and not bus.clocks[k].d and seen(tx, k - 1) for k in tx.body if k <= n
        )

    found = {
        "M01": hits(bus, lambda n, c, p: p.f and not c.f and not c.i),
        "M02": hits(bus, lambda n, c, p: c.f and not p.f and c.i),
        "M03": hits(bus, lambda n, c, p: c.i and not p.i and not p.f),
        "M04": hits(bus, lambda n, c, p: c.f and not p.f and p.i and bus.after[n] is not None),
        "M05": hits(bus, lambda n, c, p: moving(n, p) and c.f != p.f),
        "M06": hits(bus, lambda n, c, p: moving(n, p) and not c.i),
        "M07": hits(bus, lambda n, c, p: last_before(n) and c.i),
        "M10": onset(hits(bus, lambda n, c, p: c.f and c.i and body(n) and stopped(body(n), n - 1))),
        "M11": hits(bus, gave_up),
        "M12": hits(bus, lambda n, c, p: last_before(n) and (c.f or c.i) and refused(bus.tx[n - 1], n - 1)),
        "T01": hits(bus, lambda n, c, p: first_claim(n, c) and not in_time(n)),
        "T02": onset(hits(bus, lambda n, c, p: c.t and not c.d)),
        "T03": onset(hits(bus, lambda n, c, p: c.s and not c.d and bus.tx[n] and not seen(bus.tx[n], n))),
        "T04": hits(
            bus,
            lambda n, c, p: p.d and not c.d and not c.s and body(n) and n not in body(n).over and not last_before(n),
        ),
        "T05": hits(bus, lambda n, c, p: p.s and p.f and not c.s and bus.after[n]),
        "T06": hits(bus, lambda n, c, p: last_before(n) and c.s),
        "T07": hits(
            bus,
            lambda n, c, p: is_open(bus, n) and (p.t or p.s) and (c.t, c.s, c.d) != (p.t, p.s, p.d) and (c.f or c.i),
        ),
        "T08": hits(bus, lambda n, c, p: last_before(n) and (c.t or c.s or c.d)),
        "T09": hits(
            bus,
            lambda n, c, p: (
                p.i and p.t and p.s and c.t and bus.judged(n, 1) and bus.tx[n - 1] and n - 1 in bus.tx[n - 1].body
            ),
        ),
        "T13": onset(hits(bus, lambda n, c, p: aborting(n) and (c.t or (aborting(n - 1) and same(bus, n) and c.d)))),
    }
    return found | latencies(bus)


def same(bus: Bus, n: int) -> bool:
    """The clock before lies in the same transaction."""
    return bus.judged(n, 1) and bus.tx[n - 1] is bus.tx[n]


def latencies(bus: Bus) -> dict[str, list[int]]:
    """M08, M09, T11, T12: nothing came in so many clocks."""
    found: dict[str, list[int]] = {"M08": [], "M09": [], "T11": [], "T12": []}

    def silent(tx: Tx, begin: int, clocks: int, ready) -> bool:
        span = range(begin + 1, begin + clocks + 1)
        return all(n < len(bus.clocks) and bus.tx[n] is tx and not ready(bus.clocks[n]) for n in span)

    def irdy(c: Clk) -> bool:
        return c.i

    def answer(c: Clk) -> bool:
        return c.t or c.s

    for tx in bus.all:
        if silent(tx, tx.first, 8, irdy):
            found["M08"].append(tx.first + 8)
        if silent(tx, tx.first, 16, answer) and claimed(bus, tx, tx.first + 16):
            found["T11"].append(tx.first + 16)
        for n in tx.ended:
            if bus.clocks[n].f:
                if silent(tx, n, 8, irdy):
                    found["M09"].append(n + 8)
                if silent(tx, n, 8, answer):
                    found["T12"].append(n + 8)
    return found


def phases(bus: Bus) -> dict[str, list[int]]:
    """M13 to M15, M18 to M22, T10, T14, T15: with C/BE#, AD and GNT#."""
    names = ("M13", "M14", "M15", "M18", "M19", "M20", "M21", "M22", "T10", "T14", "T15")
    found: dict[str, list[int]] = {name: [] for name in names}
    for tx in bus.all:
        code = command(bus, tx)
        clocks = [(n, bus.clocks[n]) for n in tx.body]
        if tx.dual and tx.first + 1 < len(bus.clocks) and bus.start[tx.first + 1] == bus.start[tx.first]:
            c = bus.clocks[tx.first + 1]
            wrong_command = c.cbe is not None and c.cbe not in MEMORY
            if not c.f or c.i or c.t or c.d or wrong_command or c.ad == 0:
                found["M22"].append(tx.first + 1)
        for n, c in clocks:
            p = bus.before(n)
            if n - 1 in tx.body and is_open(bus, n):
                if None not in (c.cbe, p.cbe) and c.cbe != p.cbe:
                    found["M14"].append(n)
                changed = None not in (c.ad, p.ad) and c.ad != p.ad
                if changed and code in WRITES and p.i and c.i:
                    found["M15"].append(n)
                if changed and code in READS and p.t and not p.i:
                    found["T14"].append(n)
        if code is None:
            continue
        if code in RESERVED:
            found["M21"].append(tx.last_address)
        if code in READS and tx.body and tx.body[0] == tx.last_address + 1 and clocks[0][1].t:
            found["T10"].append(tx.body[0])
        if code == INVALIDATE:
            found["M18"] += [n for n, c in clocks if c.i and c.t and c.cbe not in (0, None)]
        if code == SPECIAL:
            found["M20"] += onset([n for n, c in clocks if c.d])
        ready = [(n, c) for n, c in clocks if c.i]
        address = bus.clocks[tx.last_address].ad
        if code in (0x2, 0x3) and ready and address is not None and ready[0][1].cbe not in (None, 15):
            lowest = next(lane for lane in range(4) if not ready[0][1].cbe >> lane & 1)
            if lowest != address & 3:
                found["M19"].append(ready[0][0])
        low = bus.clocks[tx.first].ad
        moved = [n for n, c in clocks if c.i and c.t]
        if code in MEMORY and address is not None and low is not None and low & 1:
            found["T15"] += moved[1:2]
    for before, tx in zip(bus.all, bus.all[1:], strict=False):
        if before.ending == tx.first and bus.before(tx.first).i and command(bus, before) is not None:
            known = None not in (before.owner, tx.owner)
            if command(bus, before) not in WRITES or (known and before.owner != tx.owner):
                found["M13"].append(tx.first)
    return found


def arbitration(bus: Bus) -> dict[str, list[int]]:
    """A01 to A06 and M16: GNT# and REQ#."""
    idle = lambda c: not c.f and not c.i  # noqa: E731

    def moved(n: int, c: Clk, p: Clk) -> bool:
        if not bus.judged(n, 1) or not idle(c) or not idle(p) or None in c.gnt or None in p.gnt:
            return False
        fell = any(b and not a for a, b in zip(c.gnt, p.gnt, strict=True))
        return fell and any(a and not b for a, b in zip(c.gnt, p.gnt, strict=True))

    def waits(n: int, agent: int) -> bool:
        c = bus.clocks[n]
        return bus.start[n] is not None and idle(c) and bool(c.gnt[agent]) and bool(c.req) and c.req[agent]

    late = []
    for n in range(len(bus.clocks)):
        for agent in range(len(bus.clocks[n].gnt)):
            run = bus.judged(n, 16) and all(waits(n - k, agent) for k in range(17))
            if run and not (bus.judged(n, 17) and waits(n - 17, agent)):
                late.append(n)
                break
    kept = []
    for tx, last in ((one, at) for one in bus.all for at in one.lasts):
        if tx.owner is None or not any(bus.clocks[n].s for n in tx.body if n <= last):
            continue
        n = last + 1
        stretch = [k for k in (n, n + 1) if k < len(bus.clocks) and bus.start[k] == bus.start[last]]
        if len(stretch) < 2 or not idle(bus.clocks[n]):
            continue
        before, at, after = (bus.clocks[k].req[tx.owner] for k in (n - 1, n, n + 1))
        if at or (before and after):
            kept.append(n)
    return {
        "A01": onset(hits(bus, lambda n, c, p: None not in c.gnt and sum(map(bool, c.gnt)) > 1)),
        "A02": hits(bus, moved),
        "A03": [
            tx.first
            for tx in bus.all
            if bus.judged(tx.first, 1) and None not in bus.before(tx.first).gnt and not any(bus.before(tx.first).gnt)
        ],
        "A06": late,
        "M16": kept,
    }


def parity(bus: Bus) -> dict[str, list[int]]:
    """P01 to P05: PAR, PERR# and SERR#."""
    found: dict[str, list[int]] = {f"P0{k}": [] for k in range(1, 6)}
    bad: dict[int, str] = {}  # a clock whose parity is wrong, or not known
    messages = set()  # clocks with the message of a special cycle: SERR# reports these
    for n, _ in enumerate(bus.clocks):
        if bus.start[n] is None:
            continue
        tx = bus.tx[n]
        kind = None
        if tx is not None:
            c, code = bus.clocks[n], command(bus, tx)
            if n in (tx.first, tx.last_address):
                kind = "P01"
            elif n in tx.body and code in WRITES | {SPECIAL} and c.i:
                kind = "P02"
                messages |= {n} if code == SPECIAL else set()
            elif n in tx.body and code in READS and c.t:
                kind = "P03"
            unjudged = (kind in ("P02", "P03") and None in (c.ad, c.cbe)) or (
                kind is None and code is None and n in tx.body and (c.i or c.t)
            )
            if unjudged:
                bad[n] = "P02?"
            if kind == "P01" and None in (c.ad, c.cbe):
                bad[n] = "P01?"
            # PERR# and SERR# may speak of the upper half, which these clocks do not have.
            if kind and bus.clocks[tx.first].req64 and (kind == "P01" or is_wide(bus, tx, n)):
                bad[n] = f"{bad.get(n, '')}{kind}?"
        after = n + 1
        if after >= len(bus.clocks) or bus.start[after] != bus.start[n]:
            continue
        par = bus.clocks[after].par
        if par is None:
            bad[n] = f"{bad.get(n, '')}{kind or ''}"
        elif kind and None not in (bus.clocks[n].ad, bus.clocks[n].cbe):
            ones = bus.clocks[n].ad.bit_count() + bus.clocks[n].cbe.bit_count() + par
            if ones % 2:
                found[kind].append(n)
                bad[n] = f"{bad.get(n, '')}{kind}"
    data = {n for n, kind in bad.items() if "P02" in kind or "P03" in kind}
    address = {n for n, kind in bad.items() if "P01" in kind or n in messages}
    found["P04"] = onset(hits(bus, lambda n, c, p: c.perr and bus.judged(n, 3) and not {n - 2, n - 3} & data))
    found["P05"] = hits(
        bus,
        lambda n, c, p: c.serr and bus.judged(n, 9) and not p.serr and not any(n - k in address for k in range(2, 10)),
    )
    return found


def is_wide(bus: Bus, tx: Tx, n: int) -> bool:
    """Data at this clock is 64 bits wide: REQ64# came with the address, ACK64# with the first DEVSEL#."""
    claims = [k for k in range(tx.first, n + 1) if bus.tx[k] is tx and bus.clocks[k].d]
    return bus.clocks[tx.first].req64 and bool(claims) and bus.clocks[claims[0]].ack64


def wide(bus: Bus) -> dict[str, list[int]]:
    """W01 and W02: REQ64# goes with FRAME#, ACK64# with DEVSEL#."""

    def asked(n: int, c: Clk) -> bool:
        tx = bus.tx[n]
        return tx is not None and c.f and bus.clocks[tx.first].req64

    def acknowledged(n: int, c: Clk) -> bool:
        tx = bus.tx[n]
        if tx is None or not c.d:
            return False
        first = next(k for k in range(tx.first, n + 1) if bus.tx[k] is tx and bus.clocks[k].d)
        return bus.clocks[first].ack64

    return {
        "W01": onset(hits(bus, lambda n, c, p: c.req64 != asked(n, c))),
        "W02": onset(hits(bus, lambda n, c, p: c.ack64 != acknowledged(n, c))),
    }


def lock(bus: Bus) -> dict[str, list[int]]:
    """L01 and L02: where LOCK# is taken."""

    def after_address(n: int) -> Tx | None:
        tx = bus.tx[n]
        # The second address phase of a dual address cycle is the clock after the first one.
        return tx if tx is not None and tx.first < n and n - 1 in (tx.first, tx.last_address) else None

    fell = hits(bus, lambda n, c, p: c.lock and not p.lock)
    return {
        "L01": [n for n in fell if after_address(n) is None],
        "L02": [
            n
            for n in fell
            if (tx := after_address(n))
            and command(bus, tx) not in (0x6, 0xC, 0xE, None)
            # Who holds it already releases it for the address phase, whatever the access is.
            and not bus.before(tx.first).lock
        ],
    }


def violations(clocks: Sequence[Clk]) -> Iterator[tuple[str, int]]:
    """Every violation: rule and clock."""
    bus = walk(clocks)
    for part in (control, phases, arbitration, parity, wide, lock):
        for rule, where in part(bus).items():
            yield from ((rule, n) for n in where)
