"""Transactions of one bus -> DMA bursts and CSR accesses of its NIC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import pandas as pd
import pyarrow as pa

from pcitrace.bustable import BusTable
from pcitrace.columns import Floats, Integers, table
from pcitrace.freed import give_back
from pcitrace.profiles import Profile
from pcitrace.schema import BURSTS, COMMAND_NAMES, CSR_ACCESSES, PIECES
from pcitrace.traffic import csr as csr_module
from pcitrace.traffic import dma as dma_module
from pcitrace.traffic import initiators
from pcitrace.traffic.content import WireFrames, fcs_in_memory
from pcitrace.traffic.csr import Accesses, accesses
from pcitrace.traffic.dma import KINDS, Dma, Kind, Memory, moved_twice
from pcitrace.traffic.initiators import Initiator
from pcitrace.traffic.parts import over_buffers
from pcitrace.traffic.phases import Phases
from pcitrace.traffic.reading import Claims
from pcitrace.traffic.segment import by_lengths
from pcitrace.traffic.windows import Windows, place

__all__ = ["Agents", "Bursts", "Nic", "Traffic", "agents_of", "analyse"]


@dataclass(frozen=True)
class Bursts:
    """Logical DMA bursts of one bus in the order of their first attempts; -1 or NaN where unknown.

    Attributes
    ----------
    start_us, first_data_us, last_data_us : arrays of float
        Address phase of the first attempt; first and last data phase.
    kind, write, reason : arrays of int
        As in :class:`pcitrace.traffic.dma.Dma`.
    address, data_phases, bytes, pieces : arrays of int
    again : array of int
        Bytes of them that were moved twice: the card moved again what was cut. Told by addresses only.
    """

    start_us: Floats
    first_data_us: Floats
    last_data_us: Floats
    kind: Integers
    write: Integers
    reason: Integers
    address: Integers
    data_phases: Integers
    bytes: Integers
    pieces: Integers
    again: Integers

    def __len__(self) -> int:
        return len(self.start_us)

    def of_kind(self, kind: Kind) -> Integers:
        """Return the bursts of one kind in which data moved, in order of time."""
        rows = np.flatnonzero((self.kind == kind) & (self.data_phases > 0))
        return rows[np.argsort(self.first_data_us[rows], kind="stable")]

    def begins_us(self, kind: Kind) -> Floats:
        """Return when the bursts of one kind begin to move data, in order of time."""
        return self.first_data_us[self.of_kind(kind)]

    @property
    def once(self) -> tuple[Integers, Integers]:
        """Bytes and data phases without what was moved again."""
        width = np.where(self.bytes > 4 * self.data_phases, 8, 4)
        return self.bytes - self.again, self.data_phases - self.again // width

    @property
    def known_last_us(self) -> Floats:
        """Last data phase; NaN where another piece may be the last."""
        return np.where(self.reason == dma_module.EITHER_TAIL, np.nan, self.last_data_us)


@dataclass(frozen=True)
class Traffic:
    """What the transactions of one bus are.

    Attributes
    ----------
    bus : str
        Name of the bus.
    csr : Accesses
    dma : Dma
    joined : Bursts
    windows : Windows
    unknown : dict of str to int
        How many transactions could not be told, by reason.
    other : int
        Transactions of other agents, or of the host with other devices.
    findings : tuple of str
        What the user should know, in words.
    claims : Claims
        Which frame on the wire each burst is, where a reading of the pieces tells.
    burst_margin : array of float or None
        Margin of each burst (nats), where a reading of the pieces tells; NaN for none.
    burst_frame, csr_frame : array of int or None
        The frame that each burst, and each access, belongs to; -1 for none.
    csr_margin : array of float or None
        Margins of the first accesses (nats): of the others nothing was decided.
    """

    bus: str
    csr: Accesses
    dma: Dma
    joined: Bursts
    windows: Windows
    unknown: dict[str, int]
    other: int
    findings: tuple[str, ...]
    claims: Claims = field(default_factory=Claims)
    burst_margin: Floats | None = None
    burst_frame: Integers | None = None
    csr_frame: Integers | None = None
    csr_margin: Floats | None = None

    def __repr__(self) -> str:
        return (
            f"<Traffic of bus {self.bus}: {len(self.csr)} CSR accesses, {len(self.joined)} bursts, "
            f"{sum(self.unknown.values())} transactions unknown>"
        )

    @property
    def bursts(self) -> pd.DataFrame:
        """The table `bursts`: one row a logical DMA burst."""
        one = self.joined
        n = len(one)
        frame = self.burst_frame if self.burst_frame is not None else np.full(n, -1)
        return table(
            BURSTS,
            {
                "bus": _texts((self.bus,), np.zeros(n, dtype=np.int8)),
                "burst": np.arange(n),
                "start_us": one.start_us,
                "first_data_us": one.first_data_us,
                "last_data_us": one.known_last_us,
                "kind": _texts(KINDS, one.kind),
                "direction": _texts(("read", "write"), one.write),
                "address": _masked(one.address),
                "data_phases": one.data_phases,
                "bytes": one.bytes,
                "pieces": one.pieces,
                "frame": _masked(frame),
                "margin": self.burst_margin if self.burst_margin is not None else np.full(n, np.nan),
                "why": _texts(dma_module.REASONS, one.reason),
            },
        )

    @property
    def pieces(self) -> pd.DataFrame:
        """The table `pieces`: one row a DMA transaction, before joining."""
        dma = self.dma
        return table(
            PIECES,
            {
                "bus": _texts((self.bus,), np.zeros(len(dma.bus), dtype=np.int8)),
                "burst": dma.burst,
                "transaction": dma.bus.transaction,
                "start_us": dma.bus.start_us,
                "first_data_us": dma.bus.first_data_us,
                "last_data_us": dma.bus.last_data_us,
                "address": _masked(dma.bus.address),
                "data_phases": dma.bus.data_phases,
                "bytes": dma.bus.bytes,
                "kind": _texts(KINDS, dma.kind),
                "direction": _texts(("read", "write"), dma.write),
            },
        )

    @property
    def csr_accesses(self) -> pd.DataFrame:
        """The table `csr_accesses`: one row an access."""
        csr = self.csr
        frame = self.csr_frame if self.csr_frame is not None else np.full(len(csr), -1)
        margin = np.full(len(csr), np.nan)
        if self.csr_margin is not None:
            margin[: len(self.csr_margin)] = self.csr_margin
        return table(
            CSR_ACCESSES,
            {
                "bus": _texts((self.bus,), np.zeros(len(csr), dtype=np.int8)),
                "first_attempt_us": csr.first_attempt_us,
                "last_attempt_us": csr.last_attempt_us,
                "data_us": csr.data_us,
                "command_name": _texts(COMMAND_NAMES, csr.command),
                "address": _masked(csr.address),
                "register": _texts(csr.registers, csr.register),
                "value": _masked(csr.value),
                "attempts": csr.attempts,
                "frame": _masked(frame),
                "margin": margin,
                "why": _texts(csr_module.REASONS, csr.reason),
            },
        )


@dataclass(frozen=True)
class Nic:
    """What is known of a NIC before its bus is looked at.

    Attributes
    ----------
    profile : Profile
    lines : sequence of str
        PCI lines that were captured.
    grant : str or None
        Its GNT# line, where its name does not tell.
    memory : Memory
        Windows of host memory that are known.
    sent, received : WireFrames or None
        Frames on the wire that its host sends and receives. Where AD was not captured they say which transactions make
        up a frame.
    """

    profile: Profile
    lines: Sequence[str] = ()
    grant: str | None = None
    memory: Memory = field(default_factory=Memory)
    sent: WireFrames | None = None
    received: WireFrames | None = None


def analyse(
    transactions: pd.DataFrame | BusTable, data_phases: pd.DataFrame | Phases | None = None, *, bus: str, nic: Nic
) -> Traffic:
    """Tell what the transactions of one bus are.

    Parameters
    ----------
    transactions : pandas.DataFrame or BusTable
        Of this bus.
    data_phases : pandas.DataFrame or Phases, optional
        Of this bus. Without them registers have no values and bursts no content.
    bus : str
        Name of the bus.
    nic : Nic
        The card on it.

    Returns
    -------
    Traffic

    Raises
    ------
    WiringError
        Several GNT# lines were captured and nothing tells which is the NIC's.
    """
    begun = _Begun.of(transactions, data_phases, nic)
    if begun.addressed:
        agents = begun.agents()
        return agents.traffic(bus, agents.dma(nic))
    # The accesses of a long capture are not held while its DMA, which asks nothing of them, takes the most memory.
    dma = _by_lengths(begun.nics, nic)
    give_back()
    return begun.agents().traffic(bus, dma)


@dataclass(frozen=True)
class Agents:
    """Who began the transactions of one bus.

    Attributes
    ----------
    nics : BusTable
        Transactions that the NIC began.
    csr : Accesses
        Those that the host began, with the NIC.
    phases : Phases or None
    windows : Windows
    addressed : bool
        Whether addresses say what belongs together: they do where it is known which way the data went.
    unknown : dict of str to int
        How many transactions could not be told, by reason.
    other : int
        Transactions of other agents, or of the host with other devices.
    """

    nics: BusTable
    csr: Accesses
    phases: Phases | None
    windows: Windows
    addressed: bool
    unknown: dict[str, int]
    other: int

    def dma(self, nic: Nic) -> Dma:
        """Return what the NIC's transactions are."""
        if not self.addressed:
            return _by_lengths(self.nics, nic)
        profile = self.windows.profile
        dma = dma_module.by_address(self.nics, self.phases, profile, self.csr, nic.memory)
        return over_buffers(dma, nic.received, fcs_in_memory(profile))

    def traffic(self, bus: str, dma: Dma) -> Traffic:
        """Return it all together."""
        unknown = self.unknown | _counted(dma_module.REASONS, dma.reason[dma.kind == Kind.UNKNOWN])
        return Traffic(bus, self.csr, dma, join(dma), self.windows, unknown, self.other, self.windows.findings)


def agents_of(transactions: pd.DataFrame | BusTable, data_phases: pd.DataFrame | Phases | None, nic: Nic) -> Agents:
    """Tell who began the transactions of one bus; the parameters are those of :func:`analyse`."""
    return _Begun.of(transactions, data_phases, nic).agents()


@dataclass(frozen=True)
class _Begun:
    """What the host began, with whomever, and what the NIC; the rest is as in Agents."""

    hosts: BusTable
    nics: BusTable
    phases: Phases | None
    windows: Windows
    addressed: bool
    unknown: dict[str, int]
    other: int

    @classmethod
    def of(cls, transactions: pd.DataFrame | BusTable, data_phases: pd.DataFrame | Phases | None, nic: Nic) -> Self:
        """Tell who began the transactions of one bus."""
        whole = transactions if isinstance(transactions, BusTable) else BusTable.of(transactions)
        phases = Phases.of(data_phases, whole) if isinstance(data_phases, pd.DataFrame) else data_phases
        if phases is not None and not (len(phases) and whole.has_address):
            phases = None
        config = whole.take(np.isin(whole.command, csr_module.CONFIG_COMMANDS))
        first = phases.first(config.transaction) if phases is not None else np.full(len(config), -1)
        windows = place(nic.profile, config, first)
        windows = windows if phases is None else windows.tried(whole, phases)
        grants = [line for line in nic.lines if line.startswith("GNT")]
        grant = initiators.nic_grant_line(nic.lines, nic.grant)
        who, why = initiators.decide(whole, grant, len(grants) == 1, windows.contain(whole))
        hosts, nics = whole.take(who == Initiator.HOST), whole.take(who == Initiator.NIC)
        addressed = whole.has_address and bool((dma_module.directions(nics) >= 0).any())
        unknown = _counted(initiators.REASONS, why[who == Initiator.UNKNOWN])
        return cls(hosts, nics, phases, windows, addressed, unknown, int((who == Initiator.OTHER).sum()))

    def agents(self) -> Agents:
        """Tell the host's accesses to the NIC from those to others."""
        csr, outside = _within(accesses(self.hosts, self.phases, self.windows))
        other = self.other + outside
        return Agents(self.nics, csr, self.phases, self.windows, self.addressed, self.unknown, other)


def _by_lengths(nics: BusTable, nic: Nic) -> Dma:
    """Return what the NIC's transactions are where no address tells."""
    return by_lengths(nics, nic.profile, nic.sent, nic.received, dma_module.directions(nics))


def join(dma: Dma) -> Bursts:
    """Put the pieces of each burst together."""
    bus, number = dma.bus, dma.burst
    count = int(number.max()) + 1 if len(bus) else 0
    order = np.argsort(number, kind="stable")
    moved = order[bus.data_phases[order] > 0]
    pieces, with_data = (np.bincount(number[rows], minlength=count) for rows in (order, moved))
    head, end = order[np.cumsum(pieces) - pieces], np.cumsum(with_data)
    some = with_data > 0
    first = np.full(count, np.nan)
    last = np.full(count, np.nan)
    first[some] = bus.take(moved[(end - with_data)[some]]).first_data_us
    last[some] = bus.take(moved[end[some] - 1]).last_data_us
    heads = bus.take(head)
    return Bursts(
        start_us=heads.start_us,
        first_data_us=first,
        last_data_us=last,
        kind=dma.kind[head],
        write=dma.write[head],
        reason=dma.reason[head],
        address=heads.address,
        data_phases=np.bincount(number, weights=bus.data_phases, minlength=count).astype(np.int32),
        bytes=np.bincount(number, weights=bus.bytes, minlength=count).astype(np.int32),
        pieces=pieces.astype(np.int32),
        again=_again(dma, moved, count),
    )


def _again(dma: Dma, moved: Integers, count: int) -> Integers:
    """Return the bytes of each burst that were moved twice; `moved` are its transactions with data, in order."""
    twice = moved_twice(dma, moved) if dma.bus.has_address else np.zeros(0)
    if not twice.any():
        return np.broadcast_to(np.int32(0), count)
    return np.bincount(dma.burst[moved], weights=twice, minlength=count).astype(np.int32)


def _within(csr: Accesses) -> tuple[Accesses, int]:
    """Leave out host accesses of other devices; return how many there were."""
    keep = csr.reason != csr_module.OUTSIDE
    return (csr, 0) if keep.all() else (csr.take(np.flatnonzero(keep)), int((~keep).sum()))


def _counted(reasons: Sequence[str], which: Integers) -> dict[str, int]:
    counts = np.bincount(which, minlength=len(reasons)) if len(which) else np.zeros(len(reasons), dtype=np.int64)
    return {reason: int(count) for reason, count in zip(reasons, counts, strict=True) if count}


def _texts(texts: Sequence[str], which: Integers) -> pa.Array:
    """Return a column of texts by their numbers; null where the number is -1."""
    return pa.DictionaryArray.from_arrays(pa.array(which, mask=which < 0), pa.array(texts, pa.string()))


def _masked(values: Integers) -> np.ma.MaskedArray:
    return np.ma.masked_array(values, mask=values < 0)
