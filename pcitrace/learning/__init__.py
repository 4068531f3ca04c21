"""The profile that a run's traffic shows: what every card is, learned by counting, never taken from a profile.

Each value is the one that leaves the fewest observations unexplained. Its margin is what the next-best value costs
more. What two truths would show alike is null, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from html import escape
from typing import Any

from pcitrace.frames import Frames
from pcitrace.learning.evidence import Value, unseen
from pcitrace.learning.memory import buffers, cut_through, in_memory
from pcitrace.learning.observed import sides
from pcitrace.learning.pieces import cuts, rereads, timer_cuts
from pcitrace.learning.rings import descriptors, doorbells, statuses

__all__ = ["Learned", "Value", "learn"]


def learn(frames: Frames, steps_us: Mapping[str, float]) -> Learned:
    """Learn what the card of each host does.

    Parameters
    ----------
    frames : Frames
        Analysed without what a profile says of the card's DMA, so that nothing comes back that was put in.
    steps_us : mapping of str to float
        Sampling step of each host's wire; 0 where changes are exact.

    Returns
    -------
    Learned
    """
    return Learned({name: _of_host(frames, name, steps_us) for name in frames.hosts})


def _of_host(frames: Frames, name: str, steps_us: Mapping[str, float]) -> dict[str, Value]:
    sender = next((one for one in frames.hosts if one != name), name)
    sent, received = sides(frames, name, (steps_us[name], steps_us[sender]))
    send, receive = cut_through(sent), cut_through(received)
    # What is written as it comes ends where no more has come, and what is read for its wire where that may begin.
    whole = [side for side, way in ((sent, send), (received, receive)) if way.value != "cut_through"]
    limits, one_buffer = cuts(whole), (buffers(sent), buffers(received))
    return {
        "send": send,
        "receive": receive,
        **limits,
        "timer_cuts": timer_cuts(whole, limits),
        **rereads(sent),
        **in_memory(sent),
        **in_memory(received),
        "send_buffers": one_buffer[0],
        "receive_buffers": one_buffer[1],
        **descriptors(frames, name, one_buffer),
        **statuses(frames, name),
        "frames_per_doorbell": doorbells(frames, name),
    }


@dataclass(frozen=True, repr=False)
class Learned:
    """What was learned of the cards of a run.

    Attributes
    ----------
    hosts : dict
        By host and property: a :class:`Value`.
    """

    hosts: dict[str, dict[str, Value]]

    def __getitem__(self, host: str) -> dict[str, Value]:
        return self.hosts[host]

    def __repr__(self) -> str:
        said = ", ".join(
            f"{name} {sum(one.value is not None for one in values.values())} of {len(values)} properties"
            for name, values in self.hosts.items()
        )
        return f"<Learned: {said}>"

    def _repr_html_(self) -> str:
        heading = "".join(f"<th style='text-align:left'>{text}</th>" for text in ("", *self.hosts))
        rows = []
        for key in next(iter(self.hosts.values()), {}):
            cells = [key, *(str(values[key]) for values in self.hosts.values())]
            rows.append(
                "<tr>" + "".join(f"<td style='text-align:left'>{escape(cell)}</td>" for cell in cells) + "</tr>"
            )
        table = f"<table><thead><tr>{heading}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        return f"<p><b>{escape(repr(self)[1:-1])}</b></p>{table}"

    def of(self, host: str) -> Learned:
        """Return what was learned of the card of one host."""
        return Learned({host: self.hosts[host]})

    def lines(self) -> list[str]:
        """Return everything as text, a line a property."""
        out = []
        for host, values in self.hosts.items():
            known = [f"  {key} = {one}" for key, one in values.items() if one.value is not None]
            rest = [f"  {key}: {one}" for key, one in values.items() if one.value is None]
            out += [f"host {host}", *known, *rest]
        return out

    def as_json(self) -> dict[str, Any]:
        """Return ``hosts.NAME.KEY`` with value, n and margin; a value that is null has a reason."""
        return {
            "hosts": {
                host: {
                    key: {"value": list(one.value) if isinstance(one.value, tuple) else one.value}
                    | {"n": one.n, "margin": one.margin}
                    | ({"reason": one.reason} if one.value is None else {})
                    for key, one in values.items()
                }
                for host, values in self.hosts.items()
            }
        }

    def card(self) -> dict[str, Value]:
        """Return what all hosts agree on: the card, where both have the same."""
        return reduce(_agreed, self.hosts.values())


def _agreed(one: dict[str, Value], other: dict[str, Value]) -> dict[str, Value]:
    return {key: _both(one[key], other[key]) for key in one}


def _both(one: Value, other: Value) -> Value:
    if one.value is None or other.value is None:
        return other if one.value is None else one
    assert one.margin is not None
    assert other.margin is not None
    if one.value == other.value:
        return Value(one.value, one.n + other.n, one.margin + other.margin)
    return unseen(f"the hosts differ: {one.value} and {other.value}", one.n + other.n)
