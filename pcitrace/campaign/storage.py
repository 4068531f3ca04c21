"""A folder or bucket through fsspec: the few things that a campaign does with one.

On a local disk a file appears under its name only when it is whole (written beside it, then renamed). An object store
shows an object only when it is whole, and cannot rename: there it is put once. HTTP is read only.
"""

from __future__ import annotations

import copy
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pcitrace.campaign.errors import CampaignError, DestinationError, needs, reaching, writing

__all__ = ["Store"]

TELLING = ("size", "ETag", "etag", "LastModified", "updated")
"""What storages tell of an object that changes when it does."""


@contextmanager
def _beside(path: str, content: bytes) -> Iterator[str]:
    """Write a file under a name of its own beside a local one; what is left of it goes."""
    folder, _, file = path.rpartition("/")
    os.makedirs(folder, exist_ok=True)  # noqa: PTH103
    beside = f"{folder}/.{file}.{uuid.uuid4().hex[:8]}"
    try:
        with open(beside, "wb") as out:  # noqa: PTH123
            out.write(content)
        yield beside
    finally:
        with suppress(FileNotFoundError):
            os.unlink(beside)  # noqa: PTH108


def _is_there(error: OSError) -> bool:
    """Whether a store refused a put on condition: S3 says PreconditionFailed, or a conflict while another puts it."""
    response = getattr(error.__cause__, "response", None) or {}
    return response.get("Error", {}).get("Code") in ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")


def _below(root: str) -> Iterator[str]:
    """Yield the names of files below a local folder, also behind links, from the root on; "" if it is a file."""
    if not os.path.isdir(root):  # noqa: PTH112
        yield ""
    seen = set()
    for folder, folders, files in os.walk(root, followlinks=True):
        place = os.path.realpath(folder)
        if place in seen:
            folders.clear()
            continue
        seen.add(place)
        yield from (f"{folder}/{name}"[len(root) + 1 :] for name in files)


def _one_name(path: str) -> str:
    """Return the name of a local file that it has however it is written, but for links: a run is known by it."""
    return os.path.realpath(path) if ".." in path.split("/") else os.path.normpath(path)


def _stat(path: str) -> dict[str, int]:
    try:
        told = os.stat(path)  # noqa: PTH116
    except OSError:
        return {}
    return {"size": told.st_size, "mtime": told.st_mtime_ns, "ctime": told.st_ctime_ns, "number": told.st_ino}


class Store:
    """A place below which files are named with ``/``.

    Parameters
    ----------
    url : str
        A local path, or ``s3://bucket/prefix``, ``gs://``, ``http://`` ... as fsspec knows them.
    once : bool
        Whether what was listed once is not asked for again: what changes meanwhile is not seen.
    """

    def __init__(self, url: str, once: bool = False) -> None:
        with needs("a campaign"):
            import fsspec
        with reaching(url):
            if "://" in url:
                self.fs, root = fsspec.url_to_fs(url, use_listings_cache=once, skip_instance_cache=once)
            else:  # fsspec would take a :: in it for an address
                self.fs = fsspec.filesystem("file")
                root = self.fs._strip_protocol(url)
        self.local = "file" in self.fs.protocol if not isinstance(self.fs.protocol, str) else self.fs.protocol == "file"
        self._go(str(root))

    def _go(self, root: str) -> None:
        self.root = _one_name(root) if self.local else root.rstrip("/")
        self.url = self.root if self.local else str(self.fs.unstrip_protocol(self.root))

    def at(self, path: str) -> Store:
        """Return another place of the same file system, by its name of it."""
        other = copy.copy(self)
        other._go(path)
        return other

    def path(self, name: str) -> str:
        """Return the file system's own name of a file."""
        return f"{self.root}/{name}" if name else self.root

    def read(self, name: str) -> bytes | None:
        """Return a file's content; None if it is not there."""
        with reaching(f"{self.url}/{name}"):
            try:
                return bytes(self.fs.cat_file(self.path(name)))
            except (FileNotFoundError, NotADirectoryError):
                return None

    def read_all(self, folder: str) -> dict[str, bytes]:
        """Return the files below a folder, by their names from the root on."""
        with reaching(f"{self.url}/{folder}"):
            try:
                names = [name for name in self.fs.find(self.path(folder)) if "/." not in name[len(self.root) :]]
            except (FileNotFoundError, NotADirectoryError):
                return {}
            # All at once; `cat` would take a [ in a name for a pattern.
            contents = self.fs.cat_ranges(names, None, None, on_error="return") if names else []
            found = {}
            for name, content in zip(names, contents, strict=True):
                if isinstance(content, bytes):
                    found[name[len(self.root) + 1 :]] = content
                elif not isinstance(content, FileNotFoundError):  # one that vanishes meanwhile was not there
                    raise content
        return found

    def files(self) -> dict[str, dict[str, Any]]:
        """Return the files below, by their names from the root on, each with what changes when it does.

        Of one that is a link to nothing nothing is told. A web server may list nothing.
        """
        if self.local:
            return {name: _stat(f"{self.root}/{name}" if name else self.root) for name in _below(self.root)}
        try:
            with reaching(self.url):
                found = self.fs.find(self.root, detail=True) or {}
        except CampaignError as error:
            if self.is_web or isinstance(error.__cause__, FileNotFoundError):
                return {}
            raise
        names = {path[len(self.root) + 1 :]: told for path, told in found.items()}
        return {name: {key: str(told[key]) for key in TELLING if key in told} for name, told in names.items()}

    def list_all(self, folder: str) -> None:
        """Ask a storage for all that is below a folder, with as few requests as it takes, to answer from then on.

        Of no use for a place that does not keep what was listed.
        """
        with reaching(self.url), suppress(FileNotFoundError):
            self.fs.find(folder)

    @property
    def is_web(self) -> bool:
        """Whether it is a web server, which gives files and takes none."""
        return self.url.startswith(("http://", "https://"))

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        if self.is_web:
            raise DestinationError(f"{self.url}: a web server takes no results: name a folder or a bucket")
        with writing(f"{self.url}/{name}"):
            yield

    def write(self, name: str, content: bytes) -> None:
        """Write a file, which appears when it is whole."""
        with self._writing(name):
            path = self.path(name)
            if not self.local:
                self.fs.pipe_file(path, content)
                return
            with _beside(path, content) as whole:
                os.replace(whole, path)  # noqa: PTH105

    def create(self, name: str, content: bytes) -> bool:
        """Write a file that is not there yet; False if it is: of several that try it at once one alone succeeds.

        A local disk links it, S3 and Google's storage put it on condition that nothing is there. A storage that knows
        no such condition is asked first, which is not as sure.
        """
        with self._writing(name):
            path = self.path(name)
            try:
                if not self.local:
                    self.fs.pipe_file(path, content, mode="create")
                    return True
                with _beside(path, content) as whole:
                    os.link(whole, path)
            except FileExistsError:
                return False
            except OSError as error:
                if _is_there(error):
                    return False
                raise
            return True

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with self._writing(name):
            try:
                self.fs.rm_file(self.path(name))
            except (FileNotFoundError, NotADirectoryError):
                return

    def info(self, name: str) -> dict[str, Any] | None:
        """Return size and whatever else the storage tells; None if nothing is there."""
        with reaching(f"{self.url}/{name}"):
            try:
                return dict(self.fs.info(self.path(name)))
            except (FileNotFoundError, NotADirectoryError):
                return None

    def __repr__(self) -> str:
        return f"<Store {self.url}>"
