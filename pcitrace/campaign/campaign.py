"""A campaign: many runs, analysed once each, their results in one place."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pcitrace
from pcitrace.campaign import layout, sources
from pcitrace.campaign.errors import CampaignError
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
        How each run is analysed.
    limits : Limits, optional
        What each may take.

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
        self.limits = limits or Limits()
        self._name = uuid.uuid4().hex
        self.store = Store(os.fspath(destination))
        self.options = options or Options()
        listed = [patterns] if isinstance(patterns, str | os.PathLike) else list(patterns)
        if listed:
            found = sources.expand([os.fspath(one) for one in listed], leave_out=self.store.url)
            self._places = [(Destination(self.store, self.options.by(pcitrace.__version__)), found)]
        else:
            self._places = _noted(self.store)

    @property
    def runs(self) -> list[str]:
        """Places of the runs."""
        return [source.url for _, found in self._places for source in found]

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

        place, found = self._one_place()
        place.remember([source.url for source in found], {"version": pcitrace.__version__})
        todo = self._todo(place, found)
        total = len(found)
        progress(total - len(todo), total)
        if todo:
            tasks = [self._task(source, scratch) for source in todo]
            with connect(scheduler, workers, say, [cluster.__name__]) as client:
                for over, status in enumerate(cluster.gather(client, tasks, self.store.url), total - len(todo) + 1):
                    if status["state"] == "failed":
                        say(f"failed: {status['run']}: {status['reason'].removeprefix(status['run'] + ': ')}")
                    progress(over, total)
        return self.status()

    def one(self, *, scratch: str | None = None) -> list[dict[str, Any]]:
        """Analyse the runs here, one after the other, without a cluster; return the row of ``status`` of each."""
        from pcitrace.campaign import work

        place, found = self._one_place()
        place.remember([source.url for source in found], {"version": pcitrace.__version__})
        return [work.one(self._task(source, scratch), self.store.url) for source in found]

    def retry(self) -> list[str]:
        """Make what failed pending again; return the places of these runs. ``run`` does them."""
        again = []
        for place, found in self._places:
            markers = place.markers()
            for source in found:
                if markers.get(source.id, {}).get("state") == "failed":
                    place.forget(source.id)
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
        for place, found in self._places:
            markers, leases = place.markers(), place.leases()
            for source in found:
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
        for place, found in self._places:
            markers = place.markers()
            done = [source for source in found if markers.get(source.id, {}).get("state") == "done"]
            for part in _at_once(self.store.read, [place.part(table, one.id) for one in done]):
                if part is not None:
                    yield part

    def places(self) -> Iterator[tuple[Destination, Source]]:
        """Yield every run with the place of its results."""
        for place, found in self._places:
            for source in found:
                yield place, source

    def _one_place(self) -> tuple[Destination, list[Source]]:
        by = self.options.by(pcitrace.__version__)
        found = [each for place, listed in self._places if place.by == by for each in listed]
        if not found:
            raise CampaignError(
                f"{self.store.url}: its campaigns are of another version of pcitrace or of other options: "
                "run it with PATTERN and these options again"
            )
        return Destination(self.store, by), found

    def _todo(self, place: Destination, found: Sequence[Source]) -> list[Source]:
        markers = place.markers()
        known = {one: markers[one.id]["stamp"] for one in found if markers.get(one.id, {}).get("stamp") is not None}
        same = {one for one, now in zip(known, _at_once(sources.stamp, list(known)), strict=True) if known[one] == now}
        return [one for one in found if one not in same]

    def _task(self, source: Source, scratch: str | None) -> Task:
        return Task(source.url, pcitrace.__version__, None, self.options, self.limits, scratch, campaign=self._name)

    def __repr__(self) -> str:
        return f"<Campaign of {len(self.runs)} runs in {self.store.url}>"


def _at_once(ask: Callable[[Any], Any], each: Sequence[Any]) -> Iterator[Any]:
    """Yield what a storage answers, in order; many are asked at once, as each answer takes its time."""
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        yield from pool.map(ask, each)


def _noted(store: Store) -> list[tuple[Destination, list[Source]]]:
    """Return the places of the newest version, with the runs that were noted there."""
    noted = layout.campaigns(store)
    version = noted[-1]["version"]
    by: dict[str, set[Source]] = {}
    for one in noted:
        if one["version"] == version:
            by.setdefault(one["by"], set()).update(map(Source, one["runs"]))
    return [(Destination(store, name), sorted(found)) for name, found in by.items()]
