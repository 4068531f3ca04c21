"""Puts the output of commands into pages: blocks of a template that are fenced as `console run` are run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_BLOCK = re.compile(r"```console run\n\$ (?P<command>.*?)\n```", re.DOTALL)


def output(command: str) -> str:
    """What a command prints in the repository's root; RuntimeError if it fails."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        cwd=ROOT,
        env={**os.environ, "PATH": path, "COLUMNS": "100"},
        capture_output=True,
        text=True,
    )
    # A listing into `head` ends early, and well.
    if done.returncode != 0 or done.stderr:
        raise RuntimeError(f"docs: {command}: exit {done.returncode}\n{done.stderr}")
    return done.stdout.rstrip("\n")


def filled(template: str) -> str:
    """The text of a page, with the output of its commands."""

    def run(block: re.Match[str]) -> str:
        command = block["command"]
        return f"```console\n$ {command}\n{output(command)}\n```"

    return _BLOCK.sub(run, template)


def write(template: Path, page: Path) -> None:
    """Write a page, but only if it changes: Sphinx then rebuilds nothing."""
    text = filled(template.read_text(encoding="utf-8"))
    if not page.exists() or page.read_text(encoding="utf-8") != text:
        page.write_text(text, encoding="utf-8")
