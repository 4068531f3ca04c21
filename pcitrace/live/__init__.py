"""The bus while it runs: what ``pcitrace watch`` shows.

    intake (pipe, growing file, command) -> Watcher (the kernel's stream) -> Status -> terminal, lines, metrics

The source is read by a thread of its own, which never waits for the decoder: what the decoder is too slow for is left
out, counted, and marked as a gap.
"""

from pcitrace.live.watcher import Status, Watcher

__all__ = ["Status", "Watcher"]
