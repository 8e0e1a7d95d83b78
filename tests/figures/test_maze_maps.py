"""Maps of mazes show each wall where it is, when the context showed it, and whether a roll-out paints it right."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from slotbench.data.base import LoaderOptions, to_unit_range
from slotbench.data.maze.kernels import CEILING
from slotbench.data.maze.maze import PALETTE, Maze
from slotbench.figures import maze_maps as module
from slotbench.figures.maze_maps import maze_maps
from slotbench.figures.sheets import Row
from slotbench.interfaces import VideoBatch

CONTEXT, HORIZON, RECENT = 70, 50, 10
GREY, LONG_AGO, LATELY = (178, 178, 178), (240, 170, 40), (60, 130, 220)
RED, GREEN = (215, 60, 50), (50, 160, 80)


@pytest.fixture(scope="module")
def batch() -> VideoBatch:
    data = Maze(rooms=3, eval_frames=CONTEXT + HORIZON, resolution=16, loader=LoaderOptions(val_size=2))
    return to_unit_range(data.dataset("val").clips([0, 1]))


@pytest.fixture
def rows(monkeypatch) -> list[Row]:
    """The rows of the sheet that is drawn."""
    found: list[Row] = []
    sheet = module.contact_sheet
    monkeypatch.setattr(module, "contact_sheet", lambda rows, *rest: found.extend(rows) or sheet(rows, *rest))
    return found


def quarters(image: np.ndarray, size: int) -> dict[tuple[int, int], tuple[int, ...]]:
    """The colour in the middle of each quarter of a cell, by its row and column among the quarters."""
    unit = len(image) // (2 * size)
    places = [(row, col) for row in range(2 * size) for col in range(2 * size)]
    return {(row, col): tuple(image[row * unit + unit // 2, col * unit + unit // 2].tolist()) for row, col in places}


def walls(batch: VideoBatch, clip: int) -> dict[tuple[int, int], int]:
    """The surface of each quarter of a wall cell."""
    log = {name: batch.objects[name][clip].tolist() for name in ("walls", "patterns")}
    size = len(log["walls"])
    found = {}
    for row in range(2 * size):
        for col in range(2 * size):
            if log["walls"][row // 2][col // 2]:
                lower, right = row % 2, col % 2
                which = [0, lower, right, lower ^ right][log["patterns"][row // 2][col // 2]]
                found[row, col] = 2 * (size * (row // 2) + col // 2) + which
    return found


def in_view(batch: VideoBatch, clip: int, first: int, last: int) -> set[int]:
    return set(batch.objects["surfaces"][clip, first:last].unique().tolist()) - {-1}


def test_the_first_map_has_the_colours_of_the_walls_that_came_into_view_and_the_path(batch, rows) -> None:
    maze_maps(batch, batch.frames[:, CONTEXT:], CONTEXT)
    compared = 0
    for clip, row in enumerate(rows):
        colours = batch.objects["colours"][clip].flatten(0, 1)
        found, seen = quarters(row.images[0], len(batch.objects["walls"][clip])), in_view(batch, clip, 0, 999)
        for place, surface in walls(batch, clip).items():
            true = np.array(PALETTE[colours[surface // 2, surface % 2]])
            if surface in seen:
                # walls in no better light than that of a side that faces up or down are darker
                assert any(np.abs(true * light - found[place]).max() <= 1.01 for light in (1, 0.7))
                compared += 1
            else:
                assert found[place] == GREY
        unit = len(row.images[0]) / (4 * len(batch.objects["walls"][clip]))
        x, y = (batch.objects["poses"][clip, CONTEXT - 1, :2] * unit).int().tolist()
        assert tuple(row.images[0][y, x]) == (20, 20, 20)
    assert compared > 50


def test_the_second_map_tells_what_was_in_view_lately_long_ago_and_never(batch, rows) -> None:
    surfaces = batch.objects["surfaces"][0].tolist()
    shown = [{surface for row in frame for surface in row} for frame in surfaces]
    # the last frame with a surface is the first of the late ones, and then the last of the early ones
    gone = next(step for step in range(10, CONTEXT) if shown[step] - set().union(*shown[step + 1 : CONTEXT]) - {-1})
    for recent in (CONTEXT - gone, CONTEXT - gone - 1):
        rows.clear()
        maze_maps(batch, batch.frames[:, CONTEXT:], CONTEXT, recent=recent)
        drawn = set()
        for clip, row in enumerate(rows):
            early, late = in_view(batch, clip, 0, CONTEXT - recent), in_view(batch, clip, CONTEXT - recent, CONTEXT)
            found = quarters(row.images[1], len(batch.objects["walls"][clip]))
            for place, surface in walls(batch, clip).items():
                assert found[place] == (LATELY if surface in late else LONG_AGO if surface in early else GREY)
                drawn.add(found[place])
        assert drawn == {LATELY, LONG_AGO, GREY}


@pytest.mark.parametrize("known", ["all", "lately", "others"])
def test_the_third_map_tells_which_walls_of_the_context_are_painted_right(batch, rows, known) -> None:
    surfaces = batch.objects["surfaces"].long()
    true = batch.frames[:, CONTEXT:]
    wrong = (torch.tensor(CEILING) / 255)[:, None, None].expand_as(true)  # nearest to no wall
    painted = wrong.clone() if known == "others" else true.clone()
    if known == "lately":
        for clip in range(2):
            late = torch.tensor(sorted(in_view(batch, clip, CONTEXT - RECENT, CONTEXT)))
            forgotten = ~torch.isin(surfaces[clip, CONTEXT:], late) & (surfaces[clip, CONTEXT:] >= 0)
            painted[clip] = torch.where(forgotten[:, None], wrong[clip], true[clip])
    # a little noise does not matter
    painted = painted + 0.01 * torch.randn(painted.shape, generator=torch.Generator().manual_seed(0))
    maze_maps(batch, painted, CONTEXT, recent=RECENT)
    drawn = set()
    for clip, row in enumerate(rows):
        seen, late = in_view(batch, clip, 0, CONTEXT), in_view(batch, clip, CONTEXT - RECENT, CONTEXT)
        shown = in_view(batch, clip, CONTEXT, CONTEXT + HORIZON)
        found = quarters(row.images[2], len(batch.objects["walls"][clip]))
        for place, surface in walls(batch, clip).items():
            right = {"all": True, "lately": surface in late, "others": False}[known]
            assert found[place] == ((GREEN if right else RED) if surface in seen & shown else GREY)
            drawn.add(found[place])
        if known == "lately" and seen & shown - late:
            assert row.name == f"clip {clip + 1}, right:\nlong ago 0 %\nlately 100 %"
    assert drawn == {"all": {GREEN, GREY}, "lately": {GREEN, RED, GREY}, "others": {RED, GREY}}[known]
