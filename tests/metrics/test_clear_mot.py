"""MOTA of labels by the code of `slotbench score`, and what trackers that learn nothing have on sprites."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from slotbench.data.sprites.moving_sprites import MovingSprites
from slotbench.metrics.colour_tracker import simple_trackers
from slotbench.metrics.objects.clear_mot import ClearMOT, track_labels
from slotbench.metrics.tracking import TrackingRule, track


def true_ids() -> Tensor:
    """Two objects of 16 and 12 pixels in three frames; the second is out of sight in the last."""
    ids = torch.zeros(1, 3, 8, 8, dtype=torch.long)
    ids[:, :, :4, :4] = 1
    ids[:, :2, 5:8, 4:] = 2
    return ids


def scores(predicted: Tensor, true: Tensor, rule: TrackingRule | None = None) -> dict[str, float]:
    metric = ClearMOT(rule)
    metric.update(predicted, true)
    return {name: value.item() for name, value in metric.compute().items()}


def test_what_is_labelled_as_no_track_is_no_false_positive() -> None:
    true = true_ids()
    everywhere = torch.full_like(true, 1)
    nowhere = torch.zeros_like(true)
    rule = TrackingRule(background_iou=None)
    assert scores(nowhere, true, rule)["mota"] == 0
    assert scores(everywhere, true, rule)["false_positives"] == pytest.approx(3 / 5)
    # pixels that are not dark all belong to some track, and those on nothing but background are left out by default
    assert scores(torch.where(true > 0, true, 9), true)["mota"] == 1
    assert scores(torch.where(true > 0, true, 9), true, rule)["false_positives"] == pytest.approx(3 / 5)


def test_a_track_is_on_background_by_its_share_of_the_true_one() -> None:
    true = torch.zeros(1, 1, 8, 8, dtype=torch.long)
    true[..., :2, :] = 1  # 48 pixels of background are left
    ten, nine = true.clone(), true.clone()
    ten[..., 4, :] = ten[..., 5, :2] = nine[..., 4, :] = 2
    nine[..., 5, :1] = 2
    assert scores(ten, true)["false_positives"] == 0  # 10 of 48 are more than a fifth
    assert scores(nine, true)["false_positives"] == 1


def test_five_pixels_or_fewer_are_not_there_and_the_iou_is_as_given() -> None:
    true = torch.zeros(1, 1, 8, 8, dtype=torch.long)
    true[0, 0, 0, :5] = 1
    true[0, 0, 4:, :] = 2
    assert scores(true, true)["mota"] == 1
    metric = ClearMOT()
    metric.update(true, true)
    assert metric.counts[0] == 1
    part = torch.where((true == 2) & (torch.arange(8) < 5), 2, 0)  # an IoU of 5/8
    assert scores(part, true)["motp"] == pytest.approx(5 / 8)
    assert scores(part, true, TrackingRule(min_iou=0.7))["misses"] == 1


@pytest.mark.parametrize("background", [True, False])
def test_counts_are_those_of_the_tables_whatever_the_batch(background: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    low = 0 if background else 1
    true = torch.randint(low, 3, (4, 5, 2, 2), generator=generator).repeat_interleave(4, 2).repeat_interleave(4, 3)
    predicted = torch.randint(low, 4, (4, 5, 2, 2), generator=generator).repeat_interleave(4, 2).repeat_interleave(4, 3)
    whole, apart, counts = ClearMOT(), ClearMOT(), torch.zeros(6, dtype=torch.float64)
    whole.update(predicted, true)
    for one, other in zip(predicted, true, strict=True):
        apart.update(one[None], other[None])
        table = torch.zeros(5, 3, 4, dtype=torch.long)
        for time in range(5):
            for t, p in zip(other[time].flatten(), one[time].flatten(), strict=True):
                table[time, t, p] += 1
        clip = track(table.numpy(), TrackingRule(), no_track=0)
        counts += torch.tensor([getattr(clip, name) for name in ClearMOT.names])
    assert torch.allclose(whole.counts, counts)
    assert torch.allclose(apart.counts, counts)
    assert counts[2:5].min() > 0


def test_labels_are_the_largest_slot_where_it_is_bright() -> None:
    masks = torch.tensor([[0.6, 0.3], [0.4, 0.7]])[:, None]
    frames = torch.tensor([[0.1, 0.5], [0.2, 0.1]])[:, None]
    assert track_labels(masks).tolist() == [[1, 2]]
    assert track_labels(masks, frames).tolist() == [[0, 2]]


def test_patches_are_found_on_black_even_where_most_is_bright() -> None:
    frames = torch.ones(1, 2, 1, 8, 8)
    frames[..., 3, :] = 0
    found = simple_trackers(frames)["patches"]
    assert (found[0, :, 3] == 0).all()
    assert torch.equal(found[0, 0], found[0, 1])
    assert found.unique().tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("colours", "expected"),
    [
        (None, {"colour": 0.892, "patches": 0.956, "foreground": 0.315}),
        (("red",), {"colour": 0.315, "patches": 0.760, "foreground": 0.315}),
    ],
    ids=["six colours", "one colour"],
)
def test_trackers_that_learn_nothing_have_this_much_on_sprites(colours, expected) -> None:
    data = MovingSprites(resolution=32, **({} if colours is None else {"colours": colours}))
    batch = data.dataset("test").clips(range(200))
    frames, true = batch.frames.float() / 255, batch.require("masks").long()
    found = {name: scores(labels, true)["mota"] for name, labels in simple_trackers(frames).items()}
    assert found == {name: pytest.approx(value, abs=0.04) for name, value in expected.items()}
