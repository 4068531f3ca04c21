"""The network half against networks drawn at random: pulls of its fits, steps, cover of loss intervals.

    python tools/validate_network.py --seeds 200 --loss-seeds 2000 -o docs/network-validation.md

Prints the page of the site, or writes it; exits with 1 if a limit is not kept. The times are drawn here; nothing of the
analysis is used for them.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pcitrace import network
from pcitrace.network import clocks
from pcitrace.network.changes import bend, jump
from pcitrace.network.delays import delay
from pcitrace.network.lines import line, step
from pcitrace.network.loss import loss_ratio
from pcitrace.network.rates import spacing
from pcitrace.network.sizes import quantile
from pcitrace.network.width import width
from pcitrace.runfolder import CLOCK_EXCHANGES, FRAME_LOG

NAMES = ("request_sent_ns", "request_received_ns", "reply_sent_ns", "reply_received_ns")
SIZES = np.arange(64, 1501)
A, B, CELL, STEP, HEADED_STEP = 0.537, 0.038, 64, 0.035, 0.04
FOUND = ("cells of 64 bytes", "cells of 64 bytes with a header of 1 to 63", "a jump, where it is")
NONE_THERE = ("cells, none there", "a header, none there", "a jump, none there", "a change of slope, none there")
BURSTS = [(None, 0.01, 0.0), (0.002, 0.2, 1.0), (0.002, 0.2, 0.5), (0.005, 0.5, 1.0)]
"""Probability to turn bad and good again, and of a loss while bad; or, first, of independent losses."""


def of_line(random: np.random.Generator) -> dict[str, float]:
    """Return the pulls of a line through medians."""
    sizes = np.array([64, 128, 256, 512, 768, 1024, 1280, 1500])
    medians = [quantile(26.32 + 0.0235 * size + random.normal(0, 1.1, 200), 0.5) for size in sizes]
    found = line(sizes, *np.transpose(medians))
    return {
        "intercept": (found.intercept_us.nominal_value - 26.32) / found.intercept_us.std_dev,
        "slope": (found.slope_us_per_byte.nominal_value - 0.0235) / found.slope_us_per_byte.std_dev,
    }


def of_peak(random: np.random.Generator) -> dict[str, float]:
    """Return the pull of a width that a coarse clock hides."""
    start = random.random(5000) * 2
    value, sigma = width(np.floor((start + random.normal(20, 1.1, 5000)) / 2) * 2, 2.0).sigma_us
    return {"sigma, clock of 2 us": (value - 1.1) / sigma}


def of_latency(random: np.random.Generator) -> dict[str, float]:
    """Return the pulls of what is told of times that have no clock's step to speak of."""
    times = random.normal(20, 1.1, 800)
    found = delay(times, 0.001)
    assert found is not None
    true = {"median": 20.0, "mean": 20.0, "q10": 20 - 1.2816 * 1.1}
    told = {name: found.statistic(name) for name in true}
    return {f"latency, {name}": (value - true[name]) / sigma for name, (value, sigma) in told.items()}


def of_clocks(random: np.random.Generator) -> dict[str, float]:
    """Return the pulls of a clock that is ahead by 12 ms and gains 12.5 us a second, in the middle of the exchanges."""
    count = 300
    sent = np.sort(random.uniform(0, 2e9, count))
    got = sent + 2000 + random.exponential(500, count)
    answered = got + 1500
    back = answered + 2000 + random.exponential(500, count)
    peer = [at + 12e6 + 12.5e-6 * at for at in (got, answered)]
    exchanges = np.zeros(count, CLOCK_EXCHANGES)
    for name, times in zip(NAMES, (sent, *peer, back), strict=True):
        exchanges[name] = np.rint(times)
    [segment] = clocks.fit(1, exchanges).segments
    ahead_us = 12e3 + 12.5e-9 * segment.reference_ns
    return {
        "clock, offset": (segment.offset_us - ahead_us) / segment.offset_sigma_us,
        "clock, drift": (segment.drift_ppm - 12.5) / segment.drift_sigma_ppm,
    }


def of_spacing(random: np.random.Generator) -> dict[str, float]:
    """Return the pulls of times between frames."""
    regular = np.sort(np.arange(2000) * 22_000 + random.normal(0, 300, 2000)).astype(np.int64)
    poisson = np.cumsum(random.exponential(22_000, 2000)).astype(np.int64)
    one, two = spacing(regular), spacing(poisson, "poisson")
    return {"spacing": (one.mean_us - 22) / one.sigma_us, "spacing, Poisson": (two.mean_us - 22) / two.sigma_us}


def of_bend(random: np.random.Generator) -> dict[str, float]:
    """Return the pulls of a line whose slope changes."""
    sizes = np.arange(64, 1501, 40)
    times = 10 + 0.02 * sizes + 0.01 * np.maximum(sizes - 650, 0) + random.normal(0, 0.05, len(sizes))
    found = bend(sizes, times, np.full(len(sizes), 0.05))
    assert found is not None
    pulls = {"change of slope": (found.change_us_per_byte, 0.01), "change of slope, where": (found.at_bytes, 650)}
    pulls |= {"slope below it": (found.line.slope_us_per_byte, 0.02)}
    return {name: (value.nominal_value - true) / value.std_dev for name, (value, true) in pulls.items()}


def of_jump(random: np.random.Generator) -> dict[str, float]:
    """Return the pulls of a line that jumps between two sizes, and whether the place is right."""
    sizes = np.arange(64, 1501, 40)
    flat, sigma = 10 + 0.02 * sizes + random.normal(0, 0.05, len(sizes)), np.full(len(sizes), 0.05)
    found = jump(sizes, flat + 0.5 * (sizes > 650) + 0.002 * np.maximum(sizes - 650, 0), sigma)
    wrong = {"a jump, none there": jump(sizes, flat, sigma), "a change of slope, none there": bend(sizes, flat, sigma)}
    told = {name: float(one is not None) for name, one in wrong.items()}
    if found is None or not found.below_bytes <= 650 < found.beyond_bytes:
        return told | {"a jump, where it is": 0.0}
    pulls = {"jump": (found.change_us, 0.5 + 0.002 * (found.beyond_bytes - 650))}
    pulls |= {"change of slope beyond a jump": (found.change_us_per_byte, 0.002)}
    pulls |= {"slope below a jump": (found.line.slope_us_per_byte, 0.02)}
    told["a jump, where it is"] = 1.0
    return told | {name: (value.nominal_value - true) / value.std_dev for name, (value, true) in pulls.items()}


def of_subtraction(random: np.random.Generator) -> dict[str, float]:
    """Return the pulls of a switch by subtraction of a cable from the path through it."""
    with tempfile.TemporaryDirectory() as name:
        folders = []
        for kind, a, b in (("direct", 26.32, 0.0235), ("switch", 32.439, 0.035)):
            test = 'kind = "ping-pong"\nsizes = [64, 300, 600, 900, 1200, 1500]\n[path]\n' + f'kind = "{kind}"\n'
            logs = {}
            for point, size in enumerate((64, 300, 600, 900, 1200, 1500)):
                out, back = _frames(100, size, 0), _frames(100, size, 1)
                out["send_ns"] = 10**12 + 10**6 * np.arange(100)
                back["receive_ns"] = out["send_ns"] + np.rint(2000 * (a + b * size) + random.normal(0, 300, 100))
                logs |= {(point, "node0", "sent"): out, (point, "node0", "received"): back}
            folders.append(_folder(Path(name) / kind, test, logs))
        [found] = [one.parameters for one in network.of_paths(folders).results if one.kind == "subtraction"]
    true = {"intercept_us": 6.119, "slope_us_per_byte": 0.0115}
    return {
        f"switch by subtraction, {name.split('_')[0]}": (found[name].value - value) / found[name].sigma
        for name, value in true.items()
    }


def of_sweep(random: np.random.Generator) -> dict[str, float]:
    """Return the pulls of the floor of a latency and the least time between frames: 30 us and 20 us."""
    pulls = {}
    for arrivals, label in (("regular", ""), ("poisson", ", Poisson")):
        with tempfile.TemporaryDirectory() as name:
            for spacing_us in (12, 16, 24, 50, 200):
                gaps = random.exponential(spacing_us, 1000) if arrivals == "poisson" else np.full(1000, spacing_us)
                out = _frames(1000, 1000, 0)
                out["send_ns"] = 10**12 + np.rint(1000 * np.cumsum(gaps))
                queue = 20_000.0 * np.arange(1000)
                leaves = np.maximum.accumulate(out["send_ns"] - queue) + queue
                came = out.copy()
                came["receive_ns"] = np.rint(leaves + random.normal(30_000, 300, 1000))
                came["receive_ns"] = np.maximum.accumulate(came["receive_ns"])
                test = f'kind = "stream"\nsizes = [1000]\nspacing_us = {spacing_us}\narrivals = "{arrivals}"\n'
                logs = {(0, "node0", "sent"): out, (0, "node1", "received"): came}
                _folder(Path(name) / f"s{spacing_us}", test, logs, _exchanges(random, 10**12))
            [result] = network.of_paths([name]).results
        for key, true in (("floor_us", 30.0), ("knee_us", 20.0)):
            found = result.parameters[key]
            pulls[f"{key.removesuffix('_us')} of a sweep{label}"] = (found.value - true) / found.sigma
    return pulls


def _frames(count: int, length: int, node: int) -> np.ndarray:
    """Return records of frames without times."""
    frames = np.zeros(count, FRAME_LOG)
    frames["sequence"], frames["length_bytes"], frames["stream"], frames["node"] = np.arange(count), length, 1, node
    frames["send_ns"] = frames["receive_ns"] = np.iinfo(np.int64).min
    return frames


def _exchanges(random: np.random.Generator, begin_ns: int) -> np.ndarray:
    """Return exchanges between two clocks that are alike."""
    times = np.sort(random.uniform(0, 1e9, 300))
    exchanges = np.zeros(300, CLOCK_EXCHANGES)
    for name, after in zip(NAMES, (0, 2000, 1500, 2000), strict=True):
        times = times + after + (random.exponential(500, 300) if after == 2000 else 0)
        exchanges[name] = begin_ns + np.rint(times).astype(np.int64)
    return exchanges


def _folder(
    path: Path, test: str, logs: dict[tuple[int, str, str], np.ndarray], exchanges: np.ndarray | None = None
) -> Path:
    """Write a run folder of two hosts."""
    path.mkdir()
    run = 'format = 2\norigin = "simulated"\n[simulation]\npreset = "validate"\nseed = 0\n[simulation.parameters]\n'
    run += f"[hosts.node0]\nnode = 0\n[hosts.node1]\nnode = 1\n[test]\n{test}"
    for (point, host, kind), records in logs.items():
        file = f"p{point:03}-{host}-{kind}.npy"
        np.save(path / file, records)
        run += f'[[frame_logs]]\nfile = "{file}"\nhost = "{host}"\nkind = "{kind}"\npoint = {point}\n'
    if exchanges is not None:
        np.save(path / "clock.npy", exchanges)
        run += '[[clock_exchanges]]\nfile = "clock.npy"\nhost = "node1"\nreference = "node0"\n'
    (path / "run.toml").write_text(run, encoding="utf-8")
    return path


def of_step(random: np.random.Generator) -> dict[str, float]:
    """Return whether cells are found, with a header or without, and where none are, and the pulls of their step."""
    noise = random.normal(0, 0.05, len(SIZES))
    sigma = np.full(len(SIZES), 0.05)
    flat = step(SIZES, A + B * SIZES + noise, sigma)
    found = step(SIZES, A + B * SIZES + ((SIZES - 1) // CELL) * STEP + noise, sigma)
    right = found.step_bytes is not None and found.step_bytes.nominal_value == CELL
    pulls = {"cells of 64 bytes": float(right), "cells, none there": float(flat.found)}
    pulls["a header, none there"] = float(found.early_bytes > 0)
    header = int(random.integers(1, CELL))
    begun = step(SIZES, A + B * SIZES + ((SIZES - 1 + header) // CELL) * HEADED_STEP + noise, sigma)
    headed = begun.step_bytes is not None and begun.step_bytes.nominal_value == CELL
    pulls["cells of 64 bytes with a header of 1 to 63"] = float(headed)
    for name, one, true in (("step", found, STEP), ("step of cells with a header", begun, HEADED_STEP)):
        if one.step_us is not None and (right if one is found else headed):
            pulls[name] = (one.step_us.nominal_value - true) / one.step_us.std_dev
    return pulls


def lost(random: np.random.Generator, frames: int, to_bad: float | None, to_good: float, share: float) -> np.ndarray:
    """Return the places of lost frames."""
    if to_bad is None:
        return np.flatnonzero(random.random(frames) < to_good)
    bad, state, at = np.zeros(frames, bool), random.random() < to_bad / (to_bad + to_good), 0
    while at < frames:
        stay = random.geometric(to_good if state else to_bad)
        bad[at : at + stay] = state
        at, state = at + stay, not state
    return np.flatnonzero(bad & (random.random(frames) < share))


def cover(seeds: int, frames: int, channel: tuple[float | None, float, float]) -> tuple[float, float]:
    """Return the share of intervals that hold the truth, and their mean width over that with the channel known."""
    to_bad, to_good, share = channel
    truth = to_good if to_bad is None else share * to_bad / (to_bad + to_good)
    held, widths, ratios = 0, [], []
    for seed in range(seeds):
        found = loss_ratio(lost(np.random.default_rng(seed), frames, *channel), frames)
        held += found.low <= truth <= found.high
        widths.append(found.high - found.low)
        ratios.append(found.value)
    return held / seeds, float(np.mean(widths) / (2 * 1.96 * np.std(ratios)))


PAGE = """# The network half against known truth

{seeds} networks drawn at random and {loss_seeds} of each kind of loss, made by `make validate`
(`tools/validate_network.py`). The times are drawn there; nothing of the analysis is used for them. A pull is
(found - true) / sigma: its mean must lie within ±0.2 and its width between 0.8 and 1.2.

| fitted | mean of pulls | width of pulls |
|---|---|---|
{pulls}

What is looked for, in how many of {seeds} it was found: of what is there {least_right} are required, of what is not
{most_wrong} allowed (tests at 1 %). Cells: sizes 64 to 1500 in steps of a byte, sigma 0.05 µs, {step} µs a cell;
{headed} where they begin with a header, any of 1 to 63 bytes, which at {step} is just too little to be found so often.
Jumps: sizes in steps of 40 bytes, half a µs.

| looked for | found |
|---|---|
{found}

Intervals of 95 % for the probability of a loss, 10,000 frames each; required are 93 % that hold the truth, and a mean
width of at most 1.5 times that with the channel known.

| losses | hold the truth | mean width |
|---|---|---|
{losses}

{verdict}
"""


def main() -> int:
    """Draw, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--loss-seeds", type=int, default=2000)
    parser.add_argument("-o", "--output", type=Path, help="page to write; without it, it is printed")
    args = parser.parse_args()
    pulls: dict[str, list[float]] = {}
    makers: tuple[Callable[[np.random.Generator], dict[str, float]], ...]
    makers = (of_line, of_bend, of_jump, of_subtraction, of_peak, of_latency, of_clocks, of_spacing, of_sweep, of_step)
    for seed in range(args.seeds):
        for make in makers:
            for name, value in make(np.random.default_rng(seed)).items():
                pulls.setdefault(name, []).append(value)
    limits = {"least_right": math.ceil(0.98 * args.seeds), "most_wrong": int(0.04 * args.seeds)}
    counts = {name: int(sum(pulls.pop(name))) for name in (*FOUND, *NONE_THERE)}
    kept = all(counts[name] >= limits["least_right"] for name in FOUND)
    kept &= all(counts[name] <= limits["most_wrong"] for name in NONE_THERE)
    counted = "\n".join(f"| {name} | {count} |" for name, count in counts.items())
    rows, losses = [], []
    for name, values in pulls.items():
        mean, scatter = float(np.mean(values)), float(np.std(values))
        kept &= abs(mean) <= 0.2 and 0.8 <= scatter <= 1.2
        rows.append(f"| {name} | {mean:+.3f} | {scatter:.3f} |")
    for channel in BURSTS:
        share, wide = cover(args.loss_seeds, 10_000, channel)
        kept &= share >= 0.93 and wide <= 1.5
        losses.append(f"| {_channel(*channel)} | {100 * share:.1f} % | {wide:.2f} |")
    verdict = "All limits are kept." if kept else "**A limit is not kept.**"
    text = {"pulls": "\n".join(rows), "losses": "\n".join(losses), "verdict": verdict, "found": counted}
    numbers = {"step": STEP, "headed": HEADED_STEP, "seeds": args.seeds, "loss_seeds": args.loss_seeds}
    page = PAGE.format(**numbers, **limits, **text)
    if args.output is None:
        print(page)
    else:
        args.output.write_text(page, encoding="utf-8")
    return 0 if kept else 1


def _channel(to_bad: float | None, to_good: float, share: float) -> str:
    if to_bad is None:
        return f"independent, {to_good:g}"
    return f"bursts of {1 / to_good:g} frames, {share:g} of them lost, {share * to_bad / (to_bad + to_good):.2g} in all"


if __name__ == "__main__":
    sys.exit(main())
