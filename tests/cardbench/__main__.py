"""Write one drawn run as a folder."""

from __future__ import annotations

import argparse
from pathlib import Path

from . import FAMILIES, generate


def main() -> None:
    lines = [f"  {name:16} {(draw.__doc__ or '').strip()}" for name, draw in FAMILIES.items()]
    parser = argparse.ArgumentParser(
        prog="python -m cardbench",
        description="Draw a network card and its traffic, and write captures and truth.",
        epilog="families:\n" + "\n".join(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("family", choices=FAMILIES, metavar="FAMILY")
    parser.add_argument("seed", type=int, metavar="SEED")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--no-vcd", action="store_true", help="do not write bus.vcd.gz")
    parser.add_argument(
        "--control14", action="store_true", help="also write control14.sr, control lines without the wires"
    )
    given = parser.parse_args()
    bench = generate(given.family, given.seed, given.output, not given.no_vcd, given.control14)
    print(f"{given.output}: {len(bench.frames)} frames, {(bench.end - bench.begin) / 1e6:.2f} ms")


if __name__ == "__main__":
    main()
