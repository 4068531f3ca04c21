"""Frames told by their lengths alone: traffic written by hand, with what was on the wire meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from nicruns import documented_profiles
from test_traffic import CLOCK_US, NIC, READ, WRITE, Bus
from units import units

from pcitrace import profiles
from pcitrace.frames import Frames, HostTraffic, Link, build
from pcitrace.frames.identity import other_lengths
from pcitrace.profiles import Profile
from pcitrace.traffic import Traffic
from pcitrace.traffic.ahead import Ahead, Bounds
from pcitrace.traffic.content import HEADER, WireFrames, wire_frames

BYTE_US = 0.08


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    path = tmp_path_factory.mktemp("profiles") / "card.toml"
    path.write_text(documented_profiles()["bridge-mac"])
    return profiles.load(path)


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Profile:
    """A card with descriptors of 8 bytes, bursts of at most 256 bytes and status writes of 16."""
    text = documented_profiles()["ring-model"].replace("size_bytes = 16", "size_bytes = 8")
    text = text.replace("burst_limit_bytes = 380", "burst_limit_bytes = 256")
    path = tmp_path_factory.mktemp("profiles") / "ring.toml"
    path.write_text(text.replace("status_bytes = [4]", "status_bytes = [16]"))
    return profiles.load(path)


class Wires:
    """Frames on both wires, as a sampled probe shows them: the length is only known within some bytes."""

    def __init__(self, unsure: int = 0) -> None:
        self.unsure = unsure
        self.rows: list[tuple[float, float, int]] = []

    def add(self, start_us: float, length: int) -> float:
        """Put a frame on the wire; return when it ends."""
        self.rows.append((start_us, start_us + (length + 12) * BYTE_US, length))
        return self.rows[-1][1]

    def frames(self) -> WireFrames:
        start, end, length = (np.array(column) for column in zip(*self.rows, strict=True))
        whole = np.isfinite(start)
        least = np.where(whole, length, -1).astype(np.int64)
        return WireFrames(start, end, least, least, least + self.unsure * whole, None, np.full(len(start), -1))


def add(bus: Bus, phases: int, clks: int, termination: str = "completion") -> None:
    bus.add(NIC, None, None, [0] * phases, first_clks=clks, termination=termination)


def told(bus: Bus, card: Profile, sent: Wires | None, received: Wires | None = None) -> Traffic:
    return bus.analyse(
        card,
        lines=(NIC,),
        sent=sent.frames() if sent else None,
        received=received.frames() if received else None,
    )


def phases_of(traffic: Traffic, kind: str) -> list[int]:
    bursts = traffic.bursts
    return [int(count) for count in bursts["data_phases"][bursts["kind"] == kind]]


def send(bus: Bus, pieces: Sequence[int], wire: Wires, length: int, clks: Sequence[int]) -> float:
    """Read a frame piece by piece and send it; return when the wire is free."""
    for count, wait in zip(pieces, clks, strict=True):
        add(bus, count, wait)
    return wire.add(bus.clock * CLOCK_US, length)


def test_single_words_are_not_reads_because_frames_could_be_made_of_them(card: Profile) -> None:
    """A frame that is written word by word, as slowly as any: any share of it adds up to what was sent."""
    rng = Random(1)
    bus, sent, received = Bus(), Wires(), Wires()
    lengths = [78, 526, 1038, 1514] * 10
    for length in lengths:
        end = send(bus, [16, 1, 1, 1, 1], sent, 78, [rng.randint(6, 10) for _ in range(5)])
        start = end + 20
        received.add(start, length)
        bus.clock = round((start + 12 * BYTE_US) / CLOCK_US)
        for _ in range(-(-(length + 4) // 4)):
            add(bus, 1, rng.randint(2, 4))
            bus.clock += 2
        bus.clock += 1000
    traffic = told(bus, card, sent, received)
    assert phases_of(traffic, "send_data") == [20] * 40
    assert phases_of(traffic, "receive_data") == [-(-(length + 4) // 4) for length in lengths]


@pytest.mark.parametrize("left", [1, 2, 3, 4, 5, 6, 7])
def test_what_is_left_of_a_frame_shifts_no_other(card: Profile, left: int) -> None:
    """The capture begins when a frame was partly read; all frames are alike, so what is left fits with the next."""
    bus, sent = Bus(), Wires()
    pieces = [16, 16, 16, 16, 16, 16, 16, 16, 1, 1, 1, 1]
    for number in range(12):
        own = pieces[-left:] if number == 0 else pieces
        bus.clock = round(send(bus, own, sent, 526, [8] * len(own)) / CLOCK_US) + 500
    found = told(bus, card, sent).pieces
    found = found[found["kind"] == "send_data"]
    assert [one.tolist() for _, one in found.groupby("burst")["data_phases"]] == [pieces] * 11


def test_what_is_left_of_a_frame_is_no_shorter_one(card: Profile) -> None:
    """The capture begins within a frame of 260 words; of the 148 that are left, 132 are as many as the next one has."""
    bus, sent = Bus(), Wires()
    lengths = [1038, 526, 526, 526, 1038, 526, 1514, 78, 1038, 526, 526, 78] * 2
    phases = [148, *(-(-length // 4) for length in lengths[1:])]
    for count, length in zip(phases, lengths, strict=True):
        own = [16] * (count // 16) + [1] * (count % 16)
        bus.clock = round(send(bus, own, sent, length, [8] * len(own)) / CLOCK_US) + 500
    assert phases_of(told(bus, card, sent), "send_data") == phases[1:]


def test_a_frame_on_the_wire_when_the_capture_begins_takes_no_piece(card: Profile) -> None:
    bus, sent = Bus(), Wires()
    sent.rows.append((np.nan, 1.0, -1))
    bus.clock = 100
    for _ in range(8):
        bus.clock = round(send(bus, [1, 16, 1, 1, 1], sent, 78, [8] * 5) / CLOCK_US) + 500
    assert phases_of(told(bus, card, sent), "send_data") == [20] * 8


def test_the_last_word_after_a_host_took_the_bus_is_the_frames(card: Profile) -> None:
    """The sampled wire leaves room for one word more: what comes at once is the frame's, not the next one's."""
    bus, sent = Bus(), Wires(unsure=4)
    for number in range(8):
        own = [53, 1] if number == 4 else [54]
        bus.clock = round(send(bus, own, sent, 212, [8] * len(own)) / CLOCK_US) + 20
        bus.clock = round(send(bus, [20], sent, 78, [8]) / CLOCK_US) + 500
    assert phases_of(told(bus, card, sent), "send_data") == [54, 20] * 8


def test_the_rest_of_a_frame_that_is_on_the_wire_is_no_shorter_ones(tmp_path: Path) -> None:
    """A card that cuts through reads word by word; the capture begins when one frame was read to a quarter."""
    path = tmp_path / "card.toml"
    path.write_text(documented_profiles()["bridge-mac"].replace('send = "store_and_forward"', 'send = "cut_through"'))
    bus, sent = Bus(), Wires()
    lengths = [1038, 1514, 78, 526, 526, 1038, 78, 1514, 526, 78]
    for number, length in enumerate(lengths):
        words = -(-length // 4) if number else 200
        for word in range(words):
            add(bus, 1, 8)
            bus.clock += 10
            if word == min(60, words - 1) and number:
                start = bus.clock * CLOCK_US
        wire_us = (length + 12) * BYTE_US
        bus.clock = round(sent.add(start if number else 5.0, length) / CLOCK_US) if number else bus.clock
        bus.clock = max(bus.clock, round((5.0 + wire_us) / CLOCK_US)) + 1500
    traffic = told(bus, profiles.load(path), sent)
    assert phases_of(traffic, "send_data") == [-(-length // 4) for length in lengths[1:]]


def test_the_first_whole_frame_is_kept_although_its_pieces_lie_far_apart(card: Profile) -> None:
    """A receiver that gathers what has come pauses in every frame; the capture begins with the last word of one."""
    bus, received = Bus(), Wires()
    bus.clock = 10
    add(bus, 1, 2)
    for length in [1510, 522, 74] * 6:
        start = bus.clock * CLOCK_US + 20
        received.add(start, length)
        for part in range(-(-(length + 4) // 196)):
            bus.clock = round((start + 16 * (part + 1)) / CLOCK_US)
            words = min(49, -(-(length + 4) // 4) - 49 * part)
            for count in [1] + [16] * ((words - 1) // 16) + [1] * ((words - 1) % 16):
                add(bus, count, 2)
    assert phases_of(told(bus, card, None, received), "receive_data") == [379, 132, 20] * 6


def test_no_word_is_written_before_it_has_come(card: Profile) -> None:
    """The capture begins while the words of one frame are written; the last come when the next is on the wire."""
    bus, received = Bus(), Wires()
    received.rows.append((np.nan, 5.0, -1))
    start = 6.0
    for length in [74, 522, 1034] * 4:
        received.add(start, length)
        bus.clock = max(bus.clock, round((start + 1.2) / CLOCK_US))
        if not bus.rows:
            bus.clock = round(1 / CLOCK_US)
            while bus.clock * CLOCK_US < start + 0.7:
                add(bus, 1, 2)
                bus.clock += 10
            bus.clock = round((start + 1.0) / CLOCK_US)
        for _ in range((length + 6) // 4):
            add(bus, 1, 2)
            bus.clock += 7
        start = max(received.rows[-1][1], bus.clock * CLOCK_US) + 1
    bursts = told(bus, card, None, received).bursts
    assert bursts["data_phases"][bursts["kind"] == "receive_data"].tolist() == [20, 132, 260] * 4
    first_us = bursts["first_data_us"][bursts["kind"] == "receive_data"].iloc[0]
    assert first_us == pytest.approx(received.rows[1][0] + 1.0 + 2 * CLOCK_US, abs=CLOCK_US)


@pytest.mark.parametrize("left", [3, 11, 19])
def test_the_first_whole_frame_may_begin_anywhere_among_single_words(card: Profile, left: int) -> None:
    """The capture begins within a frame; the card is behind the wire, so that words follow without a pause."""
    bus, received = Bus(), Wires()
    received.rows.append((np.nan, 1.0, -1))
    begins: list[float] = []
    bus.clock = round(4 / CLOCK_US)
    for _ in range(left):
        add(bus, 1, 11)
    for length in [1034, 74, 522, 74, 522, 1034, 74] * 4:
        if len(begins) % 7 == 6:
            # Everything has been written, and the wire is idle.
            bus.clock += 2000
            received.add(bus.clock * CLOCK_US - 2, length)
        else:
            received.add(received.rows[-1][1] + 1, length)
        begins.append(bus.clock * CLOCK_US)
        for _ in range((length + 6) // 4):
            add(bus, 1, 11)
    bursts = told(bus, card, None, received).bursts
    start_us = bursts["start_us"][bursts["kind"] == "receive_data"].to_numpy(dtype=float)
    assert start_us == pytest.approx(begins, abs=2 * CLOCK_US)


def test_a_status_as_long_as_a_tail_is_not_the_head_of_the_next_frame(ring: Profile) -> None:
    """Frames whose last piece is of 4 words and their status of 4 follow each other with equal pauses."""
    bus, received = Bus(), Wires()
    end = 0.0
    for _ in range(12):
        end = received.add(end + 1, 526)
    bus.clock = round(end / CLOCK_US)
    for count in (64, 59, 5, 4, 4) * 12:
        add(bus, count, 2)
    pieces = told(bus, ring, None, received).pieces
    found = pieces[pieces["kind"] == "receive_data"]
    assert [one.tolist() for _, one in found.groupby("burst")["data_phases"]] == [[64, 59, 5, 4]] * 12


@pytest.mark.parametrize(("heads", "sizes"), [(1, [64, 59, 5, 4]), (2, [64, 60, 4, 4])])
def test_what_is_short_comes_last_even_if_what_was_before_is_a_little_nearer(heads: int, sizes: list[int]) -> None:
    count = np.array([4] * heads + sizes + [4, 64])
    last = np.cumsum(count * CLOCK_US + np.where(count == 4, 0.3, 0.15))
    first = last - (count - 1) * CLOCK_US
    ahead = Ahead.of(units(count, first, last), frozenset([4]), 64)
    assert ahead.frame(0, len(count), Bounds(132, 132, 132))[0] == [heads + number for number in range(4)]


def test_a_piece_that_waited_for_the_bus_stays_with_its_frame(ring: Profile) -> None:
    """A receive comes behind the first of 64 + 64 + 64 + 2 words; with the next frame's first piece it is as many."""
    bus, sent = Bus(), Wires()
    for _ in range(6):
        add(bus, 2, 8)
        add(bus, 64, 8)
        bus.clock += 400
        for count in (64, 64, 2):
            add(bus, count, 8)
        end = sent.add(bus.clock * CLOCK_US + 5, 776)
        for count in (2, 64, 64, 64, 54):
            add(bus, count, 8)
        bus.clock = round(sent.add(max(end + 1, bus.clock * CLOCK_US), 984) / CLOCK_US) + 500
    pieces = told(bus, ring, sent).pieces
    found = pieces[pieces["kind"] == "send_data"]
    wanted = [[64, 64, 64, 2], [64, 64, 64, 54]] * 6
    assert [one.tolist() for _, one in found.groupby("burst")["data_phases"]] == wanted


def test_descriptors_ahead_are_not_the_head_of_a_frame_that_is_whole_without_them(ring: Profile) -> None:
    """The latency timer cuts the first piece of one frame to 60 + 4: with the 8 before them, 60 and 64 are as many."""
    bus, sent = Bus(), Wires()
    wanted = [[64, 64, 4], [60, 4, 64, 4], [64, 64, 4], [64, 64, 4]]
    for pieces in wanted:
        for count in (8, *pieces):
            add(bus, count, 8)
        bus.clock = round(sent.add(bus.clock * CLOCK_US + 1, 528) / CLOCK_US) + 300
    pieces = told(bus, ring, sent).pieces
    found = pieces[pieces["kind"] == "send_data"]
    assert [one.tolist() for _, one in found.groupby("burst")["data_phases"]] == wanted


def write(bus: Bus, received: Wires, length: int, missing: int = 0) -> None:
    """Write a frame that has come, in pieces of 64 words but for some that are missing, and its status of 4."""
    bus.clock = round(received.add(bus.clock * CLOCK_US + 5, length) / CLOCK_US) + 50
    words = -(-length // 4) - missing
    for count in [64] * (words // 64) + [words % 64, 4]:
        add(bus, count, 2)


def test_a_full_piece_with_a_status_behind_it_is_no_later_frame_whose_buffer_is_not_aligned(ring: Profile) -> None:
    """Of two frames that wait the second has 63 words; the first, of 100, has another's status in its middle."""
    bus, received = Bus(), Wires()
    for length in [800, 656] * 4:
        write(bus, received, length)
    end = received.add(bus.clock * CLOCK_US + 5, 400)
    bus.clock = round(received.add(end + 1, 252) / CLOCK_US) + 50
    for count in (64, 4, 36, 4, 63, 4):
        add(bus, count, 2)
    write(bus, received, 656)
    assert phases_of(told(bus, ring, None, received), "receive_data") == [200, 164] * 4 + [100, 63, 164]


@pytest.mark.parametrize("waits", [False, True])
def test_a_frame_whose_tail_waited_with_a_status_as_long_has_no_end(ring: Profile, waits: bool) -> None:
    """Once there are three of 4 words behind the full piece: its tail, its status, and one that was of no frame here.

    The bus rests before the second of them, so that this was not there when the tail came; or it does not.
    """
    bus, received = Bus(), Wires()
    for length in [272, 400, 336] * 5:
        write(bus, received, length)
    bus.clock = round(received.add(bus.clock * CLOCK_US + 5, 272) / CLOCK_US) + 50
    for count, pause in ((64, 5), (4, 2 if waits else 5), (4, 5), (4, 5)):
        add(bus, count, 2)
        bus.clock += pause - 5
    write(bus, received, 400)
    bursts = told(bus, ring, None, received).bursts
    bursts = bursts[bursts["kind"] == "receive_data"]
    assert bursts["data_phases"].tolist() == [68, 100, 84] * 5 + [68, 100]
    assert bursts["last_data_us"].isna().tolist() == [False] * 15 + [waits, False]


def test_a_piece_that_is_missing_is_not_taken_from_all_frames_behind(ring: Profile) -> None:
    """With the first piece of the next one a frame of 249 words is whole, and so on: each begins with a full piece."""
    bus, received = Bus(), Wires()
    lengths = [996, 656, 800] * 5
    for number, length in enumerate(lengths):
        write(bus, received, length, missing=64 * (number == 3))
    wanted = [length // 4 for number, length in enumerate(lengths) if number != 3]
    assert phases_of(told(bus, ring, None, received), "receive_data") == wanted


def test_status_words_far_apart_are_no_frame(ring: Profile) -> None:
    """A frame of 20 words is lost; five statuses of 4 words behind it are those of sends."""
    bus, received = Bus(), Wires()
    for _ in range(3):
        write(bus, received, 78)
    received.add(bus.clock * CLOCK_US + 5, 78)
    for _ in range(5):
        bus.clock += 1000
        add(bus, 4, 2)
    traffic = told(bus, ring, None, received)
    assert phases_of(traffic, "receive_data") == [20] * 3
    assert phases_of(traffic, "status_write") == [4] * 8


def test_whole_frames_are_not_what_is_left_of_one(ring: Profile) -> None:
    """Three of a cycle of six lengths arrive, three are lost: without the first three nothing would seem to be lost."""
    bus, received = Bus(), Wires()
    lengths = [165, 186, 661, 713, 967, 1376]
    for length in lengths[:3]:
        write(bus, received, length)
    for length in lengths[3:]:
        received.add(received.rows[-1][1] + 50, length)
    bus.clock = round(received.rows[-1][1] / CLOCK_US) + 1000
    for length in lengths * 4:
        write(bus, received, length)
    wanted = [-(-length // 4) for length in lengths[:3] + lengths * 4]
    assert phases_of(told(bus, ring, None, received), "receive_data") == wanted


@pytest.mark.parametrize("ending", [False, True])
def test_no_frame_goes_on_behind_a_data_phase_with_bytes_disabled(ending: bool) -> None:
    count = np.array([43, 50, 29, 4, 64])
    last = np.cumsum(count * CLOCK_US + 0.15)
    first = last - (count - 1) * CLOCK_US
    own = units(count, first, last, ending=np.array([True, False, ending, False, False]))
    found, _ = Ahead.of(own, frozenset([4]), 64).frame(0, len(count), Bounds(126, 126, 126))
    assert found == ([] if ending else [0, 1, 2, 3])


def test_a_status_between_full_pieces_is_not_the_tail() -> None:
    """A card ends a piece before its limit only where the frame ends; one that does so anywhere tells nothing."""
    for sizes, own in (((64, 4, 64, 4, 4, 64), [0, 2, 3]), ((64, 4, 32, 4, 4, 64), [0, 1, 2])):
        count = np.array(sizes)
        last = np.cumsum(count * CLOCK_US + 0.15)
        first = last - (count - 1) * CLOCK_US
        ahead = Ahead.of(units(count, first, last), frozenset([4]), 64)
        words = sum(sizes[:3])
        assert ahead.frame(0, len(count), Bounds(words, words, words))[0] == own


def test_descriptors_among_pieces_that_are_cut_and_completed_are_not_the_tail() -> None:
    """The latency timer cuts pieces of 64 words, the card completes them: so 4 in between would move all behind it."""
    count = np.array([64, 4, 40, 24, 50, 14, 30, 4, 2, 64])
    last = np.cumsum(count * CLOCK_US + 0.15)
    first = last - (count - 1) * CLOCK_US
    ahead = Ahead.of(units(count, first, last), frozenset([2, 4]), 64)
    assert ahead.frame(0, len(count), Bounds(226, 226, 226))[0] == [0, 2, 3, 4, 5, 6, 7]


def test_a_retried_read_is_no_attempt_of_the_write_behind_it(ring: Profile) -> None:
    """What the target retries is repeated as it was: where the command was captured, that is the next of its kind."""
    bus, sent, received = Bus(), Wires(), Wires()
    reads, writes = [], []
    for _ in range(8):
        received.add(bus.clock * CLOCK_US, 252)
        bus.clock = round(received.rows[-1][1] / CLOCK_US) + 100
        reads.append(bus.add(NIC, READ, None, [], termination="retry"))
        bus.clock += 10
        writes.append(bus.add(NIC, WRITE, None, [0] * 63))
        bus.clock += 10
        reads.append(bus.add(NIC, READ, None, [0] * 50))
        bus.clock = round(sent.add(bus.clock * CLOCK_US, 200) / CLOCK_US) + 500
    traffic = told(bus, ring, sent, received)
    kinds = traffic.pieces.set_index("transaction")["kind"]
    assert kinds[reads].tolist() == ["send_data"] * 16
    assert kinds[writes].tolist() == ["receive_data"] * 8
    assert traffic.bursts["pieces"].tolist() == [2, 1] * 8


def followed(reader: Bus, writer: Bus, on_wire: list[tuple[float, float]], profile: Profile) -> Frames:
    """Follow what one host reads, and the other writes, of frames that are seen on the wire between them."""
    start_us, end_us = zip(*on_wire, strict=True)
    wire = pd.DataFrame({"start_us": start_us, "end_us": end_us, "bytes": None})
    frames_on_wire = wire_frames(wire, 0.008, 8, 0.01)
    hosts = {
        "A": HostTraffic(reader.analyse(profile, lines=(NIC,), sent=frames_on_wire), profile, None, wire, 0.01),
        "B": HostTraffic(writer.analyse(profile, lines=(NIC,), received=frames_on_wire), profile),
    }
    return build(hosts, link=Link(1000.0))


def test_an_edge_that_what_was_read_contradicts_is_null(tmp_path: Path) -> None:
    """The wire leaves open whether a word beside the status is the frame's; 84 words were read, 83 are told.

    A word that is left out in the frame's middle moves no edge, nor does a status that was taken for one there.
    """
    path = tmp_path / "rings.toml"
    path.write_text(documented_profiles()["ring-model"])
    profile = profiles.load(path)
    reader, writer, on_wire = Bus(), Bus(), []
    lengths = [330, 334, 338] * 4
    lengths[3] = lengths[7] = 333
    lengths[10] = 332
    for number, length in enumerate(lengths):
        add(reader, -(-length // 4), 8)
        start = reader.clock * CLOCK_US
        on_wire.append((start, start + (length + 12) * 0.008))
        reader.clock = writer.clock = round(on_wire[-1][1] / CLOCK_US) + 40
        # The receiving host had taken the bus before the last word, and the status of another send comes as well.
        pieces = {3: [40, 1, 43], 7: [83, 1], 10: [40, 1, 43]}.get(number, [-(-length // 4)])
        for place, count in enumerate((*pieces, 1)):
            writer.clock += 10 * (count == 1)
            # The target cut the piece before the status short.
            add(writer, count, 2, "disconnect_without_data" if (number, place) == (10, 0) else "completion")
        writer.clock += 10
        if number in (5, 7, 9):
            add(writer, 1, 2)
    frames = followed(reader, writer, on_wire, profile)
    unknown = frames.table[["rx_dma_start_us", "rx_dma_end_us", "rx_status_us"]].isna()
    assert unknown.to_numpy().tolist() == [[number == 7] * 3 for number in range(12)]
    assert frames.drop_log["frame"].tolist() == [7]
    assert frames.drop_log["reason"].tolist() == [
        "a status word beside it may be its own, or one of its words a status"
    ]


@pytest.mark.parametrize(
    ("read", "cut", "written", "other"),
    [
        (84, False, 84, False),
        (84, False, 85, True),
        (88, True, 84, False),
        (84, True, 85, True),
        (12, False, 15, False),
    ],
    ids=["alike", "a status word more", "read again after a cut", "cut and gone on", "padded"],
)
def test_what_says_how_long_a_write_is(read: int, cut: bool, written: int, other: bool) -> None:
    """Nine frames of 84 words, and one whose read and write are these."""
    on_wire = min(read, 84) * 4 if read > 15 else 60
    rows = {
        "send_phases": np.array([84] * 9 + [read]),
        "receive_phases": np.array([84] * 9 + [written]),
        "receive_bytes": np.array([84] * 9 + [written]) * 4,
        "wire_row": np.arange(10),
        "send_burst": np.arange(10),
        "receive_burst": np.arange(10),
    }
    least = np.array([84 * 4] * 9 + [on_wire - 1])
    wire = SimpleNamespace(least=least, most=np.array([84 * 4] * 9 + [on_wire + 1]), length=least)
    none = SimpleNamespace(data_phases=np.ones(10, np.int64), cut=np.append(np.zeros(9, bool), cut))
    dma = SimpleNamespace(burst=np.arange(10), bus=none)
    found, _ = other_lengths(rows, wire, np.zeros(10, np.int64), dma, dma)
    assert found.tolist() == [False] * 9 + [other]


def test_a_check_sequence_that_no_other_frame_has_is_a_status(tmp_path: Path) -> None:
    """Nobody says whether it is written. Once a word follows as soon as a piece, and the status behind it."""
    path = tmp_path / "rings.toml"
    path.write_text("".join(line for line in documented_profiles()["ring-model"].splitlines(True) if "fcs" not in line))
    profile = profiles.load(path)
    assert profile.receive_fcs is None
    reader, writer, on_wire = Bus(), Bus(), []
    for number, length in enumerate([330, 334, 338] * 5):
        words = -(-length // 4)
        add(reader, words, 8)
        start = reader.clock * CLOCK_US
        on_wire.append((start, start + (length + 12) * 0.008))
        reader.clock = writer.clock = round(on_wire[-1][1] / CLOCK_US) + 40
        for count in (40, words - 40, *[1] * (number == 7)):
            add(writer, count, 2)
        writer.clock += 30
        add(writer, 1, 2)
    ends = followed(reader, writer, on_wire, profile).table["rx_dma_end_us"]
    assert ends.isna().tolist() == [number == 7 for number in range(15)]


def test_single_words_that_add_up_to_a_frame_in_reach_are_one() -> None:
    """40 of them are looked at: as many data phases are found, one more is not, whatever lies behind."""
    count = np.ones(60, np.int64)
    first = np.arange(60) * 0.1
    ahead = Ahead.of(units(count, first, first + 0.05), frozenset([1]), 64)
    assert ahead.adding_up(0, 60, 40, 40)[0] == list(range(40))
    assert ahead.adding_up(0, 60, 41, 41)[0] == []


def test_what_was_written_again_after_a_cut_counts_once() -> None:
    """No wire was captured: 80 bytes of the third frame are written twice, and are no part of its length."""
    reader, writer, words = Bus(), Bus(), [0] * 64
    for number in range(5):
        reader.add(NIC, READ, 0x10000 + 0x1000 * number, words)
        writer.clock = reader.clock + 400
        if number == 2:
            writer.add(NIC, WRITE, 0x20000 + 0x1000 * number, words[:20], termination="disconnect_with_data")
        writer.add(NIC, WRITE, 0x20000 + 0x1000 * number, words)
        reader.clock += 2000
    profile = profiles.load("generic")
    hosts = {
        name: HostTraffic(bus.analyse(profile, lines=(NIC,)), profile) for name, bus in (("A", reader), ("B", writer))
    }
    table = build(hosts, link=Link(1000.0)).table
    assert table["length_bytes"].tolist() == [256 - HEADER] * 5
    assert table["rx_dma_start_us"].notna().all()
