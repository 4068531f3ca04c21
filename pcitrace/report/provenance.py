"""Where the numbers of a run come from: files, analysers, hosts, link, test, versions."""

from __future__ import annotations

import hashlib
from typing import Any

import pcitrace
from pcitrace import analysis
from pcitrace.results import Results
from pcitrace.run import Run

__all__ = ["provenance"]


def provenance(results: Results) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return titled lists of what is known about a run.

    Parameters
    ----------
    results : Results

    Returns
    -------
    list of (str, list of (str, str))
        Title of each list, and its entries by name.
    """
    run = results.run
    said: dict[str, Any] = run.folder.run if run.folder is not None else {}
    link = {**said.get("link", {})}
    parts = [
        ("Run", _entries({"path": str(run.path), **{key: said[key] for key in _RUN if key in said}})),
        *((f"Capture {number}", _capture(run, number)) for number in range(len(run.captures))),
        *((f"Host {name}", _host(results, name)) for name in run.buses),
        ("Link", _entries(link)),
        ("Test", _entries(said.get("test", {}))),
        ("Simulation", _simulation(said.get("simulation", {}))),
        ("Versions", _entries({"pcitrace": pcitrace.__version__, **said.get("versions", {})})),
    ]
    return [(title, entries) for title, entries in parts if entries]


_RUN = ("origin", "created", "complete", "reason", "frames_on_bus", "source", "source_origin", "source_sha256")


_SHOWN_APART = (
    "file", "sha256", "samples", "rate_hz", "offset_us", "offset_sigma_us", "about_us", "drift_sigma_ppm",
)  # fmt: skip


def _capture(run: Run, number: int) -> list[tuple[str, str]]:
    capture = run.captures[number]
    entry = run.folder.run["captures"][number] if run.folder is not None else {}
    stated = {key: value for key, value in entry.items() if key not in _SHOWN_APART}
    offset = analysis.offsets(run)[number]
    if len(run.captures) > 1:
        stated["offset"] = f"{offset} {offset.unit} ({offset.source})" if offset.value is not None else str(offset)
    with capture.path.open("rb") as file:
        computed = hashlib.file_digest(file, "sha256").hexdigest()
    told = entry.get("sha256")
    checked = "" if told is None else " (as run.toml says)" if told == computed else f"; run.toml says {told}: CHANGED"
    return _entries({"file": capture.path.name, "content": capture.summary, "sha256": computed + checked, **stated})


def _host(results: Results, name: str) -> list[tuple[str, str]]:
    run, bus = results.run, results.run[name]
    stated = dict(run.folder.run["hosts"][name]) if run.folder is not None else {}
    if name in results.frames.hosts:
        used, said = results.frames.hosts[name].windows.profile, run.folder.profile(name) if run.folder else None
        if used != said:
            stated["profile"] = used.name if said is None else f"{used.name}, instead of {said.name} as run.toml says"
    clock = None if bus.clock_mhz is None else f"{bus.clock_mhz:.6g} MHz measured"
    return _entries({"lines": " ".join(bus.lines), "clock": clock, **stated})


def _simulation(said: dict[str, Any]) -> list[tuple[str, str]]:
    """The preset and what was put in; all fields of the bench are in run.toml."""
    parameters = said.get("parameters", {})
    kept = {key: value for key, value in said.items() if key != "parameters"}
    return _entries({**kept, "put in": parameters.get("given"), "changed": parameters.get("changed")})


def _entries(table: dict[str, Any]) -> list[tuple[str, str]]:
    return [(key.replace("_", " "), _text(value)) for key, value in table.items() if value not in (None, {}, [], "")]


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} = {_text(one)}" for key, one in value.items())
    if isinstance(value, list):
        return ", ".join(_text(one) for one in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
