"""What is kept of clips: slots, tables of counts, labels and shapes, of as many clips as were asked for."""

from __future__ import annotations

import pytest
import torch
from drawing_tasks import DrawnByBatch
from torch import nn

from slotbench.evaluation.probe_clips import collect
from slotbench.evaluation.probe_factors import Factor, ProbeError, choose_factors
from slotbench.interfaces import Segmentation, VideoBatch

SIZE, SLOTS, DIM = 6, 3, 4


class Stripes(DrawnByBatch, nn.Module):
    """Slot k has the columns 2 k and 2 k + 1; its content is drawn, and depends on the first pixel."""

    def __init__(self, masks: bool = True) -> None:
        super().__init__()
        self.masks = masks

    def evaluate(self, batch: VideoBatch) -> Segmentation:
        clips, frames = batch.frames.shape[:2]
        slots = torch.randn(clips, frames, SLOTS, DIM) + batch.frames[:, :, :1, 0, :1]
        masks = torch.eye(SLOTS).repeat_interleave(2, dim=1)[:, None].expand(clips, frames, SLOTS, SIZE, SIZE)
        return Segmentation(slots=slots, masks=masks if self.masks else None)

    def attention_masks(self, attention: torch.Tensor, size: tuple[int, int]) -> None:
        return None


def batch(first: int, clips: int = 2, frames: int = 3) -> VideoBatch:
    generator = torch.Generator().manual_seed(first)
    masks = torch.zeros(clips, frames, SIZE, SIZE, dtype=torch.uint8)
    masks[:, :, :2, :2] = 1  # in slot 0
    masks[:, :, 2:5, 3:5] = 2  # in slots 1 and 2, three pixels each
    masks[:, 0, 2:5, 3:5] = 0
    masks[:, 0, 2, 3] = 2
    masks[:, :, 5, 5] = 9  # beyond the objects that are annotated
    return VideoBatch(
        frames=torch.rand(clips, frames, 1, SIZE, SIZE, generator=generator),
        time=torch.arange(frames).repeat(clips, 1),
        masks=masks,
        objects={
            "positions": torch.rand(clips, frames, 4, 2, generator=generator),
            "shape_label": torch.tensor([[0, 1, -1, -1]]).repeat(clips, 1),
            "weather": torch.rand(clips, generator=generator),
        },
    )


def test_tables_count_pixels_by_object_and_slot() -> None:
    clips = collect(Stripes(), [batch(0)], 10)
    assert clips.tables.shape == (2, 3, 5, SLOTS)
    assert clips.tables[0, 1].tolist() == [[8, 9, 9], [4, 0, 0], [0, 3, 3], [0, 0, 0], [0, 0, 0]]
    assert clips.visible[1].tolist() == [[True, True, False, False]] * 3


def test_an_object_of_too_few_pixels_is_not_visible() -> None:
    clips = collect(Stripes(), [batch(0)], 10, min_pixels=2)
    assert clips.visible[0, :, 1].tolist() == [False, True, True]


def test_of_the_objects_that_are_asked_for_alone_the_others_are_background() -> None:
    whole, one = collect(Stripes(), [batch(0)], 10), collect(Stripes(), [batch(0)], 10, rows=[1])
    assert one.tables[0, 1].tolist() == [[12, 9, 9], [0, 3, 3]]
    assert torch.equal(one.visible[..., 0], whole.visible[..., 1])
    assert torch.equal(one.labels["positions"], whole.labels["positions"][:, :, 1:2])
    assert one.labels["shape_label"].flatten().tolist() == [1, 1]
    assert torch.equal(collect(Stripes(), [batch(0)], 10, rows=[3, 0, 2, 1]).tables, whole.tables)


def test_labels_are_by_object_with_an_axis_of_time() -> None:
    clips = collect(Stripes(), [batch(0), batch(1)], 10)
    assert clips.labels["positions"].shape == (4, 3, 4, 2)
    assert clips.labels["shape_label"].shape == (4, 1, 4, 1)
    assert set(clips.labels) == {"positions", "shape_label"}
    assert torch.equal(clips.labels["positions"][2:], batch(1).objects["positions"])


def test_the_shape_of_a_mask_is_its_centre_and_share() -> None:
    shapes = collect(Stripes(), [batch(0)], 10).shapes
    assert torch.allclose(shapes[1, 2], torch.tensor([[1 / 6, 0.5, 1 / 3], [0.5, 0.5, 1 / 3], [5 / 6, 0.5, 1 / 3]]))


def test_drawn_slots_repeat_and_the_random_state_is_put_back() -> None:
    before = torch.random.get_rng_state()
    first = collect(Stripes(), [batch(0)], 10)
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(5)
    again = collect(Stripes(), [batch(0)], 10)
    assert torch.equal(first.slots, again.slots)
    assert first.fingerprints == again.fingerprints


def test_slots_of_other_clips_are_the_same_slots_elsewhere() -> None:
    clips = collect(Stripes(), [batch(0), batch(1)], 10)
    others = clips.with_slots_of_other_clips()
    assert torch.equal(others.slots[1], clips.slots[0])
    assert torch.equal(others.labels["positions"], clips.labels["positions"])


def test_masks_of_slots_are_not_needed_to_match_by_position() -> None:
    clips = collect(Stripes(masks=False), [batch(0)], 10, masks=None)
    assert clips.tables is None
    assert clips.visible[0, 0].tolist() == [True, True, False, False]


def test_what_slots_have_read_does_not_say_what_they_cover():
    class Reading(Stripes):
        def evaluate(self, batch: VideoBatch) -> Segmentation:
            out = super().evaluate(batch)
            return Segmentation(slots=out.slots, masks=None, attention=out.masks.flatten(3), attention_kind="reading")

        def attention_masks(self, attention: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
            return attention.unflatten(-1, size)

    with pytest.raises(ProbeError, match="core has no slots that compete for a grid of tokens"):
        collect(Reading(), [batch(0)], 10, masks="attention")


def test_known_factors_are_found_and_others_can_be_named() -> None:
    assert choose_factors(["shape_label", "weather", "positions"]) == [
        Factor("positions", "continuous"),
        Factor("shape_label", "categorical"),
    ]
    assert choose_factors(["mood", "shape_label"], categorical=["mood"], continuous=["shape_label"]) == [
        Factor("shape_label", "continuous"),
        Factor("mood", "categorical"),
    ]
    assert [factor.name for factor in choose_factors(["category", "shape_label"])] == ["shape_label"]
    assert [factor.name for factor in choose_factors(["category"])] == ["category"]
