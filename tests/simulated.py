"""Reads what the simulated bench wrote: samples -> clocks, by hand, and checks them against the rules of the bus."""

from __future__ import annotations

import configparser
import csv
import json
import tomllib
import zipfile
from pathlib import Path

import numpy as np
import oracle

CONTROL = {"frame": "FRAME#", "irdy": "IRDY#", "trdy": "TRDY#", "stop": "STOP#", "devsel": "DEVSEL#"}
OTHER = {"par": "PAR", "req64": "REQ64#", "ack64": "ACK64#"}


def read_sr(path: Path) -> tuple[dict[str, np.ndarray], float]:
    """Return the level of every channel in every sample, and the rate in MHz."""
    with zipfile.ZipFile(path) as archive:
        assert archive.read("version") == b"2"
        metadata = configparser.ConfigParser()
        metadata.read_string(archive.read("metadata").decode())
        device = metadata["device 1"]
        members = sorted(
            (name for name in archive.namelist() if name.startswith("logic-1-")), key=lambda n: int(n.split("-")[-1])
        )
        data = b"".join(archive.read(name) for name in members)
    unit = int(device["unitsize"])
    samples = np.frombuffer(data, np.uint8).reshape(-1, unit)
    names = [device[f"probe{n}"] for n in range(1, int(device["total probes"]) + 1)]
    levels = {name: samples[:, n // 8] >> (n % 8) & 1 for n, name in enumerate(names)}
    return levels, float(device["samplerate"].split()[0]) / 1e6


def bus_clocks(levels: dict[str, np.ndarray], bus: str) -> tuple[list[oracle.Clock], np.ndarray, frozenset[str]]:
    """Return the clocks of a bus, the sample before each rise, and the lines that were captured."""
    lines = {name.removeprefix(f"{bus}_"): level for name, level in levels.items() if name.startswith(f"{bus}_")}
    if "CLK" in lines:
        rises = np.flatnonzero((lines["CLK"][:-1] == 0) & (lines["CLK"][1:] == 1))
    else:
        rises = np.arange(len(lines["FRAME#"]))
    at = {name: level[rises].tolist() for name, level in lines.items()}

    def bundle(names: list[str]) -> list[int] | None:
        if names[0] not in lines:
            return None
        return sum(lines[name][rises].astype(object) << bit for bit, name in enumerate(names)).tolist()

    bundles = {
        "ad": bundle([f"AD{n}" for n in range(32)]),
        "ad_high": bundle([f"AD{n}" for n in range(32, 64)]),
        "cbe": bundle([f"CBE{n}#" for n in range(4)]),
        "cbe_high": bundle([f"CBE{n}#" for n in range(4, 8)]),
    }
    captured = set(oracle.CONTROL) | {"GNT#"}
    captured |= {OTHER[key] for key in OTHER if OTHER[key] in lines}
    for key, name in (("ad", "AD"), ("ad_high", "AD_HIGH"), ("cbe", "C/BE#"), ("cbe_high", "C/BE_HIGH#")):
        if bundles[key] is not None:
            captured.add(name)
    fields = {key: at[name] for key, name in {**CONTROL, **OTHER}.items() if name in at}
    fields |= {key: values for key, values in bundles.items() if values is not None}
    fields["gnt"] = [(grant,) for grant in at["GNT_NIC#"]]
    clocks = [oracle.Clock(**dict(zip(fields, values, strict=True))) for values in zip(*fields.values(), strict=True)]
    return clocks, rises, frozenset(captured)


def rows(run: Path, table: str) -> list[dict[str, str]]:
    """Return a table of the truth, as text."""
    with (run / "truth" / f"{table}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def truth(run: Path) -> dict:
    """Return the truth's constants and counts."""
    return json.loads((run / "truth" / "truth.json").read_text())


def run_toml(run: Path) -> dict:
    """Return run.toml."""
    return tomllib.loads((run / "run.toml").read_text())


def broken_rules(clocks: list[oracle.Clock]) -> list[str]:
    """Check the rules of the bus that its control lines show; return `clock: rule` for each breach.

    Written for single address cycles without fast back-to-back and without aborts, which is all that the bench makes.
    M and T are the numbers that bus monitors give the rules of initiator and target.
    """
    broken: list[str] = []
    start: int | None = None  # the clock of the address phase
    claimed = answered = stopped = irdy_seen = read = False
    last_phase = 0  # the clock in which the last data phase ended
    f = i = t = s = d = False  # what is asserted
    for number, clock in enumerate(clocks):
        was_f, was_i, was_t, was_s, was_d = f, i, t, s, d
        f, i, t, s, d = clock.frame == 0, clock.irdy == 0, clock.trdy == 0, clock.stop == 0, clock.devsel == 0
        if start is None and not (f or i or t or s or d):
            continue

        def rule(good: bool, name: str, number: int = number) -> None:
            if not good:
                broken.append(f"{number}: {name}")

        ended_before = was_i and (was_t or was_s)
        if start is None:
            if f:
                rule(not (i or t or s or d), "M02: an address phase has FRAME# alone")
                start, last_phase = number, number
                claimed = answered = stopped = irdy_seen = False
                read = clock.cbe in oracle.READS
            else:
                rule(not (i or t or s or d), "M03: nothing is asserted on an idle bus")
            continue
        since_start = number - start
        if not f and not i:
            rule(not was_f, "M01: FRAME# is released only with IRDY# asserted")
            rule(ended_before, "M06: IRDY# holds until the last phase has ended")
            rule(not (t or s or d), "T08: TRDY# STOP# DEVSEL# go with the transaction")
            start = None
            continue
        rule(was_f or not f, "M04: FRAME# does not return, and an idle clock lies between transactions")
        rule(f or i, "M01: FRAME# is released only with IRDY# asserted")
        if was_i and not ended_before:
            rule(i, "M06: IRDY# holds until the phase ends")
            rule(f == was_f, "M05: FRAME# holds while IRDY# is asserted and the phase is open")
        rule(was_f or not ended_before, "M07: IRDY# is released after the last phase")
        if stopped and was_f and was_i:
            rule(not f, "M10: FRAME# is released after STOP#")
        if i and not irdy_seen:
            irdy_seen = True
            rule(since_start <= 8, "M08: IRDY# comes within 8 clocks")
        if d and not claimed:
            claimed = True
            rule(since_start <= 4, "T01: DEVSEL# comes within 4 clocks")
        rule(not t or d, "T02: TRDY# needs DEVSEL#")
        rule(not s or d, "T03: STOP# needs DEVSEL#")
        rule(d or not was_d, "T04: DEVSEL# holds")
        rule(s or not (was_s and was_f), "T05: STOP# holds until FRAME# is released")
        if (was_t or was_s) and not was_i:
            rule((t, s, d) == (was_t, was_s, was_d), "T07: TRDY# STOP# DEVSEL# hold until the phase ends")
        rule(not (t and was_i and was_t and was_s), "T09: TRDY# is released after a disconnect with data")
        rule(not (t and read and since_start == 1), "T10: no TRDY# in a read's turnaround")
        if (t or s) and not answered:
            answered = True
            rule(since_start <= 16, "T11: the target answers within 16 clocks")
        if i and (t or s):
            if last_phase > start:
                rule(number - last_phase <= 8, "M09, T12: later phases end within 8 clocks")
            last_phase, stopped = number, stopped or s
    return broken
