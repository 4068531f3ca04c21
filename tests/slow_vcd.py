"""A VCD reader for tests: plain Python, one change at a time, sharing nothing with the kernel's."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from pathlib import Path

_UNITS = {"s": 10**12, "ms": 10**9, "us": 10**6, "ns": 10**3, "ps": 1}


def edges(path: Path, clock: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield (time in ps, values just before it) of every rise of `clock` from 0 to 1.

    Values are strings of 0 1 x z, most significant bit first, as wide as declared; names carry no scope and no range.
    """
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt") as file:
        names: dict[str, list[str]] = {}
        widths: dict[str, int] = {}
        scale = None
        header = []
        for line in file:
            header.append(line)
            if "$enddefinitions" in line:
                break
        text = "".join(header)
        match = re.search(r"\$timescale\s+(\d+)\s*(\w+)\s+\$end", text)
        assert match, f"{path}: no $timescale"
        scale = int(match[1]) * _UNITS[match[2]]
        for width, code, name in re.findall(r"\$var\s+\w+\s+(\d+)\s+(\S+)\s+(\S+)[^$]*\$end", text):
            names.setdefault(code, []).append(name)
            widths[name] = int(width)
        values = {name: "x" * width for name, width in widths.items()}
        pending: dict[str, str] = {}
        time = 0

        def flush() -> Iterator[tuple[int, dict[str, str]]]:
            if pending.get(clock) == "1" and values[clock] == "0":
                yield time * scale, dict(values)
            values.update(pending)
            pending.clear()

        for line in file:
            line = line.strip()
            if not line or line.startswith("$"):
                continue
            if line[0] == "#":
                yield from flush()
                time = int(line[1:])
                continue
            if line[0] in "bB":
                value, code = line[1:].split()
            else:
                value, code = line[0], line[1:]
            for name in names.get(code, ()):
                # A value shorter than its vector is extended: with its first bit where that is x or z, with 0 else.
                fill = value[0] if value[0] in "xz" else "0"
                pending[name] = value.rjust(widths[name], fill)
        yield from flush()
