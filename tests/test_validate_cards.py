"""The validation by families of cards: a few of its runs, that it notices what is wrong, and that its page is true."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from types import ModuleType

import pytest
from cardbench import Score
from conftest import REPOSITORY

PAGE = REPOSITORY / "docs" / "validation.md"


@pytest.fixture(scope="module")
def cards() -> ModuleType:
    """Return tools/validate_cards.py."""
    spec = importlib.util.spec_from_file_location("validate_cards", REPOSITORY / "tools" / "validate_cards.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["validate_cards"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("family", "seed"), [("csr-descriptors", 1), ("random_bench", 1)])
def test_a_few_benches(cards: ModuleType, family: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way is analysed; with the true profile or none nothing of the DMA is wrong where that is kept today."""
    # How fast the machine is is no matter of a test.
    monkeypatch.setattr(cards, "LONGEST_S", 3600)
    cases = cards.one_bench(family, seed, 16)
    assert [(case.capture, case.profile) for case in cases] == [
        (capture, profile) for capture in cards.CAPTURES for profile in cards.PROFILES
    ]
    assert not [case.failed for case in cases if case.failed]
    judged = cards.CAPTURES if family == cards.RANDOM else ("full AD",)
    for case in cases:
        if case.profile != "another" and case.capture in judged:
            assert case.scored.total(*cards.TIMES, "length")["wrong"] == 0, (case.capture, case.profile)
            assert case.scored.extra == case.scored.crossed == case.scored.lost_rx == 0
    text = cards.markdown(cases)
    assert f"### {family}" in text
    assert text.count("| full AD |") == 3


def test_with_everything_captured_nothing_is_wrong(cards: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "CAPTURES", {"full AD": cards.CAPTURES["full AD"]})
    cases = cards.one_bench("wide66", 1, 16)
    assert [one.profile for one in cases] == list(cards.PROFILES)
    assert not [one.failed for one in cases if one.failed]
    for one in cases:
        if one.profile != "another":
            assert one.scored.total(*cards.TIMES, "length")["wrong"] == 0, one.profile
            assert one.scored.total(*cards.TIMES)["right"] > 0
            assert one.scored.extra == one.scored.crossed == one.scored.lost_rx == 0


def case(cards: ModuleType, profile: str = "true", **counts: int) -> object:
    """A case in which everything is right but what is given."""
    scored = Score(frames=100, **counts)
    for field in scored.fields.values():
        field.update(right=100)
    return cards.Case("ring", 1, "full AD", profile, scored)


def test_what_does_not_keep_its_limit_is_noticed(cards: ModuleType) -> None:
    assert cards.failures([case(cards)]) == []
    [one] = cards.failures([case(cards, wrong_frames=1)])
    assert one == "ring, full AD, profile true: 1 of 100 frames wrong"
    assert "3 rows are no frame" in cards.failures([case(cards, extra=1, crossed=1, lost_rx=1)])[0]
    failed = case(cards)
    failed.failed = "IndexError: 3"
    assert "1 not analysed (IndexError: 3)" in cards.failures([failed])[0]
    null = case(cards)
    null.scored.fields["dma_end"] = Counter(null=20, right=80)
    assert "2.9% of the values null (limit 2%)" in cards.failures([null])[0]
    null.profile = "generic"
    assert cards.failures([null]) == []
    null.scored.fields["csr_last"] = Counter(null=40, right=60)
    assert "20.0% of the CSR times null (limit 15%)" in cards.failures([null])[0]
    pulls = case(cards)
    pulls.pulls = {str(number): 1.0 for number in range(12)}
    assert "pulls with mean +1.00 and width 0.00" in cards.failures([pulls])[0]
    pulls.pulls = {"t_nic_us": 6.0}
    assert "largest pull 6.0" in cards.failures([pulls])[0]
    text = cards.markdown([case(cards, wrong_frames=1)])
    assert "Limits are not kept in 1 of 1 rows" in text
    assert "All limits of these tables are kept." in cards.markdown([case(cards)])


def test_without_a_wire_the_wire_is_not_counted(cards: ModuleType) -> None:
    one = case(cards)
    one.capture = "control lines alone"
    for name in cards.WIRE:
        one.scored.fields[name] = Counter(null=100)
    assert cards.failures([one]) == []


def test_the_page_says_what_is_not_kept() -> None:
    """Every row that says no is in the list above the tables, and no other."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## Families of cards\n")[2]
    assert section, "run make validate"
    rows = [line.rstrip(" |").rpartition("| ")[2] for line in section.splitlines() if line.count("|") == 12]
    kept = [row for row in rows if row in ("yes", "no")]
    said = [line for line in section.partition("\n### ")[0].splitlines() if line.startswith("- ")]
    assert len(kept) >= 9 * 20
    assert kept.count("no") == len(said)
