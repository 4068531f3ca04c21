"""Which channel of a capture is which line of which bus: guessed from the names, overridden by what the user states.

How buses are told apart: the scopes and the prefix of a name (``top.pc1.FRAME``, ``A_FRAME#``) make its group, and a
group with any of FRAME# IRDY# TRDY# is a bus. A bus is called after the last part of its group (``A``, ``pc1``), or
``PCI`` where the names have neither scope nor prefix; ends that several buses share (``pc1.pci``, ``pc2.pci``) are left
out. What the user states over that is read by ``pcitrace.wiring.overrides``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pcitrace.wiring.guess import guess
from pcitrace.wiring.lines import BusWiring, Channel, Line, Wiring
from pcitrace.wiring.overrides import Overrides

__all__ = ["BusWiring", "Channel", "Line", "Wiring", "WiringSource", "resolve_wiring"]

WiringSource = str | os.PathLike[str] | Mapping[str, Any]
"""What ``wiring=`` takes: the path of a TOML file, or a mapping of the same form."""


def resolve_wiring(
    channels: Iterable[tuple[str, int]], given: WiringSource | None = None, clock_mhz: float | None = None
) -> Wiring:
    """Find the buses of a capture.

    Parameters
    ----------
    channels : iterable of (name, width)
        As the capture has them.
    given : path, mapping or None
        What the user states, over what is guessed from the names; ``pcitrace.wiring.overrides`` describes the form.
    clock_mhz : float or None
        State mode: the frequency of the clock that took the samples, over what `given` says of it.

    Returns
    -------
    Wiring
        Complete or not: what is missing is an error only when a bus is asked for.

    Raises
    ------
    WiringError
        If `given` names a line or a channel that does not exist, or one channel for two lines.

    Examples
    --------
    >>> names = ["CLK", "A_FRAME#", "A_IRDY#", "A_TRDY#", "B_FRAME#", "B_IRDY#", "B_TRDY#"]
    >>> wiring = resolve_wiring([(name, 1) for name in names])
    >>> list(wiring.buses), wiring.buses["B"].lines["CLK"].source
    (['A', 'B'], 'shared')
    """
    known = tuple(Channel(name, width) for name, width in channels)
    guessed = guess(known)
    wiring = Wiring(known, guessed.buses) if given is None else Overrides(known, given).apply(guessed)
    clock_mhz = clock_mhz or wiring.clock_mhz
    if clock_mhz is None:
        return wiring
    buses = {name: replace(bus, state_mode=True) for name, bus in wiring.buses.items()}
    return replace(wiring, buses=buses, clock_mhz=clock_mhz)
