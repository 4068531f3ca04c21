"""Where a profile says what the traffic contradicts: a finding, each with its counts."""

from __future__ import annotations

from collections.abc import Mapping

from pcitrace.frames import Frames
from pcitrace.frames.believed import never_rings
from pcitrace.learning.evidence import LEAST, Value
from pcitrace.learning.memory import cut_through, in_memory
from pcitrace.learning.observed import sides
from pcitrace.profiles import Profile
from pcitrace.traffic.dma import Kind

__all__ = ["contradictions"]


def contradictions(frames: Frames, said: Mapping[str, Profile], steps_us: Mapping[str, float]) -> list[str]:
    """Return what the traffic of each host contradicts in its profile, in words.

    Parameters
    ----------
    frames : Frames
    said : mapping of str to Profile
        Of each host.
    steps_us : mapping of str to float
        Sampling step of each host's wire.
    """
    found = []
    for name, profile in said.items():
        csr, sends = frames.hosts[name].csr, int((frames.table["sender"] == name).sum())
        if never_rings(csr, profile, sends):
            bell = next(one.name for one in profile.registers if one.role == "send_doorbell")
            found.append(f"{name}: {bell} was not accessed; profile {profile.name} says it is the doorbell")
        if profile == profile.registers_only():
            continue
        sender = next((one for one in frames.hosts if one != name), name)
        sent, received = sides(frames, name, (steps_us[name], steps_us[sender]))
        unit = max(sent.unit, received.unit)
        limit = profile.burst_limit_bytes
        dma = frames.hosts[name].dma
        # A limit is often that of one direction: a card that receives in pieces may well send in one.
        size = unit * dma.bus.data_phases[dma.kind == Kind.RECEIVE_DATA]
        longer = int((size > limit).sum()) if limit is not None else 0
        if longer >= LEAST:
            text = f"{name}: {longer} transactions of receives are longer than {limit} bytes, up to {size.max()}"
            found.append(f"{text}; profile {profile.name} says burst_limit_bytes = {limit}")
        learned = {"receive_fcs": in_memory(received)["receive_fcs"]}
        # That wire and memory overlap where they should not is said where frames are matched.
        learned |= {
            key: side
            for key, side in (("send", cut_through(sent)), ("receive", cut_through(received)))
            if side.value == "store_and_forward"
        }
        found += [text for key, value in learned.items() if (text := _differs(name, profile, key, value))]
    return found


def _differs(host: str, profile: Profile, key: str, value: Value) -> str:
    said = getattr(profile, key)
    if said is None or value.value is None or value.value == said:
        return ""
    shown, given = (str(one).lower() if isinstance(one, bool) else one for one in (value.value, said))
    text = f"{host}: {value.n} frames show {key} = {shown}, margin {value.margin:.0f} nats"
    return f"{text}; profile {profile.name} says {given}"
