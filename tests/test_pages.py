"""The pages: links lead to files and headings that are there, and every figure that can be drawn is shown."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from conftest import REPOSITORY

from pcitrace import plot
from pcitrace.plot import network

sys.path.insert(0, str(REPOSITORY / "tools"))
import address

GENERATED = {"commands.md", "tables.md", "rules.md", "gallery.md"}
"""Of docs/: `make docs` writes them, and what is in figures/ and notebooks/."""

_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=REPOSITORY, check=True, capture_output=True, text=True)
    return [REPOSITORY / name for name in listed.stdout.splitlines()]


def text_of(page: Path) -> str:
    """The page's Markdown; of a notebook that of its text cells."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        text = "\n\n".join(
            "".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown"
        )
    return _CODE.sub("", text)


def anchors(page: Path) -> set[str]:
    """What headings are called in links, as forges and MyST call them."""
    found: set[str] = set()
    for title in re.findall(
        r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE), re.MULTILINE
    ):
        name = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        count = sum(one == name or re.fullmatch(rf"{re.escape(name)}-\d+", one) is not None for one in found)
        found.add(f"{name}-{count}" if count else name)
    return found


@pytest.mark.parametrize("page", tracked("*.md", "*.ipynb"), ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_somewhere(page: Path) -> None:
    wrong = []
    docs = REPOSITORY / "docs"
    for link in _LINK.findall(text_of(page)):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        made = docs in page.parents and target.parent == docs and target.name in GENERATED
        shown = (
            docs in page.parents
            and target.parent == docs / "notebooks"
            and (REPOSITORY / "notebooks" / target.name).is_file()
        )
        if made or shown:
            continue
        if target not in TRACKED and not target.is_dir():
            wrong.append(f"{link}: no such file")
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            wrong.append(f"{link}: no such heading; there are {sorted(anchors(target))}")
    assert not wrong


TRACKED = set(tracked())


def test_every_figure_is_shown() -> None:
    """Each public function of the plots has its heading or, as a relative of another, stands in bold."""
    page = (REPOSITORY / "docs" / "figures.md").read_text(encoding="utf-8")
    bus, after = page.split("## The network half")
    for part, names in ((bus, plot.__all__), (after, network.__all__)):
        missing = [name for name in names if not re.search(rf"^### {name}$|\*\*{name}\*\*", part, re.MULTILINE)]
        assert not missing


def test_properties_of_the_api_page_have_no_sections() -> None:
    """Their text is shown as it stands: a section would be a heading among others."""
    names = re.findall(r"^\.\. automodule:: (\S+)", (REPOSITORY / "docs" / "api.md").read_text(), re.MULTILINE)
    classes = [one for name in names for one in vars(importlib.import_module(name)).values() if inspect.isclass(one)]
    known = [(one, what) for one in classes for what in vars(one).values() if isinstance(what, property)]
    assert len(known) > 30
    assert not [(one, what.fget) for one, what in known if "\n---" in inspect.cleandoc(what.__doc__ or "")]


def test_a_release_has_absolute_links_to_files_that_are_there() -> None:
    """Where README is shown on an index of packages nothing is beside it; the address is that of the release."""
    url, tag = "https://example.org/somebody/pcitrace", "v1.0.0"
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    links = _LINK.findall(_CODE.sub("", address.readme_at(text, url, tag)))
    assert f"{url}/raw/{tag}/docs/figure-3.1.png" in links
    assert len(links) == len(_LINK.findall(_CODE.sub("", text)))
    for link in links:
        path = re.fullmatch(rf"{url}/(raw|blob|tree)/{tag}/(.+?)(#.*)?", link)
        assert path, link
        assert (REPOSITORY / path[2]).is_dir() if path[1] == "tree" else REPOSITORY / path[2] in TRACKED
    written = address.metadata_at((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"), url, tag)
    project = tomllib.loads(written)["project"]
    assert project["urls"]["Homepage"] == url
    assert project.keys() >= {"authors", "classifiers", "description", "keywords", "license", "readme", "scripts"}
    assert "urls" not in project["optional-dependencies"]
