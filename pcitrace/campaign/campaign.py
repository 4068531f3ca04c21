"""A campaign: many runs, analysed once each, their results in one place."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import pcitrace
from pcitrace.campaign import layout, sources
from pcitrace.campaign.errors import CampaignError, failure
from pcitrace.campaign.layout import Destination
from pcitrace.campaign.options import Limits, Options
from pcitrace.campaign.sources import Source
from pcitrace.campaign.storage import Store
from pcitrace.campaign.supervise import Task

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Campaign"]

ASKED_AT_ONCE = 16
"""Requests to a storage."""

STATES = ("pending", "running", "done", "failed")


@dataclass(frozen=True)
class _Part:
    """Runs that are analysed with the same options."""

    place: Destination
    options: Options
    found: list[Source]


class Campaign:
    """Runs, and the place where their results are.

    Parameters
    ----------
    patterns : str or sequence of str, optional
        Run folders, captures, folders of such, with ``*`` where wanted; local paths or URLs that fsspec knows. Without
        any: the runs of the campaigns that the destination has.
    destination : str or path
        Folder or URL.
    options : Options, optional
        How each run is analysed; without patterns as they were.
    limits : Limits, optional
        What each may take; without patterns what the newest campaign of the destination gave them.

    Raises
    ------
    CampaignError
        A pattern names no run, a place cannot be reached, or the destination has no campaign and none is begun.

    Examples
    --------
    >>> import tempfile
    >>> Campaign(destination=tempfile.mkdtemp())  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    pcitrace.campaign.errors.CampaignError: ...: no campaign here; `pcitrace campaign run PATTERN -o DEST` begins one
    """

    def __init__(
        self,
        patterns: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] = (),
        destination: str | os.PathLike[str] = "",
        *,
        options: Options | None = None,
        limits: Limits | None = None,
    ) -> None:
        if not str(destination):
            raise CampaignError("a campaign needs a destination for its results")
        self._name = uuid.uuid4().hex
        self.store = Store(os.fspath(destination))
        listed = [patterns] if isinstance(patterns, str | os.PathLike) else list(patterns)
        if listed:
            found = sources.expand([os.fspath(one) for one in listed], leave_out=self.store.url)
            options = options or Options()
            self._parts = [_Part(Destination(self.store, options.by(pcitrace.__version__)), options, found)]
            self.limits = limits or Limits()
        else:
            self._parts, noted = _noted(self.store, options)
            self.limits = limits or noted

    @property
    def runs(self) -> list[str]:
        """Places of the runs."""
        return [source.url for part in self._parts for source in part.found]

    def run(
        self,
        scheduler: str | None = None,
        workers: int | None = None,
        *,
        scratch: str | None = None,
        say: Callable[[str], None] = lambda line: None,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> dict[str, Any]:
        """Analyse what is not done; return the status then.

        Parameters
        ----------
        scheduler : str, optional
            Address of a Dask scheduler; default: processes of this machine.
        workers : int, optional
            How many of these.
        scratch : str, optional
            Folder for temporary files of each worker.
        say : callable, optional
            Told what a user should know meanwhile.
        progress : callable, optional
            Told after each run how many are over, of how many.

        Raises
        ------
        CampaignError
            The scheduler went away or the destination refuses; what is done is kept.
        """
        from pcitrace.campaign import cluster
        from pcitrace.campaign.connection import connect

        self._begin()
        todo = [(part, source) for part in self._parts for source in self._todo(part)]
        total = len(self.runs)
        progress(total - len(todo), total)
        if todo:
            tasks = [self._task(part, source, scratch) for part, source in todo]
            with connect(scheduler, workers, say, [cluster.__name__]) as client:
                found = cluster.gather(client, tasks, self.store.url, say)
                for over, status in enumerate(found, total - len(todo) + 1):
                    if status["state"] == "failed":
                        say(f"failed: {failure(status['run'], status['reason'])}")
                    progress(over, total)
        return self.status()

    def one(self, *, scratch: str | None = None) -> list[dict[str, Any]]:
        """Analyse the runs here, one after the other, without a cluster; return the row of ``status`` of each."""
        from pcitrace.campaign import work

        self._begin()
        tasks = [self._task(part, source, scratch) for part in self._parts for source in part.found]
        found = [work.one(replace(task, patient=False), self.store.url) for task in tasks]
        # What another campaign was at is waited for when there is nothing else to do.
        return [
            work.one(task, self.store.url) if status["state"] == "taken" else status
            for task, status in zip(tasks, found, strict=True)
        ]

    def retry(self) -> list[str]:
        """Make what failed pending again; return the places of these runs. ``run`` does them."""
        self._check()
        again = []
        for part in self._parts:
            markers = part.place.markers()
            for source in part.found:
                if markers.get(source.id, {}).get("state") == "failed":
                    part.place.forget(source.id)
                    again.append(source.url)
        return again

    def status(self) -> dict[str, Any]:
        """Return what ``pcitrace campaign status --json`` prints.

        Returns
        -------
        dict
            ``pending``, ``running``, ``done``, ``failed`` (counts) and ``runs``, each with ``run``, ``state``,
            ``reason``, ``seconds``, ``peak_mib``.
        """
        runs = []
        for part in self._parts:
            markers, leases = part.place.markers(), part.place.leases()
            for source in part.found:
                marker = markers.get(source.id, {})
                state = marker.get("state") or "pending"
                if source.id in leases:
                    state, marker = "running", {}
                told = {key: marker.get(key) for key in ("reason", "seconds", "peak_mib")}
                runs.append({"run": source.url, "state": state, **told})
        return {name: sum(one["state"] == name for one in runs) for name in STATES} | {"runs": runs}

    @property
    def constants(self) -> pd.DataFrame:
        """All numbers of the runs that are done: see :func:`pcitrace.campaign.collect.constants`."""
        from pcitrace.campaign import collect

        return collect.constants(self.parts("constants"))

    def parts(self, table: str) -> Iterator[bytes]:
        """Yield the Parquet parts of a table, of runs that are done."""
        for part in self._parts:
            markers = part.place.markers()
            done = [source for source in part.found if markers.get(source.id, {}).get("state") == "done"]
            for content in _at_once(self.store.read, [part.place.part(table, one.id) for one in done]):
                if content is not None:
                    yield content

    def places(self) -> Iterator[tuple[Destination, Source]]:
        """Yield every run with the place of its results."""
        for part in self._parts:
            for source in part.found:
                yield part.place, source

    def _check(self) -> None:
        """Only what this version began can be gone on with."""
        if any(part.place.by != part.options.by(pcitrace.__version__) for part in self._parts):
            raise CampaignError(
                f"{self.store.url}: its campaigns are of another version of pcitrace: run them with PATTERN again"
            )

    def _begin(self) -> None:
        """Note what is to be done, and how: whoever goes on does it so."""
        self._check()
        said = {"version": pcitrace.__version__, "limits": asdict(self.limits)}
        for part in self._parts:
            part.place.remember([one.url for one in part.found], said | {"options": asdict(part.options)})

    def _todo(self, part: _Part) -> list[Source]:
        markers = part.place.markers()
        stamps = {one: markers.get(one.id, {}).get("stamp") for one in part.found}
        known = {one: stamp for one, stamp in stamps.items() if stamp is not None}
        same = {one for one, now in zip(known, _at_once(sources.stamp, list(known)), strict=True) if known[one] == now}
        return [one for one in part.found if one not in same]

    def _task(self, part: _Part, source: Source, scratch: str | None) -> Task:
        return Task(source.url, pcitrace.__version__, None, part.options, self.limits, scratch, campaign=self._name)

    def __repr__(self) -> str:
        return f"<Campaign of {len(self.runs)} runs in {self.store.url}>"


def _at_once(ask: Callable[[Any], Any], each: Sequence[Any]) -> Iterator[Any]:
    """Yield what a storage answers, in order; many are asked at once, as each answer takes its time."""
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        yield from pool.map(ask, each)


def _noted(store: Store, options: Options | None) -> tuple[list[_Part], Limits]:
    """Return the runs that were noted by the newest version, and their limits.

    With options: the runs that were noted with these. Without any a run that was noted with several counts with those
    of the newest campaign, and once.
    """
    noted = layout.campaigns(store)
    mine = [one for one in noted if one["version"] == noted[-1]["version"]]
    if options is not None:
        mine = [one for one in mine if one["by"] == options.by(one["version"])]
        if not mine:
            raise CampaignError(f"{store.url}: no campaign with these options here; run them with PATTERN")
    newest = {Source(run): one["by"] for one in mine for run in one["runs"]}
    runs: dict[str, list[Source]] = {}
    for source, by in sorted(newest.items()):
        runs.setdefault(by, []).append(source)
    how = {one["by"]: Options(**one.get("options", {})) for one in mine}
    parts = [_Part(Destination(store, by), how[by], found) for by, found in runs.items()]
    return parts, Limits(**mine[-1].get("limits", {}))
