"""Which initiator of a bare capture is the NIC: as the user states it, or as its traffic tells."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from pcitrace.errors import WiringError

if TYPE_CHECKING:
    from pcitrace.frames import Frames
    from pcitrace.run import Bus, Run

__all__ = ["agents", "frames", "settle"]


def agents(bus: Bus, stated: Sequence[str]) -> tuple[dict[str | None, str], Collection[str]]:
    """Return whose traffic is meant, by GNT# (None: what the lines' names tell), and the GNT# of hosts.

    What is stated (``NAME=GNT2#``) counts; else what initiators do; where neither tells, all that there are.
    """
    from pcitrace.instrument.names import check_grants, of_bus

    grants = [line for line in bus.lines if line.startswith("GNT")]
    named = check_grants(stated, bus.lines)
    told = [line for line in grants if "NIC" in line.upper()]
    if not named and (len(grants) <= 1 or len(told) == 1):
        return {None: bus.name}, ()
    called = of_bus(bus, named).initiators if {"AD0", "CBE0#"} <= set(bus.lines) else dict(named)
    hosts = {line for line, name in called.items() if name.lower() == "host" or "HOST" in line.upper()}
    found: dict[str | None, str] = {line: name for line, name in (named or called).items() if line not in hosts}
    if not found:
        began = set(bus.arrow("transactions", columns=["initiator"])["initiator"].unique().to_pylist())
        found = {line: line for line in grants if line not in hosts and line in began}
    return found or {None: bus.name}, hosts


def frames(
    run: Run, stated: Sequence[str], *, buses: Sequence[str] | None = None, profile: str | None = None
) -> Frames:
    """Return the frames of a bare capture between the one NIC of each bus.

    Parameters
    ----------
    run : Run
    stated : sequence of str
        ``NAME=GNT2#``.
    buses : sequence of str, optional
        Default: all.
    profile : str, optional
        Of the NICs.

    Raises
    ------
    WiringError
        Several may be the NIC, or what is stated was not captured.
    """
    from pcitrace import analysis

    nics: dict[str, str | None] = {}
    hosts: dict[str, Collection[str]] = {}
    for name in run.buses if buses is None else buses:
        found, hosts[name] = agents(run[name], stated)
        if len(found) > 1:
            several = ", ".join(found.values())
            [last] = list(found)[-1:]
            raise WiringError(
                f"bus {name}: which of {several} is the NIC? Say it with --grant NAME={last}",
                ["GNT# of the NIC"],
                [line for line in found if line],
            )
        [nics[name]] = found
    return analysis.frames(run, profile=profile, nic_grants=nics, host_grants=hosts)


def settle(run: Run, stated: Sequence[str], profile: str | None = None) -> None:
    """Have all that is worked out of a run go by what is stated; a run folder says itself which initiators are NICs.

    Parameters
    ----------
    run : Run
    stated : sequence of str
        ``NAME=GNT2#``.
    profile : str, optional
        Of the NICs.
    """
    from pcitrace import analysis

    if run.folder is None and (stated or profile is not None):
        run.once("frames", lambda: frames(run, stated, profile=profile))
    elif profile is not None:
        run.once("frames", lambda: analysis.frames(run, profile=profile))
