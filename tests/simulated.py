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
    grants = at["GNT_NIC#"]
    clocks = [
        oracle.Clock(gnt=(grants[n],), **{key: values[n] for key, values in fields.items()}) for n in range(len(rises))
    ]
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

    Written for single address cycles without fast back-to-back, which is all that the bench makes. A, M, P, T, W are
    the numbers that bus monitors give the rules.
    """
    broken = []

    def rule(good: bool, name: str) -> None:
        if not good:
            broken.append(f"{clock_number}: {name}")

    start = None  # clock number of the address phase
    phase_open = stopped = claimed = target_ready = irdy_seen = False
    read = False
    since_phase = since_data = 0
    before = oracle.Clock()
    for clock_number, clock in enumerate(clocks):
        f, i, t, s, d = (getattr(clock, name) == 0 for name in CONTROL)
        was_f, was_i, was_t, was_s, was_d = (getattr(before, name) == 0 for name in CONTROL)
        if start is None:
            if f:
                rule(not i and not t and not s and not d, "an address phase: only FRAME# is asserted (M02, T01)")
                rule(not (was_f or was_i), "an idle clock comes first (M12)")
                start, phase_open, stopped, claimed, irdy_seen = clock_number, True, False, False, False
                target_ready = False
                since_phase = since_data = 0
                read = clock.cbe in oracle.READS if clock.cbe is not None else False
            else:
                rule(not (i or t or s or d), "nothing is asserted on an idle bus (M03, T02)")
        else:
            number = clock_number - start
            since_phase += 1
            since_data += 1
            if not f and not i:
                rule(not was_f, "FRAME# is released only with IRDY# asserted (M01)")
                rule(not phase_open or not claimed, "the last data phase is completed")
                rule(not (t or s or d), "TRDY# STOP# DEVSEL# go with the transaction (T06, T08)")
                start = None
            else:
                rule(was_f or not f, "FRAME# does not return (M04)")
                rule(f or i, "FRAME# is released only with IRDY# asserted (M01)")
                ended_before = was_i and (was_t or was_s)
                if was_i and not ended_before:
                    rule(i, "IRDY# holds until the phase ends (M06)")
                    rule(f == was_f, "FRAME# holds while IRDY# is asserted and the phase open (M05)")
                if ended_before and not was_f:
                    rule(False, "IRDY# is released after the last phase (M07)")
                if stopped and was_f and was_i:
                    rule(not f, "FRAME# is released after STOP# (M10)")
                if d and not claimed:
                    rule(1 <= number <= 4, "DEVSEL# comes within four clocks (T01)")
                claimed = claimed or d
                rule(not t or d, "TRDY# needs DEVSEL# (T02)")
                rule(not s or d or claimed, "STOP# needs DEVSEL# (T03)")
                if was_d and not d:
                    rule(s and not t, "DEVSEL# holds but in a target abort (T04)")
                if was_s and was_f:
                    rule(s, "STOP# holds until FRAME# is released (T05)")
                if (was_t or was_s) and not was_i:
                    rule((t, s, d) == (was_t, was_s, was_d), "TRDY# STOP# DEVSEL# hold until the phase ends (T07)")
                if was_i and was_t and was_s:
                    rule(not t, "TRDY# is released after a disconnect with data (T09)")
                if (t or s) and not target_ready:
                    target_ready = True
                    rule(number <= 16, "the target's first answer comes within 16 clocks (T11)")
                rule(not (t and read and number == 1), "no TRDY# in a read's turnaround (T10)")
                if i and not irdy_seen:
                    irdy_seen = True
                    rule(number <= 8, "IRDY# comes within 8 clocks (M08)")
                if i and (t or s):
                    if number > 1 and since_phase != number:
                        rule(since_phase <= 8, "later phases complete within 8 clocks (M09, T12)")
                    since_phase = 0
                    phase_open = f and not s
                    stopped = stopped or s
                if not claimed and not f and not was_i and number > 5:
                    rule(False, "an unclaimed transaction ends (M11)")
        if f and not was_f:
            rule(clock_number > 0 and True, "FRAME# is not asserted in the first clock")
        before = clock
    return broken


def grants_broken(clocks: list[oracle.Clock], initiators: list[tuple[int, str]]) -> list[str]:
    """Compare the NIC's GNT# one clock before each address phase with who started it (A03)."""
    return [
        f"{clk}: {who}, GNT_NIC# is {clocks[clk - 1].gnt[0]}"
        for clk, who in initiators
        if (clocks[clk - 1].gnt[0] == 0) != (who == "nic")
    ]
