"""Live progress: a line that is rewritten at a terminal, lines elsewhere, silence where it is asked for."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from pcicap import progress
from pcicap.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock, in a list so that a test can move it."""
    now = [1000.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_at_a_terminal_a_line_is_rewritten(seconds: list[float]) -> None:
    terminal = Terminal()
    live = Progress(stream=terminal)
    live.update("12 frames")
    live.update("13 frames")  # too soon to be read
    seconds[0] += 1
    live.update("9 left")
    live.step("frames sent")
    assert terminal.getvalue() == "12 frames\r         \r9 left\r      \rframes sent\n"


def test_elsewhere_lines_are_few(seconds: list[float]) -> None:
    log = io.StringIO()
    live = Progress(stream=log)
    for number in range(25):
        live.update(f"{number} frames")
        seconds[0] += 1
    live.step("frames sent")
    assert log.getvalue().splitlines() == ["0 frames", "10 frames", "20 frames", "frames sent"]


def test_quiet() -> None:
    log = io.StringIO()
    live = Progress(quiet=True, stream=log)
    live.update("12 frames")
    live.step("frames sent")
    assert log.getvalue() == ""
