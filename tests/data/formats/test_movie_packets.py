"""Frames of a movie are numbered as they are shown, and what is lost shifts no number."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotbench.data.formats.movie_packets import FrameLostError, MoviePackets


@dataclass
class Packet:
    """A packet of PyAV, and which frame in order of display it holds."""

    shows: int
    is_keyframe: bool
    pts: int | None
    dts: int
    pos: int | None
    size: int = 9
    is_discard: bool = False
    is_corrupt: bool = False


@dataclass
class Frame:
    key_frame: bool
    is_corrupt: bool = False


@st.composite
def movies(draw: st.DrawFn) -> list[Packet]:
    """Groups of pictures of a key frame with those that lead it, and frames with those before them, in any order.

    Their times are those of display, or of decoding.
    """
    timed, packets, shown = draw(st.booleans()), [], 0
    for group in range(draw(st.integers(1, 4))):
        for part in range(draw(st.integers(1, 3))):
            between = draw(st.permutations(range(draw(st.integers(0, 4))))) if group or part else []
            for place, show in enumerate([len(between), *between]):
                at = len(packets)
                time = shown + show if timed else at
                packets.append(Packet(shown + show, not part and not place, time, at, 100 * at))
            shown += 1 + len(between)
    return packets


def decoder(packets: list[Packet], start: int, lost: int | None) -> list[tuple[int | None, Frame]]:
    """What a decoder gives: frames in order of display, those that lead the start left out."""
    given = [at for at in range(start, len(packets)) if packets[at].shows >= packets[start].shows and at != lost]
    return [(at, Frame(packets[at].is_keyframe)) for at in sorted(given, key=lambda at: packets[at].shows)]


@given(packets=movies(), data=st.data())
def test_a_frame_has_its_number_or_none(packets: list[Packet], data: st.DataObject) -> None:
    index = MoviePackets(packets, "h264")
    assert len(index) == len(packets)
    lost = data.draw(st.none() | st.integers(0, len(packets) - 1))
    start = data.draw(st.sampled_from(index.keys.tolist()))
    found: list[int] = []
    tags = iter(decoder(packets, start, lost))
    came: list[int] = []

    def decoded():  # type: ignore[no-untyped-def]
        for tag, frame in tags:
            came.append(tag)
            yield tag, frame

    try:
        for number, _ in index.numbered(decoded(), start):
            found.append(number)
    except FrameLostError:
        times = any(b.pts < a.pts for a, b in pairwise(packets))
        leads = any(packet.shows < packets[start].shows for packet in packets[start:])
        assert lost is not None or (leads and not times)
    # the frames that came first have the numbers found, in order
    assert found == [packets[tag].shows for tag in came[: len(found)]]
    if lost is not None:
        assert packets[lost].shows not in found


def plain(count: int, every: int = 10) -> list[Packet]:
    return [Packet(at, at % every == 0, at, at, 100 * at) for at in range(count)]


def test_frames_that_lead_a_key_frame_are_learned_once() -> None:
    packets = plain(9, 4)
    packets[4].shows, packets[5].shows, packets[6].shows = 6, 4, 5
    index = MoviePackets(packets, "h264")
    with pytest.raises(FrameLostError, match="after frame 4 is missing"):
        list(index.numbered(decoder(packets, 4, None), 4))
    assert index.starts(5, set()) == [4, 0]
    assert index.learn_leading(4, 2)
    assert not index.learn_leading(4, 2)
    assert index.starts(5, set()) == [0]
    assert index.starts(6, set()) == [4, 0]
    assert [number for number, _ in index.numbered(decoder(packets, 4, None), 4)] == [6, 7, 8]


def test_key_frames_are_tried_from_the_last_before_on_and_then_the_first() -> None:
    index = MoviePackets(plain(60), "h264")
    assert index.starts(45, set()) == [40, 30, 0]
    assert index.starts(45, {40, 20}) == [30, 10, 0]
    assert index.starts(5, {0}) == [0]


def test_what_is_not_shown_is_not_counted() -> None:
    packets = plain(30)
    for at in (11, 12):
        packets[at].is_discard = True
    packets[29].is_corrupt = True
    packets[3].size = 0  # of no packet
    index = MoviePackets(packets, "h264")
    assert len(index) == 26
    assert index.first_frames.tolist() == [0, 9, 17]
    late = plain(12)
    late[0].is_keyframe = False
    assert len(MoviePackets(late, "h264")) == 2


def test_a_frame_that_is_damaged_or_comes_twice_is_lost() -> None:
    index = MoviePackets(plain(20), "h264")
    good = [(at, Frame(at % 10 == 0)) for at in range(10, 20)]
    assert [number for number, _ in index.numbered(good, 10)] == list(range(10, 20))
    for wrong in (
        [(10, Frame(False)), *good[1:]],
        [good[0], (11, Frame(False, True)), *good[2:]],
        [*good[:3], *good[2:]],
        [good[0], (None, Frame(False)), *good[2:]],
        [good[0], (3, Frame(False)), *good[2:]],
        good[1:],
    ):
        with pytest.raises(FrameLostError):
            list(index.numbered(wrong, 10))


def test_packets_are_found_where_they_are_in_the_file() -> None:
    packets = plain(9)
    packets[4].pos = None
    packets[6].pos = packets[7].pos
    index = MoviePackets(packets, "h264")
    assert [index.find(packet) for packet in packets] == [0, 1, 2, 3, None, 5, None, None, 8]
    packets[2].size = 8
    assert index.find(packets[2]) is None
    assert index.is_packet(4, packets[4])
    assert not index.is_packet(3, packets[5])
