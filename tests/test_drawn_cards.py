"""Captures of cards that generators of others drew, on which values were wrong or null: what is given now is right.

Simulated; `fixtures/README.md` says by what. What was wrong is said beside each.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cardbench.score import CSR, TIMES, score
from conftest import REPOSITORY

import pcitrace
from pcitrace import analysis

DRAWN = REPOSITORY / "fixtures" / "traces" / "drawn"
KINDS = {"vcd": ("bus.vcd.gz", "run.toml"), "control16": ("control16.sr", "run-control16.toml")}


def bench_of(card: Path) -> Any:
    """Return of a bench what its frames are compared with."""
    drawn = json.loads((card / "card.json").read_text())
    with gzip.open(card / "truth.jsonl.gz", "rt") as file:
        truth = [json.loads(line) for line in file]
    hosts = {name: SimpleNamespace(bus=SimpleNamespace(period=period)) for name, period in drawn["period"].items()}
    return SimpleNamespace(drawn=drawn, hosts=hosts, truth=lambda: truth)


@pytest.mark.parametrize(
    ("card", "kind", "profile", "edges", "accesses"),
    [
        # Wire and DMA overlap; of 52 frames most were so short that they seemed not to: the longest were the next ones.
        ("cut-through_3", "vcd", "generic", 364, 104),
        # Descriptors were read behind each header and taken for data; what ended the frame was left over.
        ("scatter-gather_1", "control16", "card.toml", 115, 0),
        # Descriptors before each receive were taken for its header, which was left over.
        ("scatter-gather_2", "control16", "generic", 96, 0),
        # The last words of each send, one by one, were left over; it began with its descriptor.
        ("scatter-gather_6", "control16", "card.toml", 236, 0),
        # Frames begin at one byte of a word or another: three were said to be a byte shorter, exactly.
        ("overload_1", "control16", "generic", 375, 0),
        # What an interrupt was masked with rang for sends that waited for the wire.
        ("overload_1", "vcd", "generic", 391, 28),
        # Two rings within a microsecond were one, and the first send was rung for by the second.
        ("csr-descriptors_4", "control16", "card.toml", 382, 3),
        # A ring for several sends, whose value tells for how many.
        ("tiny_2", "vcd", "generic", 315, 85),
        # Rules and reading agreed by chance on two sends of 20.
        ("other-master_3", "vcd", "card.toml", 207, 0),
        # The capture begins in a stream that never stops: each send had the first doorbell that could be its own.
        ("wide66_9", "vcd", "card.toml", 124, 0),
        # Here nothing was wrong: sends and receives take turns, and what was cut is read again.
        ("reread_1", "control16", "generic", 151, 0),
        # Only the values of its ring's tail prove 15 of these.
        ("wide66_3", "vcd", "generic", 201, 41),
        # Sixteen words of descriptors before each receive were taken for its rest, which was left over.
        ("scatter-gather_n2", "control16", "generic", 156, 52),
        # Words one by one, and pieces that were read again: of 104 sends' edges 15 stood out as sure, and were wrong.
        ("reread_n3", "control16", "generic", 156, 0),
        # Each send began with its second piece, behind one that was cut.
        ("cacheline_9", "control16", "generic", 248, 0),
        # One of 28 did, which had been read again.
        ("reread_n2", "control16", "generic", 325, 56),
        # The last words of each send, read one by one, were the first of the next one.
        ("scatter-gather_n7", "control16", "generic", 209, 0),
        # A status of one word, in a ring of its own and before each receive, was its beginning.
        ("tiny_n4", "vcd", "generic", 286, 60),
        # Three sends were whole from where they were read again; the other host has frames of the same numbers.
        ("reread_n1", "vcd", "card.toml", 243, 0),
        # A header, read word by word, and the rest in another buffer: each send ended before its last word.
        ("scatter-gather_n5", "control16", "card.toml", 189, 38),
        # Where two descriptors lie before a send, 13 of 20 began with the second; the truth was 91 nats cheaper.
        ("reread_n9", "control16", "card.toml", 271, 50),
        # The capture begins while the card has more in its queue: each send had the ring of a later one.
        ("cacheline_n13", "vcd", "card.toml", 189, 0),
        # Of more than 800 pieces hardly any reading was tried: each frame began at a later line.
        ("cacheline_n13", "control16", "generic", 184, 0),
        # A header ends in single words, too: each send began with its descriptor and ended before its last word.
        ("scatter-gather_n12", "control16", "card.toml", 220, 74),
        # And is read word by word; then what is left of the rest has any size.
        ("scatter-gather_f4", "control16", "generic", 186, 0),
        # 13 rings for four frames each, which wait for the wire: the last seven frames seemed to have none.
        ("overload_f6", "control16", "card.toml", 364, 0),
        # A card of 32 bits in a slot of 64, which no line shows: each send began with its descriptor.
        ("wide66_f11", "control16", "card.toml", 277, 88),
        # The cheapest reading was lost again: more frames agreed in a layout that was dearer in all.
        ("reread_f4", "control16", "card.toml", 271, 0),
        # Nothing was wrong either: 40 of these are found where reads and writes are read by themselves to begin with.
        ("reread_f3", "control16", "card.toml", 133, 0),
        # A frame began with what was read again, by 14 nats of what that taught; the truth was dearer by 8.
        ("reread_f12", "control16", "card.toml", 150, 0),
        # Two of eleven rings were a later access, by 20 nats.
        ("scatter-gather_f8", "control16", "generic", 170, 0),
        # Descriptors of 300 us seemed to be one frame among 60 that are equal: each send was the next on the wire.
        ("overload_g104", "vcd", "generic", 420, 0),
        # What was left of each frame at the end of a line is as large as a status: it lies where the frame went on.
        ("scatter-gather_g104", "vcd", "card.toml", 61, 18),
        # Sends and receives take turns: two places were in doubt, and five values that rested on them were wrong.
        ("reread_g114", "control16", "card.toml", 159, 0),
        # Two lengths in turn, and eight frames in the card at a time: each send was the frame eight before on the wire.
        ("csr-descriptors_h4", "vcd", "card.toml", 24, 0),
        # A driver rings for the next frame when the card has just read the descriptor of the one before.
        ("other-master_h4", "vcd", "card.toml", 290, 0),
        # A ring's tail goes on by two descriptors a frame, later by three: rings were for several sends.
        ("scatter-gather_h4", "vcd", "card.toml", 120, 36),
        # The capture begins in a frame on the wire; what was received then was the one before, and that one was lost.
        ("wide66_h3", "vcd", "card.toml", 182, 52),
        ("wide66_h3", "vcd", "generic", 174, 40),
        # Frame behind frame in one ring, and a word before each when it is there: that of the next was each one's end.
        ("csr-descriptors_h10", "vcd", "card.toml", 107, 30),
        # One frame takes two descriptors, the others one: from there on each had the ring before its own.
        ("scatter-gather_h10", "vcd", "card.toml", 375, 124),
        # A send was begun again so often that it seemed to be two: each had the ring before its own.
        ("reread_h10", "vcd", "card.toml", 80, 14),
        # No end of these sends was sure; a part of their beginnings was, and wrong by two descriptors.
        ("reread_h3", "control16", "card.toml", 131, 0),
        ("scatter-gather_h3", "control16", "card.toml", 178, 8),
        # All sends are equal: with their descriptors they could go on to the end of a block.
        ("ring_n1", "control16", "generic", 325, 100),
    ],
)
def test_no_value_of_a_drawn_card_is_wrong(
    card: str, kind: str, profile: str, edges: int, accesses: int, tmp_path: Path
) -> None:
    capture, said = KINDS[kind]
    for name in (capture, "card.toml"):
        (tmp_path / name).symlink_to(DRAWN / card / name)
    (tmp_path / "run.toml").write_text((DRAWN / card / said).read_text().replace("card.toml", profile))
    found = score(bench_of(DRAWN / card), analysis.frames(pcitrace.open(tmp_path)).table, kind)
    assert found.clean, found.cases
    print(card, found.total(*TIMES, "length"), found.total(*CSR))
    assert found.total(*TIMES, "length")["right"] >= edges
    assert found.total(*CSR)["right"] >= accesses
