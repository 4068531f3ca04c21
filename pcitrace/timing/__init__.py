"""What the frames of a run say about cards and buses: t_nic, R_PCI, the cost of CSR accesses; each with its error.

The definitions are those of R. Hughes-Jones and F. Saka (ATLAS note, 2000), section 3.1: the gap between the end of
the sending DMA and the start of the receiving DMA is the wire time and the transit of both cards,
``t_nic = (gap - wire time)/2``; R_PCI is the slope of a frame's DMA duration against its b + 14 bytes on the bus.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from pcitrace import analysis
from pcitrace.estimate import Estimate, Line
from pcitrace.frames import Frames
from pcitrace.freed import give_back
from pcitrace.run import Run
from pcitrace.timing import pcirate
from pcitrace.timing.csrcosts import csr_costs
from pcitrace.timing.frametimes import Clockwork, FrameTimes
from pcitrace.timing.pcirate import Rate
from pcitrace.timing.transit import Forwarding, Transit, by_length, forwarding, sides, transit

__all__ = ["Forwarding", "Timing", "Transit", "measure"]


@dataclass(frozen=True)
class Timing:
    """The constants of a run.

    Attributes
    ----------
    transit : Transit
        t_nic: its mean, the line against the length, and its value at each length.
    t_nic_tx, t_nic_rx : Estimate
        Transit of the sending and of the receiving side (us), over the same frames; need a wire probe.
    gap : Line
        Gap against the bytes on the wire (us/byte, us).
    r_net_us_per_byte : float or None
        Of the link.
    forwarding : Forwarding
        Whether the cards store and forward, by the slope of `gap`.
    send, receive : Rate
        R_PCI.
    by_length : pandas.DataFrame
        One row a length, of the frames that waited for none: ``length_bytes``, ``n``, and mean, standard error
        (``_sem_us``) and standard deviation (``_sd_us``) of ``gap_us``, ``t_nic_us``, ``t_nic_tx_us``, ``t_nic_rx_us``
        (null where not captured).
    csr_costs : pandas.DataFrame
        See :func:`pcitrace.timing.csrcosts.csr_costs`.
    findings : tuple of str
    """

    transit: Transit
    t_nic_tx: Estimate
    t_nic_rx: Estimate
    gap: Line
    r_net_us_per_byte: float | None
    forwarding: Forwarding
    send: Rate
    receive: Rate
    by_length: pd.DataFrame
    csr_costs: pd.DataFrame
    findings: tuple[str, ...]

    @property
    def t_nic(self) -> Estimate:
        """Transit of one card (us); not known where it depends on the length."""
        return self.transit.mean

    @property
    def t_nic_queued(self) -> Estimate:
        """The same over the frames that waited for another one."""
        return self.transit.queued

    @property
    def t_nic_line(self) -> Line:
        """t_nic against user bytes."""
        return self.transit.line

    def __repr__(self) -> str:
        return (
            f"<Timing: t_nic {self.t_nic} us, R_PCI send {self.send.effective}, receive {self.receive.effective} "
            f"us/byte, {self.forwarding}>"
        )


def measure(run: Run, frames: Frames | None = None) -> Timing:
    """Measure the constants of a run.

    Parameters
    ----------
    run : Run
    frames : Frames, optional
        Some of its frames, such as ``run.frames["sender == 'A'"]``; default: all.

    Returns
    -------
    Timing

    Raises
    ------
    WiringError, FrameMatchError
        As :attr:`Run.frames`.

    Examples
    --------
    >>> timing.measure(pcitrace.open("run")).t_nic.value                    # doctest: +SKIP
    4.307
    """
    chosen = analysis.frames(run) if frames is None else frames
    hosts = {name: Clockwork.of(run, name, traffic.dma.bus.start_us) for name, traffic in chosen.hosts.items()}
    give_back()
    times = FrameTimes(chosen, hosts, chosen.link.byte_us if chosen.link else None)
    # One after the other: each needs much memory.
    tables = _tables(times)
    give_back()
    found = _constants(times)
    give_back()
    return Timing(r_net_us_per_byte=times.r_net, **tables, **found)


def _tables(times: FrameTimes) -> dict[str, Any]:
    """Return the tables."""
    return {"by_length": by_length(times), "csr_costs": csr_costs(times)}


def _constants(times: FrameTimes) -> dict[str, Any]:
    """Return what is told by DMA and wire, and what there is to report of it."""
    findings: list[str] = []
    gap, kind = forwarding(times, findings)
    passed = transit(times, kind, findings)
    give_back()
    t_nic_tx, t_nic_rx = sides(times, findings)
    give_back()
    rates = {side: pcirate.measure(times, side, findings) for side in ("send", "receive")}
    return {
        "gap": gap,
        "forwarding": kind,
        "transit": passed,
        "t_nic_tx": t_nic_tx,
        "t_nic_rx": t_nic_rx,
        "findings": tuple(findings),
        **rates,
    }
