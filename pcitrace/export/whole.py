"""A file that appears under its name only when it is whole."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["appearing", "written"]


@contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """Give the name of a file beside `path` to write to, which takes its place at the end, or is removed."""
    if path.exists() and not path.is_file():
        # A device or a pipe would be replaced by a file.
        raise OSError(errno.EINVAL, "is not a regular file, and cannot be replaced by one", str(path))
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
    except OSError as error:
        # The user named the file, not the one that is written to first.
        error.filename = str(path)
        raise
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # A temporary file is private; the export is as readable as any file the user writes.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """Open a file to write bytes to, that is there only when it is whole."""
    with appearing(path) as temporary, temporary.open("wb") as file:
        yield file
