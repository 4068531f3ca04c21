"""Run folders around the reference traces of two hosts with NICs, with the profiles that the documentation shows."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

from conftest import REPOSITORY

PROFILES = {"nic_g_a": "ring-model", "nic_g_d": "ring-model", "nic_ocg_a_sf": "bridge-mac"}
RATES = {"nic_g_a": 1000, "nic_g_d": 1000, "nic_ocg_a_sf": 100}


def documented_profiles() -> dict[str, str]:
    """Return the NIC profiles that docs/nic-profiles.md shows, by name."""
    text = (REPOSITORY / "docs" / "nic-profiles.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    return {re.search(r'^name = "(.*?)"', block, re.MULTILINE).group(1): block for block in blocks}


def run_folder(folder: Path, trace: Path, file: str, nic: str | None = None) -> Path:
    """Make a run folder around one capture of a trace."""
    folder.mkdir(parents=True)
    (folder / file).symlink_to(trace / file)
    (folder / "nic.toml").write_text(documented_profiles()[PROFILES[trace.name]], encoding="utf-8")
    (folder / "run.toml").write_text(
        f"""
format = 1
origin = "imported"

[[captures]]
file = "{file}"

[hosts.A]
nic = "{nic or "nic.toml"}"

[hosts.B]
nic = "{nic or "nic.toml"}"

[link]
rate_mbit_s = {RATES[trace.name]}

[frames]
sequence = {{ offset = 2, bytes = 2 }}
""",
        encoding="utf-8",
    )
    return folder


def truth(trace: Path, name: str, kind: str) -> list[dict[str, Any]]:
    """Read one of the truth files: rows of one type."""
    with gzip.open(trace / f"{name}.jsonl.gz", "rt") as lines:
        return [row for row in map(json.loads, lines) if row["type"] == kind]
