"""Which way data go is told by what was told to the card, where no wire and no address tells it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cardbench import Bench, score, write

import pcitrace
from pcitrace import analysis, frames
from pcitrace.frames import margins
from pcitrace.frames.rung import rung_for
from pcitrace.simulate import simulate
from pcitrace.traffic.csr import CONFIGURATION


def answering(access_us: list[float], sends: list[int], addressed: bool = False, reason: int = -1) -> Any:
    """A host that moves a frame every 10 us, for 3 us, from 10 us on; which of them it sends."""
    begin_us = np.arange(10.0, 70.0, 10.0)
    joined = SimpleNamespace(first_data_us=begin_us, last_data_us=begin_us + 3)
    csr = SimpleNamespace(first_attempt_us=np.array(access_us), reason=np.full(len(access_us), reason))
    dma = SimpleNamespace(bus=SimpleNamespace(has_address=addressed))
    host = SimpleNamespace(traffic=SimpleNamespace(joined=joined, csr=csr, dma=dma))
    receives = np.setdiff1d(np.arange(6), sends)
    return SimpleNamespace(host=host, sends=np.array(sends, np.int64), receives=receives, wire=None)


@pytest.mark.parametrize(
    ("access_us", "sends", "shares"),
    [
        ([18.0, 38.0, 58.0], [1, 3, 5], (1.0, 0.0)),
        ([18.0, 38.0, 58.0], [0, 2, 4], (0.0, 1.0)),
        # What comes while a frame is moved rings for a later one.
        ([5.0, 21.0, 22.9, 44.0], [1, 3, 5], (0.0, 1.0)),
        ([], [0, 2, 4], (0.0, 0.0)),
    ],
    ids=["before each send", "before each receive", "meanwhile", "none"],
)
def test_what_was_accessed_before_each_frame_is_counted(
    access_us: list[float], sends: list[int], shares: tuple[float, float]
) -> None:
    assert rung_for(answering(access_us[::-1], sends)) == pytest.approx(shares)


def test_a_burst_that_was_joined_over_others_hides_no_access() -> None:
    end = answering([18.0, 38.0, 58.0], [1, 3, 5])
    end.host.traffic.joined.last_data_us[0] = 70.0
    assert rung_for(end) == (1.0, 0.0)


def test_what_sets_a_card_up_rings_for_nothing() -> None:
    assert rung_for(answering([18.0], [1], reason=CONFIGURATION)) == (0.0, 0.0)


def test_a_host_without_sends_has_no_share_of_them() -> None:
    sends, receives = rung_for(answering([18.0], []))
    assert np.isnan(sends)
    assert receives == pytest.approx(1 / 6)


@pytest.mark.parametrize(
    ("end", "answered"),
    [
        (answering([18.0, 38.0, 58.0], [0, 2, 4]), True),
        (answering([18.0, 38.0, 58.0], [1, 3, 5]), False),
        (answering([18.0, 38.0], [0, 2, 4]), True),
        (answering([18.0], [0, 2, 4]), False),
        (answering([18.0, 28.0, 38.0, 58.0], [0, 2, 4]), False),
        (answering([18.0, 38.0, 58.0], []), False),
        (answering([18.0, 38.0, 58.0], [0, 2, 4], addressed=True), False),
    ],
    ids=["answers", "sends", "most", "few", "a send too", "no send", "addresses tell"],
)
def test_what_is_rung_for_is_no_receive(end: Any, answered: bool) -> None:
    assert margins._answered(end) == answered


def test_the_answers_of_a_host_are_not_what_it_received(tmp_path: Path) -> None:
    """On 28 frames 9 sends and 9 receives were wrong, at 12 to 14 nats: it had answered each with one as long."""
    bench = Bench("padding", 74, 28)
    write(bench, tmp_path, vcd=False, control14=True)
    (tmp_path / "run.toml").write_text((tmp_path / "run-control14.toml").read_text())
    found = analysis.frames(pcitrace.open(tmp_path), profile=str(tmp_path / "card.toml"))
    scored = score(bench, found.table, "control14")
    assert scored.total()["wrong"] == scored.extra == scored.crossed == 0


def test_frames_of_a_host_that_answers_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the rules' frames would be judged by themselves, and a host's that answers are swapped."""
    simulate("acenic-fig3.1", tmp_path / "run", values={"analyser.wires": "control14", "test.count": 12})
    again: list[bool] = []

    def doubted(*given: Any) -> Any:
        found = margins.doubted(*given)
        again.append(found is None)
        return found

    monkeypatch.setattr(frames, "doubted", doubted)
    analysis.frames(pcitrace.open(tmp_path / "run"))
    monkeypatch.setattr(margins, "rung_for", lambda _: (0.0, 1.0))
    analysis.frames(pcitrace.open(tmp_path / "run"))
    assert not any(again[: len(again) // 2])
    assert all(again[len(again) // 2 :])


@pytest.mark.parametrize(
    ("wires", "why"),
    [((object(), object()), "they are on no wire"), ((None, object()), "the wires were not captured")],
    ids=["both wires", "one wire"],
)
def test_what_is_left_out_is_said_with_its_reason(wires: tuple[object, object], why: str) -> None:
    hosts: Any = {name: SimpleNamespace(wire=wire) for name, wire in zip("AB", wires, strict=True)}
    [text] = frames._untold(hosts, 9)
    assert why in text
    assert "9 possible frames are left out" in text
    assert frames._untold(hosts, 0) == ()
