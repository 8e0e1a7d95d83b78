"""Sheets of labelled clips: the cell on the floor, the states of the snitch, and the slot that looks at it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from slotbench.data.base import LoaderOptions, to_unit_range
from slotbench.data.cater_like.cater_like import CATERLike
from slotbench.figures.labels import label_sheet, outermost, watching_slot
from slotbench.interfaces import VideoBatch

SIDE = 16


def batch_of(observation: str = "images", count: int = 6, **arguments: object) -> VideoBatch:
    few = {"num_objects": (4, 4), "grid": 3, "resolution": SIDE, "samples_per_side": 1, "video_frames": 120}
    data = CATERLike(observation, **(few | {"num_frames": 12, "loader": LoaderOptions(val_size=8)} | arguments))  # type: ignore[arg-type]
    return to_unit_range(data.dataset("val").clips(range(count)))  # type: ignore[attr-defined]


def test_what_stands_for_the_snitch_is_the_outermost_cone():
    holders = torch.tensor([[[-1, 2, -1], [1, -1, -1], [1, 2, -1]]])
    assert outermost(holders).tolist() == [[0, 1, 2]]


def test_the_slot_that_looks_at_the_snitch_or_at_the_cone_over_it():
    batch = batch_of("objects")
    seen = outermost(batch.objects["holders"])
    assert (seen > 0).any()
    # slot k looks at object 3 - k alone
    attention = torch.eye(4).flip(0).expand(*seen.shape, 4, 4)
    assert torch.equal(watching_slot(attention, batch, None, True), 3 - seen)


@pytest.mark.parametrize("grid", [(SIDE, SIDE), (4, 4)])
def test_in_images_it_is_the_slot_that_looks_where_the_pixels_are(grid):
    batch = batch_of()
    masks = batch.masks
    assert masks is not None
    rows, columns = grid
    # slot k looks at object k, in as many tokens as its pixels lie in
    own = torch.stack([(masks == k + 1).float() for k in range(4)], dim=2).flatten(0, 1)
    cells = torch.nn.functional.adaptive_avg_pool2d(own, grid).view(*masks.shape[:2], 4, rows * columns)
    found = watching_slot(cells, batch, grid, False)
    seen = outermost(batch.objects["holders"])
    there = (masks == (seen + 1)[..., None, None]).flatten(2).any(-1)
    assert torch.equal(found == -1, ~there)
    share = (found == seen)[there].float().mean()
    assert share == 1.0 if grid == (SIDE, SIDE) else share > 0.5


def test_where_it_cannot_be_told_nothing_is_said():
    batch = batch_of()
    assert watching_slot(None, batch, (4, 4), False) is None
    assert watching_slot(torch.rand(6, 12, 3, 9), batch, (4, 4), False) is None
    assert watching_slot(torch.rand(6, 12, 3, 9), batch, None, True) is None
    batch.objects.pop("holders")
    assert watching_slot(torch.rand(6, 12, 3, 16), batch, (4, 4), False) is None


@pytest.mark.parametrize("arguments", [{}, {"camera": "moving"}, {"observation": "objects"}])
def test_the_corners_of_the_floor_are_where_the_camera_sees_them(arguments):
    """A free snitch is seen within the four corners of its cell."""
    batch = batch_of(**{"resolution": 96, "count": 8, "video_frames": 40, **arguments})
    masks, cells = batch.masks, batch.require("target")[:, -1].flatten()
    assert masks is not None
    hits = []
    for i in range(len(batch)):
        rows, columns = torch.nonzero(masks[i, -1] == 1, as_tuple=True)
        if batch.objects["covered"][i] or not len(rows):
            continue
        corners = batch.objects["floor_corners"][i]
        row, column = divmod(int(cells[i]), 3)
        around = corners[row : row + 2, column : column + 2].reshape(-1, 2)
        # its lowest pixel touches the floor, half of the ball may reach over the edge
        low = torch.stack([columns.float().mean(), rows.float().max()]) / 96
        reach = 0.05
        hits.append(bool(((low >= around.amin(0) - reach) & (low <= around.amax(0) + reach)).all()))
    assert len(hits) >= 4
    assert np.mean(hits) == 1.0


def test_the_sheet_has_the_cells_on_the_floor_and_a_number_for_the_slot():
    batch = batch_of(count=1)
    logits = torch.nn.functional.one_hot((batch.require("target")[:, -1].flatten() + 1) % 9, 9) * 9.0
    slots = torch.zeros(1, 12, dtype=torch.long)
    slots[:, 6:] = -1
    plain = label_sheet(batch, logits, cells=True)
    numbered = label_sheet(batch, logits, cells=True, slots=slots)
    assert numbered.shape[0] > plain.shape[0]
    bare = VideoBatch(**{**vars(batch), "objects": {k: v for k, v in batch.objects.items() if k != "floor_corners"}})
    without = label_sheet(bare, logits, cells=True)
    drawn = (plain != without).any(-1)
    for colour in ((0, 200, 0), (230, 60, 40)):
        assert (plain[drawn] == colour).all(-1).any()
    # only the last frame, in the last column but one
    columns = np.flatnonzero(drawn.any(0))
    assert columns.max() - columns.min() < 96
