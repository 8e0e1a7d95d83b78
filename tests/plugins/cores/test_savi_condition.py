"""SAVi that is told where the objects of the first frame are: what slots begin with, and who hands it over."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from autoencoding_tasks import ball_clips, make_task
from code_tasks import code_task
from depth_tasks import deep_balls, depth_task
from prediction_tasks import batch_of
from prediction_tasks import make_task as prediction_task

from slotbench.errors import UserError
from slotbench.interfaces import TokenSpec, VideoBatch
from slotbench.nn.slot_init import first_boxes
from slotbench.registry import load

SAVi = load("cores", "SAVi")
BOXES = partial(SAVi, num_slots=4, dim=16, mlp_ratio=1, condition="boxes")


def clip(masks: torch.Tensor | None, **objects: torch.Tensor) -> VideoBatch:
    return VideoBatch(torch.zeros(2, 3, 1, 8, 8), torch.arange(3).expand(2, -1), masks, objects=objects)


def coded(data):
    """A task of codes, whose tokenizer is fitted."""
    task = code_task(data)
    task.core = BOXES(task.encoder.token_spec)
    task.tokenizer.fit(batch_of(data).frames.flatten(0, 1))
    return task


def random_masks(seed: int) -> torch.Tensor:
    masks = torch.zeros(2, 3, 8, 8, dtype=torch.uint8)
    rng = np.random.default_rng(seed)
    for number in (7, 2, 5):
        top, left = rng.integers(0, 6, 2)
        masks[:, :, top : top + 2, left : left + 3] = number
    return masks


@pytest.mark.parametrize("seed", range(4))
def test_boxes_are_drawn_around_the_objects_of_the_first_frame_in_the_order_of_their_ids(seed):
    masks = random_masks(seed)
    masks[:, 1:] = 1  # later frames do not matter
    masks[1, 0] = 0  # nor must there be any object
    found = first_boxes(clip(masks), 5)
    ids = [number for number in (2, 5, 7) if (masks[0, 0] == number).any()]
    for place, number in enumerate(ids):
        rows, columns = np.nonzero((masks[0, 0] == number).numpy())
        wanted = np.array([rows.min(), columns.min(), rows.max() + 1, columns.max() + 1]) / 8
        np.testing.assert_allclose(found[0, place], wanted)
    assert (found[0, len(ids) :] == 0).all()
    assert (found[1] == 0).all()
    torch.testing.assert_close(first_boxes(clip(masks), 2)[0], found[0, :2])


def test_the_boxes_of_the_data_come_before_those_of_masks_and_agree_with_them():
    boxes = torch.rand(2, 3, 2, 4)
    found = first_boxes(clip(random_masks(0), bboxes=boxes), 3)
    assert torch.equal(found[:, :2], boxes[:, 0])
    assert (found[:, 2] == 0).all()
    with pytest.raises(UserError, match="neither boxes nor masks"):
        first_boxes(clip(None), 3)


@pytest.mark.parametrize("kind", ["boxes", "centres"])
def test_slots_begin_with_an_mlp_of_the_boxes_the_background_first(kind):
    boxes = torch.rand(2, 3, 5, 4)
    core = SAVi(TokenSpec(8, 4, (2, 2)), num_slots=4, dim=8, condition=kind).eval()
    given = torch.cat([torch.zeros(2, 1, 4), boxes[:, 0, :3]], dim=1)
    if kind == "centres":
        given = torch.stack([(given[..., 0] + given[..., 2]) / 2, (given[..., 1] + given[..., 3]) / 2], dim=-1)
    start = core.first_state(clip(None, bboxes=boxes))
    torch.testing.assert_close(start.slots, core.slot_init.mlp(given))
    core.num_slots = 6
    assert core.first_state(clip(None, bboxes=boxes)).slots.shape == (2, 6, 8)
    assert core.slot_parameters() is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: (ball_clips(), partial(make_task, core=BOXES)),
        lambda: (ball_clips(), coded),
        lambda: (deep_balls(), partial(depth_task, core=BOXES)),
    ],
    ids=["frames", "codes", "depth"],
)
def test_tasks_of_autoencoding_hand_the_boxes_over_in_training_evaluation_and_streaming(make):
    data, built = make()
    task, batch = built(data), batch_of(data)
    task.training_loss(batch).backward()
    assert task.core.slot_init.mlp[0].weight.grad.abs().sum() > 0
    task.eval()
    with torch.no_grad():
        whole = task.evaluate(batch).slots
        first, state = task.stream(batch.slice_time(0, 2), None)
        rest, _ = task.stream(batch.slice_time(2, 5), state)
        torch.testing.assert_close(torch.cat([first.slots, rest.slots], dim=1), whole, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(task(batch).slots, whole)
        moved = replace(batch, masks=batch.masks.roll(5, -1))
        assert not torch.allclose(task.evaluate(moved).slots, whole)
        one = batch.map(lambda value: value[:1])
        pieces = [task.predict(one.slice_time(*cut))["slots"] for cut in ((0, 2), (2, 5))]
        torch.testing.assert_close(torch.cat(pieces, dim=1), whole[:1], rtol=1e-4, atol=1e-5)


def test_a_task_that_gives_the_core_tokens_alone_is_told_so():
    data = ball_clips()
    task = prediction_task(data, core=BOXES, context=2, horizon=3)
    with pytest.raises(UserError, match="this task gives the core tokens alone: choose SlotAutoencoding"):
        task.training_loss(batch_of(data))
