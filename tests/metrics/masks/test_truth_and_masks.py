"""What counts as an id and as a soft mask: types, the order of axes, and pixels that no mask covers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from slotbench.figures.painting import match_slots
from slotbench.interfaces import VideoBatch
from slotbench.metrics import (
    ARI,
    FGARI,
    ClearMOT,
    MatchedIoU,
    MeanBestOverlap,
    SlotOccupancy,
    frame_tables,
    masks_to_labels,
    slot_shares,
    track_labels,
)
from slotbench.metrics.contingency import LEAST_SHARE, integer_ids

METRICS = [kind("video") for kind in (ARI, FGARI, MatchedIoU, MeanBestOverlap)]


def ids(*shape: int, most: int = 4) -> Tensor:
    return torch.randint(0, most, shape, generator=torch.Generator().manual_seed(0))


def shares(slots: int, *, time: int = 3, size: tuple[int, int] = (6, 8)) -> Tensor:
    """Hard masks of the ids of `ids(1, time, *size, most=slots)`."""
    return torch.nn.functional.one_hot(ids(1, time, *size, most=slots), slots).movedim(-1, 2).float()


@pytest.mark.parametrize("metric", [*METRICS, ClearMOT()], ids=lambda metric: type(metric).__name__)
def test_truth_of_a_floating_point_type_is_refused(metric: object) -> None:
    true = ids(1, 3, 6, 8)
    with pytest.raises(ValueError, match="expected integer ids, 0 = background"):
        metric.update(true, true / 255)  # type: ignore[attr-defined]


def test_true_and_false_and_negative_numbers_are_ids() -> None:
    true = ids(1, 3, 6, 8, most=2)
    for metric in (ARI("video"), FGARI("frame"), MatchedIoU("video")):
        values = []
        for labels in (true, true.bool(), true.to(torch.uint8)):
            metric.reset()
            metric.update(ids(1, 3, 6, 8), labels)
            values.append(metric.compute())
        assert values[0] == values[1] == values[2]
    assert torch.equal(frame_tables(true, -7 * true)[..., :2, :2], frame_tables(true, true)[..., :2, :2])
    assert integer_ids(torch.tensor([True, False]), "labels").tolist() == [1, 0]


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.uint16, bool])
def test_a_batch_of_arrays_takes_ids_of_any_integer_type(kind: type) -> None:
    true = np.arange(32).reshape(2, 4, 4).astype(kind)
    found = VideoBatch.from_numpy(np.zeros((2, 4, 4, 3), np.uint8), true).require("masks")
    assert found[0].tolist() == true.astype(int).tolist()


@pytest.mark.parametrize("slots", [1, 3, 255, 256, 300])
def test_pixels_that_no_mask_covers_have_an_id_of_their_own(slots: int) -> None:
    masks = torch.zeros(2, slots, 2, 2)
    masks[:, slots - 1, 0] = 0.4
    assert masks_to_labels(masks)[:, 0].unique().tolist() == [slots - 1]
    assert masks_to_labels(masks)[:, 1].unique().tolist() == [slots]
    masks[:, :, 1] = LEAST_SHARE / 2
    assert masks_to_labels(masks)[:, 1].unique().tolist() == [slots]


def test_logits_cover_every_pixel() -> None:
    masks = torch.zeros(1, 3, 2, 2)
    masks[0, 1, 0, 0] = -1.0
    assert masks_to_labels(masks).max() == 0


def test_masks_that_are_no_numbers_are_refused() -> None:
    masks = shares(3)
    masks[0, 1, 2, 3, 4] = float("nan")
    with pytest.raises(ValueError, match="no numbers"):
        masks_to_labels(masks)


@given(st.integers(0, 2**16), st.floats(0, 1))
def test_uncovered_pixels_score_as_one_segment_more(seed: int, share: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    true = torch.randint(0, 3, (1, 2, 4, 4), generator=generator)
    labels = torch.randint(0, 3, (1, 2, 4, 4), generator=generator)
    covered = torch.rand(1, 2, 4, 4, generator=generator) < share
    soft = torch.nn.functional.one_hot(labels, 3).movedim(-1, 2) * covered[:, :, None].float()
    by_id = labels.masked_fill(~covered, 9)
    for kind in (ARI, FGARI, MatchedIoU, MeanBestOverlap):
        values = []
        for predicted in (soft, by_id):
            metric = kind("video")
            metric.update(predicted, true)
            values.append(metric.compute())
        torch.testing.assert_close(*values, equal_nan=True)


def test_uncovered_pixels_are_no_slot_where_slots_are_counted() -> None:
    soft = torch.zeros(1, 2, 3, 4, 4)
    soft[:, :, 1, :, :2] = 1.0
    labels = masks_to_labels(soft)
    assert slot_shares(labels, 3).tolist() == [[0.0, 0.5, 0.0]]
    occupancy = SlotOccupancy()
    occupancy.update(labels, 3)
    assert occupancy.compute()["live_slots"] == 1
    assert track_labels(soft)[0, 0, 0].tolist() == [2, 2, 0, 0]
    true = torch.zeros(2, 4, 4, dtype=torch.long)
    true[..., 2:] = 5
    assert match_slots(labels[0], true, 3) == {}


@pytest.mark.parametrize("axes", [(0, 1, 3, 4, 2), (0, 2, 1, 3, 4), (0, 3, 1, 4, 2)])
def test_soft_masks_with_their_axes_in_another_order_are_refused(axes: tuple[int, ...]) -> None:
    right, true = shares(6, time=6, size=(6, 6)).softmax(2), ids(1, 6, 6, 6)
    FGARI("video").update(right, true)
    with pytest.raises(ValueError, match=r"expected \(batch, time, slots, height, width\)"):
        FGARI("video").update(right.permute(axes), true)
