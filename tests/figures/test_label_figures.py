"""Sheets of labelled clips: the cell on the floor, and the states of the snitch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from slotbench.data.base import LoaderOptions, to_unit_range
from slotbench.data.cater_like.cater_like import CATERLike
from slotbench.figures.labels import label_sheet
from slotbench.interfaces import VideoBatch

SIDE = 16


def batch_of(observation: str = "images", count: int = 6, **arguments: object) -> VideoBatch:
    few = {"num_objects": (4, 4), "grid": 3, "resolution": SIDE, "samples_per_side": 1, "video_frames": 120}
    data = CATERLike(observation, **(few | {"num_frames": 12, "loader": LoaderOptions(val_size=8)} | arguments))  # type: ignore[arg-type]
    return to_unit_range(data.dataset("val").clips(range(count)))  # type: ignore[attr-defined]


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


def test_the_sheet_has_the_cells_on_the_floor():
    batch = batch_of(count=1)
    logits = torch.nn.functional.one_hot((batch.require("target")[:, -1].flatten() + 1) % 9, 9) * 9.0
    plain = label_sheet(batch, logits, cells=True)
    bare = VideoBatch(**{**vars(batch), "objects": {k: v for k, v in batch.objects.items() if k != "floor_corners"}})
    without = label_sheet(bare, logits, cells=True)
    drawn = (plain != without).any(-1)
    for colour in ((0, 200, 0), (230, 60, 40)):
        assert (plain[drawn] == colour).all(-1).any()
    # only the last frame, in the last column but one
    columns = np.flatnonzero(drawn.any(0))
    assert columns.max() - columns.min() < 96
