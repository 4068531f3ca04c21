"""Draws pieces of a bus, what each may be, and the reading that was given."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
from matplotlib import pyplot

import pcitrace


def generated(folder: Path) -> pcitrace.Run:
    """Return a run of a card that the rules do not know: it reads again after a disconnect."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
    from cardbench import Bench, write

    write(Bench("reread", 2, frames=24), folder, vcd=False)
    stated = (folder / "run-control16.toml").read_text(encoding="utf-8").replace('"card.toml"', '"generic"')
    (folder / "run.toml").write_text(stated, encoding="utf-8")
    return pcitrace.open(folder)


STATES = ("left over", "send goes on", "send begins", "receive goes on", "receive begins")
"""What a piece may be, from below."""


def draw(run: pcitrace.Run, host: str, path: Path, first: int = 20, count: int = 26) -> None:
    """Draw some pieces of a host as columns, what each may be as rows, the reading that was given, and its margins."""
    frames = run.frames
    pieces = frames.hosts[host].pieces
    pieces = pieces[pieces["data_phases"] > 0].iloc[first : first + count].reset_index(drop=True)
    _, ax = pyplot.subplots(figsize=(9, 3.2), layout="constrained")
    for column in range(count - 1):
        for now in range(len(STATES)):
            after = [0, 2, 4, *([now] if now in (1, 3) else [now - 1] if now else [])]
            ax.plot(
                [[column] * len(after), [column + 1] * len(after)], [[now] * len(after), after], color="0.9", lw=0.6
            )
    path_of, seen = [], set()
    for column, burst in enumerate(pieces["burst"]):
        base, mine = 0, frames.table[:0]
        for side, bursts, whose in ((1, "send_burst", "sender"), (3, "receive_burst", "receiver")):
            found = frames.table[(frames.table[whose] == host) & (frames.table[bursts] == burst).fillna(False)]
            base, mine = (side, found) if len(found) else (base, mine)
        path_of.append(base + (base > 0 and burst not in seen))
        if len(mine) and burst not in seen:
            margin = mine["margin_send" if base == 1 else "margin_receive"].iloc[0]
            ax.annotate(
                "" if pd.isna(margin) else f"{margin:.0f}",
                (column, path_of[-1]),
                (0, 6),
                textcoords="offset points",
                ha="center",
                fontsize=8,
            )
        seen.add(burst)
    ax.plot(path_of, "-o", color="C0", ms=5)
    ax.set_xticks(range(count), [str(phases) for phases in pieces["data_phases"]])
    ax.set_yticks(range(len(STATES)), STATES)
    ax.set(xlabel="pieces in order of time, each with its data phases", ylim=(-0.4, 4.6))
    ax.figure.savefig(path)
    pyplot.close(ax.figure)
