"""`docs/scripts/where_objects_go.py`: which objects have a slot of their own."""

from __future__ import annotations

import pytest
import torch
from docs_scripts import docs_script


@pytest.fixture
def script():
    with docs_script("where_objects_go") as script:
        yield script


def scene():
    """Four objects of 4 x 4 pixels in two frames of 16 x 16, the last one in the second frame alone."""
    masks = torch.zeros(2, 16, 16, dtype=torch.long)
    for one, (row, column) in enumerate([(0, 0), (0, 6), (6, 0), (6, 6)], start=1):
        masks[:, row : row + 4, column : column + 4] = one
    masks[0][masks[0] == 4] = 0
    return masks


def test_objects_alone_together_and_in_the_background(script):
    masks = scene()
    slots = torch.zeros_like(masks)
    slots[masks == 1] = 5
    slots[:, 0, :4] = 0
    slots[(masks == 2) | (masks == 3)] = 2
    found = script.placed(slots, masks)
    assert [(one.object, one.slot, one.fate) for one in found] == [
        (1, 5, script.ALONE),
        (2, 2, script.SHARED),
        (3, 2, script.SHARED),
        (4, 0, script.BACKGROUND),
    ]
    assert [(one.covered, one.lost, one.pixels) for one in found] == [
        (0.75, 0.25, 16.0),
        (1.0, 0.0, 16.0),
        (1.0, 0.0, 16.0),
        (1.0, 1.0, 16.0),
    ]


def test_what_is_said_of_a_run(script):
    masks = scene()
    slots = masks.clone()
    slots[masks == 4] = 0
    lines = list(script.said([(script.placed(slots, masks), [1, 1, 2, 3])]))
    assert lines[:2] == [
        "4 objects, all: 0.75 a slot of its own, 0.00 shared with another object, 0.25 a slot of the background",
        "  of an object with a slot of its own: 1.00 in it, 0.00 in the background's",
    ]
    assert any(line.startswith("2 objects, with another's colour: 1.00") for line in lines)
    assert any(line.startswith("4 objects, of 16 and more") for line in lines)
