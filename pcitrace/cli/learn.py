"""``pcitrace learn``: the profile of a card, as its traffic shows it."""

from __future__ import annotations

import argparse
from pathlib import Path

from pcitrace.cli.options import add_capture, add_json, open_run, print_json

_EPILOG = """\
examples:
  pcitrace learn RUN                       what is known of each host's card, and what is not, and why
  pcitrace learn RUN -o card.toml          as a profile: of what both hosts show alike
  pcitrace learn RUN --bus A -o a.toml     of the card of host A alone
  pcitrace frames OTHER --profile card.toml

Nothing is taken from a profile but its registers. Each value is the one that explains most of the traffic; its margin
says by how much the next-best one is worse, in nats (6 nats: 400 times less likely).
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_capture(parser)
    parser.add_argument("-o", "--output", metavar="card.toml", type=Path, help="write a NIC profile, for --profile")
    add_json(parser, "print hosts.NAME.KEY with value, n and margin as JSON")
    parser.epilog = _EPILOG


def run(args: argparse.Namespace) -> int:
    """Learn, write, print."""
    from pcitrace.errors import WiringError
    from pcitrace.learning.card import profile_text

    opened = open_run(args)
    learned = opened.learned
    if args.bus is not None:
        if args.bus not in learned.hosts:
            raise WiringError(f"{args.file}: no host {args.bus!r}; there are {', '.join(learned.hosts)}")
        learned = learned.of(args.bus)
    if args.output is not None:
        said = opened.folder.profile(next(iter(learned.hosts))) if opened.folder is not None else None
        args.output.write_text(profile_text(learned, args.output.stem, said), encoding="utf-8")
    if args.json:
        print_json(learned.as_json())
    elif args.output is None:
        print("\n".join(learned.lines()))
    else:
        known = sum(value.value is not None for value in learned.card().values())
        print(f"{known} of {len(learned.card())} properties known -> {args.output}")
    return 0
