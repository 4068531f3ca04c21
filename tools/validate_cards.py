"""Frames and constants of generated cards against their truth: a table a family, into docs/validation.md.

    python tools/validate_cards.py --seeds 20 --jobs 2 -o docs/validation.md

Every bench (`tests/cardbench`, and `pcitrace.simulate.random_bench`) is analysed from full AD, from control lines and
wire, and from control lines alone, each with the card's true profile, with `generic` and with another card's profile.
Exits with 1 if a limit is not kept. The tables replace what is below "## Families of cards" in the page.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import tomli_w

import pcitrace
from pcitrace import analysis, results
from pcitrace.columns import floats
from pcitrace.frames import Frames, margins
from pcitrace.simulate import random_bench, simulate

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from cardbench import FAMILIES, Bench, write
from cardbench.files import profile as card_profile
from cardbench.score import CSR, TIMES, Score, score

RANDOM = "random_bench"
"""The family of the project's own simulator, beside those of cardbench."""

CAPTURES = {"full AD": "vcd", "control lines and wire": "control16", "control lines alone": "control14"}
PROFILES = ("true", "generic", "another")
WRONG = {"true": 1e-4, "generic": 1e-4, "another": 1e-3}
"""Share of frames with any wrong value."""

NULL = {("true", True): (0.02, 0.05), ("generic", True): (0.08, 0.15)}
NULL |= {("true", False): (0.12, 0.20), ("generic", False): (0.20, 0.40)}
"""Share of DMA, wire and length values, and of CSR times, that may be null: by profile, and whether there is a wire."""

PULL_MEAN, PULL_WIDTH, PULL_LARGEST, PULLS = 0.2, (0.8, 1.2), 5.0, 10
"""Limits of the pulls of a family, judged from so many on."""

LONGEST_S = 60
"""Seconds of processor after which an analysis of a capture of a few milliseconds is given up: it was not analysed."""

WIRE = ("wire_start", "wire_end")
HEADING = "\n## Families of cards\n"
EDGES = {"margin_send": ("dma_start", "dma_end"), "margin_receive": ("rx_dma_start", "rx_dma_end")}
MARGINS = (0, 1, 2, 3, 4, 6, 8, 12, 20, np.inf)
"""Edges of the classes of margins."""


@dataclass
class Case:
    """What one analysis of one bench gave."""

    family: str
    seed: int
    capture: str
    profile: str
    scored: Score | None = None
    pulls: dict[str, float] = field(default_factory=dict)
    margins: dict[int, Counter[str]] = field(default_factory=dict)
    failed: str = ""
    seconds: float = 0.0


def one_bench(family: str, seed: int, frames: int | None = None) -> list[Case]:
    """Write a bench, of so many frames or of as many as are drawn, and analyse it in every way."""
    with tempfile.TemporaryDirectory() as folder:
        if family == RANDOM:
            return [case for capture in CAPTURES for case in _own_bench(Path(folder), seed, capture)]
        bench = Bench(family, seed, frames)
        write(bench, Path(folder), control14=True)
        other = Bench("ring" if family != "ring" else "csr-descriptors", seed + 1000, frames=2)
        (Path(folder) / "other.toml").write_text(tomli_w.dumps(card_profile(other)))
        names = {"vcd": "run.toml", "control16": "run-control16.toml", "control14": "run-control14.toml"}
        texts = {capture: (Path(folder) / name).read_text() for capture, name in names.items()}
        cases = []
        for capture, kind in CAPTURES.items():
            (Path(folder) / "run.toml").write_text(texts[kind])
            run = pcitrace.open(folder)
            for profile in PROFILES:
                given = {"true": "card.toml", "generic": "generic", "another": "other.toml"}[profile]
                path = str(Path(folder) / given) if given.endswith(".toml") else given
                cases.append(analysed(Case(family, seed, capture, profile), run, path, bench, kind))
        return cases


def _own_bench(folder: Path, seed: int, capture: str) -> list[Case]:
    """Analyse a bench of the project's own simulator."""
    wires = {"full AD": "full", "control lines and wire": "control16", "control lines alone": "control14"}[capture]
    bench = random_bench(seed, count=30, wires=(wires,))
    simulate(bench, folder / capture, seed=seed)
    run = pcitrace.open(folder / capture)
    truth = pd.read_csv(folder / capture / "truth" / "frames.csv")
    like = SimpleNamespace(
        drawn={"sr_ppm": 0.0, "width": run.folder.run["hosts"]["A"]["width"]},  # type: ignore[union-attr]
        hosts={"A": SimpleNamespace(bus=SimpleNamespace(period=1e3 / run.folder.run["hosts"]["A"]["clock_mhz"]))},  # type: ignore[union-attr]
        truth=lambda: [_as_card(row) for row in truth.to_dict("records")],
    )
    kind = "control16" if capture != "control lines alone" else "control14"
    profiles = {"true": None, "generic": "generic", "another": "i82558"}
    return [analysed(Case(RANDOM, seed, capture, name), run, profiles[name], like, kind) for name in PROFILES]


def _as_card(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of the simulator's truth as cardbench says it."""

    def ns(name: str) -> float | None:
        return None if pd.isna(row[f"{name}_us"]) else row[f"{name}_us"] * 1e3

    times = {key: ns(name) for name, key in TIMES.items()}
    csr = {f"{name}_ns": [ns(name)] if ns(name) is not None else [] for name in CSR}
    arrived = not row["lost"] and times["rx_dma_first_ns"] is not None
    same = {"dir": f"{row['sender']}->{row['receiver']}", "seq": row["sequence"], "user_bytes": row["length_bytes"]}
    return {**same, **times, **csr, "lost": row["lost"], "dropped": False, "rx_ok": arrived}


def analysed(case: Case, run: Any, profile: str | None, bench: Any, kind: str) -> Case:
    """Analyse a capture with a profile, and compare with the truth."""
    begin = time.perf_counter()
    signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, LONGEST_S)
    try:
        frames = analysis.frames(run, profile=profile)
        case.seconds = time.perf_counter() - begin
        case.scored = score(bench, frames.table, kind)
        case.pulls = pulls(run, frames, bench, kind)
        if case.profile == "generic" and kind != "control14":
            case.margins = calibration(run, profile, bench, kind)
    except Exception as error:  # that a run cannot be analysed is a result, and the others go on
        case.failed = f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return case


def _too_long(*_: object) -> None:
    raise TimeoutError(f"not done after {LONGEST_S} s")


def pulls(run: Any, frames: Frames, bench: Any, kind: str) -> dict[str, float]:
    """Return (measured - true)/sigma of the constants; the truth is that of the frames that were given."""
    found = results.of_run(run, frames)
    true = results.of_run(run, replace(frames, table=_true(frames.table, bench, kind)))
    pairs = {name: (one, true.constants[name]) for name, one in found.constants.items() if name != "t_sw_us"}
    return {
        name: (one.value - right.value) / one.sigma_measurement
        for name, (one, right) in pairs.items()
        if one.value is not None and right.value is not None and one.sigma_measurement
    }


def _true(table: pd.DataFrame, bench: Any, kind: str) -> pd.DataFrame:
    """Return the table with the true times in place of those that were found; what is null stays null."""
    scale = 1e3 * (1 + bench.drawn["sr_ppm"] * 1e-6 if kind != "vcd" else 1.0)
    out = table.copy()
    for sender in set(table["sender"]):
        rows = np.flatnonzero(table["sender"] == sender)
        mine = [row for row in bench.truth() if row["dir"][0] == sender]
        for name, key in TIMES.items():
            known = np.sort([row[key] / scale for row in mine if row[key] is not None])
            found = floats(table, f"{name}_us")[rows]
            near = np.searchsorted((known[1:] + known[:-1]) / 2, np.nan_to_num(found))
            values = np.where(np.isnan(found), np.nan, known[near] if len(known) else np.nan)
            out.iloc[rows, out.columns.get_loc(f"{name}_us")] = [None if np.isnan(one) else one for one in values]
    for name, (late, early) in {
        "dma_us": ("dma_end_us", "dma_start_us"),
        "gap_us": ("rx_dma_start_us", "dma_end_us"),
        "rx_dma_us": ("rx_dma_end_us", "rx_dma_start_us"),
        "t_nic_tx_us": ("wire_start_us", "dma_end_us"),
        "t_nic_rx_us": ("rx_dma_start_us", "wire_end_us"),
    }.items():
        out[name] = out[late] - out[early]
    out["t_nic_us"] = (out["gap_us"] - out["wire_us"]) / 2
    return out


def calibration(run: Any, profile: str | None, bench: Any, kind: str) -> dict[int, Counter[str]]:
    """Return, by class of margin, how many edges are right and wrong; none is null for its margin here."""
    kept, margins.SURE = margins.SURE, 0.0
    try:
        table = analysis.frames(run, profile=profile).table
    finally:
        margins.SURE = kept
    out: dict[int, Counter[str]] = {}
    for margin, names in EDGES.items():
        of = np.digitize(floats(table, margin), MARGINS) - 1
        for one in range(len(MARGINS) - 1):
            some = table[of == one]
            if len(some):
                total = score(bench, some, kind).total(*names)
                out.setdefault(one, Counter()).update({key: total[key] for key in ("right", "wrong")})
    return out


@dataclass
class Sum:
    """All cases of a family with one capture and one profile."""

    cases: list[Case]

    def count(self, what: str) -> int:
        """Return the sum of one count of the scores."""
        return sum(getattr(case.scored, what) for case in self.cases if case.scored is not None)

    @property
    def no_frames(self) -> int:
        """Rows that are no frame, parts of two, or a receive of a frame that never arrived."""
        return self.count("extra") + self.count("crossed") + self.count("lost_rx")

    def null(self, *names: str) -> tuple[int, int]:
        """Return how many of some values are null, and how many the truth has."""
        total = sum((case.scored.total(*names) for case in self.cases if case.scored is not None), Counter[str]())
        return total["null"], total.total()

    @property
    def nulls(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Null and all of the DMA, wire and length values, and of the CSR times, that the truth has."""
        wire = self.cases[0].capture != "control lines alone"
        return self.null(*(name for name in (*TIMES, "length") if wire or name not in WIRE)), self.null(*CSR)

    @property
    def pulls(self) -> np.ndarray:
        """All pulls of all constants."""
        return np.array([pull for case in self.cases for pull in case.pulls.values()])

    def failures(self) -> list[str]:
        """Say which limits are not kept."""
        profile, said = self.cases[0].profile, []
        failed = [case for case in self.cases if case.failed]
        if failed:
            said.append(f"{len(failed)} not analysed ({failed[0].failed})")
        frames, wrong = self.count("frames"), self.count("wrong_frames")
        if wrong > WRONG[profile] * frames:
            said.append(f"{wrong} of {frames} frames wrong")
        if self.no_frames:
            said.append(f"{self.no_frames} rows are no frame")
        limits = NULL.get((profile, self.cases[0].capture != "control lines alone"))
        for limit, (null, total), name in zip(limits or (), self.nulls, ("values", "CSR times"), strict=False):
            if total and null > limit * total:
                said.append(f"{null / total:.1%} of the {name} null (limit {limit:.0%})")
        pull = self.pulls
        if len(pull) >= PULLS and (abs(pull.mean()) > PULL_MEAN or not PULL_WIDTH[0] <= pull.std() <= PULL_WIDTH[1]):
            said.append(f"pulls with mean {pull.mean():+.2f} and width {pull.std():.2f}")
        if len(pull) and abs(pull).max() >= PULL_LARGEST:
            said.append(f"largest pull {abs(pull).max():.1f}")
        return said

    def row(self) -> str:
        """Return the line of the table."""
        first, pull = self.cases[0], self.pulls
        shares = " | ".join(f"{null / total:.1%}" if total else "" for null, total in self.nulls)
        spread = f"{pull.mean():+.2f} | {pull.std():.2f} | {abs(pull).max():.1f}" if len(pull) else " | |"
        numbers = f"{self.count('frames')} | {self.count('wrong_frames')} | {self.no_frames} | {shares} | {spread}"
        return f"| {first.capture} | {first.profile} | {numbers} | {'no' if self.failures() else 'yes'} |"


def sums(cases: Sequence[Case]) -> dict[str, list[Sum]]:
    """Return the sums of each family."""
    out: dict[str, list[Sum]] = {}
    for family in dict.fromkeys(case.family for case in cases):
        mine = [case for case in cases if case.family == family]
        ways = [(capture, profile) for capture in CAPTURES for profile in PROFILES]
        groups = [[case for case in mine if (case.capture, case.profile) == way] for way in ways]
        out[family] = [Sum(group) for group in groups if group]
    return out


def failures(cases: Sequence[Case]) -> list[str]:
    """Return all limits that are not kept."""
    return [
        f"{family}, {one.cases[0].capture}, profile {one.cases[0].profile}: {'; '.join(said)}"
        for family, found in sums(cases).items()
        for one in found
        if (said := one.failures())
    ]


def calibrated(cases: Sequence[Case]) -> dict[int, Counter[str]]:
    """Return right and wrong edges of all cases by class of margin."""
    out: dict[int, Counter[str]] = {}
    for case in cases:
        for one, counts in case.margins.items():
            out.setdefault(one, Counter()).update(counts)
    return dict(sorted(out.items()))


def markdown(cases: Sequence[Case]) -> str:
    """Return the section of the page."""
    seeds = len({case.seed for case in cases})
    lines = [
        HEADING.strip(),
        "",
        f"{seeds} {'bench' if seeds == 1 else 'benches'} a family, of cards drawn at random (`tests/cardbench`,",
        "which shares nothing with the analysis), and of the simulator's own (`random_bench`). Each is analysed from",
        "full AD, from control lines and wire, and from control lines alone; with the card's true profile, with",
        "`generic`, with another card's.",
        "Limits: frames with any wrong value 1 in 10,000 (another card's profile: 1 in 1,000); no row without a frame;",
        "null of the DMA, wire and length values 2 % (true profile) and 8 % (`generic`), without a wire 12 % and 20 %;",
        "of the CSR times 5 %, 15 %, 20 % and 40 %. What lies on a bus or wire that was not captured does not count,",
        "for it cannot be known. Pulls of t_nic and R_PCI are against the truth of the frames that",
        f"were given: mean within ±{PULL_MEAN}, width {PULL_WIDTH[0]} to {PULL_WIDTH[1]} ({PULLS} pulls or more),",
        f"largest below {PULL_LARGEST:g}.",
        "",
        f"Measured at revision {_revision()} of the analysis.",
        "",
        *_kept(cases),
    ]
    for family, found in sums(cases).items():
        lines += ["", f"### {family}", ""]
        lines += ["| capture | profile | frames | wrong | no frame | null | null CSR | pull | width | largest | kept |"]
        lines += ["|" + "---|" * 11, *(one.row() for one in found)]
    return "\n".join([*lines, "", *_calibration_text(cases)]).rstrip() + "\n"


def _revision() -> str:
    told = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return told.stdout.strip() or "unknown"


def _kept(cases: Sequence[Case]) -> list[str]:
    said = failures(cases)
    if not said:
        return ["All limits of these tables are kept."]
    rows = sum(len(found) for found in sums(cases).values())
    return [f"**Limits are not kept in {len(said)} of {rows} rows:**", "", *(f"- {one}" for one in said)]


def _calibration_text(cases: Sequence[Case]) -> list[str]:
    counts = calibrated(cases)
    if not counts:
        return []
    lines = [
        "## Margins",
        "",
        "Share of the edges of frames that are wrong, by their margin (`generic`, weighed runs):",
    ]
    lines += ["here none is null for its margin.", "", "| margin (nats) | edges | wrong | share |", "|---|---|---|---|"]
    for one, count in counts.items():
        low, high = MARGINS[one], MARGINS[one + 1]
        total = count.total()
        name = f"{low:g} to {high:g}" if high < np.inf else f"{low:g} and more"
        lines.append(f"| {name} | {total} | {count['wrong']} | {count['wrong'] / max(total, 1):.2%} |")
    return [*lines, "", "![Share of wrong edges against their margin](margins.svg)"]


def draw(cases: Sequence[Case], path: Path) -> None:
    """Draw the share of wrong edges against the margin, with what the margin itself promises."""
    from matplotlib.figure import Figure

    counts = {one: count for one, count in calibrated(cases).items() if count.total()}
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    at = [(MARGINS[one] + min(MARGINS[one + 1], 30)) / 2 for one in counts]
    share = np.array([count["wrong"] / count.total() for count in counts.values()])
    least = np.array([1 / count.total() for count in counts.values()])
    axes.plot(at, np.maximum(share, least / 3), "o", label="measured; open: none wrong, drawn at a third of one")
    axes.plot([x for x, y in zip(at, share, strict=True) if not y], (least / 3)[share == 0], "o", mfc="white", mec="C0")
    promised = np.linspace(0, 25, 100)
    axes.plot(promised, 1 / (1 + np.exp(promised)), "-", color="0.5", label="1/(1 + exp(margin))")
    axes.axvline(margins.SURE, color="0.7", ls="--", label=f"threshold {margins.SURE:g}")
    axes.set(yscale="log", ylim=(1e-5, 1), xlabel="margin (nats)", ylabel="share of edges that are wrong")
    axes.legend(fontsize=8)
    figure.savefig(path, metadata={"Date": None})


def run_all(families: Sequence[str], seeds: Sequence[int], jobs: int) -> list[Case]:
    """Analyse all benches, with progress on standard error."""
    begin, cases = time.monotonic(), []
    with ProcessPoolExecutor(jobs) as pool:
        todo = [pool.submit(one_bench, family, seed) for seed in seeds for family in families]
        for number, done in enumerate(as_completed(todo), 1):
            found = done.result()
            cases += found
            wrong = sum(case.scored.wrong_frames for case in found if case.scored is not None)
            failed = sum(bool(case.failed) for case in found)
            took = time.monotonic() - begin
            text = f"{found[0].family} {found[0].seed}: {wrong} wrong frames, {failed} not analysed"
            print(f"{number}/{len(todo)} {took:.0f} s {text}", file=sys.stderr, flush=True)
    order = {family: number for number, family in enumerate(families)}
    return sorted(cases, key=lambda case: (order[case.family], case.seed))


def main() -> int:
    """Run, write, judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20, help="benches a family")
    parser.add_argument("--first", type=int, default=100, metavar="SEED")
    parser.add_argument("--families", nargs="*", default=[RANDOM, *FAMILIES], choices=[RANDOM, *FAMILIES])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("-o", "--output", type=Path, help="page whose section is written; default: standard output")
    args = parser.parse_args()
    cases = run_all(args.families, range(args.first, args.first + args.seeds), args.jobs)
    text = markdown(cases)
    if args.output is None:
        print(text, end="")
    else:
        above = args.output.read_text(encoding="utf-8").partition(HEADING)[0] if args.output.exists() else ""
        args.output.write_text(f"{above.rstrip()}\n\n{text}", encoding="utf-8")
        draw(cases, args.output.parent / "margins.svg")
    said = failures(cases)
    print("\n".join(said) or "all limits are kept", file=sys.stderr)
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
