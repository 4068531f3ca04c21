"""Running notebooks, and comparing what a run shows with what is stored.

Text must be equal word by word, decimal numbers to three digits: the last ones differ between processors, and those of
uncertainties, which are small differences of large sums, from the fourth on. Another version of matplotlib or of a font
changes every pixel of a figure, so figures are compared from afar: what is drawn where, in which colours. Cells tagged
`varies` measure this machine: of these only the words count, and that there is a figure.
"""

from __future__ import annotations

import base64
import io
import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
import numpy as np
from nbformat import NotebookNode
from PIL import Image

_DECIMAL = re.compile(r"([-+]?\d+\.\d*(?:e[-+]?\d+)?)")
_NUMBER = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}|[-+]?\d[\d.,]*(?:e[-+]?\d+)?")
_TEMPORARY = re.compile(re.escape(tempfile.gettempdir()) + r"/tmp[\w.]{8,11}")  # of tempfile and of mktemp
# Figures are lines and letters on white: a palette holds them in a third of the bytes.
_COLOURS = 64


def run(path: Path, output: Path) -> NotebookNode:
    """Run a notebook as a user would, in its folder; outputs as they are to be stored."""
    # In a process of its own: the kernel's client warns of things that are no business of these tests.
    program = (
        "import sys, nbformat, nbclient; book = nbformat.read(sys.argv[1], as_version=4);"
        "client = nbclient.NotebookClient(book, timeout=200, kernel_name='python3', record_timing=False, "
        "coalesce_streams=True);"
        "client.execute(cwd=sys.argv[2]); nbformat.write(book, sys.argv[3])"
    )
    command = [sys.executable, "-c", program, str(path), str(path.parent), str(output)]
    told = subprocess.run(command, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr[-3000:]
    book = nbformat.read(output, as_version=4)
    book.metadata.language_info = {"name": "python"}  # and not which version, or any run would be a change
    for cell in _code(book):
        cell.outputs = [_settled(output) for output in cell.outputs]
    return book


def _code(book: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in book.cells if cell.cell_type == "code"]


def _settled(output: NotebookNode) -> NotebookNode:
    """An output without what differs from run to run: names of temporary folders."""
    if output.output_type == "stream":
        output.text = _TEMPORARY.sub("/tmp", output.text)
    for kind, shown in output.get("data", {}).items():
        output.data[kind] = _small(shown) if kind == "image/png" else _TEMPORARY.sub("/tmp", shown)
    return output


def _small(png: str) -> str:
    written = io.BytesIO()
    picture = Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB")
    picture.quantize(_COLOURS, dither=Image.Dither.NONE).save(written, "png", optimize=True)
    return base64.b64encode(written.getvalue()).decode()


def shown(cell: NotebookNode) -> list[str]:
    """What a cell shows: each text, and a word for each figure."""
    said = []
    for output in cell.outputs:
        if output.output_type == "stream":
            assert output.name == "stdout", output.text
            said.append(output.text)
        elif "image/png" in output.data:
            said.append("<figure>")
        else:
            said.append(output.data["text/plain"])
    return said


def figures(book: NotebookNode) -> int:
    """Count the pictures; nothing may be said on standard error."""
    return sum(shown(cell).count("<figure>") for cell in _code(book))


def differences(stored: NotebookNode, ran: NotebookNode) -> list[str]:
    """Where a run does not show what is stored, cell by cell."""
    assert [cell.source for cell in stored.cells] == [cell.source for cell in ran.cells]
    found = []
    for number, (before, after) in enumerate(zip(_code(stored), _code(ran), strict=True), start=1):
        varies = "varies" in before.metadata.get("tags", ())
        old, new = shown(before), shown(after)
        if len(old) != len(new) or not all(map(_alike if varies else _equal, old, new)):
            found.append("\n".join([f"cell [{number}] shows", *new, "stored is", *old]))
        elif not varies and not _look_alike(before, after):
            found.append(f"cell [{number}] draws another figure than the stored one")
    return found


def _alike(old: str, new: str) -> bool:
    """Whether two texts have the same words, whatever the numbers and the room they take."""
    return " ".join(_NUMBER.sub("0", old).split()) == " ".join(_NUMBER.sub("0", new).split())


def _equal(old: str, new: str) -> bool:
    """Whether two texts are equal but for the last digits of decimal numbers."""
    old_parts, new_parts = _DECIMAL.split(old), _DECIMAL.split(new)
    return (
        len(old_parts) == len(new_parts)
        and old_parts[::2] == new_parts[::2]
        and all(
            math.isclose(float(a), float(b), rel_tol=1e-3, abs_tol=1e-12)
            for a, b in zip(old_parts[1::2], new_parts[1::2], strict=True)
        )
    )


# A figure from afar: so many patches from left to right, each of one colour. Letters that lie a point beside change one
# by less than a tenth, bars of another colour by more than a third.
_PATCHES = 60
_ALIKE = 0.25


def _look_alike(old: NotebookNode, new: NotebookNode) -> bool:
    """Whether the figures of two cells look alike from afar."""
    return all(map(_look_like, _pictures(old), _pictures(new)))


def _pictures(cell: NotebookNode) -> list[Image.Image]:
    shown = [output.data["image/png"] for output in cell.outputs if "image/png" in output.get("data", {})]
    return [Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB") for png in shown]


def _look_like(old: Image.Image, new: Image.Image) -> bool:
    if any(abs(a - b) > 0.03 * b for a, b in zip(old.size, new.size, strict=True)):
        return False
    size = (_PATCHES, _PATCHES * new.height // new.width)
    patches = [np.asarray(one.resize(size, Image.Resampling.BOX), dtype=float) / 255 for one in (old, new)]
    if np.abs(patches[0] - patches[1]).max() >= _ALIKE:
        return False
    colours = _colours(old), _colours(new)
    return all(any(_near(one, other) for other in colours[1]) for one in colours[0]) and all(
        any(_near(one, other) for other in colours[0]) for one in colours[1]
    )


def _colours(figure: Image.Image) -> list[tuple[int, ...]]:
    """What a figure is painted with: colours of areas, neither grey nor pale."""
    least = figure.width * figure.height / 200
    counted = figure.getcolors(figure.width * figure.height) or []
    return [colour for count, colour in counted if count > least and max(colour) - min(colour) > 80]


def _near(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return max(abs(a - b) for a, b in zip(one, other, strict=True)) <= 16


def stored_again(stored: NotebookNode, ran: NotebookNode) -> NotebookNode:
    """The run as it is to be stored; cells that show what they showed keep their pictures."""
    for before, after in zip(_code(stored), _code(ran), strict=True):
        if before.source == after.source and shown(before) == shown(after) and _look_alike(before, after):
            after.outputs = before.outputs
    return ran
