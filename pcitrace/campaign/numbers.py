"""The numbers of one run as tidy rows: one row a number."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["parameters", "rows", "table"]

NUMBERS = ("value", "sigma", "sigma_measurement", "sigma_frames")
TEXTS = ("run", "host", "card", "constant", "source", "unit", "reason", "bench", "test")
"""``test`` is JSON, one object with the parameters of the test."""


def table(
    url: str,
    results: Mapping[str, Any],
    network: Mapping[str, Any] | None,
    run: Mapping[str, Any],
    cards: Mapping[str, str],
) -> pa.Table:
    """Return the rows of a run as a part.

    Parameters
    ----------
    url : str
        What the run is called.
    results : mapping
        As ``pcitrace report --json`` prints it; empty where no bus was recorded.
    network : mapping or None
        As ``pcitrace network --json`` prints it.
    run : mapping
        Its run.toml; empty for a capture.
    cards : mapping of str to str
        By host the name of its card's profile.
    """
    import pyarrow as pa

    every = "+".join(sorted(set(cards.values()))) or None
    test, bench = json.dumps(parameters(run), sort_keys=True), _bench(run, cards)
    findings = list(dict.fromkeys([*results.get("findings", ()), *(network or {}).get("findings", ())]))
    found = [
        {
            **row,
            "run": url,
            "card": cards.get(row["host"]) if row["host"] else every,
            "findings": findings,
            "test": test,
            "bench": bench,
        }
        for row in rows(results, network)
    ]
    types = dict.fromkeys(TEXTS, pa.string()) | dict.fromkeys(NUMBERS, pa.float64())
    types |= {"n": pa.int64(), "findings": pa.list_(pa.string())}
    return pa.Table.from_pylist(found, pa.schema(list(types.items()))).replace_schema_metadata({"schema": "1"})


def parameters(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was set for a test: [test], [sweep], [link], [path], clocks, changes of a simulation."""
    told: dict[str, Any] = {}
    for name in ("origin", "title", "created"):
        if name in run:
            told[name] = run[name] if isinstance(run[name], str) else str(run[name])
    for name in ("test", "sweep", "link", "path"):
        told |= dict(_flat(run.get(name, {}), name))
    for name, host in run.get("hosts", {}).items():
        told |= dict(_flat({key: host[key] for key in ("clock_mhz", "width", "nic") if key in host}, f"hosts.{name}"))
    simulated = run.get("simulation", {})
    if simulated:
        told |= {f"simulation.{key}": simulated[key] for key in ("preset", "seed") if key in simulated}
        told |= dict(_flat(simulated.get("parameters", {}).get("changed", {}), "simulation"))
    return told


def _bench(run: Mapping[str, Any], cards: Mapping[str, str]) -> str | None:
    """Return what runs of one bench share: hosts, cards and their addresses; None where none is stated."""
    hosts = sorted(run.get("hosts", {}).items())
    parts = [f"{name} {cards.get(name, '')} {host.get('mac', '')}".strip() for name, host in hosts]
    return "; ".join([*parts, *([str(run["origin"])] if "origin" in run else [])]) or None


def _flat(value: Mapping[str, Any], name: str) -> Iterator[tuple[str, Any]]:
    for key, one in value.items():
        if isinstance(one, Mapping):
            yield from _flat(one, f"{name}.{key}")
        else:
            yield f"{name}.{key}", one if isinstance(one, str | int | float | bool | list) else str(one)


def rows(results: Mapping[str, Any], network: Mapping[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Yield a row for every number: estimates with their uncertainty, counts and shares as they are."""
    for name, one in results.get("constants", {}).items():
        yield _estimate(name, None, one)
        yield from _of_line(name, one)
    for name, one in results.get("timing", {}).items():
        yield from _timing(name, one)
    for host, bus in results.get("buses", {}).items():
        for name, value in _numbers(bus):
            yield _counted(name, host, value)
    for name, value in _numbers(results.get("frames", {}), "frames."):
        yield _counted(name, None, value)
    if results.get("model"):
        yield from _of_model("model", results["model"])
        yield from _of_model("model.measured", results["model"].get("measured") or {})
    seen: Counter[str] = Counter()
    for one in (network or {}).get("results", ()):
        seen[one["kind"]] += 1
        # A second of the same kind is a companion, in the order of run.toml.
        kind = one["kind"] if seen[one["kind"]] == 1 else f"{one['kind']}-{seen[one['kind']]}"
        for name, parameter in one["parameters"].items():
            source = "unknown" if parameter["value"] is None else "measured"
            yield _estimate(f"network.{kind}.{name}", None, {**parameter, "source": source})


def _timing(name: str, one: Any) -> Iterator[dict[str, Any]]:
    if name == "csr_costs_us":
        for cost in one:
            source = "unknown" if cost["value"] is None else "measured"
            yield _estimate(f"{name}.{cost['what']}", cost["host"], {**cost, "source": source, "unit": "us"})
    elif name == "by_length":
        for point in one:
            yield from _of_length(point)
    elif isinstance(one, Mapping) and "source" in one:
        yield _estimate(name, None, one)
    elif isinstance(one, Mapping):
        for host, inner in one.items():
            if isinstance(inner, Mapping) and "source" in inner:
                yield _estimate(name, host, inner)
    elif _plain(one):
        yield _counted(name, None, one) | {"source": "given"}


def _of_line(name: str, one: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A constant that depends on the length, at each length, and its line."""
    for point in one.get("at", ()):
        told = {**point, "n": point.get("n"), "source": "measured", "unit": "us"}
        yield _estimate(f"{name}.at_{point['length_bytes']:g}", None, told)
    line = one.get("line")
    if line:
        for place, what in enumerate(("intercept", "slope")):
            sigma = math.sqrt(max(line["covariance"][place][place], 0.0))
            unit = "us/byte" if what == "slope" else "us"
            told = {"value": line[what], "sigma": sigma, "n": line["n"], "source": "measured", "unit": unit}
            yield _estimate(f"{name}.{what}", None, told)


def _of_length(point: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """What was measured of frames of one length; t_nic stands under `constants` already."""
    for what in ("gap_us", "t_nic_tx_us", "t_nic_rx_us"):
        value = point[what]
        told = {"value": value, "sigma": point[what.replace("_us", "_sem_us")], "n": point["n"], "unit": "us"}
        source = "unknown" if value is None else "measured"
        yield _estimate(f"{what}.at_{point['length_bytes']:g}", None, {**told, "source": source})


def _of_model(name: str, line: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The line of Equation 2.1, or that which was measured."""
    for what, sigma in (
        ("intercept_us", "intercept_sigma_us"),
        ("slope_us_per_byte", "slope_sigma_us_per_byte"),
        ("chi2", None),
        ("ndof", None),
        ("p_value", None),
    ):
        if what in line:
            told = {"value": line[what], "sigma": line[sigma] if sigma else None, "n": line.get("n")}
            source = "unknown" if line[what] is None else "measured" if "n" in line else "derived"
            yield _estimate(f"{name}.{what}", None, {**told, "source": source, "unit": _unit(what)})


def _unit(name: str) -> str | None:
    return "us/byte" if name.endswith("_us_per_byte") else "us" if name.endswith("_us") else None


def _numbers(told: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, float]]:
    """Every plain number, named by where it stands."""
    for name, value in told.items():
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{before}{name}.")
        elif _plain(value):
            yield f"{before}{name}", value


def _estimate(name: str, host: str | None, one: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "constant": name,
        "host": host,
        "value": one["value"],
        "sigma": one.get("sigma"),
        "sigma_measurement": one.get("sigma_measurement"),
        "sigma_frames": one.get("sigma_frames"),
        "n": one.get("n"),
        "source": one["source"],
        "unit": one.get("unit") or _unit(name),
        "reason": one.get("reason"),
    }


def _counted(name: str, host: str | None, value: float) -> dict[str, Any]:
    return _estimate(name, host, {"value": float(value), "source": "measured"})


def _plain(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
