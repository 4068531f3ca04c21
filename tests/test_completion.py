"""What a shell completes, asked as bash asks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pcitrace.cli import COMMANDS


def completed(line: str, tmp_path: Path) -> set[str]:
    answer = tmp_path / "answer"
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    program = Path(sys.executable).with_name("pcitrace")
    told = subprocess.run([program], env={**os.environ, **asked}, cwd=tmp_path, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    return {word.strip() for word in answer.read_text().splitlines()}


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("pcitrace ", {*COMMANDS}),
        ("pcitrace st", {"stats"}),
        ("pcitrace stats --win", {"--window-us"}),
        ("pcitrace export capture.sr --to pca", {"pcapng"}),
        ("pcitrace list my", {"my.sr"}),
    ],
)
def test_completion(line: str, wanted: set[str], tmp_path: Path) -> None:
    (tmp_path / "my.sr").touch()
    found = completed(line, tmp_path)
    assert wanted <= found
    assert len(found) <= len(wanted) + 3, "and the general options at most"
