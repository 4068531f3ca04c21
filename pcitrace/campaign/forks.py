"""The process that has everything imported and forks a child for each run: ``python -m pcitrace.campaign``.

A second of imports a run is spared so: what every run needs is imported first, and what else a child imported that
ended well before the next. It
has one thread (beside jemalloc's, which knows of forks) and holds no state of a run: what a child does to itself ends
with it.

On standard input come lines, ``FOLDER`` or ``kill``; on standard output go the number of the child and, when that has
ended, its exit status (below 0: the signal). Where standard input ends, so does all of it.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import select
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path

from pcitrace.campaign import child
from pcitrace.campaign.errors import is_full

__all__ = ["Forker", "forker", "serve", "warm"]

IMPORTED = "imported"
"""File in a child's folder: names of modules."""


FIRST = (
    "fastjsonschema",
    "iminuit",
    "pcitrace.campaign.analyse",
    "pcitrace.campaign.numbers",
    "pcitrace.network",
    "pcitrace.results",
    "pyarrow.parquet",
)
"""What every run needs, imported before the first."""


class Forker:
    """A process that forks a child a run: its own, so that what happens there happens to nobody else."""

    def __init__(self) -> None:
        self.environment = dict(os.environ)
        # A process that forks has one thread: none of OpenBLAS.
        environment = self.environment | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pcitrace.campaign"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            bufsize=0,
            start_new_session=True,
        )

    @property
    def number(self) -> int:
        """Of the process."""
        return self._process.pid

    def begin(self, folder: Path) -> int:
        """Have the run in a folder analysed; return the number of its process."""
        self._say(str(folder))
        return self.answer(None)

    def kill(self) -> None:
        """End the child."""
        self._say("kill")

    def answer(self, timeout_s: float | None) -> int:
        """Return the next number that it says.

        Raises
        ------
        TimeoutError
            It says nothing for so long.
        EOFError
            It is no more.
        """
        out = self._process.stdout
        assert out is not None
        if not wait([out.fileno()], timeout_s):
            raise TimeoutError
        line = out.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        return int(line)

    def close(self) -> None:
        """End it, and the child with it."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait()

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{line}\n".encode())


_idle: list[Forker] = []
"""Those that wait for the next run; a worker has as many as it ever had runs at once."""


def _close() -> None:
    """End the processes that wait for runs."""
    while _idle:
        _idle.pop().close()


atexit.register(_close)


def warm() -> None:
    """Have a process ready for the first run."""
    _idle.append(Forker())


@contextmanager
def forker() -> Iterator[Forker]:
    """A forker for one run; one after which anything is not as it should be is not used again."""
    while True:
        try:
            one = _idle.pop()
        except IndexError:
            one = Forker()
        if one.environment == os.environ:
            break
        one.close()  # credentials, say, that were not there before
    try:
        yield one
    except BaseException:
        one.close()
        raise
    _idle.append(one)


class _Children:
    """One child at a time."""

    def __init__(self, answers: int) -> None:
        self._answers = answers
        self._child, self._folder = 0, Path()
        self._names: list[str] = []

    def begin(self, folder: Path) -> None:
        """Fork one for a folder."""
        _import(self._names)
        parent, self._folder = os.getpid(), folder
        self._child = os.fork()
        if not self._child:
            _live(folder, parent)
        self._say(self._child)

    def kill(self) -> None:
        """End it, and what it started; it is not yet collected, so that its number is nobody else's."""
        if self._child:
            os.kill(self._child, signal.SIGKILL)
            _kill_group(self._child)

    def collect(self) -> None:
        """Say what it ended with, if it has ended."""
        if self._child and os.waitid(os.P_PID, self._child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            _kill_group(self._child)
            _, status = os.waitpid(self._child, 0)
            self._child = 0
            with contextlib.suppress(OSError):
                self._names = (self._folder / IMPORTED).read_text().split() if status == 0 else []
            self._say(os.waitstatus_to_exitcode(status))

    def _say(self, number: int) -> None:
        os.write(self._answers, f"{number}\n".encode())


def serve() -> None:
    """Fork a child for each folder that standard input names, until it ends."""
    asked, answers = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)  # whatever prints, prints no answers
    ended, tell = os.pipe()
    os.set_blocking(tell, False)
    signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    _import(FIRST)
    children = _Children(answers)
    with contextlib.suppress(BrokenPipeError), os.fdopen(asked, "rb", buffering=0) as lines:
        while True:
            ready, _, _ = select.select([asked, ended], [], [])
            if ended in ready:
                os.read(ended, 512)
                children.collect()
            if asked in ready:
                line = lines.readline().decode().rstrip("\n")
                if not line:
                    break
                children.kill() if line == "kill" else children.begin(Path(line))
    children.kill()


def _live(folder: Path, parent: int) -> None:
    """Be the child: analyse what lies in the folder, and end."""
    status = 1
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        words = os.open(folder / "words", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(words, 1)
        os.dup2(words, 2)
        before = set(sys.modules)
        child.main(folder, parent)
        (folder / IMPORTED).write_text("\n".join(name for name in sys.modules if name not in before))
        status = 0
    except BaseException as error:
        status = child.FULL if is_full(error) else 1
        with contextlib.suppress(OSError):
            traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _import(names: Sequence[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            with contextlib.suppress(Exception):  # some are made by others as they are imported
                importlib.import_module(name)
    if names:
        gc.collect()
        gc.freeze()  # pages that no child writes stay shared


def _kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
