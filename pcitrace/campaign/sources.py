"""Which runs a campaign has: patterns to places, and what tells that a place has changed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from pcitrace.campaign.errors import CampaignError, reaching
from pcitrace.campaign.storage import Store

__all__ = ["Source", "expand", "stamp"]

CAPTURES = (".sr", ".vcd", ".vcd.gz", ".fst", ".ghw", ".csv", ".dsl", ".bin")
"""Ends of names by which captures are found in a folder; a file that is named itself may be called anything."""

PARTIAL = ".partial"
"""End of the names of run folders that pcicap is recording; it renames them when they are whole."""

SALEAE = re.compile(r"digital_(0|[1-9]\d*)\.bin")
"""Names of the files of one capture, which has one a channel; ref: Saleae, "Binary Export Format"."""


@dataclass(frozen=True, order=True)
class Source:
    """A run folder or a capture.

    Attributes
    ----------
    url : str
        Where it is: an absolute path, or a URL.
    """

    url: str

    @property
    def id(self) -> str:
        """A name for files: the last part of the place, and a hash of the whole."""
        last = self.url.rstrip("/").rpartition("/")[2]
        plain = "".join(sign if sign.isalnum() or sign in "-." else "-" for sign in last)[:60]
        return f"{plain}-{hashlib.sha256(self.url.encode()).hexdigest()[:10]}"


def expand(patterns: Iterable[str], leave_out: str = "") -> list[Source]:
    """Return the runs that patterns name, in order of their places.

    Parameters
    ----------
    patterns : iterable of str
        Run folders, captures, folders of such, each with ``*`` where wanted, local or as URLs.
    leave_out : str
        The destination, which may lie in the same folder.

    Raises
    ------
    CampaignError
        A pattern names nothing, its place cannot be reached, or a name is no text.
    """
    found: set[str] = set()
    for pattern in patterns:
        if not pattern.strip():
            raise CampaignError(f"{pattern!r} names no run: write . for the folder where you are")
        here = {url for match in _matches(pattern) for url in _runs(match)}
        all_of_it = here
        here = {url for url in here if not f"{url}/".startswith(f"{leave_out}/")} if leave_out else here
        if all_of_it and not here:
            raise CampaignError(f"{pattern}: all its runs lie in the destination: choose another for the results")
        if not here:
            raise CampaignError(f"{pattern}: no run folder and no capture; is the path right?")
        here = {url for url in here if not url.endswith(PARTIAL) or url == Store(pattern).url}
        if not here:
            raise CampaignError(f"{pattern}: all its runs are being recorded, or were not ended: see pcicap recover")
        found |= here
    for url in found:
        if any("\ud800" <= sign <= "\udfff" for sign in url):
            raise CampaignError(f"{url!a}: its name is not UTF-8: rename it")
    return [Source(url) for url in sorted(_one_a_capture(found))]


def _matches(pattern: str) -> list[Store]:
    store = Store(pattern, once=True)
    signs = "*[?" if store.local else "*["  # a ? begins the query of an address
    if not store.local and not store.is_web:
        # One listing of all, as each request to a bucket takes its time.
        plain = re.split(f"[{re.escape(signs)}]", store.root)
        store.list_all(plain[0].rpartition("/")[0] if len(plain) > 1 else store.root)
    if not any(sign in pattern for sign in signs) or store.info(""):
        return [store] if store.info("") or store.info("run.toml") else []
    with reaching(pattern):
        return [store.at(str(path)) for path in store.fs.glob(store.root)]


def _runs(store: Store, depth: int = 2) -> list[str]:
    """Return the runs that a place holds: itself, or those below it, as of a sweep; none where results stand.

    What cannot be read of a local disk is a run: it fails alone, with its reason. A bucket that refuses, refuses all.
    """
    try:
        return _inside(store, depth)
    except CampaignError as error:
        if store.local and isinstance(error.__cause__, OSError):
            return [store.url]
        raise


def _inside(store: Store, depth: int) -> list[str]:
    if store.info("run.toml"):
        return [store.url]
    told = store.info("")
    if told is None:
        return []
    if told["type"] != "directory" and told.get("mimetype") != "text/html":  # a folder of a web server is a page
        return [store.url]
    if store.info("campaigns") and (store.info("markers") or store.info("leases")):
        return []  # results of a campaign
    with reaching(store.url):
        try:
            listed = store.fs.ls(store.root, detail=True)
        except FileNotFoundError:  # it vanishes just now, or is the empty object of a folder
            listed = []
    below = [one for one in listed if _last(one["name"])[:1] not in ("", ".")]
    found: list[str] = []
    for one in below:
        inner = store.at(str(one["name"]))
        if one["type"] == "directory" and depth:
            found += _runs(inner, depth - 1)
        elif one["name"].endswith(CAPTURES):
            found.append(inner.url)
    return found or [store.url]


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def stamp(source: Source) -> str | None:
    """Return what changes when a run's files change, without reading them; None where nothing tells.

    Local files: size, times and number of the file. Objects: size and ETag. What has the stamp of the last time is not
    read again; what has another is, and its digests decide.
    """
    store = Store(source.url)
    listed = store.files()
    if SALEAE.fullmatch(_last(source.url)):
        around = Store(source.url.rpartition("/")[0]).files()
        listed = {name: told for name, told in around.items() if SALEAE.fullmatch(name)}
    if not store.local and not any("etag" in key.lower() for told in listed.values() for key in told):
        return None
    return hashlib.sha256(json.dumps(sorted(listed.items())).encode()).hexdigest()


def _one_a_capture(urls: Iterable[str]) -> set[str]:
    """Return places without the further files of captures that have a file a channel."""
    found: set[str] = set()
    first: dict[str, tuple[int, str]] = {}
    for url in urls:
        channel = SALEAE.fullmatch(_last(url))
        if channel is None:
            found.add(url)
        else:
            folder, one = url.rpartition("/")[0], (int(channel[1]), url)
            first[folder] = min(first.get(folder, one), one)
    return found | {url for _, url in first.values()}
