"""What a card was told of addresses before it used them: in a descriptor that it read, or in one of its registers.

A card learns by an address where a buffer begins. So where data were captured, a read whose data name what the card
turns to later is a descriptor and no part of a frame. And where nothing named the address, what lies where the piece
before ended hardly begins a frame, and what lies elsewhere hardly goes on with one: so lie the rest of a descriptor,
and a status word.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pcitrace.bustable import BusTable
from pcitrace.columns import Booleans, Floats, Integers
from pcitrace.facts import WRITES
from pcitrace.traffic.csr import Accesses
from pcitrace.traffic.dma import Dma, Kind
from pcitrace.traffic.phases import Phases
from pcitrace.traffic.pieces import Pieces

__all__ = ["Naming", "Words", "goes_on", "last_named_us"]

AT_A_TIME = 4096
"""Pieces whose data are looked at together: of a long capture all would take gigabytes."""


@dataclass(frozen=True)
class Naming:
    """What addresses and data of pieces say: one value a piece in each column.

    Attributes
    ----------
    named : array of bool
        It begins at an address that was named before.
    names : array of bool
        Its data name the address of a later one.
    apart, on : arrays of bool
        Nothing named where it begins, and the piece before it that went the same way ended elsewhere, or there.
    """

    named: Booleans
    names: Booleans
    apart: Booleans
    on: Booleans


@dataclass(frozen=True)
class Words:
    """What a card was told: the data that it read, and the values that were written to its registers."""

    phases: Phases
    csr: Accesses

    def naming(self, pieces: Pieces, write: Integers) -> Naming:
        """Return what was named, to a dword.

        Parameters
        ----------
        pieces : Pieces
        write : array of int
            Which of them are writes.
        """
        place = np.where(pieces.bus.address > 0, _dword(pieces.bus.address), -1)
        places, which = np.unique(place, return_inverse=True)
        # What names an address names its uses after that: the last one if any, and which, from the first naming on.
        last_us, named_us = np.full(len(places), -np.inf), np.full(len(places), np.inf)
        np.maximum.at(last_us, which, pieces.begin_us)
        names = np.zeros(len(pieces) + 1, dtype=bool)
        for words, time_us, by in self._told(pieces, np.flatnonzero(write == 0)):
            at = np.minimum(np.searchsorted(places, words), len(places) - 1)
            before = (places[at] == words) & (time_us[:, None] <= last_us[at])
            row, column = np.nonzero(before)
            np.minimum.at(named_us, at[row, column], time_us[row])
            names[by[row]] = True
        named = named_us[which] <= pieces.begin_us
        on = goes_on(pieces, write)
        return Naming(named, names[:-1], ~named & ~on, ~named & on)

    def _told(self, pieces: Pieces, read: Integers) -> Iterator[tuple[Integers, Floats, Integers]]:
        """Give both dwords of what the card was told, when that was, and the piece that it read; -1 for a register."""
        csr = self.csr
        told = np.flatnonzero(np.isin(csr.command, WRITES) & (csr.value >= 0))
        yield _dwords(csr.value[told]), csr.first_attempt_us[told], np.full(len(told), -1)
        for some in np.array_split(read, len(read) // AT_A_TIME + 1):
            by, words = _read_by(self.phases, pieces.bus, some)
            yield words, pieces.bus.last_data_us[by], by


def last_named_us(dma: Dma, phases: Phases, addresses: Integers, before_us: Floats) -> Floats:
    """Return when what named each of some addresses last began to be read, before some times; NaN where nothing did.

    It is a descriptor, whatever it was taken for, but no data of a send.

    Parameters
    ----------
    dma : Dma
    phases : Phases
        Data phases of the same bus.
    addresses : array of int
    before_us : array of float
    """
    asked = pd.DataFrame({"word": _dword(addresses), "us": before_us, "row": np.arange(len(addresses))})
    read = np.flatnonzero((dma.write == 0) & (dma.kind != Kind.SEND_DATA))
    told = list[pd.DataFrame]()
    for some in np.array_split(read, len(read) // AT_A_TIME + 1):
        by, words = _read_by(phases, dma.bus, some)
        named = np.isin(words, asked["word"])
        told.append(pd.DataFrame({"word": words[named], "named_us": dma.bus.start_us[np.repeat(by, 2)[named.ravel()]]}))
    found = pd.merge_asof(
        asked.sort_values("us"),
        pd.concat(told).sort_values("named_us"),
        left_on="us",
        right_on="named_us",
        by="word",
    )
    return found.sort_values("row")["named_us"].to_numpy(float)


def _read_by(phases: Phases, bus: BusTable, rows: Integers) -> tuple[Integers, Integers]:
    """Return which of some transactions read each data phase, and both dwords of it."""
    begin, length = phases.ranges(bus.transaction[rows])
    at = np.repeat(begin - np.cumsum(length) + length, length) + np.arange(length.sum())
    return np.repeat(rows, length), _dwords(phases.data[at])


def goes_on(pieces: Pieces, write: Integers) -> Booleans:
    """Return which pieces begin within the one before that went the same way, or where it ended."""
    out = np.zeros(len(pieces), dtype=bool)
    if not pieces.bus.has_address:
        return out
    start, size = pieces.bus.address.astype(np.int64), pieces.bus.bytes.astype(np.int64)
    for way in (0, 1):
        mine = np.flatnonzero(write == way)
        behind = start[mine[1:]] - start[mine[:-1]]
        out[mine[1:]] = (behind >= 0) & (behind <= size[mine[:-1]])
    return out


def _dword(values: Integers) -> Integers:
    return values.astype(np.int64) & 0xFFFFFFFC


def _dwords(values: Integers) -> Integers:
    """Return both dwords of data phases, each as an address: shape (phases, 2)."""
    return np.stack([_dword(values), _dword(values.astype(np.int64) >> 32)], axis=1)
