"""From an opened run to its traffic and its frames: what ``run.toml`` says, put to use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from pcitrace.axes import contradiction, off_axis, place
from pcitrace.bustable import BusTable
from pcitrace.errors import FrameMatchError, WiringError
from pcitrace.estimate import Estimate
from pcitrace.frames import Frames, build
from pcitrace.frames.ends import HostTraffic, Link
from pcitrace.frames.identity import SequenceField
from pcitrace.frames.logs import with_logs
from pcitrace.frames.probes import on_other_wire
from pcitrace.freed import give_back
from pcitrace.learning import Learned, learn
from pcitrace.learning.contradictions import contradictions
from pcitrace.profiles import Profile
from pcitrace.profiles import load as load_profile
from pcitrace.run import Run
from pcitrace.runfolder import RunFolder
from pcitrace.sidebyside import each
from pcitrace.traffic import Nic, Traffic, analyse
from pcitrace.traffic.content import WireFrames, wire_frames
from pcitrace.traffic.dma import Memory
from pcitrace.traffic.phases import Phases

__all__ = ["Source", "followed", "frames", "learned", "offsets", "on_axis", "sequence", "source", "traffic", "whole"]

CLOCK_OFF = 0.05
"""Relative difference between the clock of a bus and what ``run.toml`` says that nominal values do not explain."""

TIMES = ("start_us", "end_us", "first_data_us", "last_data_us", "time_us")
"""Columns that are moved to the run's time axis."""


def traffic(
    run: Run,
    bus: str,
    *,
    profile: Profile | str | None = None,
    nic_grant: str | None = None,
    host_grants: Collection[str] = (),
) -> Traffic:
    """Tell what the transactions of one bus are: CSR accesses and DMA bursts.

    Parameters
    ----------
    run : Run
        A run folder or a bare capture.
    bus : str
        Name of the host or bus.
    profile : Profile or str, optional
        Of the NIC; default: what ``run.toml`` says, for a bare capture the generic one.
    nic_grant : str, optional
        The NIC's GNT# line; default: what ``run.toml`` says, or the lines' names.
    host_grants : collection of str
        GNT# lines of hosts whose names do not say so.

    Returns
    -------
    Traffic

    Raises
    ------
    WiringError
        The bus is not complete, or nothing tells which GNT# is the NIC's.
    ConfigurationError
        There is no such profile.
    """
    return _host(run, bus, profile, nic_grant, host_grants).traffic


def frames(
    run: Run,
    *,
    profile: Profile | str | Mapping[str, Profile] | None = None,
    nic_grants: Mapping[str, str | None] | None = None,
    host_grants: Mapping[str, Collection[str]] | None = None,
) -> Frames:
    """Follow every frame of a run from the sender's memory to the receiver's.

    Parameters
    ----------
    run : Run
        A run folder; of a bare capture the buses are the hosts, and the link is not known.
    profile : Profile or str or mapping, optional
        Of the NICs, or of each host's by its name, instead of what ``run.toml`` says.
    nic_grants : mapping of str to str or None, optional
        Bus -> GNT# line of its NIC; default: what ``run.toml`` says, or the lines' names.
    host_grants : mapping of str to collection of str, optional
        Bus -> GNT# lines of hosts whose names do not say so.

    Returns
    -------
    Frames

    Raises
    ------
    FrameMatchError
        The run has more than two buses, or none.
    """
    if profile is None and not nic_grants and not host_grants:
        return run.once("frames", lambda: followed(run, partial(whole, run)))
    return followed(run, lambda names: whole(run, names, profile, nic_grants, host_grants))


def learned(run: Run) -> Learned:
    """Learn from a run what its cards do; what the profiles say of their DMA has no part in it.

    Parameters
    ----------
    run : Run
        A run folder; of a bare capture the buses are the hosts.

    Returns
    -------
    Learned

    Raises
    ------
    FrameMatchError
        The run has more than two buses, or none.
    """
    names = run.folder.bus_hosts if run.folder is not None else list(run.buses)
    said = {name: _profile(run, name, None) for name in names}
    bare = {name: profile.registers_only() for name, profile in said.items()}
    found = frames(run) if bare == said else frames(run, profile=bare)
    return learn(found, _steps_us(run, found))


def _steps_us(run: Run, found: Frames) -> dict[str, float]:
    """Return the sampling step of each host's wire."""
    return {name: _wire(run, name)[1] for name in found.hosts}


def followed(run: Run, follow: Callable[[Sequence[str]], tuple[dict[str, HostTraffic], Frames]]) -> Frames:
    """Follow the frames of a run, on its time axis, and say what contradicts them; `follow` does it between hosts."""
    names = run.folder.bus_hosts if run.folder is not None else list(run.buses)
    try:
        names = names or [run.bus.name]
    except WiringError as error:
        raise FrameMatchError(str(error)) from error
    if len(names) > 2:
        raise FrameMatchError(
            f"{run.path}: frames are followed between two hosts; there are {len(names)} buses: {', '.join(names)}. "
            "Name the hosts in a run.toml"
        )
    placed = offsets(run)
    hosts, found = follow(names)
    give_back()
    if len(hosts) == 2:
        found = replace(found, findings=(*on_other_wire(hosts), *found.findings))
    steps_us = {name: host.step_us for name, host in hosts.items()}
    against = contradictions(found, {name: host.profile for name, host in hosts.items()}, steps_us)
    found = replace(found, findings=(*found.findings, *against))
    give_back()
    if run.folder is None:
        return found
    placed[:] = contradiction(run, hosts, _link(run), placed)
    found = replace(found, findings=(*_as_captured(run, run.folder), *found.findings))
    return off_axis(with_logs(found, run.folder, found.link), run, placed)


def whole(
    run: Run,
    names: Sequence[str],
    profile: Profile | str | Mapping[str, Profile] | None = None,
    nic_grants: Mapping[str, str | None] | None = None,
    host_grants: Mapping[str, Collection[str]] | None = None,
) -> tuple[dict[str, HostTraffic], Frames]:
    """Follow the frames between hosts, all of the run at once; :func:`followed` takes it."""
    nics, others = nic_grants or {}, host_grants or {}
    sources = [source(run, name, profile, nics.get(name), others.get(name, ())) for name in names]
    hosts = dict(zip(names, each(_analysed, zip(names, sources, strict=True)), strict=True))
    give_back()
    return hosts, _matched(run, hosts)


def _matched(run: Run, hosts: dict[str, HostTraffic]) -> Frames:
    """Follow the frames between hosts on the run's time axis."""
    return build(hosts, link=_link(run), sequence=sequence(run))


def sequence(run: Run) -> SequenceField | None:
    """Return where the frames of a run carry their number, as far as ``run.toml`` says."""
    place = run.folder.run.get("frames", {}).get("sequence") if run.folder is not None else None
    return SequenceField(**place) if place else None


def offsets(run: Run) -> list[Estimate]:
    """Return where each capture of a run is on its time axis: what is added to its times (us).

    What ``run.toml`` does not state is estimated from the frames that pass between the captures, and the run is moved
    to the axis that comes out. Where frames go one way only it is not known.
    """
    return run.once("offsets", lambda: place(run, partial(_host, run, profile=None), partial(_matched, run)))


def _as_captured(run: Run, folder: RunFolder) -> list[str]:
    """Say where the captures are not what ``run.toml`` says of them."""
    found = []
    for entry, capture in zip(folder.run["captures"], run.captures, strict=True):
        if capture.sample_count is not None and entry.get("samples", capture.sample_count) != capture.sample_count:
            text = f"{entry['file']} has {capture.sample_count} samples, run.toml says {entry['samples']}"
            found.append(f"{text}: is it the capture of this run, and whole?")
    for name in folder.bus_hosts:
        seen, said = run[name].mean_clock_mhz, folder.run["hosts"][name].get("clock_mhz")
        if seen is not None and said is not None and abs(seen / said - 1) > CLOCK_OFF:
            text = f"{name}: run.toml says a bus clock of {said:g} MHz, the capture shows {seen:.4g}"
            found.append(f"{text}: are clock_mhz of the host and the sampling rate right?")
    return found


def _link(run: Run) -> Link | None:
    link = run.folder.run.get("link") if run.folder is not None else None
    return Link(link["rate_mbit_s"], link["preamble_bytes"], link["gap_bytes"]) if link else None


def _host(
    run: Run,
    name: str,
    profile: Profile | str | Mapping[str, Profile] | None,
    nic_grant: str | None = None,
    host_grants: Collection[str] = (),
) -> HostTraffic:
    host = _analysed((name, source(run, name, profile, nic_grant, host_grants)))
    give_back()
    return host


def _analysed(named: tuple[str, Source]) -> HostTraffic:
    """Tell what the transactions of a host are."""
    name, one = named
    found = analyse(one.transactions, one.data_phases, bus=name, nic=one.beside_wires)
    return HostTraffic(found, found.windows.profile, one.data_phases, one.sent, one.step_us, one.begin_us)


@dataclass(frozen=True)
class Source:
    """What the analysis of one host begins with, on the run's time axis.

    Attributes
    ----------
    transactions : BusTable
    data_phases : Phases or None
    nic : Nic
        Without frames on the wire.
    sent, received : pandas.DataFrame or None
        Frames on its own wire, and on that of the other host.
    step_us : float
        Sampling step of its wire.
    begin_us : float
        When its capture begins.
    link : Link or None
    """

    transactions: BusTable
    data_phases: Phases | None
    nic: Nic
    sent: pd.DataFrame | None
    received: pd.DataFrame | None
    step_us: float
    begin_us: float
    link: Link | None

    @property
    def beside_wires(self) -> Nic:
        """The NIC with the frames on the wires, by which their DMA is searched for."""
        return replace(self.nic, sent=self._seen(self.sent), received=self._seen(self.received))

    def _seen(self, wire: pd.DataFrame | None) -> WireFrames | None:
        """Return frames on a wire; None where nothing tells their lengths."""
        if wire is None or (self.link is None and wire["bytes"].isna().all()):
            return None
        link = self.link
        return wire_frames(wire, link.byte_us if link else None, link.preamble_bytes if link else 8, self.step_us)


def source(
    run: Run,
    name: str,
    profile: Profile | str | Mapping[str, Profile] | None = None,
    nic_grant: str | None = None,
    host_grants: Collection[str] = (),
) -> Source:
    """Return what the analysis of a host begins with; the parameters are those of :func:`traffic`."""
    host = run.folder.run["hosts"][name] if run.folder is not None else {}
    chosen = _profile(run, name, profile)
    bus = run[name]
    has_address = any(line.startswith("AD") for line in bus.lines)
    transactions = run.table(name, data_phases=has_address)
    if host_grants:
        named = {line: f"GNT_HOST_{line.removeprefix('GNT')}" for line in host_grants}
        transactions = transactions.with_initiators([named.get(line, line) for line in transactions.initiators])
    data_phases = Phases.of(on_axis(run, name, bus.data_phases), transactions) if has_address else None
    others = [one for one in (run.folder.bus_hosts if run.folder is not None else run.buses) if one != name]
    others = [one for one in others if _same_axis(run, name, one)]
    sent, step_us = _wire(run, name)
    return Source(
        transactions,
        data_phases,
        Nic(chosen, bus.lines, nic_grant or host.get("nic_grant"), Memory(**host.get("memory", {}))),
        sent,
        _wire(run, others[0])[0] if len(others) == 1 else None,
        step_us,
        run.folder.run_time_us(host["capture"], 0.0) if run.folder is not None else 0.0,
        _link(run),
    )


def _same_axis(run: Run, one: str, other: str) -> bool:
    """Return whether times of two hosts can be compared."""
    if run.folder is None:
        return True
    captures = [run.folder.run["hosts"][name]["capture"] for name in (one, other)]
    return captures[0] == captures[1] or all(run.folder.placed(capture) for capture in captures)


def _profile(run: Run, name: str, profile: Profile | str | Mapping[str, Profile] | None) -> Profile:
    if isinstance(profile, Mapping):
        return profile[name]
    if isinstance(profile, Profile):
        return profile
    if profile is not None:
        return load_profile(profile, folder=Path())
    return run.folder.profile(name) if run.folder is not None else load_profile("generic")


def _wire(run: Run, name: str) -> tuple[pd.DataFrame | None, float]:
    """Return the wire of a host on the run's axis with the sampling step of its capture; None if not captured."""
    source = _source(run, name)
    if source is None:
        return None, 0.0
    capture, bus = source
    wiring = capture.wiring.buses.get(bus)
    if wiring is None or "TXEN" not in wiring.lines:
        return None, 0.0
    step_us = 1e6 / capture.rate_hz if capture.sample_count is not None and capture.rate_hz else 0.0
    return on_axis(run, name, capture.wire(bus)), step_us


def _source(run: Run, name: str) -> tuple[Any, str] | None:
    """Return the capture in which a host's wire is, and its name there."""
    if run.folder is None:
        return run.captures[0], name
    host = run.folder.run["hosts"][name]
    return run.captures[host["capture"]], host["bus"]


def on_axis(run: Run, name: str, table: pd.DataFrame) -> pd.DataFrame:
    """Move the times of a table to the run's time axis."""
    if run.folder is None:
        return table
    number = run.folder.run["hosts"][name]["capture"]
    moved = {column: run.folder.run_time_us(number, table[column]) for column in TIMES if column in table.columns}
    return table.assign(**moved)
