"""The warden of a recording: outlives a pcicap that is killed and makes its folder readable.

It waits on a pipe from the recorder. "done" on it, and all is well; the end of it without "done" means that the
recorder is gone, and `runfolder.recover` does what the recorder can no longer do.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from pcicap.runfolder import recover


def main() -> None:
    """Watch over the folder named on the command line."""
    # what ends the recorder may be sent to everybody; the warden ends when the recorder has
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if sys.stdin.buffer.read() != b"done":
        recover(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
