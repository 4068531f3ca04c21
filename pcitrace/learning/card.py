"""What was learned as a NIC profile: a TOML file that ``--profile`` reads, with counts and margins in its comments."""

from __future__ import annotations

import re
from dataclasses import asdict, fields

from pcitrace.learning import Learned, Value
from pcitrace.profiles import Profile, Register, Window

__all__ = ["profile_text"]

DMA = ("send", "receive", "burst_limit_bytes", "receive_fcs")
"""Keys of the profile's table `dma`."""

DESCRIPTOR = {"size_bytes": "{}_descriptor_bytes", "fetch_max": "{}_fetch_max"}
"""Keys of the profile's tables `descriptors.send` and `descriptors.receive`."""


def profile_text(learned: Learned, name: str, said: Profile | None) -> str:
    """Return a profile as TOML.

    Parameters
    ----------
    learned : Learned
        Of several hosts what they agree on is written.
    name : str
        Of the card.
    said : Profile or None
        The profile of the run: its device, windows and registers are kept, which no traffic names.
    """
    card = learned.card()
    plain = re.sub(r"[^a-z0-9_.-]+", "-", name.lower()).strip("-") or "card"
    hosts = " and ".join(learned.hosts)
    lines = [
        "# Learned from traffic by `pcitrace learn`: what is not known is a comment. n counts the observations; the",
        "# margin is what the next-best value costs more, in nats.",
        "format = 1",
        f"name = {_toml(plain)}",
        f"title = {_toml(f'learned from the traffic of host {hosts}')}",
        'sources = ["the traffic of a capture, by pcitrace learn"]',
    ]
    if said is not None and said.device is not None:
        lines += ["", "[device]", f"vendor_id = {said.device['vendor_id']}"]
        lines += [f"device_ids = {_toml(list(said.device['device_ids']))}"]
    lines += ["", "[dma]", *(_line(key, card[key]) for key in DMA)]
    lines += _descriptors(card)
    rest = [key for key in card if key not in _written()]
    lines += ["", "# Seen too; no key of a profile:", *(f"# {key}: {card[key]}" for key in rest)]
    if said is not None:
        lines += [line for window in said.windows for line in _window(window)]
        lines += [line for register in said.registers for line in _register(register)]
    return "\n".join(lines) + "\n"


def _written() -> set[str]:
    sides = ("send", "receive")
    return {*DMA, "status_bytes", *(key.format(side) for key in DESCRIPTOR.values() for side in sides)}


def _descriptors(card: dict[str, Value]) -> list[str]:
    """Return the tables of descriptors; where they lie is known where the card reads them."""
    read = any(card[DESCRIPTOR["size_bytes"].format(side)].value is not None for side in ("send", "receive"))
    status = card["status_bytes"]
    lines = [f"# status_bytes: {status}"] if status.value is None else []
    if not read:
        lines += [f"# {key.format(side)}: {card[key.format(side)]}" for key in DESCRIPTOR.values() for side in SIDES]
        # The format wants a place wherever it has a table: that of a status alone is not known.
        return ["", *lines, *([f"# status_bytes: {status}"] if status.value is not None else [])]
    lines = ["", "[descriptors]", 'place = "host_memory"', *lines]
    if status.value is not None:
        lines.append(_line("status_bytes", status))
    for side in SIDES:
        found = {key: card[name.format(side)] for key, name in DESCRIPTOR.items()}
        if found["size_bytes"].value is None:
            lines += ["", *(f"# descriptors.{side}.{key}: {value}" for key, value in found.items())]
        else:
            lines += ["", f"[descriptors.{side}]", *(_line(key, value) for key, value in found.items())]
    return lines


SIDES = ("send", "receive")


def _line(key: str, value: Value) -> str:
    if value.value is None:
        return f"# {key}: {value}"
    assert value.margin is not None
    shown = list(value.value) if isinstance(value.value, tuple) else value.value
    return f"{key} = {_toml(shown)}  # n {value.n}, margin {value.margin:.0f} nats"


def _window(window: Window) -> list[str]:
    return _entry("windows", asdict(window))


def _register(register: Register) -> list[str]:
    usual = {field.name: field.default for field in fields(Register)}
    values = {name: getattr(register, name) for name in usual}
    return _entry("registers", {name: value for name, value in values.items() if value != usual[name]})


def _entry(table: str, values: dict[str, object]) -> list[str]:
    return ["", f"[[{table}]]", *(f"{key} = {_toml(value)}" for key, value in values.items() if value is not None)]


def _toml(value: object) -> str:
    """Return a number, text, truth or list as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)
