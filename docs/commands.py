"""What commands print, in pages: blocks fenced as `console run` hold a command and its output.

usage: python docs/commands.py     writes into all pages what their commands print today; a test compares
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
_BLOCK = re.compile(r"^```console run\n\$ (?P<command>[^\n]*)\n.*?^```", re.DOTALL | re.MULTILINE)


def pages() -> list[Path]:
    """The pages that have such blocks."""
    return sorted(page for page in DOCS.glob("*.md") if _BLOCK.search(page.read_text(encoding="utf-8")))


def output(command: str) -> str:
    """What a command prints in the repository's root; RuntimeError if it fails."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=DOCS.parent,
        env={**os.environ, "PATH": path, "COLUMNS": "100"},
        capture_output=True,
        text=True,
    )
    # A listing into `head` ends early, and well.
    if done.returncode != 0 or done.stderr:
        raise RuntimeError(f"docs: {command}: exit {done.returncode}\n{done.stderr}")
    return done.stdout.rstrip("\n")


def filled(page: str) -> str:
    """The text of a page with what its commands print today."""

    def run(block: re.Match[str]) -> str:
        command = block["command"]
        return f"```console run\n$ {command}\n{output(command)}\n```"

    return _BLOCK.sub(run, page)


def main() -> None:
    for page in pages():
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
