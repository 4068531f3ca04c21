"""A sweep: a run folder a point, resumable."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from pcicap import runfolder
from pcicap.errors import RunFolderError
from pcicap.plan import Plan, points
from pcicap.progress import Progress
from pcicap.record import record


def record_sweep(plan: Plan, plan_folder: Path, target: Path, progress: Progress) -> str | None:
    """Record every point that is not complete yet.

    Parameters
    ----------
    plan : Plan
        With a sweep.
    plan_folder : Path
        What paths in the plan are relative to.
    target : Path
        Folder of the sweep; an existing one of the same plan is continued.
    progress : Progress
        Where to say what happens.

    Returns
    -------
    str or None
        Why the first incomplete point is incomplete; the sweep ends there. None when all are complete.

    Raises
    ------
    RunFolderError
        The folder belongs to another plan.
    """
    assert plan.sweep
    copy = target / "plan.toml"
    if copy.is_file() and copy.read_text(encoding="utf-8") != plan.text:
        raise RunFolderError(f"{target}: holds a sweep of another plan; choose another name, or take plan.toml from it")
    if target.exists() and not copy.is_file():
        raise RunFolderError(f"{target}: exists and is no sweep; choose another name")
    target.mkdir(parents=True, exist_ok=True)
    copy.write_text(plan.text, encoding="utf-8")
    todo = points(plan, plan_folder)
    for number, (value, point) in enumerate(todo):
        folder = target / point_name(number, len(todo), value)
        if (unfinished := runfolder.partial(folder)).is_dir():
            runfolder.recover(unfinished)
        if _done(folder):
            progress.step(f"{folder}: complete already")
            continue
        _set_aside(folder)
        progress.step(f"point {number + 1} of {len(todo)}: {plan.sweep.key} = {value}")
        entry = {"key": plan.sweep.key, "value": value, "point": number, "points": len(todo)}
        if reason := record(point, folder, progress, entry):
            return f"point {number + 1} of {len(todo)}: {reason}"
    return None


def point_name(number: int, total: int, value: Any) -> str:
    """Folder of a point.

    Examples
    --------
    >>> point_name(3, 12, 12.5), point_name(0, 2, "64:1500:1")
    ('03-12.5', '0-64_1500_1')
    """
    slug = re.sub(r"[^A-Za-z0-9.+-]+", "_", str(value)).strip("_")[:40]
    return f"{number:0{len(str(total - 1))}d}-{slug}"


def _done(folder: Path) -> bool:
    """Whether a point was recorded whole."""
    if not (folder / "run.toml").is_file():
        return False
    return bool(tomllib.loads((folder / "run.toml").read_text(encoding="utf-8")).get("complete", True))


def _set_aside(folder: Path) -> None:
    """Keep what an earlier attempt at a point left, under another name."""
    if not folder.exists():
        return
    attempt = 1
    while (aside := folder.with_name(f"{folder.name}.incomplete-{attempt}")).exists():
        attempt += 1
    folder.rename(aside)
