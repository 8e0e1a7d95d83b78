"""HOTA: cases by hand, and the same written out frame by frame with every way to pair objects and slots tried."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest

from slotbench.metrics.hota import THRESHOLDS, Hota, hota_counts


def clip(*slots_of_objects: str, slots: int = 4):
    """Objects that fill the slot named in each frame, "." being a frame in which none has it."""
    time, objects = len(slots_of_objects[0]), len(slots_of_objects)
    iou = np.zeros((time, objects, slots))
    for one, text in enumerate(slots_of_objects):
        for frame, slot in enumerate(text):
            if slot != ".":
                iou[frame, one, int(slot)] = 1.0
    return np.ones((time, objects), bool), iou.any(1), iou


def scores(counts: Hota):
    return counts.score, counts.detection, counts.association


def test_a_pair_counts_at_the_thresholds_up_to_its_iou():
    objects, slots, iou = clip("11")
    found = hota_counts(objects, slots, 0.5 * iou)
    assert found.matches == (2,) * 10 + (0,) * 9
    assert scores(found) == pytest.approx((10 / 19, 10 / 19, 10 / 19))


def test_what_overlaps_for_longer_is_matched_though_another_fits_better_now():
    objects, slots, iou = clip("1111")
    slots[3, 2] = True
    iou[3, 0, 1], iou[3, 0, 2] = 0.6, 0.7
    assert hota_counts(objects, slots, iou).matches[0] == 4
    assert hota_counts(objects, slots, iou).association == pytest.approx((12 * 1 + 7 * 3 / (4 + 4 - 3)) / 19)


def test_clips_add_up_and_nothing_has_no_score():
    one, other = hota_counts(*clip("1122")), hota_counts(*clip("11.."))
    assert (one + other).matches == tuple(a + b for a, b in zip(one.matches, other.matches, strict=True))
    assert (one + other).association == pytest.approx((4 * 0.5 + 2 * 0.5) / 6)
    assert (one + Hota()) == one
    assert scores(hota_counts(*(part[:0] for part in clip("1")))) == (None, None, None)
    alone = hota_counts(np.ones((2, 1), bool), np.zeros((2, 3), bool), np.zeros((2, 1, 3)))
    assert scores(alone) == (0, 0, 0)


@pytest.mark.parametrize("seed", range(30))
def test_it_is_that_of_the_definition(seed):
    rng = np.random.default_rng(seed)
    time, count, number = rng.integers(1, 6), rng.integers(1, 4), rng.integers(1, 5)
    objects, slots = rng.random((time, count)) < 0.8, rng.random((time, number)) < 0.8
    iou = rng.random((time, count, number)) * (rng.random((time, count, number)) < 0.7)
    assert scores(hota_counts(objects, slots, iou)) == pytest.approx(slow_hota(objects, slots, iou))


def slow_hota(objects, slots, iou):
    """The same, pair by pair."""
    frames = range(len(iou))
    there = {t: (np.flatnonzero(objects[t]), np.flatnonzero(slots[t])) for t in frames}
    worth = {}
    for i in range(iou.shape[1]):
        for j in range(iou.shape[2]):
            shared = 0.0
            for t in frames:
                if objects[t, i] and slots[t, j] and iou[t, i, j]:
                    both = iou[t, i, there[t][1]].sum() + iou[t, there[t][0], j].sum() - iou[t, i, j]
                    shared += iou[t, i, j] / both
            either = objects[:, i].sum() + slots[:, j].sum() - shared
            worth[i, j] = shared / either if either else 0.0
    pairs = []
    for t in frames:
        rows, columns = there[t]
        ways = permutations([*columns, *[None] * len(rows)], len(rows))
        pairs_of = [[(i, j) for i, j in zip(rows, way, strict=True) if j is not None] for way in ways]
        best = max(pairs_of, key=lambda way: sum(worth[i, j] * iou[t, i, j] for i, j in way))
        pairs += [(t, i, j) for i, j in best]
    total, everything = np.zeros(3), sum(len(rows) + len(columns) for rows, columns in there.values())
    for threshold in THRESHOLDS:
        matched = [(i, j) for t, i, j in pairs if iou[t, i, j] >= threshold]
        detection = len(matched) / (everything - len(matched)) if everything else 0.0
        shares = []
        for i, j in matched:
            together = matched.count((i, j))
            shares.append(together / (objects[:, i].sum() + slots[:, j].sum() - together))
        association = sum(shares) / len(shares) if shares else 0.0
        total += np.array([math.sqrt(detection * association), detection, association]) / len(THRESHOLDS)
    return tuple(total) if everything else (None, None, None)
