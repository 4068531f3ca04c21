"""The manual page pcitrace(1), made from the parsers: `sphinx-build -b man docs/man docs/_build/man`."""

from __future__ import annotations

import sys
from pathlib import Path

import pcitrace

sys.path.insert(0, str(Path(__file__).parent.parent))
import parsers

project = "pcitrace"
author = "the pcitrace authors"
release = version = pcitrace.__version__
extensions = ["myst_parser"]
root_doc = "pcitrace"
man_pages = [("pcitrace", "pcitrace", "PCI transactions from logic-analyser captures", [author], 1)]
parsers.write(Path(__file__).parent / "pcitrace.md")
