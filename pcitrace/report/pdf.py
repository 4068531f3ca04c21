"""The report as PDF: what a browser prints of the page."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from pcitrace.errors import PciTraceError

__all__ = ["browser", "write_pdf"]

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
"""Programs that print pages without a window, by their usual names."""

PATIENCE_S = 120


def browser(path: Path) -> str:
    """Return the program that can print the PDF of this name.

    Raises
    ------
    PciTraceError
        There is none.
    """
    program = next((found for found in map(shutil.which, BROWSERS) if found), None)
    if program is None:
        raise PciTraceError(
            f"{path}: a PDF is printed by Chromium or Chrome, and none is on the PATH ({', '.join(BROWSERS)}): install "
            "it (Debian: apt install chromium), or write the page (-o report.html) and print it from your browser"
        )
    return program


def write_pdf(program: str, page: str, path: Path) -> None:
    """Print a page.

    Parameters
    ----------
    program : str
        As :func:`browser` gives it.
    page : str
        HTML that stands alone.
    path : pathlib.Path
        The PDF.

    Raises
    ------
    PciTraceError
        It made no file.
    """
    with tempfile.TemporaryDirectory() as place:
        source, printed = Path(place, "report.html"), Path(place, "report.pdf")
        source.write_text(page, encoding="utf-8")
        command = [program, "--headless", "--disable-gpu", "--no-sandbox", f"--user-data-dir={place}/profile"]
        command += ["--no-pdf-header-footer", f"--print-to-pdf={printed}", source.as_uri()]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, errors="replace")
        except subprocess.TimeoutExpired:
            raise PciTraceError(
                f"{path}: {program} printed nothing within {PATIENCE_S} s; write -o report.html"
            ) from None
        if not printed.exists():
            said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise PciTraceError(f"{path}: {program} printed nothing: {said}; write -o report.html and print that")
        shutil.move(printed, path)
