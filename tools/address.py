"""Give README and metadata the public address that a release is made at; the sources know none.

usage: address.py URL TAG        such as https://example.org/somebody/pcitrace v1.0.0

An index of packages shows README where no file is beside it: its image and its links become absolute. The metadata gets
the project's URLs. Changes README.md and pyproject.toml of the folder it is in, before they are packed.
"""

import re
import sys
from pathlib import Path

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)\s]+)\)")
_BEFORE = "[project.optional-dependencies]\n"


def readme_at(text: str, url: str, tag: str) -> str:
    """Return a README whose links lead to the files as tagged: images to the picture itself, others to its page."""

    def absolute(link: re.Match[str]) -> str:
        image, said, path = link.groups()
        kind = "raw" if image else "tree" if path.endswith("/") else "blob"
        return f"{image}[{said}]({url}/{kind}/{tag}/{path})"

    return _LINK.sub(absolute, text)


def metadata_at(text: str, url: str, tag: str) -> str:
    """Return a pyproject.toml with the project's URLs."""
    assert text.count(_BEFORE) == 1, "pyproject.toml: where do URLs go?"
    lines = [
        "[project.urls]",
        f'Homepage = "{url}"',
        f'Documentation = "{url}/blob/{tag}/docs/index.md"',
        f'Changelog = "{url}/blob/{tag}/CHANGELOG.md"',
        f'Issues = "{url}/issues"',
        "",
        "",
    ]
    return text.replace(_BEFORE, "\n".join(lines) + _BEFORE)


def main() -> None:
    """Rewrite both files."""
    url, tag = sys.argv[1].rstrip("/"), sys.argv[2]
    repository = Path(__file__).resolve().parent.parent
    for name, change in (("README.md", readme_at), ("pyproject.toml", metadata_at)):
        path = repository / name
        path.write_text(change(path.read_text(encoding="utf-8"), url, tag), encoding="utf-8")


if __name__ == "__main__":
    main()
