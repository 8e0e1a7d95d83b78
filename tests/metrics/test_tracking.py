"""CLEAR-MOT and identity: hand-made cases with every kind of error, and an event list written out the slow way."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slotbench.metrics.tracking import Tracking, TrackingRule, half_life, track

HIDDEN, NOBODY = "-", "."
AREA, PIXELS = 10, 1000


def clip(*objects, extra=()):
    """The table of a clip of objects of 10 pixels, each a text with its slot in every frame.

    Slot 0 has the background. "-" is an object that is hidden, "." one that slot 0 has; `extra` has (frame, slot) with
    ten pixels of the background.
    """
    table = np.zeros((len(objects[0]), len(objects) + 1, 6), np.int64)
    table[:, 0, 0] = PIXELS
    for number, slots in enumerate(objects, 1):
        for frame, slot in enumerate(slots):
            if slot != HIDDEN:
                table[frame, number, 0 if slot == NOBODY else int(slot)] += AREA
    for frame, slot in extra:
        table[frame, 0, slot] += AREA
    return table


def errors(found):
    return found.misses, found.false_positives, found.switches


@pytest.mark.parametrize(
    ("objects", "extra", "expected", "half_life"),
    [
        pytest.param(("1111", "2222"), (), (0, 0, 0), float("inf"), id="all slots kept"),
        pytest.param(("11..", "2222"), (), (2, 0, 0), float("inf"), id="no slot"),
        pytest.param(("1111",), [(0, 3), (2, 3), (3, 4)], (0, 3, 0), float("inf"), id="slots on nothing"),
        pytest.param(("1133",), (), (0, 0, 1), 2, id="another slot, then its own"),
        pytest.param(("1122", "2211"), (), (0, 0, 2), 2, id="slots exchanged"),
    ],
)
def test_errors_are_counted(objects, extra, expected, half_life):
    found = track(clip(*objects, extra=extra))
    assert errors(found) == expected
    assert (found.frames, found.objects, found.fragments, found.occlusions) == (4, 4 * len(objects), 0, 0)
    assert (found.mota, found.motp) == (1 - sum(expected) / found.objects, 1)
    assert found.switches_per_100_frames == 25 * found.switches
    assert found.half_life == half_life


def test_a_slot_that_loses_its_object_for_a_frame_is_a_fragment_and_no_switch():
    found = track(clip("1.11"))
    assert errors(found) == (1, 0, 0)
    assert (found.fragments, found.occlusions) == (1, 0)


def test_a_swap_behind_an_occluder_is_two_switches_and_nothing_found_again():
    found = track(clip("11--22", "22--11"))
    assert errors(found) == (0, 0, 2)
    assert (found.objects, found.occlusions, found.found_again, found.found_again_share) == (8, 2, 0, 0)
    assert found.fragments == 0, "what is hidden is not missed"


def test_an_object_that_comes_back_to_its_slot_is_found_again_if_it_takes_a_frame():
    found = track(clip("11--.1", "22--33"))
    assert (found.occlusions, found.found_again, found.found_again_share) == (2, 1, 0.5)


def test_one_that_is_hidden_again_before_any_slot_has_it_is_not_found():
    found = track(clip("1-.-1"))
    assert (found.occlusions, found.found_again) == (2, 1)


def test_being_hidden_before_the_first_match_or_at_the_end_is_no_occlusion():
    assert track(clip("-.-11--")).occlusions == 0


def test_an_earlier_pair_is_kept_though_another_slot_fits_better():
    table = clip("11")
    table[1, 1] = [0, 4, 6, 0, 0, 0]
    found = track(table, TrackingRule(min_iou=0.3, min_pixels=0))
    assert (found.switches, found.false_positives) == (0, 1)
    assert found.motp == pytest.approx((1 + 0.4) / 2)
    assert track(table, TrackingRule(min_iou=0.5, min_pixels=0)).switches == 1


def test_as_many_pairs_as_possible_come_before_the_sum_of_ious():
    # slot 1 alone fits the second object, and fits the first one best
    table = np.zeros((1, 3, 3), np.int64)
    table[0, 1], table[0, 2] = [0, 60, 30], [0, 20, 0]
    found = track(table, TrackingRule(min_iou=0.2, min_pixels=0, background_iou=None))
    assert (found.matches, found.misses) == (2, 0)
    assert found.iou == pytest.approx(30 / 90 + 20 / 80)


def test_the_slot_of_the_background_is_a_track_only_if_asked_for():
    table = clip("11")
    assert track(table).false_positives == 0
    assert track(table, TrackingRule(background_iou=None)).false_positives == 2


def test_what_has_few_pixels_is_not_there():
    table = clip("111")
    table[1, 1] = [0, 5, 0, 0, 0, 0]
    table[2, 0, 4] = 5
    found = track(table)
    assert (found.objects, errors(found), found.occlusions, found.found_again) == (2, (0, 0, 0), 1, 1)
    assert track(table, TrackingRule(min_pixels=4)).objects == 3


def test_mota_may_be_far_below_zero_and_has_no_value_without_objects():
    assert track(clip("1.", extra=[(0, 2), (0, 3), (0, 4), (1, 2), (1, 3)])).mota == 1 - 6 / 2
    nothing = track(clip("---"))
    assert (nothing.mota, nothing.motp, nothing.half_life, nothing.found_again_share) == (None, None, None, None)
    assert Tracking().switches_per_100_frames is None


def test_counts_of_clips_add_up():
    one, other = track(clip("1122", "2211")), track(clip("11--2."))
    both = one + other
    assert both.objects == one.objects + other.objects == 12
    assert both.ended == Counter({2: 2, 4: 1})
    assert both.mota == 1 - (both.misses + both.switches) / 12
    assert both.hota == one.hota + other.hota


def test_switches_are_counted_per_object_that_ever_had_a_slot():
    found = track(clip("1212", "33..", "...."))
    assert (found.tracked, found.switches_per_object) == (2, 1.5)
    assert track(clip("....")).switches_per_object is None


def test_hota_has_the_objects_and_slots_of_the_rule():
    table = clip("11", "2-", extra=[(0, 3)])
    assert track(table).hota.objects == 3
    assert track(table).hota.slots == 4
    assert track(table).hota.score == pytest.approx((3 / 4) ** 0.5)
    assert track(table, TrackingRule(background_iou=None)).hota.slots == 6


@pytest.mark.parametrize(
    ("ended", "held", "expected"),
    [
        ({}, {}, None),
        ({}, {3: 1}, float("inf")),
        ({2: 1, 4: 1}, {}, 2),
        ({2: 1, 4: 2}, {}, 4),
        # 1 of 4 is gone after 2 frames, then 2 are out of sight, and the last one ends: 3/4, then 0
        ({2: 1, 6: 1}, {4: 2}, 6),
        # those that are out of sight after as many frames were there
        ({2: 1}, {2: 1}, 2),
        ({2: 1}, {2: 2}, float("inf")),
    ],
)
def test_half_life_is_the_median_of_kaplan_and_meier(ended, held, expected):
    assert half_life(Counter(ended), Counter(held)) == expected


# --- the same, from label maps, event by event


def slow_track(true, predicted, rule):
    """Counts from label maps: every way to pair objects and slots is tried."""
    last, counts, iou_sum = {}, Counter(), 0.0
    for true_frame, slot_frame in zip(true, predicted, strict=True):
        masks = {i: true_frame == i for i in np.unique(true_frame) if i != 0}
        objects = {i: mask for i, mask in masks.items() if mask.sum() > rule.min_pixels}
        slots = {j: slot_frame == j for j in np.unique(slot_frame)}
        slots = {j: mask for j, mask in slots.items() if mask.sum() > rule.min_pixels}
        if rule.background_iou is not None:
            slots = {j: mask for j, mask in slots.items() if iou(true_frame == 0, mask) <= rule.background_iou}
        pairs = {}
        for i in objects:
            j = last.get(i)
            if j in slots and j not in pairs.values() and iou(objects[i], slots[j]) >= rule.min_iou:
                pairs[i] = j
        pairs |= best_pairs(
            {i: mask for i, mask in objects.items() if i not in pairs},
            {j: mask for j, mask in slots.items() if j not in pairs.values()},
            rule.min_iou,
        )
        counts["switches"] += sum(last.get(i, j) != j for i, j in pairs.items())
        counts["misses"] += len(objects) - len(pairs)
        counts["false_positives"] += len(slots) - len(pairs)
        iou_sum += sum(iou(objects[i], slots[j]) for i, j in pairs.items())
        last |= pairs
    return counts["misses"], counts["false_positives"], counts["switches"], iou_sum


def iou(one, other):
    return (one & other).sum() / (one | other).sum()


def best_pairs(objects, slots, min_iou):
    best, best_pairs_of = (0, 0.0), {}
    padded = [*slots, *[None] * len(objects)]
    for choice in set(permutations(padded, len(objects))):
        pairs = {i: j for i, j in zip(objects, choice, strict=True) if j is not None}
        values = [iou(objects[i], slots[j]) for i, j in pairs.items()]
        worth = len(values), sum(values)
        if all(value >= min_iou for value in values) and worth > best:
            best, best_pairs_of = worth, pairs
    return best_pairs_of


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.sampled_from([None, 0.2]), st.integers(0, 5))
def test_counts_are_those_of_the_events_written_out(seed, background_iou, min_pixels):
    rng = np.random.default_rng(seed)
    time, objects, slots = rng.integers(1, 7), rng.integers(1, 4), rng.integers(1, 5)
    true, predicted = np.zeros((2, time, 12, 12), np.int64)
    names = rng.permutation(5)
    for frame in range(time):
        if rng.random() < 0.3:
            names = rng.permutation(5)
        true[frame] = np.kron(rng.integers(0, objects + 1, (3, 3)), np.ones((4, 4), np.int64))
        noisy = rng.random((12, 12)) < rng.choice([0, 0.1, 0.4])
        predicted[frame] = np.where(noisy, rng.integers(0, slots, (12, 12)), names[true[frame]] % slots)
    table = np.zeros((time, objects + 1, slots), np.int64)
    for frame in range(time):
        np.add.at(table[frame], (true[frame].ravel(), predicted[frame].ravel()), 1)
    # above one half a slot fits one object at most, so that no two ways are equally good
    rule = TrackingRule(0.501, int(min_pixels), background_iou)
    found = track(table, rule)
    misses, false_positives, switches, iou_sum = slow_track(true, predicted, rule)
    assert errors(found) == (misses, false_positives, switches)
    assert found.iou == pytest.approx(iou_sum)
