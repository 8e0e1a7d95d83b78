"""The slot of each object: the best injective map, found as enumeration finds it, and by alternation without masks."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made_up_clips import World

from slotbench.evaluation.slot_matching import PositionProbe, match_by_masks, match_by_position, match_with_probe
from slotbench.metrics.segmentation import pairwise_iou


def total_iou(iou: torch.Tensor, maps: torch.Tensor) -> float:
    return sum(float(iou[m, n]) for m, n in enumerate(maps.tolist()) if n >= 0)


@given(objects=st.integers(1, 5), slots=st.integers(1, 5), seed=st.integers(0, 2**31))
def test_the_map_by_masks_is_the_one_that_enumeration_finds(objects: int, slots: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    tables = torch.randint(0, 30, (1, 2, objects + 1, slots), generator=generator)
    tables[..., 1:, 0] += 1  # every object is seen
    iou = pairwise_iou(tables.sum(1))[0, 1:]
    found = match_by_masks(tables)[0]
    assert torch.equal(found[0], found[1])
    used = [n for n in found[0].tolist() if n >= 0]
    assert len(used) == len(set(used)) == min(objects, slots)
    if objects <= slots:
        best = max(sum(float(iou[m, n]) for m, n in enumerate(p)) for p in permutations(range(slots), objects))
    else:
        best = max(sum(float(iou[m, n]) for n, m in enumerate(p)) for p in permutations(range(objects), slots))
    assert total_iou(iou, found[0]) == pytest.approx(best)


@given(objects=st.integers(1, 4), extra=st.integers(0, 1), seed=st.integers(0, 2**31))
def test_the_map_by_position_is_the_one_that_enumeration_finds(objects: int, extra: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    slots = torch.randn(1, 3, objects + extra, 6, generator=generator)
    positions = torch.randn(1, 3, objects, 2, generator=generator)
    visible = torch.rand(1, 3, objects, generator=generator) < 0.7
    visible[:, 0] = True
    weight = torch.randn(6, 2, generator=generator).double()
    probe = PositionProbe(lambda x: x.double() @ weight, torch.tensor([1.0, 3.0]).double())
    found = match_with_probe(slots, positions, visible, probe)[0, 0].tolist()
    read = slots[0].double() @ weight

    def error(chosen: list[int]) -> float:
        return sum(
            float(((positions[0, t, m] - read[t, n]) / probe.scale).square().sum())
            for t in range(3)
            for m, n in enumerate(chosen)
            if visible[0, t, m]
        )

    best = min(error(list(p)) for p in permutations(range(objects + extra), objects))
    assert error(found) == pytest.approx(best)


def test_an_object_keeps_its_slot_through_the_clip_or_may_change_it() -> None:
    tables = torch.tensor([[[[0, 0], [9, 0]], [[0, 0], [9, 0]], [[0, 0], [0, 9]]]])
    assert match_by_masks(tables, "video")[0, :, 0].tolist() == [0, 0, 0]
    assert match_by_masks(tables, "frame")[0, :, 0].tolist() == [0, 0, 1]


def test_an_object_that_is_not_to_be_seen_has_no_slot() -> None:
    tables = torch.tensor([[[[0, 9], [0, 0], [5, 0]], [[0, 9], [0, 0], [0, 5]]]])
    assert match_by_masks(tables, "video")[0, 0].tolist() == [-1, 0]
    # object 2 is nowhere in the second frame
    tables[0, 1, 2] = 0
    assert match_by_masks(tables, "frame")[0].tolist() == [[-1, 0], [-1, -1]]


def test_of_the_restarts_the_one_with_the_lowest_error_is_kept() -> None:
    clips, _ = World(clips=6, frames=2, noise=1.0).clips_of(0)
    where, visible = clips.labels["positions"], clips.visible
    many = match_by_position(clips.slots, where, visible, restarts=8)
    assert len(many.errors) == 8
    assert len(set(many.errors)) > 1
    kept = match_with_probe(clips.slots, where, visible, many.probe)
    read = many.probe.head(clips.slots.flatten(0, 2)).view(*clips.slots.shape[:3], 2)
    at = read.gather(2, kept[..., None].expand(-1, -1, -1, 2))
    error = float(((at - where) / many.probe.scale).square().mean())
    assert error == pytest.approx(min(many.errors))


def test_where_an_object_is_invisible_its_position_counts_for_nothing() -> None:
    clips, _ = World(clips=40).clips_of(0)
    where = clips.labels["positions"].clone()
    clips.visible[:, 1:3, 0] = False
    before = match_by_position(clips.slots, where, clips.visible)
    where[:, 1:3, 0] = 1e4
    after = match_by_position(clips.slots, where, clips.visible)
    assert torch.equal(before.maps, after.maps)
    assert before.errors == after.errors
