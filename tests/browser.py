"""A real browser without a window: pages opened as a reader would, and what a script in them finds out."""

from __future__ import annotations

import html
import json
import re
import subprocess
from pathlib import Path
from typing import Any

from conftest import needed_program

__all__ = ["browse", "measured", "told"]


def browse(address: str, profile: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Open an address; return what Chromium printed."""
    program = needed_program("chromium")
    return subprocess.run(
        [program, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--log-level=0",
         f"--user-data-dir={profile}", "--virtual-time-budget=5000", *arguments, address],
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip


def told(folder: Path, module: str, program: str, *arguments: str) -> Any:
    """Return what an async function body returns that stands behind a module's code on an empty page."""
    page = folder / "program.html"
    page.write_text(f"<!doctype html><meta charset=utf-8><body><script type=module>{module}\n{_said(program)}</script>")
    return _answer(browse(page.as_uri(), folder / "profile", "--dump-dom", *arguments))


def measured(page: Path, folder: Path, program: str, *arguments: str, place: str = "") -> Any:
    """Return what an async function body returns that runs in a copy of a page, once it has loaded."""
    copy = folder / f"measured-{abs(hash((program, place)))}.html"
    copy.write_text(page.read_text().replace("</body>", f"<script type=module>{_said(program)}</script></body>"))
    return _answer(browse(copy.as_uri() + place, folder / "profile", "--dump-dom", *arguments))


def _said(program: str) -> str:
    return f"""
      const sayAll = text => {{
        const out = document.createElement("pre");
        out.id = "told";
        out.textContent = text;
        document.body.append(out);
      }};
      (async () => {{ {program} }})().then(
        value => sayAll(JSON.stringify(value)), error => sayAll(JSON.stringify({{failed: String(error.stack)}})));
    """


def _answer(done: subprocess.CompletedProcess[str]) -> Any:
    remarks = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    console = [line for line in remarks if "willReadFrequently" not in line]  # of a test that reads the canvas
    assert not console, console
    found = re.search(r'<pre id="told">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stdout[-2000:] + done.stderr[-2000:]
    answer = json.loads(html.unescape(found[1]))
    assert not (isinstance(answer, dict) and "failed" in answer), answer["failed"]
    return answer
