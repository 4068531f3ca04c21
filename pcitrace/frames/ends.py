"""What each host shows of frames: its sends and receives in memory, and its sends on the wire."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from pcitrace.columns import Floats, Integers
from pcitrace.frames.turns import PAUSE_US, bus_busy, busy_since
from pcitrace.profiles import Profile
from pcitrace.traffic import Traffic
from pcitrace.traffic.content import FCS, Heads, WireFrames, heads, wire_frames
from pcitrace.traffic.dma import Kind
from pcitrace.traffic.phases import Phases

__all__ = ["Ends", "HostTraffic", "Link"]


@dataclass(frozen=True)
class Link:
    """What is between the hosts."""

    rate_mbit_s: float
    preamble_bytes: int = 8
    gap_bytes: int = 12

    @property
    def byte_us(self) -> float:
        """Time of one byte."""
        return 8 / self.rate_mbit_s

    @property
    def gap_us(self) -> float:
        """Time between two frames at least."""
        return self.gap_bytes * self.byte_us

    def wire_us(self, frame_bytes: Integers | Floats) -> Floats:
        """Return how long frames of so many bytes, check sequence apart, are on the wire."""
        return np.asarray((frame_bytes + FCS + self.preamble_bytes) * self.byte_us)


@dataclass(frozen=True)
class HostTraffic:
    """One host of a run.

    Attributes
    ----------
    traffic : Traffic
        Of its bus, times on the run's axis.
    profile : Profile
        Of its NIC.
    data_phases : Phases or None
        Of its bus, where AD was captured.
    wire : pandas.DataFrame or None
        What it sent on the wire: `start_us`, `end_us`, `bytes`.
    step_us : float
        Sampling step of the wire's capture; 0 where changes are exact.
    begin_us : float
        When its capture begins, on the run's axis; -inf if that is not known.
    """

    traffic: Traffic
    profile: Profile
    data_phases: Phases | None = None
    wire: pd.DataFrame | None = None
    step_us: float = 0.0
    begin_us: float = -np.inf


@dataclass(frozen=True)
class Ends:
    """What one host shows of frames: sends and receives on its bus, its sends on the wire."""

    sends: Integers
    receives: Integers
    send_head: Heads | None
    receive_head: Heads | None
    wire: WireFrames | None
    host: HostTraffic
    wire_busy_us: Floats

    @classmethod
    def of(cls, host: HostTraffic, link: Link | None) -> Ends:
        """Collect what a host shows."""
        joined = host.traffic.joined
        sends, receives = joined.of_kind(Kind.SEND_DATA), joined.of_kind(Kind.RECEIVE_DATA)
        send_head = receive_head = None
        if host.data_phases is not None and len(host.data_phases):
            send_head = heads(host.traffic.dma, host.data_phases, sends)
            receive_head = heads(host.traffic.dma, host.data_phases, receives)
        wire, wire_busy_us = None, np.zeros(0)
        if host.wire is not None:
            byte_us, preamble, gap_us = (link.byte_us, link.preamble_bytes, link.gap_us) if link else (None, 8, 0.0)
            wire = wire_frames(host.wire, byte_us, preamble, host.step_us)
            wire_busy_us = busy_since(wire.start_us, wire.end_us, gap_us + PAUSE_US)
        return cls(sends, receives, send_head, receive_head, wire, host, wire_busy_us)

    @cached_property
    def busy_us(self) -> tuple[Floats, Floats]:
        """Since when the bus had been busy as each receive and each send began: asked of a host that receives only."""
        traffic = self.host.traffic
        at_us = np.r_[traffic.joined.first_data_us[self.receives], traffic.joined.start_us[self.sends]]
        received_us, sent_us = np.split(bus_busy(traffic.dma.bus, traffic.csr, at_us), [len(self.receives)])
        return received_us, sent_us
