"""Constants of cards, buses and switches for other programs: ``model.json``, and what is rendered from it.

    results of runs -> Constants -> model.json -> INET .ini, SimPy parameters, a SimPy bench

The schema is ``model.schema.json`` beside this file; its ``format`` goes up when a reader of the older one would
misread a file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from pcitrace.errors import ConfigurationError
from pcitrace.network.parameter import Parameter
from pcitrace.network.result import Result

__all__ = ["FORMAT", "NAMES", "Constant", "Constants", "load", "of_results", "write"]

FORMAT = 1

SCHEMA = "model.schema.json"

NAMES = {
    "hosts_us": ("us", "one way through both hosts and the wire between them, at 0 user bytes"),
    "hosts_us_per_byte": ("us/byte", "and its slope"),
    "t_nic_us": ("us", "card, of Equation 2.1"),
    "t_nic_sigma_us": ("us", "its distribution's standard deviation"),
    "t_sw_us": ("us", "software, of Equation 2.1"),
    "R_PCI_send_us_per_byte": ("us/byte", "sending bus"),
    "R_PCI_recv_us_per_byte": ("us/byte", "receiving bus"),
    "burst_limit_bytes": ("bytes", "longest burst of the card"),
    "link_mbit_s": ("Mbit/s", "of the wire"),
    "switch_us": ("us", "a: what the switch adds at 0 user bytes, one serialisation in it"),
    "switch_us_per_byte": ("us/byte", "b: and its slope"),
    "switch_step_bytes": ("bytes", "c: a cell"),
    "switch_step_us": ("us", "d: and what each takes"),
    "backplane_mbit_s": ("Mbit/s", "8 c / d"),
    "buffer_frames": ("frames", "depth of an output"),
    "buffer_bytes": ("bytes", "and in bytes"),
    "jitter_us": ("us", "standard deviation of a loop's time, a quarter of its variance to each sending and receiving"),
}
"""Every constant that a model file may have: unit and meaning."""


@dataclass(frozen=True)
class Constant:
    """A constant for others.

    Attributes
    ----------
    value, sigma : float or None
    source : str
        Which run it was measured in, and how; or why it is not known.
    """

    value: float | None
    sigma: float | None
    source: str


@dataclass(frozen=True)
class Constants:
    """Constants by their names in :data:`NAMES`; what was not measured is there too, without a value."""

    values: Mapping[str, Constant]

    def __getitem__(self, name: str) -> float:
        """Return a value.

        Raises
        ------
        ConfigurationError
            It is not known; the message says why.
        """
        one = self.values.get(name, Constant(None, None, "no run tells it"))
        if one.value is None:
            raise ConfigurationError(f"{name} is not known: {one.source}", SCHEMA, name)
        return one.value

    def known(self, name: str) -> float | None:
        """Return a value; None where it is not known."""
        one = self.values.get(name)
        return None if one is None else one.value

    def as_dict(self) -> dict[str, Any]:
        """Return what ``model.json`` has."""
        return {
            "format": FORMAT,
            "constants": {
                name: {"value": one.value, "sigma": one.sigma, "unit": NAMES[name][0], "source": one.source}
                for name, one in self.values.items()
            },
        }


def of_results(results: Iterable[Result]) -> Constants:
    """Return the constants that results tell.

    Parameters
    ----------
    results : iterable of Result
        Direct latencies give the hosts, subtractions the switch, bursts into a paused port the buffers, buses t_nic
        and R_PCI.
    """
    found: dict[str, Constant] = {}

    def take(name: str, one: Parameter | None, result: Result) -> None:
        if one is not None and (name not in found or found[name].value is None):
            where = f"{result.kind} over {result.path}"
            found[name] = Constant(one.value, one.sigma, where if one.value is not None else f"{where}: {one.reason}")

    for one in results:
        get = one.parameters.get
        direct = one.measurement is not None and one.measurement.path.kind == "direct"
        if one.kind == "subtraction":
            for name, key in SWITCH.items():
                take(name, get(key), one)
        elif direct and one.latency is not None:
            take("hosts_us", get("intercept_us"), one)
            take("hosts_us_per_byte", get("slope_us_per_byte"), one)
            take("t_sw_us", get("t_sw_us"), one)
        for name in ("buffer_frames", "buffer_bytes"):
            take(name, get(name), one)
        rate = None if one.measurement is None else one.measurement.wire.rate_mbit_s
        take("link_mbit_s", None if rate is None else Parameter(rate, 0.0, "Mbit/s", 0), one)
        take("jitter_us", _jitter(one), one)
        for name, constant in _of_bus(one).items():
            found.setdefault(name, constant)
    _backplane(found)
    return Constants({name: found.get(name, Constant(None, None, "no run tells it")) for name in NAMES})


SWITCH = {
    "switch_us": "intercept_us",
    "switch_us_per_byte": "slope_us_per_byte",
    "switch_step_bytes": "step_bytes",
    "switch_step_us": "step_us",
}


def write(constants: Constants, path: str | Path) -> None:
    """Write ``model.json``."""
    content = constants.as_dict()
    _check(content, Path(path))
    Path(path).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def load(path: str | Path) -> Constants:
    """Read ``model.json``.

    Raises
    ------
    ConfigurationError
        It is none, or of another format; the message names the key.
    """
    file = Path(path)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{file}: not a model file: {error}", file) from error
    _check(content, file)
    every = {name: Constant(one["value"], one["sigma"], one["source"]) for name, one in content["constants"].items()}
    return Constants(every)


def _check(content: Any, file: Path) -> None:
    import fastjsonschema

    schema = json.loads(resources.files(__package__).joinpath(SCHEMA).read_text("utf-8"))
    try:
        fastjsonschema.compile(schema)(content)
    except fastjsonschema.JsonSchemaValueException as error:
        raise ConfigurationError(f"{file}: not a model file of format {FORMAT}: {error.message}", file) from error


def _jitter(one: Result) -> Parameter | None:
    """Return how much the loops of a size scatter: the median of all sizes, so that a disturbed one does not count.

    Its error is that of a median, from the sizes' own errors or their scatter, whichever is more.
    """
    from pcitrace.network.width import Width

    widths = [loop.width for point in one.points for loop in point.loops if isinstance(loop.width, Width)]
    if not widths:
        return None
    values, errors = np.transpose([each.sigma_us for each in widths])
    value, n = float(np.median(values)), len(widths)
    each = max(float(np.median(errors)), NORMAL_MAD * float(np.median(np.abs(values - value))))
    return Parameter(value, each * math.sqrt(math.pi / 2 / n) if n > 2 else each / math.sqrt(n), "us", n)


NORMAL_MAD = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""


def _of_bus(one: Result) -> dict[str, Constant]:
    """Return what the buses of a run tell."""
    if "bus_constants" not in one.tables:
        return {}
    told = one.tables["bus_constants"]
    return {
        name: Constant(float(told.loc[name, "value"]), float(told.loc[name, "sigma"]), f"buses of {one.path}")
        for name in told.index
    }


def _backplane(found: dict[str, Constant]) -> None:
    cell, each = found.get("switch_step_bytes"), found.get("switch_step_us")
    if cell is None or each is None or not cell.value or not each.value or each.value <= 0:
        return
    rate = 8 * cell.value / each.value
    found["backplane_mbit_s"] = Constant(rate, rate * (each.sigma or 0.0) / each.value, f"8 c / d; {each.source}")
