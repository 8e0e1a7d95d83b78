"""The packets of a movie: which of them are shown, and from which key frame on a frame can be decoded and numbered."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Protocol, TypeVar

import numpy as np

__all__ = ["FrameLostError", "MoviePackets"]

_MOST = 1 << 20  # packets: ten hours at 30 frames a second
_UNKNOWN = np.iinfo(np.int64).min
_LONGEST_REORDERING = 17  # frames that a decoder holds back; H.264 and HEVC allow for 16


class FrameLostError(Exception):
    """A frame that the packets promise cannot be decoded; the message names it."""


class Decoded(Protocol):
    """A decoded frame, as far as `MoviePackets` reads it."""

    @property
    def key_frame(self) -> bool:
        """Whether it needs no other frame."""

    @property
    def is_corrupt(self) -> bool:
        """Whether the decoder found it damaged."""


AnyFrame = TypeVar("AnyFrame", bound=Decoded)


class MoviePackets:
    """The packets of a movie, numbered in the order in which they are decoded; read without decoding.

    Frames are numbered in the order in which a decoder gives them, which is that of display. Display times say how many
    frames come before a key frame though they are decoded after it (open groups of pictures), and are of no other use:
    AVI has none, and those that FFmpeg makes up for it are wrong. Without them such frames are found by decoding.

    Not counted are packets that a file says are not shown (edit lists, hidden frames of VP8), those that are cut off or
    damaged, and what cannot be decoded as it comes before the first key frame.

    Args:
        packets: of PyAV, in order.
        codec: FFmpeg's name of it.

    Raises:
        ValueError: there are more than can be meant.
    """

    def __init__(self, packets: Iterable[Any], codec: str) -> None:
        columns = [array("q") for _ in range(6)]
        for packet in packets:
            if not packet.size:
                continue
            if len(columns[0]) == _MOST:
                raise ValueError(f"it has more than {_MOST:,} packets")
            visible = not (packet.is_discard or packet.is_corrupt or (codec == "vp8" and not bytes(packet)[0] & 16))
            at, display, decode = packet.pos, packet.pts, packet.dts
            for column, value in zip(
                columns, (at, packet.size, display, decode, packet.is_keyframe, visible), strict=True
            ):
                column.append(_UNKNOWN if value is None else value)
        at, self.sizes, self.display_times, self.decode_times, keys, shown = map(_numbers, columns)
        self.positions = np.where(at < 0, _UNKNOWN, at)
        self.keys = np.flatnonzero(keys) if keys.any() else np.arange(min(1, len(keys)))
        self.shown = shown.astype(bool)
        # what neither decoders nor players show: frames that need some from before the file begins
        if len(self.keys):
            first = int(self.keys[0])
            self.shown[:first] = False
            self.shown[first + 1 : first + 1 + self._leading(first)] = False
        self.before = np.concatenate([[0], np.cumsum(self.shown)])
        self.leading = np.zeros(len(self.keys), np.int64)
        self.first_frames = self.before[self.keys]
        for place in np.flatnonzero(self._earlier(self.keys + 1, self.keys)):
            self._set_leading(int(place), self._leading(int(self.keys[place])))
        self._ranks = self._ranks_of_times()
        self._order = np.argsort(self.positions, kind="stable")

    def __len__(self) -> int:
        """Frames."""
        return int(self.before[-1])

    def starts(self, frame: int, unfit: set[int]) -> list[int]:
        """Key frames from which a frame can be decoded, to be tried in turn: the last, that before, and the first."""
        last = int(np.searchsorted(self.first_frames, frame, "right"))
        fit = (int(self.keys[place]) for place in range(last - 1, -1, -1) if self.keys[place] not in unfit)
        return list(dict.fromkeys([*islice(fit, 2), int(self.keys[0])]))

    def seek_times(self, key: int) -> list[int]:
        """Where to seek a key frame, to be tried in turn: formats have indices of display or of decoding times."""
        times = (self.display_times[key], self.decode_times[key], self.decode_times[self.key_before(key)])
        return list(dict.fromkeys(int(time) for time in times if time != _UNKNOWN))

    def key_before(self, key: int) -> int:
        """The key frame before one, or that itself if it is the first."""
        return int(self.keys[max(0, int(np.searchsorted(self.keys, key)) - 1)])

    def learn_leading(self, key: int, count: int) -> bool:
        """Keeps how many packets after that of a key frame are shown before it; whether that was not known."""
        place = int(np.searchsorted(self.keys, key))
        if self._ranks is not None or self.leading[place] or not 0 < count <= _LONGEST_REORDERING:
            return False
        self._set_leading(place, count)
        return True

    def find(self, packet: Any) -> int | None:
        """The number of a packet, by where in the file it is; None where that is not known, or not of one alone."""
        if packet.pos is None or packet.pos < 0:
            return None
        first, stop = np.searchsorted(self.positions, [packet.pos, packet.pos + 1], sorter=self._order)
        number = int(self._order[first]) if stop == first + 1 else None
        return number if number is not None and self.is_packet(number, packet) else None

    def is_packet(self, number: int, packet: Any) -> bool:
        """Whether a packet is the one of that number, as far as can be told."""
        if number >= len(self.sizes) or packet.size != self.sizes[number]:
            return False
        return packet.pos is None or self.positions[number] in (_UNKNOWN, packet.pos)

    def numbered(self, decoded: Iterable[tuple[int | None, AnyFrame]], start: int) -> Iterator[tuple[int, AnyFrame]]:
        """Numbers frames, each as soon as its number is certain.

        It is where all frames have come whose packets are before those of some that have, and of the next one too; or
        where the order of display times is that of the frames so far. What is lost is seen by that, and never shifts
        the numbers of others.

        Args:
            decoded: frames with the numbers of their packets, as a decoder gives them from a key frame on.
            start: that key frame.

        Raises:
            FrameLostError: a frame does not come, or the start is no key frame.
        """
        place = int(np.searchsorted(self.keys, start))
        leading = range(start + 1, start + 1 + int(self.leading[place]))
        due = np.flatnonzero(self.shown[start:]) + start
        due = due[(due < leading.start) | (due >= leading.stop)]
        number = int(self.first_frames[place])
        held: list[tuple[int, AnyFrame]] = []
        early: set[int] = set()
        came, complete, safe, safe_at, in_order = 0, 0, 0, 0, self._ranks is not None
        for packet, frame in decoded:
            if packet is None or not start <= packet < len(self.shown):
                raise FrameLostError(f"frame {number} cannot be told from others")
            if not self.shown[packet] or (packet in leading and not came):
                continue
            if packet in leading or packet in early or complete == len(due) or packet < due[complete]:
                raise FrameLostError(f"frame {number} comes twice, or out of order")
            begins = packet == start and frame.key_frame
            if frame.is_corrupt or not (came or begins or place == 0 or not self.shown[start]):
                raise FrameLostError(f"frame {number} is damaged, or needs others that are")
            came += 1
            in_order = in_order and self._ranks is not None and self._ranks[packet] == number
            held.append((number, frame))
            early.add(packet)
            number += 1
            while complete < len(due) and due[complete] in early:
                early.remove(int(due[complete]))
                complete += 1
            if complete > safe_at:
                # what comes next in the file has come too: nothing that is shown before those is lost
                yield from held[:safe]
                del held[:safe]
                safe = 0
            if in_order and came > 1:
                yield from held
                held.clear()
                safe = 0
            elif not early:
                safe, safe_at = len(held), complete
            elif len(held) > 2 * _LONGEST_REORDERING:
                break
        if early or (complete < len(due) and not in_order):
            raise FrameLostError(f"a frame after frame {held[0][0] if held else number} is missing")
        yield from held

    def _set_leading(self, place: int, count: int) -> None:
        after = self.keys[place] + 1
        self.leading[place] = count
        self.first_frames[place] = self.before[after - 1] + self.before[after + count] - self.before[after]

    def _earlier(self, packets: np.ndarray, than: np.ndarray) -> np.ndarray:
        """Whether packets have times of display before those of others."""
        times = np.append(self.display_times, _UNKNOWN)
        return (times[packets] != _UNKNOWN) & (times[packets] < times[than])

    def _leading(self, key: int) -> int:
        """How many packets after that of a key frame are shown before it; 0 if that cannot be."""
        following = np.arange(key + 1, min(key + 2 + _LONGEST_REORDERING, len(self.sizes)))
        earlier = self._earlier(following, np.array(key))
        count = len(earlier) if earlier.all() else int(np.argmin(earlier))
        return count if count <= _LONGEST_REORDERING else 0

    def _ranks_of_times(self) -> np.ndarray | None:
        """The place of each packet in the order of display times; None if these may be made up."""
        times = self.display_times[self.shown]
        if (times == _UNKNOWN).any() or (np.diff(times) >= 0).all():
            return None
        ranks = np.full(len(self.shown), -1)
        ranks[np.flatnonzero(self.shown)[np.argsort(times, kind="stable")]] = np.arange(len(times))
        return ranks


def _numbers(column: array[int]) -> np.ndarray:
    return np.frombuffer(column, np.int64) if len(column) else np.zeros(0, np.int64)
