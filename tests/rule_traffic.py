"""Clean traffic for the rules, clock by clock, and single faults put into it. Shares nothing with either checker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

import numpy as np
import waveforms
from rule_oracle import Clk

AGENTS = 3
READS, IO_WRITE = {0x0, 0x2, 0x6, 0xA, 0xC, 0xE}, 0x3


def sampled(clocks: list[Clk], rng: Random | None = None) -> waveforms.Sampled:
    """What an analyser takes: one sample a clock, or several with CLK if `rng` says how many."""
    single = {"FRAME#": "f", "IRDY#": "i", "TRDY#": "t", "STOP#": "s", "DEVSEL#": "d", "PERR#": "perr",
              "SERR#": "serr", "LOCK#": "lock", "REQ64#": "req64", "ACK64#": "ack64", "RST#": "reset"}  # fmt: skip
    names = [*single, "PAR", *(f"AD{n}" for n in range(32)), *(f"CBE{n}#" for n in range(4))]
    names += [f"{stem}{k}#" for stem in ("GNT", "REQ") for k in range(AGENTS)]
    rows = []
    for c in clocks:
        row = [int(not (not c.known if field == "reset" else getattr(c, field))) for field in single.values()]
        row += [c.par or 0, *((c.ad or 0) >> n & 1 for n in range(32)), *((c.cbe or 0) >> n & 1 for n in range(4))]
        row += [int(not on) for on in (*c.gnt, *(c.req or (False,) * AGENTS))]
        rows.append(row)
    bits = np.array(rows, np.uint8)
    if rng is None:
        return waveforms.Sampled(names, bits, None)
    low, high = rng.randint(1, 4), rng.randint(1, 4)
    repeated = np.repeat(bits, low + high, axis=0)
    clk = np.tile(np.array([0] * low + [1] * high, np.uint8), len(bits))[:, None]
    return waveforms.Sampled(["CLK", *names], np.hstack([clk, repeated]), 1e8 * (low + high) / 3)


class Traffic:
    """A bus with an arbiter: transactions are put on it one after the other."""

    def __init__(self, seed: int = 1) -> None:
        self.rng = Random(seed)
        self.clocks: list[Clk] = []
        self.marks: dict[str, int] = {}
        self.idle(3)

    def idle(self, count: int) -> None:
        """Idle clocks without any GNT# or REQ#."""
        none = (False,) * AGENTS
        self.clocks += [Clk(ad=0, cbe=0, par=0, gnt=none, req=none) for _ in range(count)]

    def put(
        self,
        mark: str,
        command: int,
        address: int,
        data: int = 1,
        *,
        agent: int = 0,
        enables: int = 0,
        devsel: int | None = 2,
        target_waits: int = 1,
        initiator_waits: int = 1,
        ending: str = "completion",
        dual: bool = False,
        lock: bool = False,
        wide: bool = False,
        gap: int = 3,
    ) -> None:
        """One transaction; `marks[mark]` is its address phase."""
        one = tuple(k == agent for k in range(AGENTS))
        none = (False,) * AGENTS
        self.clocks.append(Clk(ad=0, cbe=0, gnt=one, req=one))
        self.marks[mark] = len(self.clocks)
        halves = [(0xD, address & 0xFFFFFFFF), (command, address >> 32)] if dual else [(command, address)]
        for code, ad in halves:
            self.clocks.append(Clk(f=True, ad=ad, cbe=code, gnt=none, req=none, req64=wide))
        body = (
            self._unclaimed(enables)
            if devsel is None
            else self._claimed(command in READS, data, enables, devsel, target_waits, initiator_waits, ending)
        )
        for clock in body:
            clock.req64 = wide and clock.f
            clock.ack64 = wide and clock.d
            clock.gnt, clock.req = none, none
        if lock:
            for clock in body:
                clock.lock = True
        self.clocks += body
        self.idle(gap)

    def _unclaimed(self, enables: int) -> list[Clk]:
        word = self.rng.getrandbits(32)
        return [Clk(f=n == 0, i=n > 0, ad=word, cbe=enables) for n in range(5)]

    def _claimed(
        self, read: bool, data: int, enables: int, devsel: int, target: int, initiator: int, ending: str
    ) -> list[Clk]:
        body: list[Clk] = []
        stops = ending != "completion"
        for k in range(data):
            word, last = self.rng.getrandbits(32), k == data - 1
            begin = len(body)
            ready = begin + 1 + initiator
            answers = begin + 1 + target if k else max(devsel, 2) + target
            moves = not (last and ending in ("retry", "disconnect", "abort"))
            if stops and last:
                ready = max(ready, answers + 1)
            for n in range(begin + 1, max(ready, answers) + 1):
                i, answer = n >= ready, n >= answers
                frame = not (last and i)
                aborts = last and ending == "abort" and answer
                body.append(
                    Clk(
                        f=frame, i=i, t=answer and moves, s=answer and stops and last, d=n >= devsel and not aborts,
                        ad=word, cbe=enables,
                    )
                )  # fmt: skip
        return body

    def finish(self) -> list[Clk]:
        """The clocks, with PAR for each."""
        self.idle(4)
        for before, clock in zip(self.clocks, self.clocks[1:], strict=False):
            clock.par = (before.ad.bit_count() + before.cbe.bit_count()) % 2
        self.clocks[0].par = 0
        return self.clocks


def clean() -> Traffic:
    """Some of everything, without a fault."""
    bus = Traffic()
    bus.put("read", 0x6, 0x1000, 3)
    bus.put("write", 0x7, 0x2000, 3, agent=1)
    bus.put("single", 0x7, 0x2100, 1, agent=1, initiator_waits=3, target_waits=0)
    bus.put("slow read", 0x6, 0x1100, 2, initiator_waits=4, target_waits=0)
    bus.put("long", 0x7, 0x3000, 16)
    bus.put("retry", 0x7, 0x4000, 1, ending="retry")
    bus.put("repeat", 0x7, 0x4000, 1)
    bus.put("disconnect", 0x6, 0x5000, 2, ending="disconnect")
    bus.put("with data", 0x7, 0x5100, 2, ending="with_data")
    bus.put("target abort", 0x6, 0x6000, 1, ending="abort")
    bus.put("nobody", 0x6, 0x7000, devsel=None)
    bus.put("special", 0x1, 0, devsel=None)
    bus.put("io", 0x3, 0xD001, 1, enables=0b1101)
    bus.put("invalidate", 0xF, 0x8000, 4)
    bus.put("dual", 0x6, 0x1_0000_2000, 1, dual=True)
    bus.put("reserved order", 0x6, 0x9001, 1, ending="with_data")
    bus.put("locked", 0x6, 0xA000, 1, lock=True)
    bus.put("lock retried", 0x6, 0xC000, 1, lock=True, ending="retry")
    bus.put("wide", 0x6, 0xB000, 2, wide=True)
    same_data(bus, "retry", "repeat")
    return bus


def same_data(bus: Traffic, first: str, second: str) -> None:
    """A retried write is repeated with its data."""
    word = bus.clocks[bus.marks[first] + 1].ad
    for clock in bus.clocks[bus.marks[second] + 1 :]:
        if not (clock.f or clock.i):
            break
        clock.ad = word


Edit = Callable[[list[Clk], dict[str, int]], None]


def change(mark: str, at: int, **levels: object) -> Edit:
    """Other levels `at` clocks after the address phase of a transaction."""

    def edit(clocks: list[Clk], marks: dict[str, int]) -> None:
        for name, value in levels.items():
            setattr(clocks[marks[mark] + at], name, value)

    return edit


def stretch(mark: str, at: int, count: int, **levels: object) -> Edit:
    """A clock of a transaction comes `count` times more, with other levels in these."""

    def edit(clocks: list[Clk], marks: dict[str, int]) -> None:
        n = marks[mark] + at
        clocks[n:n] = [replace(clocks[n], **levels) for _ in range(count)]

    return edit


def without(mark: str, at: int) -> Edit:
    """A clock of a transaction is left out."""

    def edit(clocks: list[Clk], marks: dict[str, int]) -> None:
        del clocks[marks[mark] + at]

    return edit


def where(clocks: list[Clk], start: int, wanted: Callable[[Clk], bool]) -> int:
    """The first clock from `start` on for which that holds."""
    return next(n for n in range(start, len(clocks)) if wanted(clocks[n]))


def at_first(mark: str, wanted: Callable[[Clk], bool], offset: int = 0, **levels: object) -> Edit:
    """Other levels at the first such clock of a transaction, or `offset` after it."""

    def edit(clocks: list[Clk], marks: dict[str, int]) -> None:
        n = where(clocks, marks[mark], wanted) + offset
        for name, value in levels.items():
            setattr(clocks[n], name, value)

    return edit


def toggled(mark: str, wanted: Callable[[Clk], bool], offset: int, line: str) -> Edit:
    """One line has the other level at the first such clock of a transaction, or `offset` after it."""

    def edit(clocks: list[Clk], marks: dict[str, int]) -> None:
        clock = clocks[where(clocks, marks[mark], wanted) + offset]
        setattr(clock, line, 1 - clock.par if line == "par" else not getattr(clock, line))

    return edit


def several(*edits: Edit) -> Edit:
    """One fault that shows in several clocks."""

    def edit(clocks: list[Clk], marks: dict[str, int]) -> None:
        for one in edits:
            one(clocks, marks)

    return edit


def held(mark: str, count: int, **levels: object) -> Edit:
    """The idle clocks before an address phase come `count` times, with other levels."""

    def edit(clocks: list[Clk], marks: dict[str, int]) -> None:
        n = marks[mark] - 1
        clocks[n:n] = [replace(clocks[n], **levels) for _ in range(count)]

    return edit


def moved(c: Clk) -> bool:
    """Data moves."""
    return c.i and c.t


def last(c: Clk) -> bool:
    """The last data phase ends."""
    return c.i and not c.f and (c.t or c.s)


def inserted(mark: str, wanted: Callable[[Clk], bool], count: int, **levels: object) -> Edit:
    """The first such clock of a transaction comes `count` times more behind it, with other levels in these."""

    def edit(clocks: list[Clk], marks: dict[str, int]) -> None:
        n = where(clocks, marks[mark], wanted)
        clocks[n + 1 : n + 1] = [replace(clocks[n], **levels) for _ in range(count)]

    return edit


def at_once(first: str, second: str) -> Edit:
    """A transaction begins in the clock after another one, granted to whoever it is."""

    def edit(clocks: list[Clk], marks: dict[str, int]) -> None:
        n, m = where(clocks, marks[first], last), marks[second]
        clocks[n].gnt, clocks[m].par = clocks[m - 1].gnt, clocks[n + 1].par
        del clocks[n + 1 : m]

    return edit


def other_enables(mark: str) -> Edit:
    """All data phases of a transaction have other byte enables, with their parity."""

    def edit(clocks: list[Clk], marks: dict[str, int]) -> None:
        n = marks[mark] + 1
        while clocks[n].f or clocks[n].i:
            clocks[n].cbe ^= 1
            clocks[n + 1].par ^= 1
            n += 1

    return edit


def is_frame(c: Clk) -> bool:
    """FRAME# is asserted."""
    return c.f


FAULTS: dict[str, tuple[Edit, set[str]]] = {
    # FRAME# is gone for a clock: what follows reads as another address phase.
    "M01": (at_first("slow read", lambda c: c.f and not c.i, 1, f=False), {"T01", "T10", "A03"}),
    "M02": (change("read", 0, i=True), {"M03", "M11"}),
    "M03": (change("read", -2, i=True), {"M02"}),
    "M04": (stretch("nobody", 4, 1, f=True), {"M02"}),
    "M05": (at_first("read", lambda c: c.f and c.i and not c.t, 0, f=False), {"M04", "M02"}),
    # The target had answered: the phase does not end, and it goes on all the same.
    "M06": (toggled("long", lambda c: c.f and c.i and not c.t, 1, "i"), {"T07"}),
    "M07": (at_first("single", last, 1, i=True), set()),
    "M08": (stretch("slow read", 2, 8), set()),
    "M09": (inserted("long", moved, 8, i=False, t=False), {"T12"}),
    "M10": (at_first("with data", lambda c: c.s and c.i, 0, f=True), {"M01", "T05"}),
    "M11": (several(without("nobody", 4), without("nobody", 3)), set()),
    "M12": (at_first("retry", last, 1, f=True, cbe=7, ad=0x40), {"M01", "M13", "A03"}),
    "M13": (at_once("read", "write"), set()),
    "M14": (at_first("slow read", lambda c: c.d and not c.i, 1, cbe=5), {"P03", "P02"}),
    "M15": (at_first("write", lambda c: c.i and not c.t, 1, ad=0x55), {"P02"}),
    "M16": (at_first("retry", last, 1, req=(True, False, False)), set()),
    "M17": (inserted("long", moved, 272), set()),
    "M18": (at_first("invalidate", moved, 0, cbe=1), {"M14", "P02"}),
    "M19": (several(change("io", 0, ad=0xD000), toggled("io", is_frame, 1, "par")), set()),
    "M20": (at_first("special", lambda c: c.i, 0, d=True), {"T04", "M06", "M05"}),
    "M21": (several(change("nobody", 0, cbe=5), change("nobody", 1, par=0)), {"P01"}),
    "M22": (change("dual", 1, d=True), {"T01", "T04"}),
    "M23": (other_enables("repeat"), set()),
    "T01": (stretch("read", 1, 4), set()),
    "T02": (at_first("single", lambda c: c.t and not c.i, 0, d=False), {"T04", "T07"}),
    "T03": (change("slow read", 1, s=True), {"T05", "T07", "M10"}),
    "T04": (several(stretch("read", 2, 2), change("read", 3, d=False)), set()),
    "T05": (inserted("with data", lambda c: c.s and not c.i, 1, s=False), {"T07"}),
    "T06": (at_first("with data", last, 1, s=True), {"T08", "T02"}),
    "T07": (at_first("slow read", lambda c: c.t and not c.i, 1, t=False), set()),
    "T08": (at_first("read", last, 1, d=True), set()),
    "T09": (at_first("with data", last, 1, t=True, d=True), {"T08"}),
    "T10": (change("slow read", 1, t=True), {"T02", "T07", "P03"}),
    "T11": (stretch("read", 2, 14), set()),
    "T12": (inserted("read", moved, 8, t=False), {"M06"}),
    "T13": (at_first("target abort", lambda c: c.s, 0, t=True), {"T02", "T07", "T09"}),
    "T14": (at_first("slow read", lambda c: c.t and not c.i, 1, ad=0x77), {"P03"}),
    "T15": (several(change("read", 0, ad=0x1001), toggled("read", is_frame, 1, "par")), set()),
    "A01": (change("write", -1, gnt=(True, True, False)), set()),
    "A02": (held("write", 1, gnt=(True, False, False)), set()),
    "A03": (change("write", -1, gnt=(False, False, False)), set()),
    "A06": (held("write", 17), set()),
    "P01": (toggled("read", is_frame, 1, "par"), set()),
    "P02": (toggled("write", moved, 1, "par"), set()),
    "P03": (toggled("read", moved, 1, "par"), set()),
    "P04": (toggled("read", moved, 2, "perr"), set()),
    "P05": (toggled("read", moved, 2, "serr"), set()),
    "L01": (change("read", 3, lock=True), set()),
    "L02": (change("write", 1, lock=True), set()),
    "L03": (several(*(at_first("lock retried", last, by, lock=True) for by in (1, 2))), set()),
    "W01": (at_first("wide", moved, 0, req64=False), set()),
    "W02": (at_first("wide", moved, 0, ack64=False), set()),
}
"""Rule -> a fault that breaks it, and what that fault may break besides."""
