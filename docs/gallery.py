"""Puts the notebooks with their outputs into the site, and makes a page of pictures that lead to them."""

from __future__ import annotations

import base64
import json
import re
import shutil
from pathlib import Path

HEAD = """\
# Gallery

[Figures](#figures), each with what it shows, and first notebooks, shown here as they were run; the tests run each of
them again and compare. All are in the folder `notebooks/` of the sources, and want `pip install 'pcitrace[notebooks]'`.
"""
_FIGURE = re.compile(r"^### (?P<name>\w+)\n(?P<text>.*?)(?=^##)", re.DOTALL | re.MULTILINE)
_IMAGE = re.compile(r"^```\{image\} (?P<file>\S+)\n:alt: (?P<alt>[^\n]+)", re.MULTILINE)
_FIRST_PARAGRAPH = re.compile(r"# (?P<title>[^\n]+)\n\n(\$\$.+?\$\$\n\n)?(?P<text>.+?)(\n\n|$)", re.DOTALL)


def write(sources: Path, docs: Path) -> None:
    """Copy all notebooks to notebooks/, a picture of each to gallery/, and write gallery.md."""
    for folder in ("notebooks", "gallery"):
        shutil.rmtree(docs / folder, ignore_errors=True)
        (docs / folder).mkdir()
    names = sorted((path.stem for path in sources.glob("*.ipynb")), key=lambda name: int(name.split("-")[0]))
    parts = [HEAD]
    for name in names:
        # Links to pages of docs/ are one folder up here.
        text = (sources / f"{name}.ipynb").read_text(encoding="utf-8").replace("(../docs/", "(../")
        (docs / "notebooks" / f"{name}.ipynb").write_text(text, encoding="utf-8")
        parts.append(_entry(name, json.loads(text), docs))
    parts.append("## Figures\n")
    parts += _figures((docs / "figures.md").read_text(encoding="utf-8"))
    toctree = "\n".join(f"notebooks/{name}" for name in names)
    parts.append(f"```{{toctree}}\n:hidden:\n:maxdepth: 1\n\n{toctree}\n```\n")
    (docs / "gallery.md").write_text("\n".join(parts), encoding="utf-8")


def _figures(page: str) -> list[str]:
    """Every picture of the page of figures, small, as a way to what it says there."""
    entries = []
    known: dict[str, int] = {}
    for said in _FIGURE.finditer(f"{page}\n##"):
        # Headings that repeat are numbered.
        count = known[said["name"]] = known.get(said["name"], -1) + 1
        anchor = said["name"] if count == 0 else f"{said['name']}-{count}"
        link = f"](figures.md#{anchor}) `{said['name']}`\n"
        images = _IMAGE.finditer(said["text"])
        entries += [f"[![{image['alt']}]({image['file']}){{width=24rem}}{link}" for image in images]
    return entries


def _entry(name: str, book: dict, docs: Path) -> str:
    said = _FIRST_PARAGRAPH.match("".join(book["cells"][0]["source"]))
    assert said is not None, f"{name} does not begin with a title and a paragraph"
    shown = [output.get("data", {}) for cell in book["cells"] for output in cell.get("outputs", ())]
    pictures = [data["image/png"] for data in shown if "image/png" in data]
    image = ""
    if pictures:
        (docs / "gallery" / f"{name}.png").write_bytes(base64.b64decode(pictures[0]))
        link = f"notebooks/{name}.ipynb"
        image = f"[![{said['title']}](gallery/{name}.png)]({link})\n\n"
    text = said["text"].replace("(../", "(")
    return f"## [{said['title']}](notebooks/{name}.ipynb)\n\n{image}{text}\n"
