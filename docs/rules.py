"""Writes rules.md, the rule catalogue, from pcitrace/instrument/rules.toml."""

from __future__ import annotations

from pathlib import Path

import commands

from pcitrace.instrument.rules import Rule, catalogue

HEAD = """\
# Rules of the bus

`pcitrace check FILE` judges every clock of a capture by the rules below, and says of each: kept, broken (how often,
the first places, what was seen), or not evaluated and why. `pcitrace check --explain M07` shows one of them. This
page is generated from `pcitrace/instrument/rules.toml`, from which the command and its tests come, too.

```console run
$ pcitrace check fixtures/traces/blue33_seq1/bus.vcd.gz --ignore P,M10
```

**What is judged.** Each rising edge of CLK by itself, from the first idle clock on; rules rest after a gap, while
RST# is asserted, and where a control line has no known level. A rule whose lines were not captured is *not
evaluated*, never kept. Where only some agents' GNT# and REQ# were captured, what these agents broke is told, and a
rule that they kept is not evaluated if there was a place where another agent may have broken it. Sections are those
of the PCI Local Bus Specification 2.3; where it says otherwise than a sentence here, it counts.

**What counts.** A breach of M10, T02, T03, T13, A01, M20, P04, T15, W01 or W02 that lasts for several clocks counts
once; all others are counted by the clock. The first 100 places of a rule are told; initiators and targets are
counted from the first 20,000 (`kept` in `--json`), of a rule with exceptions from all.

**Masks.** `--rules M,T07` takes only these, `--ignore M12` leaves some out, by id or by what ids begin with. A
bench has its own in a file for `--masks`, also for one initiator (its GNT# line or its name) or target:

```toml
ignore = ["M10"]

[[except]]
rule = "M12"
initiator = "GNT1#"
```

**One fault, several rules.** Where FRAME# falls too early, what follows reads as another transaction, and breaks
further rules. The first line of `pcitrace check` is the rule that was broken first.
"""

GROUPS = {
    "M": "Initiators",
    "T": "Targets",
    "A": "Arbitration",
    "P": "Parity and errors",
    "W": "64 bits",
    "L": "LOCK#",
    "E": "CLK",
}


def write(path: Path) -> None:
    """Write the page, but only if it changes: Sphinx then rebuilds nothing."""
    parts = [HEAD]
    for letter, title in GROUPS.items():
        rows = [_row(rule) for id, rule in catalogue().items() if id.startswith(letter)]
        parts += [f"## {title}", "", "| id | rule | section | needs |", "|---|---|---|---|", *rows, ""]
    text = commands.filled("\n".join(parts))
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def _row(rule: Rule) -> str:
    note = f" *{rule.note}*" if rule.note else ""
    return f"| {rule.id} | {rule.sentence}{note} | {rule.section} | {' '.join(rule.needs)} |"
