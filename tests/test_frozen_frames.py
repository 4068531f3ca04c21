"""Every value of the frames of many captures is what it was: a change of one is seen, and explained.

`golden_frames/` holds the frames as they were given, a line each. Where a change of the analysis gives others, a test
names each frame that differs. `pytest tests/test_frozen_frames.py --update-golden` writes the new ones; what changed
and why then goes into `golden_frames/CHANGES.md`, without which the last test fails.

The files say what is given, not what is true. Of generated cards both are compared: nothing that is kept is wrong.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pandas as pd
import pytest
from cardbench import FAMILIES, Bench, score, write
from conftest import shared_dir
from nicruns import PROFILES, run_folder

import pcitrace
from pcitrace import analysis
from pcitrace.simulate import PRESETS, simulate

GOLDEN = Path(__file__).parent / "golden_frames"
CHANGES = GOLDEN / "CHANGES.md"
SEED, FRAMES = 1, 16
EDGES = ("dma_start_us", "dma_end_us", "wire_start_us", "wire_end_us", "rx_dma_start_us", "rx_dma_end_us")
COLUMNS = ("sender", "length_bytes", *EDGES, "csr_first_us", "csr_last_us", "csr_done_us")
CARDS = (
    "cacheline", "csr-descriptors", "cut-through", "other-master", "overload", "reread", "ring", "scatter-gather",
    "tiny", "wide66",
)  # fmt: skip
WAYS = {"vcd-generic": ("run.toml", "generic"), "control16-own": ("run-control16.toml", None)}
"""How a card's capture is read: its run file, and the profile; None for the one that it names."""


def lines(frames: pd.DataFrame) -> list[str]:
    """Return the frames as they are kept, times in ns."""
    table = frames[list(COLUMNS)].copy()
    for column in COLUMNS[2:]:
        table[column] = (table[column].astype("Float64") * 1000).round().astype("Int64")
    return table.to_csv(index=False).replace("_us,", "_ns,").replace("_us\n", "_ns\n").splitlines()


def compare(name: str, frames: pd.DataFrame, update: bool, told: str = "") -> None:
    """Compare the frames with what is kept under a name, or keep them."""
    file, found = GOLDEN / f"{name}.csv", lines(frames)
    if update:
        GOLDEN.mkdir(exist_ok=True)
        file.write_text("\n".join(found) + "\n", encoding="utf-8")
    kept = file.read_text(encoding="utf-8").splitlines()
    differ = [
        f"frame {n - 1}: {old} -> {new}" for n, (old, new) in enumerate(zip(kept, found, strict=False)) if old != new
    ]
    assert len(kept) == len(found), f"{name}: {len(found) - 1} frames, not {len(kept) - 1}; {told}"
    assert not differ, "\n".join([f"{name}: {len(differ)} frames differ; {told}", kept[0], *differ])


def given(run: Path, profile: str | None = None) -> pd.DataFrame:
    """Return the frames of a run, by a profile or, for None, by the one that it names."""
    return analysis.frames(pcitrace.open(run), profile=profile).table


def in_a_way(folder: Path, at: Path, way: str) -> pd.DataFrame:
    """Read what was captured of a card in one way, and return the frames; `at` is made the run folder."""
    file, profile = WAYS[way]
    at.mkdir(exist_ok=True)
    for one in folder.iterdir():
        if not one.name.startswith("run"):
            (at / one.name).symlink_to(one)
    (at / "run.toml").symlink_to(folder / file)
    return given(at, profile)


@pytest.mark.parametrize("family", FAMILIES)
def test_generated_cards(family: str, tmp_path: Path, update_golden: bool) -> None:
    bench = Bench(family, SEED, FRAMES)
    write(bench, tmp_path / "bench")
    for way in WAYS:
        frames = in_a_way(tmp_path / "bench", tmp_path / way, way)
        scored = score(bench, frames, way.split("-")[0])
        assert scored.clean, scored.cases
        compare(f"cardbench-{family}.{way}", frames, update_golden, f"{dict(scored.total())} now")


@pytest.mark.parametrize("card", CARDS)
def test_cards_of_another_maker(card: str, tmp_path: Path, update_golden: bool) -> None:
    for way in WAYS:
        frames = in_a_way(shared_dir() / "traces" / f"card_{card}", tmp_path / way, way)
        compare(f"card_{card}.{way}", frames, update_golden)


@pytest.mark.parametrize("trace", PROFILES)
def test_traces_of_cards(trace: str, tmp_path: Path, update_golden: bool) -> None:
    run = run_folder(tmp_path / "run", shared_dir() / "traces" / trace, "bus.vcd.gz", "generic")
    compare(f"{trace}.vcd-generic", given(run), update_golden)


@pytest.mark.parametrize("wires", ["full", "control16"])
@pytest.mark.parametrize("preset", PRESETS)
def test_presets(preset: str, wires: str, tmp_path: Path, update_golden: bool) -> None:
    simulate(preset, tmp_path, values={"test.count": FRAMES, "analyser.wires": wires})
    compare(f"{preset}.{wires}", given(tmp_path), update_golden)


def kept() -> str:
    """Return a digest of all that is kept."""
    whole = hashlib.sha256()
    for file in sorted(GOLDEN.glob("*.csv")):
        whole.update(file.name.encode() + file.read_bytes())
    return whole.hexdigest()[:12]


def test_nothing_else_is_kept() -> None:
    runs = [
        f"{kind}{name}.{way}"
        for kind, names in (("cardbench-", FAMILIES), ("card_", CARDS))
        for name in names
        for way in WAYS
    ]
    runs += [f"{trace}.vcd-generic" for trace in PROFILES]
    runs += [f"{preset}.{wires}" for preset in PRESETS for wires in ("full", "control16")]
    assert {file.stem for file in GOLDEN.glob("*.csv")} == set(runs)


def test_every_change_is_explained() -> None:
    """The newest heading of CHANGES.md is the digest of what is kept, and says why it is so."""
    newest = re.search(r"^## ([0-9a-f]+)$\n\n(.+)", CHANGES.read_text(encoding="utf-8"), re.MULTILINE)
    assert newest is not None, f"{CHANGES.name} explains nothing"
    assert newest.group(1) == kept(), f"say in {CHANGES.name}, under `## {kept()}`, what changed and why"
