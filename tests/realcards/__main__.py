"""Write, analyse and score runs."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from cardbench.score import CSR, TIMES

from . import DESIGNS, RealBench
from .trial import CAPTURES, Trial, analyse, write


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m realcards", description=__doc__)
    parser.add_argument("design", choices=(*DESIGNS, "all"))
    parser.add_argument("seeds", help="one seed, or FIRST-LAST")
    parser.add_argument("-o", "--output", type=Path, help="keep the runs here")
    parser.add_argument("--kinds", default="vcd,control16", help=f"of {','.join(CAPTURES)}")
    parser.add_argument("--frames", type=int, help="so many, instead of the number drawn")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=JSON", help="instead of what is drawn")
    parser.add_argument("--no-check", action="store_true", help="do not compare each transaction")
    parser.add_argument("--cases", type=int, default=4, help="cases told of each capture")
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    totals: dict[tuple[str, str], Total] = defaultdict(Total)
    for seed in range(int(first), int(last or first) + 1):
        for design in DESIGNS if given.design == "all" else (given.design,):
            one(design, seed, given, totals)
    print(
        f"\n{'design':10} {'capture':10} runs  dma right/null/wrong    csr right/null/wrong"
        "  extra crossed lost failed bells header  s"
    )
    for (design, kind), total in sorted(totals.items()):
        print(f"{design:10} {kind:10} {total.line()}")


@dataclass
class Total:
    """Of all runs of a design in one kind of capture."""

    trials: list[Trial] = field(default_factory=list)

    def line(self) -> str:
        done = [trial.scored for trial in self.trials if trial.scored]
        dma = sum((s.total(*TIMES, "length") for s in done), Counter())
        csr = sum((s.total(*CSR) for s in done), Counter())
        texts = ["/".join(str(c[k]) for k in ("right", "null", "wrong")) for c in (dma, csr)]
        rows = [sum(getattr(s, k) for s in done) for k in ("extra", "crossed", "lost_rx")]
        seconds = [trial.seconds for trial in self.trials]
        failed, bells = sum(bool(t.failed) for t in self.trials), sum(t.bells for t in self.trials)
        headers = sum(t.header for t in self.trials)
        return (
            f"{len(self.trials):4}  {texts[0]:22} {texts[1]:22} {rows[0]:3} {rows[1]:6} {rows[2]:6}"
            f" {failed:5} {bells:5} {headers:6}  {sum(seconds):.0f} (most {max(seconds):.1f})"
        )


def one(design: str, seed: int, given: argparse.Namespace, totals: dict[tuple[str, str], Total]) -> None:
    try:
        over = {key: json.loads(value) for key, _, value in (text.partition("=") for text in given.set)}
        bench = RealBench(DESIGNS[design], seed, given.frames, **over)
    except RuntimeError as error:
        print(f"{design} {seed}: no run ({error})", flush=True)
        return
    d = bench.drawn
    print(
        f"{design} {seed}: {len(bench.frames)} frames, {(bench.end - bench.begin) / 1e6:.2f} ms, {d['rate']} Mbit/s,"
        f" {d['kind']}, sizes {d['sizes']}, thresholds {d['tx_threshold']}/{d['rx_threshold']}, {d['width']} bit",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as work:
        folder = (given.output or Path(work)) / f"{design}-{seed}"
        kinds = tuple(given.kinds.split(","))
        write(bench, folder, kinds)
        for kind in kinds:
            trial = analyse(bench, folder, kind, not given.no_check)
            totals[design, kind].trials.append(trial)
            print("   ", trial.line(), flush=True)
            cases = trial.scored.cases if trial.scored else []
            for case in [*(f"TRUTH? {u}" for u in trial.unlike[:3]), *cases[: given.cases]]:
                print("       ", case, flush=True)


if __name__ == "__main__":
    main()
