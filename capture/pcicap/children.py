"""Child processes that never outlive the recording."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import IO

# prctl(PR_SET_PDEATHSIG, SIGKILL) has to be called in the child, before exec; preexec_fn is unsafe once threads run.
# The parent may have died before the call, hence the look at getppid.
_STUB = (
    "import ctypes,os,sys;"
    "ctypes.CDLL(None).prctl(1,9,0,0,0);"
    "os.getppid()==int(sys.argv[1]) or sys.exit(1);"
    "os.execvp(sys.argv[2],sys.argv[2:])"
)


def spawn(
    command: Sequence[str],
    *,
    parent: int,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: int | IO[bytes] = subprocess.PIPE,
    stderr: int | IO[bytes] = subprocess.PIPE,
) -> subprocess.Popen[bytes]:
    """Start a command that the kernel kills when the thread that started it is gone.

    Call it from the main thread: the death signal follows the thread, not the process. The child gets its own process
    group, so that a Ctrl-C at the terminal reaches pcicap alone, which then ends its children in order.

    Parameters
    ----------
    command : sequence of str
        Program and arguments.
    parent : int
        ``os.getpid()`` of the caller.
    stdin, stdout, stderr
        As `subprocess.Popen` takes them.
    """
    stub = [sys.executable, "-I", "-S", "-c", _STUB, str(parent), *command]
    return subprocess.Popen(stub, stdin=stdin, stdout=stdout, stderr=stderr, bufsize=0, process_group=0)


def stop(child: subprocess.Popen[bytes], grace_s: float = 1.0) -> None:
    """End a child: SIGINT, after `grace_s` SIGKILL; returns once it is gone."""
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
        try:
            child.wait(grace_s)
        except subprocess.TimeoutExpired:
            child.kill()
    child.wait()
