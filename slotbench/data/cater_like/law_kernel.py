"""The law by which objects slide, are picked up, turn and cover each other; compiled, and readable as it stands.

Without numba the same functions run as plain Python (`simulate_into.py_func`), with the same numbers: a test holds both
together. All that the kernel uses is in this file: the compiler's cache on disk notices a change of this file only.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

__all__ = ["CONE", "CUBE", "CYLINDER", "HALF_FLOOR", "LIFT", "SNITCH", "SPHERE", "simulate_into"]

CUBE, CYLINDER, SPHERE, CONE, SNITCH = 0, 1, 2, 3, 4

HALF_FLOOR = 3.0
"""Centres stay within this distance of the middle of the floor, along both axes."""
LIFT = 2.0
"""How high an object is picked up."""

_SHORTEST, _LONGEST, _LATEST = 20, 30, 10  # frames that a move takes, and by which it may start after its round
_TRIES = 100
_UP, _DOWN = 0.2, 0.8  # shares of a move after which an object has been lifted, and from which on it is put down
_SLIDE, _PICK, _ROTATE = 0, 1, 2


@njit(cache=True, nogil=True)
def _move_along(path, place, x, y, length, lifted):  # type: ignore[no-untyped-def]
    """Fills `path` "frames 3" with a move from `place` to (x, y) in `length` frames, and with its end after that."""
    for k in range(len(path)):
        share = min(1.0, (k + 1) / length)
        way, height = share, 0.0
        if lifted:
            way = min(1.0, max(0.0, (share - _UP) / (_DOWN - _UP)))
            height = LIFT * min(1.0, share / _UP, (1.0 - share) / (1.0 - _DOWN))
        path[k, 0] = place[0] + way * (x - place[0])
        path[k, 1] = place[1] + way * (y - place[1])
        path[k, 2] = height


@njit(cache=True, nogil=True)
def _clashes(places, holders, radii, heights, gap, mover, target, lifted_at, path, first):  # type: ignore[no-untyped-def]
    """Whether an object on a path from frame `first` on runs into another one that nothing covers, or comes too near.

    Args:
        gap: least distance of the balls in whose place objects are taken, half as wide as they are high; below 0 the
            objects themselves may not touch, as cylinders.
        target: an object that it may run into, or -1.
        lifted_at: frame from which on what it covered before counts as well; a frame after the video for never.
    """
    for k in range(len(path)):
        time = first + k
        if time >= len(places):
            break
        for other in range(len(radii)):
            if other in (mover, target):
                continue
            holder = holders[time, other]
            if holder >= 0 and not (holder == mover and time >= lifted_at):
                continue
            apart = math.hypot(path[k, 0] - places[time, other, 0], path[k, 1] - places[time, other, 1])
            if gap >= 0:
                sizes = 0.5 * (heights[mover] + heights[other])
                above = path[k, 2] - places[time, other, 2] + 0.5 * (heights[mover] - heights[other])
                if math.hypot(apart, above) - sizes < gap:
                    return True
                continue
            if apart >= radii[mover] + radii[other]:
                continue
            bottom = places[time, other, 2]
            if path[k, 2] < bottom + heights[other] and bottom < path[k, 2] + heights[mover]:
                return True
    return False


@njit(cache=True, nogil=True)
def _carry_out(places, holders, mover, path, first):  # type: ignore[no-untyped-def]
    """Moves an object along a path, with all that it covers, and leaves them at its end for the rest of the video."""
    num_frames, count = holders.shape
    for other in range(count):
        outermost = other
        while holders[first, outermost] >= 0 and outermost != mover:
            outermost = holders[first, outermost]
        if outermost != mover:
            continue
        for time in range(first, num_frames):
            k = min(time - first, len(path) - 1)
            places[time, other, 0] = path[k, 0]
            places[time, other, 1] = path[k, 1]
            if other == mover:
                places[time, other, 2] = path[k, 2]


@njit(cache=True, nogil=True)
def _try_single(rng, shapes, radii, heights, gap, ends, places, turns, holders, mover, start, path):  # type: ignore[no-untyped-def]
    """One move of one object that nothing covers, unless no try fits; returns the frame at which it has ended."""
    num_frames = len(places)
    shape = shapes[mover]
    turns_about = shape in (CUBE, CYLINDER, SNITCH)
    for _ in range(_TRIES):
        first = start + 1 + rng.integers(0, _LATEST + 1)
        length = rng.integers(_SHORTEST, _LONGEST + 1)
        kind = rng.integers(0, 3 if turns_about else 2)
        if first >= num_frames:
            return start
        if ends:
            length = min(length, num_frames - first)
        if kind == _ROTATE:
            for time in range(first, num_frames):
                turns[time, mover] += 0.5 * math.pi * min(1.0, (time - first + 1) / length)
            return first + length
        x, y = rng.uniform(-HALF_FLOOR, HALF_FLOOR), rng.uniform(-HALF_FLOOR, HALF_FLOOR)
        _move_along(path, places[first, mover], x, y, length, kind == _PICK)
        uncovers_at = first + math.ceil(_UP * length) if kind == _PICK else num_frames
        if _clashes(places, holders, radii, heights, gap, mover, -1, uncovers_at, path, first):
            continue
        if kind == _PICK:
            for other in range(len(radii)):
                if holders[first, other] == mover:
                    holders[first:, other] = -1
        _carry_out(places, holders, mover, path, first)
        return first + length
    return start


@njit(cache=True, nogil=True)
def _try_contain(rng, shapes, radii, heights, gap, places, holders, busy, start, path):  # type: ignore[no-untyped-def]
    """Has an empty cone cover a smaller cone, sphere or snitch, unless no try fits; returns the frame of its end."""
    count = len(radii)
    for _ in range(_TRIES):
        mover, target = rng.integers(0, count), rng.integers(0, count)
        first = start + 1 + rng.integers(0, _LATEST + 1)
        length = rng.integers(_SHORTEST, _LONGEST + 1)
        if shapes[mover] != CONE or holders[start, mover] >= 0 or first + length >= len(places):
            continue
        if shapes[target] == CUBE or shapes[target] == CYLINDER or holders[start, target] >= 0:
            continue
        holds = False
        for other in range(count):
            holds = holds or holders[start, other] == mover
        if holds or radii[target] >= radii[mover]:
            continue
        goal = places[start, target]
        _move_along(path, places[first, mover], goal[0], goal[1], length, True)
        if _clashes(places, holders, radii, heights, gap, mover, target, len(places), path, first):
            continue
        _carry_out(places, holders, mover, path, first)
        holders[first + length - 1 :, target] = mover
        busy[mover] = True
        busy[target] = True
        return first + length
    return start


@njit(cache=True, nogil=True)
def simulate_into(rng, shapes, radii, heights, most_movers, gap, last_round, ends, places, turns, holders):  # type: ignore[no-untyped-def]
    """Lets the objects move, in place.

    Arguments:

    - `rng`: numpy's generator.
    - `shapes`: "objects".
    - `radii`: as seen from above "objects".
    - `heights`: "objects".
    - `most_movers`: how many objects move in one round at most.
    - `gap`: how near objects may come to each other, see `_clashes`.
    - `last_round`: the frame before which rounds begin.
    - `ends`: whether a move for which there is no time is shorter; otherwise it goes on when the video ends.
    - `places`: x, y of the centre and z of the lowest point "time objects 3", those of the start at all times.
    - `turns`: about the vertical, in radians "time objects", zeros.
    - `holders`: what covers an object directly, -1 for nothing "time objects", all -1.
    """
    count = holders.shape[1]
    # moves of a round are checked against each other up to the latest frame at which one may end
    path = np.empty((_LATEST + _LONGEST + 1, 3))
    order = np.arange(count)
    busy = np.zeros(count, np.bool_)
    start = 0
    while start < last_round:
        busy[:] = False
        end, movers = start, 0
        if rng.random() < 0.5:
            end = _try_contain(rng, shapes, radii, heights, gap, places, holders, busy, start, path)
            movers += end > start
        for i in range(count - 1, 0, -1):
            j = rng.integers(0, i + 1)
            order[i], order[j] = order[j], order[i]
        for mover in order:
            if movers >= most_movers:
                break
            if busy[mover] or holders[start, mover] >= 0:
                continue
            ended = _try_single(rng, shapes, radii, heights, gap, ends, places, turns, holders, mover, start, path)
            movers += ended > start
            end = max(end, ended)
        start = max(end, start + _SHORTEST)
