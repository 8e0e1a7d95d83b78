"""What became of each slot: the right step, slot and place in each picture, and no picture of what is not told."""

from __future__ import annotations

from functools import partial

import autoencoding_tasks
import numpy as np
import pytest
import torch
from matplotlib import colormaps

from slotbench.data.base import LoaderOptions
from slotbench.data.sprites.moving_sprites import MovingSprites
from slotbench.figures import slot_stories
from slotbench.figures.painting import SLOT_COLOURS
from slotbench.figures.slot_charts import activity_chart, centres, track_chart
from slotbench.figures.slot_stories import SlotStory, component_sheet, reading_sheet, story_pictures
from slotbench.interfaces import CoreOutput, Decoded
from slotbench.registry import load
from slotbench.tasks.video_prediction import VideoPrediction

CONTEXT, HORIZON, SIDE, CELL, GAP, LABEL = 3, 2, 16, 64, 6, 18
KINDS = ("components", "tracks", "activity", "reading")


def cell_of(sheet, row, column, columns, side=CELL):
    """One image of a sheet."""
    left = sheet.shape[1] - (columns - column) * (side + GAP)
    top = LABEL + GAP // 2 + row * (side + GAP)
    return sheet[top : top + side, left : left + side].astype(int)


def halves(steps=3):
    """Slot 0 has the left half and slot 1 the right half; slot 0 paints red everywhere, slot 1 blue."""
    masks = torch.zeros(steps, 2, SIDE, SIDE)
    masks[:, 0, :, : SIDE // 2] = masks[:, 1, :, SIDE // 2 :] = 1
    components = torch.zeros(steps, 2, 3, SIDE, SIDE)
    components[:, 0, 0] = components[:, 1, 2] = 1
    painted = (masks[:, :, None] * components).sum(1)
    return SlotStory(painted, painted, painted, masks, components)


def test_a_slot_is_shown_with_its_alpha_and_without() -> None:
    sheet = component_sheet(halves())
    # truth, painted, slots, and two rows for each of two slots
    red, blue, grey = (255, 0, 0), (0, 0, 255), (217, 217, 217)
    with_alpha, without = cell_of(sheet, 3, 1, 3), cell_of(sheet, 4, 1, 3)
    assert tuple(with_alpha[32, 10]) == red
    assert tuple(with_alpha[32, 50]) == grey
    assert tuple(without[32, 10]) == tuple(without[32, 50]) == red
    other, alone = cell_of(sheet, 5, 2, 3), cell_of(sheet, 6, 2, 3)
    assert (tuple(other[32, 10]), tuple(other[32, 50]), tuple(alone[32, 10])) == (grey, blue, blue)


def test_without_components_each_slot_has_its_share_of_the_picture() -> None:
    story = halves()
    sheet = component_sheet(SlotStory(story.true, story.painted, story.read, story.masks))
    assert sheet.shape[0] < component_sheet(story).shape[0]
    assert tuple(cell_of(sheet, 3, 0, 3)[32, 10]) == (255, 0, 0)


def test_shown_steps_of_a_roll_out_end_with_its_last_and_say_so() -> None:
    frames = torch.zeros(19, 3, SIDE, SIDE)
    story = SlotStory(frames, frames, frames, context=10)
    steps = story.shown_steps()
    assert (len(steps), steps[0], steps[-1], 9 in steps) == (8, 4, 18, True)
    assert [story.column(t) for t in (4, 8, 9, 18)] == ["t = 5", "t = 9", "+1", "+10"]
    assert SlotStory(frames, frames, frames).shown_steps()[-1] == 18


def coloured(chart, slot):
    return int((np.abs(chart.astype(int) - SLOT_COLOURS[slot]).max(-1) <= 2).sum())


def test_a_ribbon_has_a_slots_colour_where_it_was_active() -> None:
    active = torch.zeros(6, 3)
    active[:, 0] = active[:3, 1] = 1
    chart = activity_chart({"active": active, "reads": torch.rand(6, 3, 2)})
    all_steps, half, none = (coloured(chart, slot) for slot in range(3))
    # the number of a slot stands on its colour too
    assert (half - none) == pytest.approx((all_steps - none) / 2, rel=0.05)
    assert all_steps > 20 * none


def test_attention_is_brightest_where_the_slot_looked_at_that_step() -> None:
    attention = torch.full((2, 2, 4), 0.01)
    attention[0, 1, 3] = attention[1, 1, 0] = 0.9
    black = torch.zeros(2, 3, SIDE, SIDE)
    reads = torch.tensor([[[0.9, 0.1], [0.2, 0.8]], [[0.9, 0.1], [0.2, 0.8]]])
    inputs = torch.tensor([[[1.0, 1.0, 1.0, 1.0]]]).expand(2, 1, 4)
    details = {"reads": reads, "inputs": inputs}
    sheet = reading_sheet(SlotStory(black, black, black, attention=attention, details=details, grid=(2, 2)))
    # what was read, the inputs, slot 0, slot 1, and the matrix of reads
    first, second = cell_of(sheet, 3, 0, 2).sum(-1), cell_of(sheet, 3, 1, 2).sum(-1)
    assert np.unravel_index(first.argmax(), first.shape) == (32, 32)
    assert np.unravel_index(second.argmax(), second.shape) == (0, 0)
    matrix = cell_of(sheet, 4, 0, 2)
    expected = [255 * np.array(colormaps["cividis"](value))[:3] for value in (0.9, 0.1, 0.2, 0.8)]
    shown = [matrix[16, 16], matrix[16, 48], matrix[48, 16], matrix[48, 48]]
    assert np.abs(np.array(shown) - np.array(expected)).max() <= 1


@pytest.mark.parametrize(("competes", "says"), [(True, "slot 0\n25 %"), (False, "slot 0\n100 %")])
def test_a_slots_percentage_is_what_it_has_won_or_what_it_has_spent(monkeypatch, competes, says) -> None:
    attention = torch.tensor([[[1.0, 0, 0, 0], [0, 1, 1, 1]]]) if competes else torch.full((1, 2, 4), 0.25)
    black = torch.zeros(1, 3, SIDE, SIDE)
    named: list[str] = []
    sheet = slot_stories.contact_sheet

    def name_rows(rows, *more):
        named.extend(row.name for row in rows)
        return sheet(rows, *more)

    monkeypatch.setattr(slot_stories, "contact_sheet", name_rows)
    reading_sheet(SlotStory(black, black, black, attention=attention, grid=(2, 2), competes=competes))
    assert named[1] == says


def test_centres_follow_a_label_and_leave_out_what_is_too_small() -> None:
    labels = torch.zeros(4, 12, 12, dtype=torch.long)
    for t in range(3):
        labels[t, 2:5, t : t + 3] = 7
    labels[3, 2, 2:7] = 7
    labels[0, 10, 10] = 2
    found = centres(labels)
    assert list(found) == [7]
    np.testing.assert_allclose(found[7], [[1, 3], [2, 3], [3, 3], [np.nan, np.nan]])


def test_tracks_of_slots_begin_with_the_roll_out_and_dark_pixels_are_no_slots() -> None:
    painted, masks = torch.zeros(6, 3, SIDE, SIDE), torch.zeros(6, 2, SIDE, SIDE)
    for t in range(6):
        painted[t, :, 4:8, 2 * t : 2 * t + 4] = masks[t, 1, 4:8, 2 * t : 2 * t + 4] = 1
    masks[:, 0] = 1 - masks[:, 1]
    true = (masks[:, 1] > 0).long()
    whole, rolled, dark = (
        track_chart(painted, true, frames, masks, alone_from, dark=True)
        for frames, alone_from in ((painted, 0), (painted, 3), (0 * painted, 0))
    )
    assert coloured(whole, 1) > 1.5 * coloured(rolled, 1) > 0
    assert coloured(whole, 0) == coloured(dark, 0) == coloured(dark, 1) == 0
    assert coloured(track_chart(painted, true, painted, masks), 1) == coloured(whole, 1)


def sprites():
    loader = LoaderOptions(batch_size=3, val_batch_size=3, val_size=3)
    return MovingSprites(num_frames=5, eval_frames=CONTEXT + HORIZON, resolution=SIDE, loader=loader)


def task(data, core=None, **arguments):
    torch.manual_seed(0)
    return VideoPrediction(
        partial(load("encoders", "PatchEncoder"), dim=8, patch_size=4),
        core or partial(load("cores", "OCRIM"), num_slots=3, dim=8, num_inputs=2, slot_dim=8, top_k=2),
        partial(load("decoders", "SpatialBroadcastDecoder"), output="sigmoid"),
        loss="mse",
        data_spec=data.spec,
        **({"context": CONTEXT, "horizon": HORIZON} | arguments),
    ).eval()


def val_batch(data):
    return data.on_after_batch_transfer(next(iter(data.val_dataloader())), 0)


@pytest.mark.parametrize("piece", [None, 2])
def test_a_story_has_the_steps_of_the_roll_out_after_those_of_the_context(monkeypatch, piece) -> None:
    if piece is not None:  # a context that is read in several pieces
        monkeypatch.setattr("slotbench.tasks.rollouts.rollout.PIECE", piece)
    data = sprites()
    model, batch = task(data), val_batch(data)
    with torch.no_grad(), model.deterministic_sampling(batch, 0):
        stories = model.slot_stories(batch)
    with torch.no_grad(), model.deterministic_sampling(batch, 0):
        rolled = model.rollout(batch)
    story = stories[1]
    assert len(stories) == 3
    torch.testing.assert_close(story.painted[CONTEXT - 1 :], rolled.reconstruction[1])
    torch.testing.assert_close(story.masks[CONTEXT - 1 :], rolled.masks[1])
    assert torch.equal(story.true, batch.frames[1, 1:])
    assert torch.equal(story.true_masks, batch.masks[1, 1:])
    assert torch.equal(story.read[:CONTEXT], batch.frames[1, :CONTEXT])
    torch.testing.assert_close(story.read[CONTEXT:], rolled.reconstruction[1, :-1])
    assert {len(value) for value in story.details.values()} == {CONTEXT + HORIZON - 1}
    assert story.details["active"].sum(-1).unique().tolist() == [2]
    painted = (story.masks[:, :, None] * story.components).sum(1)
    torch.testing.assert_close(painted, story.painted, rtol=0, atol=1e-4)


def test_a_prediction_shows_its_slots_where_asked() -> None:
    data = sprites()
    batch = val_batch(data)
    with torch.no_grad():
        plain, shown = (task(data, slot_pictures=asked).pictures(batch) for asked in (False, True))
        alone = task(data, slot_pictures=True).pictures(batch.map(lambda value: value[:1]))
    assert set(plain) == {"rollouts"}
    assert set(shown) == {"rollouts", *(f"{kind}_{clip}" for kind in KINDS for clip in range(2))}
    assert set(alone) == {"rollouts", *KINDS}
    assert all(picture.dtype == np.uint8 and picture.ndim == 3 for picture in shown.values())
    np.testing.assert_array_equal(alone["reading"], shown["reading_0"])


def test_a_core_without_details_has_the_pictures_of_its_decoder() -> None:
    data = sprites()
    core = partial(load("cores", "SlotRNN"), num_slots=3, dim=8, num_heads=2, encoder_layers=1)
    with torch.no_grad():
        shown = task(data, core, slot_pictures=True).pictures(val_batch(data))
    assert {name.partition("_")[0] for name in shown} - {"reading"} == {"rollouts", "components", "tracks"}


def test_an_autoencoding_task_shows_its_slots_too() -> None:
    data = autoencoding_tasks.ball_clips()
    batch = val_batch(data)
    with torch.no_grad():
        shown = autoencoding_tasks.make_task(data, slot_pictures=True).pictures(batch)
    assert {"clip_3", "components_1", "tracks_0", "reading_0"} <= set(shown)
    assert "components_2" not in shown


def test_nothing_is_drawn_of_what_is_not_told() -> None:
    story = halves()
    assert story_pictures([SlotStory(story.true, story.painted, story.read)]) == {}
    output = CoreOutput(torch.zeros(1, 3, 2, 4), None, None)
    told = SlotStory.of_clips(story.read[None], story.true[None], output, Decoded(story.painted[None]))
    assert story_pictures(told) == {}
