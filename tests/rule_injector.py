"""Single violations put into recorded traffic, wherever they fit; shares nothing with rules, oracle or decoder.

A clock is a dict of levels as they stand on the wires: 0 is asserted for lines with #. Each injection is a function of
the clocks and of one transaction (`Place`), and returns False where it does not fit there. `PAR` is made anew behind
it, unless parity is what it breaks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import slow_vcd

Clock = dict[str, int]
Clocks = list[Clock]

CONTROL = ("FRAME#", "IRDY#", "TRDY#", "STOP#", "DEVSEL#")
QUIET = ("PERR#", "SERR#", "LOCK#", "REQ64#", "ACK64#")
"""Lines that the recorded bus has not: never asserted."""
GRANTS = ("GNT_NIC#", "GNT_HOST#")
READ, WRITE = 0x6, 0x7


def recorded(path: Path, bus: str, first: int, count: int) -> Clocks:
    """Some clocks of a recorded bus, from one at which it is idle."""
    clocks: Clocks = []
    for number, (_, v) in enumerate(slow_vcd.edges(path, f"{bus}_CLK")):
        idle = v[f"{bus}_FRAME"] == v[f"{bus}_IRDY"] == "1"
        if number < first or (not clocks and not idle):
            continue
        one = {line: int(v[f"{bus}_{line.rstrip('#')}"]) for line in (*CONTROL, *GRANTS, "REQ_NIC#", "REQ_HOST#")}
        one |= {"AD": int(v[f"{bus}_AD"], 2), "CBE": int(v[f"{bus}_CBE"], 2), "PAR": int(v[f"{bus}_PAR"])}
        clocks.append(one | dict.fromkeys(QUIET, 1))
        if len(clocks) >= count and idle:
            break
    return clocks


def with_parity(clocks: Clocks) -> Clocks:
    """PAR of each clock as AD and C/BE# of the one before want it."""
    for before, now in itertools.pairwise(clocks):
        now["PAR"] = (before["AD"].bit_count() + before["CBE"].bit_count()) % 2
    return clocks


@dataclass(frozen=True)
class Place:
    """One transaction of the recorded traffic: clocks of its address and its data, and the first idle one behind."""

    address: int
    moved: tuple[int, ...]
    idle: int
    command: int

    @property
    def last(self) -> int:
        """The clock in which it ends."""
        return self.idle - 1


def places(clocks: Clocks) -> Iterator[Place]:
    """Transactions with an idle clock on both sides that moved data."""
    begun, moved = None, []
    for n, now in enumerate(clocks):
        busy = not (now["FRAME#"] and now["IRDY#"])
        if busy and begun is None:
            begun, moved = n, []
        if busy and not now["IRDY#"] and not now["TRDY#"]:
            moved.append(n)
        if not busy and begun is not None:
            if moved and begun > 20 and n + 20 < len(clocks):
                yield Place(begun, tuple(moved), n, clocks[begun]["CBE"])
            begun = None


def around(clocks: Clocks, place: Place) -> tuple[Clocks, Place]:
    """A copy of the clocks near a place, from an idle one on, and the place among them."""
    first = max(place.address - 150, 0)
    while not (clocks[first]["FRAME#"] and clocks[first]["IRDY#"]):
        first -= 1
    moved = tuple(n - first for n in place.moved)
    near = [dict(one) for one in clocks[first : place.idle + 150]]
    return near, Place(place.address - first, moved, place.idle - first, place.command)


Injection = Callable[[Clocks, Place, Random], bool]
INJECTIONS: dict[str, tuple[Injection, frozenset[str]]] = {}
"""Rule -> what breaks it, and which other rules it breaks by what they say."""


def breaks(rule: str, *implied: str) -> Callable[[Injection], Injection]:
    """Enter an injection."""

    def enter(function: Injection) -> Injection:
        INJECTIONS[rule] = (function, frozenset(implied))
        return function

    return enter


def again(clocks: Clocks, n: int, count: int, **lines: int) -> None:
    """Clock n comes `count` times more, before itself, with other levels."""
    clocks[n:n] = [clocks[n] | {name.replace("_n", "#"): level for name, level in lines.items()} for _ in range(count)]


def waits(clocks: Clocks, n: int, line: str, count: int, **lines: int) -> None:
    """Before data moves in clock n one side is not ready for so many clocks."""
    again(clocks, n, count, **{line.replace("#", "_n"): 1}, **lines)


def is_read(place: Place) -> bool:
    """Memory or configuration read."""
    return place.command in (0x6, 0xA, 0xC, 0xE)


def slow_initiator(clocks: Clocks, place: Place) -> None:
    """A clock more behind the address, in which nobody is ready."""
    again(clocks, place.address + 1, 1, FRAME_n=0, IRDY_n=1, TRDY_n=1, STOP_n=1, DEVSEL_n=1)


def longest(place: Place, least: int) -> bool:
    """Moves so many words at least."""
    return len(place.moved) >= least


def recommand(clocks: Clocks, place: Place, command: int) -> None:
    """Another command in the address phase."""
    clocks[place.address]["CBE"] = command


@breaks("M01", "M03")
def frame_falls_early(clocks: Clocks, place: Place, _: Random) -> bool:
    """FRAME# goes one clock before IRDY# comes."""
    n = place.address + 1
    again(clocks, n, 1, FRAME_n=1, IRDY_n=1, TRDY_n=1, DEVSEL_n=1, STOP_n=1)
    for k in range(n + 1, place.idle + 1):
        clocks[k]["FRAME#"] = 1
    return True


@breaks("M02", "M03")
def irdy_in_the_address_phase(clocks: Clocks, place: Place, _: Random) -> bool:
    clocks[place.address]["IRDY#"] = 0
    return True


@breaks("M03")
def irdy_out_of_nowhere(clocks: Clocks, place: Place, rng: Random) -> bool:
    n = place.idle + rng.randint(2, 4)
    if any(not clocks[n + k]["FRAME#"] for k in range(-1, 3)):
        return False
    clocks[n]["IRDY#"] = 0
    return True


@breaks("M04", "M02", "M05")
def frame_comes_back(clocks: Clocks, place: Place, rng: Random) -> bool:
    """FRAME# is asserted once more while the last data phase waits."""
    n = place.moved[-1]
    again(clocks, n, rng.randint(3, 5), TRDY_n=1, STOP_n=1)
    clocks[n + 1]["FRAME#"] = 0
    return place.last == n and not clocks[n]["DEVSEL#"] and bool(clocks[n]["FRAME#"])


@breaks("M05", "M02", "M04")
def frame_flickers_in_a_phase(clocks: Clocks, place: Place, rng: Random) -> bool:
    """FRAME# changes while IRDY# waits for TRDY#."""
    if not longest(place, 3):
        return False
    n = rng.choice(place.moved[1:-1])
    again(clocks, n, 3, TRDY_n=1, STOP_n=1)
    clocks[n + 1]["FRAME#"] = 1
    return True


@breaks("M06")
def irdy_gives_up_a_phase(clocks: Clocks, place: Place, rng: Random) -> bool:
    """IRDY# goes while it waits for TRDY#, and comes back."""
    if not longest(place, 3):
        return False
    n = rng.choice(place.moved[1:-1])
    again(clocks, n, 3, TRDY_n=1, STOP_n=1)
    clocks[n + 1]["IRDY#"] = 1
    return True


@breaks("M07")
def irdy_stays(clocks: Clocks, place: Place, _: Random) -> bool:
    stopped = any(not clocks[n]["STOP#"] for n in range(place.address, place.idle))
    clocks[place.idle]["IRDY#"] = 0
    return not stopped


@breaks("M08")
def irdy_is_late(clocks: Clocks, place: Place, rng: Random) -> bool:
    """Clock 9 after FRAME# is too late, or any later one; the target has not answered yet."""
    first = place.moved[0]
    n = next(k for k in range(place.address + 1, first + 1) if not clocks[k]["IRDY#"])
    more = 9 - (n - place.address) + rng.randint(0, 5)
    answered = not clocks[n]["TRDY#"] or not clocks[n]["STOP#"]
    if more < 1 or answered or not clocks[n]["FRAME#"]:
        return False
    again(clocks, n, more, FRAME_n=0, IRDY_n=1)
    for k in range(place.address + 2, first + more):
        clocks[k]["DEVSEL#"] = 0
    return first - place.address + more <= 16


@breaks("M09", "T12")
def irdy_is_late_within(clocks: Clocks, place: Place, rng: Random) -> bool:
    if not longest(place, 3):
        return False
    nth = rng.randrange(1, len(place.moved) - 1)
    n, before = place.moved[nth], place.moved[nth - 1]
    if n != before + 1:
        return False
    again(clocks, n, 8 + rng.randint(0, 4), IRDY_n=1, TRDY_n=1, STOP_n=1)
    return True


@breaks("M10", "T05", "T07", "T09")
def goes_on_after_stop(clocks: Clocks, place: Place, rng: Random) -> bool:
    """STOP# is asserted in the middle of a burst, and the initiator goes on."""
    if not longest(place, 4):
        return False
    clocks[rng.choice(place.moved[1:-2])]["STOP#"] = 0
    return True


def unclaimed(clocks: Clocks, place: Place, clocks_after: int) -> None:
    """Nobody answers: IRDY# is released so many clocks after the address."""
    one = clocks[place.address + 1] | {"TRDY#": 1, "STOP#": 1, "DEVSEL#": 1}
    body = [one | {"FRAME#": int(k > 0), "IRDY#": int(k == 0)} for k in range(clocks_after - 1)]
    clocks[place.address + 1 : place.idle] = body


@breaks("M11")
def gives_up_early(clocks: Clocks, place: Place, rng: Random) -> bool:
    unclaimed(clocks, place, rng.randint(3, 4))
    return True


def retried(clocks: Clocks, place: Place) -> int:
    """The target answers retry; then the access comes again as it was, so many clocks later."""
    whole = [dict(one) for one in clocks[place.address - 2 : place.idle + 2]]
    end = clocks[place.moved[0]]
    end |= {"TRDY#": 1, "STOP#": 0}
    for n in (place.moved[0], place.idle, place.idle + 1):
        clocks[n] |= {"REQ_NIC#": 1, "REQ_HOST#": 1}
    clocks[place.idle + 2 : place.idle + 2] = whole
    return len(whole)


@breaks("M12")
def no_idle_clock_after_stop(clocks: Clocks, place: Place, _: Random) -> bool:
    if longest(place, 2) or place.command != WRITE:
        return False
    retried(clocks, place)
    del clocks[place.idle : place.idle + 4]
    return True


@breaks("M13")
def back_to_back_after_a_read(clocks: Clocks, place: Place, _: Random) -> bool:
    if not is_read(place) or not clocks[place.last]["STOP#"]:
        return False
    n = next(k for k in range(place.idle, len(clocks)) if not clocks[k]["FRAME#"])
    if n > place.idle + 60:
        return False
    grants = {line: clocks[n - 1][line] for line in GRANTS}
    del clocks[place.idle : n]
    clocks[place.last] |= grants
    return True


@breaks("M14")
def enables_change_in_a_phase(clocks: Clocks, place: Place, rng: Random) -> bool:
    n = rng.choice(place.moved)
    again(clocks, n, 2, TRDY_n=1, STOP_n=1)
    clocks[n + 1]["CBE"] ^= 1 << rng.randrange(4)
    clocks[n]["CBE"] = clocks[n + 1]["CBE"]
    return True


@breaks("M15")
def data_of_a_write_changes(clocks: Clocks, place: Place, rng: Random) -> bool:
    if is_read(place):
        return False
    n = rng.choice(place.moved)
    again(clocks, n, 2, IRDY_n=0, TRDY_n=1, STOP_n=1)
    clocks[n + 1]["AD"] ^= 1 << rng.randrange(32)
    return True


@breaks("M16")
def asks_on_after_stop(clocks: Clocks, place: Place, rng: Random) -> bool:
    if longest(place, 2) or place.command != WRITE:
        return False
    owner = next((one for one in GRANTS if not clocks[place.address - 1][one]), None)
    if owner is None:
        return False
    retried(clocks, place)
    line = owner.replace("GNT", "REQ")
    clocks[place.idle][line] = 0
    clocks[place.idle + rng.choice((-1, 1))][line] = 0
    return True


@breaks("M17")
def keeps_the_bus(clocks: Clocks, place: Place, rng: Random) -> bool:
    if is_read(place) or not longest(place, 4):
        return False
    again(clocks, place.moved[1], 275 + rng.randint(0, 90))
    for n in range(place.address + 1, len(clocks)):
        if clocks[n]["FRAME#"]:
            return True
        clocks[n] |= dict.fromkeys(GRANTS, 1)
    return False


@breaks("M18")
def invalidate_of_a_part(clocks: Clocks, place: Place, rng: Random) -> bool:
    if place.command != WRITE:
        return False
    recommand(clocks, place, 0xF)
    nth = rng.randrange(len(place.moved))
    first = place.moved[nth - 1] + 1 if nth else place.address + 1
    for n in range(first, place.moved[nth] + 1):
        clocks[n]["CBE"] = 1 << rng.randrange(4) if n == first else clocks[first]["CBE"]
    return True


@breaks("M19")
def another_io_address(clocks: Clocks, place: Place, rng: Random) -> bool:
    if longest(place, 2) or place.command not in (READ, WRITE) or clocks[place.moved[0]]["CBE"]:
        return False
    recommand(clocks, place, place.command - 4)
    clocks[place.address]["AD"] |= rng.randint(1, 3)
    return True


@breaks("M20")
def special_cycle_is_claimed(clocks: Clocks, place: Place, _: Random) -> bool:
    recommand(clocks, place, 0x1)
    return place.command == WRITE


@breaks("M21")
def reserved(clocks: Clocks, place: Place, rng: Random) -> bool:
    recommand(clocks, place, rng.choice((4, 5, 8, 9)))
    return True


@breaks("M22")
def upper_half_is_0(clocks: Clocks, place: Place, _: Random) -> bool:
    slow_initiator(clocks, place)
    clocks[place.address + 1] |= {"AD": 0, "CBE": place.command}
    recommand(clocks, place, 0xD)
    return place.command in (READ, WRITE)


@breaks("M23")
def another_repetition(clocks: Clocks, place: Place, rng: Random) -> bool:
    if longest(place, 2) or place.command != WRITE:
        return False
    shift = retried(clocks, place)
    bit = 1 << rng.randrange(32)
    for n in range(place.address + 1 + shift, place.idle + shift):
        clocks[n]["AD"] ^= bit
    return True


@breaks("T01")
def devsel_is_late(clocks: Clocks, place: Place, rng: Random) -> bool:
    n = next(k for k in range(place.address, place.idle) if not clocks[k]["DEVSEL#"])
    more = 5 - (n - place.address) + rng.randint(0, 2)
    again(clocks, n, more, FRAME_n=clocks[n]["FRAME#"], DEVSEL_n=1, TRDY_n=1, STOP_n=1)
    return place.moved[0] - place.address + more <= 16


@breaks("T02", "T04")
def trdy_alone(clocks: Clocks, place: Place, rng: Random) -> bool:
    """DEVSEL# is away in a clock with TRDY#."""
    n = rng.choice(place.moved)
    clocks[n]["DEVSEL#"] = 1
    return not clocks[n - 1]["DEVSEL#"] and all(clocks[n]["STOP#"] for n in range(place.address, place.idle))


@breaks("T03", "M10", "T05", "T07")
def stop_before_devsel(clocks: Clocks, place: Place, _: Random) -> bool:
    slow_initiator(clocks, place)
    clocks[place.address + 1]["STOP#"] = 0
    return True


@breaks("T04")
def devsel_goes(clocks: Clocks, place: Place, rng: Random) -> bool:
    """DEVSEL# is away for a clock in which the target waits."""
    if not longest(place, 3):
        return False
    n = rng.choice(place.moved[1:-1])
    again(clocks, n, 3, TRDY_n=1, STOP_n=1)
    clocks[n + 1]["DEVSEL#"] = 1
    return True


@breaks("T05", "M10", "T07")
def stop_goes(clocks: Clocks, place: Place, rng: Random) -> bool:
    """STOP# is released while FRAME# is there, in a clock in which the initiator waits."""
    if not longest(place, 3):
        return False
    n = rng.choice(place.moved[1:-1])
    again(clocks, n, 2, IRDY_n=1, TRDY_n=1)
    clocks[n]["STOP#"] = 0
    return True


@breaks("T06", "T08")
def stop_stays(clocks: Clocks, place: Place, _: Random) -> bool:
    clocks[place.idle]["STOP#"] = 0
    return True


@breaks("T07")
def trdy_goes_back(clocks: Clocks, place: Place, rng: Random) -> bool:
    """TRDY# is there, the initiator waits, and it is away again before data moves."""
    if not longest(place, 3):
        return False
    n = rng.choice(place.moved[1:-1])
    again(clocks, n, 2, IRDY_n=1)
    clocks[n + 1]["TRDY#"] = 1
    return bool(clocks[n]["STOP#"])


@breaks("T08")
def devsel_stays(clocks: Clocks, place: Place, _: Random) -> bool:
    clocks[place.idle]["DEVSEL#"] = 0
    return True


@breaks("T09", "T08")
def trdy_after_a_disconnect(clocks: Clocks, place: Place, _: Random) -> bool:
    if place.last != place.moved[-1]:
        return False
    clocks[place.last]["STOP#"] = 0
    clocks[place.idle] |= {"TRDY#": 0, "DEVSEL#": 0}
    return True


@breaks("T10", "T02", "T07")
def no_turnaround(clocks: Clocks, place: Place, _: Random) -> bool:
    slow_initiator(clocks, place)
    clocks[place.address + 1]["TRDY#"] = 0
    return is_read(place)


@breaks("T11")
def first_data_is_late(clocks: Clocks, place: Place, rng: Random) -> bool:
    n = place.moved[0]
    if clocks[n - 1]["DEVSEL#"] or clocks[n - 1]["IRDY#"]:
        return False
    again(clocks, n, 17 - (n - place.address) + rng.randint(0, 9), TRDY_n=1, STOP_n=1)
    return True


@breaks("T12")
def next_data_is_late(clocks: Clocks, place: Place, rng: Random) -> bool:
    if not longest(place, 3):
        return False
    again(clocks, rng.choice(place.moved[1:-1]), 8 + rng.randint(0, 9), TRDY_n=1, STOP_n=1)
    return True


@breaks("T13", "T02")
def target_abort_with_data(clocks: Clocks, place: Place, _: Random) -> bool:
    """STOP# without DEVSEL# ends it, and TRDY# is there."""
    clocks[place.last] |= {"STOP#": 0, "DEVSEL#": 1}
    return not clocks[place.last - 1]["DEVSEL#"] and bool(clocks[place.last - 1]["TRDY#"])


@breaks("T14")
def data_of_a_read_changes(clocks: Clocks, place: Place, rng: Random) -> bool:
    if not is_read(place):
        return False
    n = rng.choice(place.moved)
    if n - 1 not in place.moved and not clocks[n - 1]["IRDY#"]:
        return False
    again(clocks, n, 2, IRDY_n=1, TRDY_n=0, FRAME_n=0)
    clocks[n + 1]["AD"] ^= 1 << rng.randrange(32)
    return bool(clocks[n]["STOP#"])


@breaks("T15")
def reserved_order_goes_on(clocks: Clocks, place: Place, rng: Random) -> bool:
    if not longest(place, 2) or place.command not in (READ, WRITE, 0xC, 0xE):
        return False
    clocks[place.address]["AD"] |= rng.choice((1, 3))
    return True


@breaks("A01")
def both_are_granted(clocks: Clocks, place: Place, rng: Random) -> bool:
    n = rng.choice((place.address + 1, place.moved[0], place.last))
    clocks[n] |= dict.fromkeys(GRANTS, 0)
    return True


@breaks("A02")
def grant_passes_at_once(clocks: Clocks, place: Place, rng: Random) -> bool:
    """On an idle bus GNT# goes from one to the other from a clock to the next."""
    n = place.address - 1
    mine = next((one for one in GRANTS if not clocks[n][one]), None)
    if mine is None:
        return False
    other = GRANTS[1 - GRANTS.index(mine)]
    none = dict.fromkeys((*GRANTS, "REQ_NIC#", "REQ_HOST#"), 1)
    clocks[n:n] = [clocks[n] | none, *(clocks[n] | none | {other: 0} for _ in range(rng.randint(1, 3)))]
    return clocks[n - 1]["FRAME#"] == clocks[n - 1]["IRDY#"] == 1


@breaks("A03")
def nobody_is_granted(clocks: Clocks, place: Place, _: Random) -> bool:
    clocks[place.address - 1] |= dict.fromkeys(GRANTS, 1)
    return True


@breaks("A06")
def granted_and_idle(clocks: Clocks, place: Place, rng: Random) -> bool:
    n = place.address - 1
    mine = next((one for one in GRANTS if not clocks[n][one]), None)
    if mine is None:
        return False
    again(clocks, n, 17 + rng.randint(0, 20))
    for k in range(n, n + 17):
        clocks[k][mine.replace("GNT", "REQ")] = 0
    return True


@breaks("P04")
def perr_alone(clocks: Clocks, place: Place, rng: Random) -> bool:
    clocks[rng.randrange(place.address, place.idle + 3)]["PERR#"] = 0
    return True


@breaks("P05")
def serr_alone(clocks: Clocks, place: Place, rng: Random) -> bool:
    clocks[rng.randrange(place.address, place.idle + 3)]["SERR#"] = 0
    return True


@breaks("W01")
def req64_goes(clocks: Clocks, place: Place, _: Random) -> bool:
    for n in range(place.address, place.idle):
        clocks[n]["REQ64#"] = clocks[n]["FRAME#"]
    clocks[place.address + 1]["REQ64#"] ^= 1
    return True


@breaks("W02")
def ack64_stays(clocks: Clocks, place: Place, _: Random) -> bool:
    for n in range(place.address, place.idle):
        clocks[n] |= {"REQ64#": clocks[n]["FRAME#"], "ACK64#": clocks[n]["DEVSEL#"]}
    clocks[place.idle]["ACK64#"] = 0
    return True


@breaks("L01")
def lock_in_the_middle(clocks: Clocks, place: Place, rng: Random) -> bool:
    for n in range(rng.randrange(place.address + 2, place.idle + 3), place.idle + 6):
        clocks[n]["LOCK#"] = 0
    return True


@breaks("L02")
def lock_of_a_write(clocks: Clocks, place: Place, _: Random) -> bool:
    for n in range(place.address + 1, place.idle):
        clocks[n]["LOCK#"] = 0
    return place.command == WRITE


@breaks("L03")
def lock_outlives_a_master_abort(clocks: Clocks, place: Place, rng: Random) -> bool:
    unclaimed(clocks, place, 6)
    for n in range(place.address + 1, place.address + 6 + 3 + rng.randint(0, 2)):
        clocks[n]["LOCK#"] = 0
    return place.command == READ


def parity_of(rule: str) -> Injection:
    """Wrong PAR behind an address, write data or read data; to be done after :func:`with_parity`."""

    def inject(clocks: Clocks, place: Place, rng: Random) -> bool:
        n = place.address if rule == "P01" else rng.choice(place.moved)
        clocks[n + 1]["PAR"] ^= 1
        return rule == "P01" or is_read(place) == (rule == "P03")

    return inject


PARITY = ("P01", "P02", "P03")
for _rule in PARITY:
    INJECTIONS[_rule] = (parity_of(_rule), frozenset())
