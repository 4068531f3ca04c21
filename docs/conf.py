"""Configuration of the documentation site: Sphinx with Markdown (MyST). Warnings are errors: `make docs`."""

from __future__ import annotations

import sys
from pathlib import Path

from sphinx.ext.napoleon import docstring as napoleon

import pcitrace

sys.path.insert(0, str(Path(__file__).parent))
import draw
import gallery
import parsers
import rules
import tables

project = "pcitrace"
author = "the pcitrace authors"
release = version = pcitrace.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build", "jupyter_execute", "man"]
nb_execution_mode = "off"  # notebooks are shown as they are stored; the tests hold them to what they show today
html_theme = "furo"
html_title = "pcitrace"
html_show_copyright = False

myst_enable_extensions = ["attrs_inline", "colon_fence", "dollarmath"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
maximum_signature_line_length = 100
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_google_docstring = False
napoleon_use_rtype = False
# Types of parameters are words such as "path", which Sphinx would take for references.
napoleon_use_param = False
napoleon_use_ivar = True
# A property's text is a sentence, which may have a colon; napoleon would take what stands before it for the type.
napoleon.GoogleDocstring._consume_inline_attribute = lambda self: ("", self._consume_to_end())

# Generated: what the table reference says is what the code and the tests say, and the figures are drawn by the library.
tables.write(Path(__file__).parent / "tables.md")
parsers.write(Path(__file__).parent / "commands.md")
rules.write(Path(__file__).parent / "rules.md")
gallery.write(Path(__file__).parent.parent / "notebooks", Path(__file__).parent)
draw.draw(Path(__file__).parent / "figures")
