"""The truth of the reference traces: rows of `truth.jsonl.gz` in the words of the table `transactions`."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

BLUE = [
    "blue33_seq0", "blue33_seq1", "blue33_seq2", "blue33_seq3", "blue33_seq4", "blue33_seq5", "blue33_seq6",
    "blue66_seq1", "blue66_seq4", "blue66_seq6",
]  # fmt: skip
NIC = ["nic_g_a", "nic_g_d", "nic_ocg_a_sf"]

COMMANDS = {"MR": 6, "MW": 7, "CFGR": 10, "CFGW": 11, "MRM": 12, "MRL": 14}
"""Commands as the nic_* truth calls them."""

TERMINATIONS = {"special_cycle_end": "special_cycle"}


def lines(path: Path) -> list[dict]:
    """All rows of a gzipped JSON-lines file."""
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def transactions(folder: Path) -> list[dict]:
    """Truth of a blue* trace: one dict a transaction, `beats` as (time in ps, data, byte enables, parity ok)."""
    rows = []
    for row in lines(folder / "truth.jsonl.gz"):
        unclaimed = row["term"] in ("master_abort", "special_cycle_end")
        rows.append(
            {
                "start_ps": round(row["t_ns"] * 1000),
                "end_ps": round(row["end_ns"] * 1000),
                "start_clk": row["clk"],
                "clocks": row["clocks"],
                "command": row["cmd"],
                "dac": row["dac"],
                "address": int(row["addr"], 16),
                "beats": [
                    (round(b["t_ns"] * 1000), int(b["data"], 16), int(b["be"], 16), b["par_ok"]) for b in row["beats"]
                ],
                "data_phases": len(row["beats"]),
                # Truth counts the address clock's successor to the closing clock where nobody answered; we do not.
                "wait_clks": row["clocks"] - 1 if unclaimed else row["waits"],
                "devsel_clks": row["devsel_clocks"],
                "termination": TERMINATIONS.get(row["term"], row["term"]),
                "initiator": f"GNT{row['initiator_gnt']}#",
                "fast_back_to_back": row["fast_b2b"],
                "address_parity_ok": row["addr_par_ok"],
                "perr": row["perr"],
                "serr": row["serr"],
            }
        )
    return rows


def sampled_transactions(folder: Path) -> list[dict]:
    """Truth of a blue* trace as its .sr files show it.

    Both captures of blue33_seq3 end while CLK is low before the last rise of the run, so the clock that ends the last
    transaction was never sampled: it is cut off.
    """
    rows = transactions(folder)
    if folder.name == "blue33_seq3":
        rows[-1] |= {
            "termination": "truncated",
            "clocks": rows[-1]["clocks"] - 1,
            "wait_clks": rows[-1]["wait_clks"] - 1,
        }
    return rows
