"""A run's files: brought here where they are remote, and their digests."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any

from pcitrace.campaign.errors import CampaignError, reaching
from pcitrace.campaign.options import Options
from pcitrace.campaign.sources import SALEAE
from pcitrace.campaign.storage import Store

__all__ = ["Inputs"]

PIECE = 1 << 20
MIB = 1 << 20


class Inputs:
    """The files of one run, local when they have been brought.

    Parameters
    ----------
    url : str
        A run folder, or a capture.
    scratch : pathlib.Path
        Where copies of remote files go.
    scratch_mib : float
        How much may go there.
    """

    def __init__(self, url: str, scratch: Path, scratch_mib: float) -> None:
        self._store, self._left, self._bound = Store(url), scratch_mib * MIB, scratch_mib
        self._scratch = scratch
        self._digests: dict[str, str] = {}
        self.run: dict[str, Any] = {}
        self.path = self._bring()

    def _bring(self) -> Path:
        """Bring what the run has; return its local place."""
        store = self._store
        if store.info("run.toml") is None:
            told = store.info("")
            if told is None:
                raise CampaignError(f"{store.url}: there is nothing")
            if told["type"] == "directory":
                raise CampaignError(f"{store.url}: an empty run: neither a run.toml nor captures in it")
            # A capture's content counts, not its name, which only has to end as it did.
            name = PurePosixPath(store.root).name
            return self._of_channels(name) if SALEAE.fullmatch(name) else self._file("", name)
        path = self._file("run.toml", "run.toml")
        try:
            self.run = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise CampaignError(f"{store.url}/run.toml: {error}") from error
        for name in self._named():
            self._file(name, name)
        return path.parent

    def _of_channels(self, name: str) -> Path:
        """Bring a capture that has a file a channel; return the local place of the one that was named."""
        self._store = Store(self._store.url.rpartition("/")[0])
        found = {one: self._file(one, one) for one in self._store.files() if SALEAE.fullmatch(one)}
        return found[name]

    def _named(self) -> list[str]:
        """Return the files that run.toml names, and those below folders that it names."""
        texts = {PurePosixPath(text) for text in _texts(self.run)}
        below = {PurePosixPath(name) for name in self._store.files()}
        named = {name for name in below if not texts.isdisjoint((name, *name.parents[:-1]))}
        return sorted(map(str, named | {one for one in texts - below if self._is_file(one)}))

    def _is_file(self, name: PurePosixPath) -> bool:
        """Whether a file is there that is not below the folder, or that its place does not list."""
        if self._store.local:
            with suppress(OSError):  # no name that a file can have
                return Path(self._store.root, name).is_file()
        elif self._store.is_web and name.suffix and not name.is_absolute() and ".." not in name.parts:
            return self._store.info(str(name)) is not None
        return False

    def _file(self, name: str, called: str) -> Path:
        """Bring one file in pieces and note its digest."""
        store, digest = self._store, hashlib.sha256()
        local = Path(store.root, name) if store.local else self._scratch / called
        if not store.local:
            local.parent.mkdir(parents=True, exist_ok=True)
        with reaching(store.path(name)), store.fs.open(str(local) if store.local else store.path(name), "rb") as source:
            if store.local:
                while piece := source.read(PIECE):
                    digest.update(piece)
            else:
                with local.open("wb") as copy:
                    while piece := source.read(PIECE):
                        self._take(len(piece))
                        digest.update(piece)
                        copy.write(piece)
        self._digests[name] = digest.hexdigest()
        return local

    def _take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise CampaignError(
                f"{self._store.url}: its files need more than the {self._bound:g} MiB of the scratch; "
                "give --scratch-mib more, or --scratch a larger disk"
            )

    def key(self, version: str, options: Options) -> str:
        """Return what a result is known by: files, version and options."""
        told = json.dumps([1, version, asdict(options), sorted(self._digests.items())], sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()


def _texts(value: Any) -> Iterator[str]:
    """Every text in a run.toml that may name a file or a folder."""
    if isinstance(value, dict):
        for key, one in value.items():
            if key not in ("simulation", "title"):
                yield from _texts(one)
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, str) and "\0" not in value:
        yield value
