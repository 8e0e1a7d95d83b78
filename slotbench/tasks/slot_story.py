"""What became of each slot in one clip, step by step: what it painted, when it was active, where it looked, its track.

The pictures are made of what a core and a decoder hand over, whichever they are: `Decoded.masks` and `.components`,
`CoreOutput.attention` and `.details`. A picture for which something is missing is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float, Integer, UInt8
from matplotlib import colormaps
from matplotlib.colors import Colormap
from PIL import Image
from torch import Tensor

from slotbench.interfaces import CoreOutput, Decoded
from slotbench.metrics.contingency import masks_to_labels
from slotbench.tasks.pictures import SLOT_COLOURS, Entry, contact_sheet, paint_frame, paint_slots
from slotbench.tasks.slot_charts import activity_chart, track_chart

__all__ = ["STORIES", "SlotStory", "component_sheet", "numbered_pictures", "reading_sheet", "story_pictures"]

STORIES = 2
"""Clips of an evaluation whose slots are shown."""

_MAX_COLUMNS = 8
_EMPTY = 0.85
_CELL = 72
_HEAT, _LEVELS = colormaps["cividis"], colormaps["viridis"]  # both can be read without telling red from green
_SHARES = {
    True: "the share of the frame that it has won, on average",
    False: "what it spent on the frame on average (the rest went to the null input)",
}
_BELOW = 0.35  # how much of the frame shows through attention


@dataclass(frozen=True)
class SlotStory:
    """One clip as a core and a decoder went through it, each step with the frame that it paints.

    Attributes:
        true: the frame that each step was to paint.
        painted: the frame that it did, in [0, 1].
        read: the frame that the core read at the step, and `painted` of the step before in a roll-out.
        masks: share of each slot in each pixel.
        components: each slot's own image, in [0, 1].
        true_masks: ids of the objects in `true`, 0 = background.
        attention: weights of slots and tokens.
        details: as in `CoreOutput`, of this clip.
        grid: rows and columns of the tokens.
        first: number of the first frame that is painted.
        alone_from: the first step whose frame follows the context, if the clip ends in a roll-out.
        dark: whether dark pixels belong to no slot.
        competes: whether slots compete for tokens: attention sums to one over the slots, not over the tokens.
    """

    true: Float[Tensor, "steps channels height width"]
    painted: Float[Tensor, "steps channels height width"]
    read: Float[Tensor, "steps channels height width"]
    masks: Float[Tensor, "steps slots height width"] | None = None
    components: Float[Tensor, "steps slots channels height width"] | None = None
    true_masks: Integer[Tensor, "steps height width"] | None = None
    attention: Float[Tensor, "steps slots tokens"] | None = None
    details: Mapping[str, Tensor] = field(default_factory=dict)
    grid: tuple[int, int] | None = None
    first: int = 0
    alone_from: int | None = None
    dark: bool = False
    competes: bool = False

    @classmethod
    def of_clip(
        cls,
        clip: int,
        frames: tuple[Tensor, Tensor, Tensor],
        output: CoreOutput,
        decoded: Decoded,
        *,
        true_masks: Tensor | None = None,
        grid: tuple[int, int] | None = None,
        first: int = 0,
        alone_from: int | None = None,
        dark: bool = False,
    ) -> SlotStory:
        """One clip of a batch.

        Args:
            clip: which.
            frames: what was read, what was to be painted, and what was, all "batch steps channels height width".
            output: of the core, for all steps.
            decoded: of the decoder, for all steps; its images in [0, 1].
            true_masks: ids of objects, "batch steps height width".
            grid: see above, as the remaining arguments.
            first: see above.
            alone_from: see above.
            dark: see above.
        """
        chosen: list[Tensor | None] = [*frames, decoded.masks, decoded.components, true_masks, output.attention]
        mine: list[Any] = [None if value is None else value[clip].detach().float().cpu() for value in chosen]
        read, true, painted, masks, components, ids, attention = mine
        details = {name: value[clip].float().cpu() for name, value in output.details.items()}
        labels = None if ids is None else ids.long()
        last = (grid, first, alone_from, dark, output.attention_kind == "assignment")
        return cls(true, painted, read, masks, components, labels, attention, details, *last)

    def column(self, step: int) -> str:
        """What a step is called: the frame that it paints, counted from the context in a roll-out."""
        if self.alone_from is not None and step >= self.alone_from:
            return f"+{step - self.alone_from + 1}"
        return f"t = {self.first + step}"

    def shown_steps(self) -> list[int]:
        """At most eight steps: two of the context at most, the rest of the roll-out, evenly spaced; the last is one."""
        steps = len(self.true)
        if self.alone_from is None or self.alone_from == 0:
            return _spread(0, steps - 1, _MAX_COLUMNS)
        before = _spread(self.alone_from // 2, self.alone_from - 1, 2)
        return [*before, *_spread(self.alone_from, steps - 1, _MAX_COLUMNS - len(before))]


def story_pictures(story: SlotStory) -> dict[str, UInt8[np.ndarray, "height width 3"]]:
    """Every picture that there is something for, by name: "components", "activity", "reading" and "tracks"."""
    found = {}
    if story.masks is not None:
        found["components"] = component_sheet(story)
        found["tracks"] = track_chart(
            story.true, story.true_masks, story.painted, story.masks, story.alone_from or 0, story.dark
        )
    painting = None if story.masks is None else _light(story.masks, story.painted)
    if story.details.keys() & {"active", "reads", "schemata"}:
        found["activity"] = activity_chart(story.details, painting, story.first, story.alone_from)
    if story.attention is not None and story.grid is not None and story.grid != (1, 1):
        found["reading"] = reading_sheet(story)
    return found


def numbered_pictures(stories: Sequence[SlotStory]) -> dict[str, UInt8[np.ndarray, "height width 3"]]:
    """The pictures of several clips, with the clip's number at the end of the name if there is more than one."""
    made = [story_pictures(story) for story in stories]
    return {
        f"{name}_{clip}" if len(made) > 1 else name: picture
        for clip, found in enumerate(made)
        for name, picture in found.items()
    }


def component_sheet(story: SlotStory) -> UInt8[np.ndarray, "sheet_height sheet_width 3"]:
    """What each slot paints over time: its share of the picture, with alpha, and all that it would paint, without.

    Args:
        story: with masks; without components, each slot's share of what is painted is shown alone.
    """
    assert story.masks is not None
    steps = story.shown_steps()
    rows = [[paint_frame(story.true[t]) for t in steps], [paint_frame(story.painted[t]) for t in steps]]
    names, colours = ["truth", "painted"], [None, None]
    masks = _resized(story.masks, story.painted.shape[-2:])
    rows.append([paint_slots(masks_to_labels(masks[t]), (story.painted[t].amax(0) > 0.2).long()) for t in steps])
    names.append("slots")
    bars: list[tuple[int, int, int] | None] = [*colours, None]
    for slot in range(masks.shape[1]):
        own = story.painted if story.components is None else story.components[:, slot]
        rows.append([_on_ground(own[t], masks[t, slot]) for t in steps])
        names.append(f"slot {slot}\nwith alpha")
        bars.append(_colour(slot))
        if story.components is not None:
            rows.append([paint_frame(own[t]) for t in steps])
            names.append("without\nalpha")
            bars.append(_colour(slot))
    entries: list[Entry] = [
        *_times(story),
        (None, "slots: whose each pixel is, dimmed where it is dark."),
        (None, "with alpha: the slot's image where its share is, light grey where it has none."),
    ]
    if story.components is not None:
        entries.append((None, "without alpha: the slot's whole image, also where others are in front."))
    return contact_sheet(rows, [story.column(t) for t in steps], names, bars, _cell(story), entries)


def reading_sheet(story: SlotStory) -> UInt8[np.ndarray, "sheet_height sheet_width 3"]:
    """Where each slot looked: its attention over the frame that was read, the brighter the more.

    With inputs between tokens and slots (`details["inputs"]`), which input has won each place, and in the last row
    which of them each slot read.

    Args:
        story: with attention, whose tokens lie on a grid.
    """
    assert story.attention is not None
    assert story.grid is not None
    steps = story.shown_steps()
    cell = _cell(story)
    rows = [[_enlarged(paint_frame(story.read[t]), cell) for t in steps]]
    names: list[str] = ["read"]
    bars: list[tuple[int, int, int] | None] = [None]
    if (inputs := story.details.get("inputs")) is not None:
        winners = inputs.argmax(1).unflatten(-1, story.grid)
        levels = winners / max(1, inputs.shape[1] - 1)
        rows.append([_over(_enlarged(_heat(levels[t], _LEVELS), cell), story.read[t], cell) for t in steps])
        names.append("inputs")
        bars.append(None)
    maps = rearrange(story.attention, "steps slots (rows cols) -> steps slots rows cols", rows=story.grid[0])
    brightest = maps[steps].amax(dim=(1, 2, 3)).clamp(min=1e-9)
    for slot in range(maps.shape[1]):
        shown = [maps[t, slot] / most for t, most in zip(steps, brightest, strict=True)]
        rows.append(
            [_over(_enlarged(_heat(heat), cell), story.read[t], cell) for t, heat in zip(steps, shown, strict=True)]
        )
        spent = story.attention[steps, slot]
        total = spent.mean() if story.competes else spent.sum(-1).mean()
        names.append(f"slot {slot}\n{100 * float(total):.0f} %")
        bars.append(_colour(slot))
    entries: list[Entry] = [
        *_times(story),
        (None, "slot: its attention, bright where there is most, on one scale for all slots of a step;"),
        (None, f"the percentage is {_SHARES[story.competes]}."),
    ]
    if (reads := story.details.get("reads")) is not None and inputs is not None:
        rows.append([_enlarged(_heat(reads[t]), cell) for t in steps])
        names.append("reads")
        bars.append(None)
        entries.append(
            (None, f"inputs: which of {reads.shape[-1] - 1} won each place, a colour each (not those of the slots).")
        )
        entries.append((None, "reads: how much each slot (a row) took of each input and, last, of null (columns)."))
    return contact_sheet(rows, [story.column(t) for t in steps], names, bars, cell, entries)


def _times(story: SlotStory) -> list[Entry]:
    if story.alone_from is None:
        return [(None, "t: number of the frame.")]
    return [
        (None, "t: frames that follow true ones."),
        (None, "+n: the n-th of the roll-out, which reads its own frames."),
    ]


def _light(
    masks: Float[Tensor, "steps slots rows cols"], painted: Float[Tensor, "steps channels height width"]
) -> Float[Tensor, "steps slots"]:
    """Each slot's share of the light that is painted at a step."""
    light = _resized(masks, painted.shape[-2:]) * painted.mean(1, keepdim=True)
    return light.sum((2, 3)) / light.sum((1, 2, 3), keepdim=False)[:, None].clamp(min=1e-6)


def _spread(first: int, last: int, most: int) -> list[int]:
    return np.unique(np.linspace(first, last, most).round().astype(int)).tolist() if last >= first else []


def _cell(story: SlotStory) -> tuple[int, int]:
    height, width = story.true.shape[-2:]
    factor = max(1, round(_CELL / max(height, width)))
    if max(height, width) <= _CELL:
        return factor * height, factor * width
    return round(_CELL * height / max(height, width)), round(_CELL * width / max(height, width))


def _resized(masks: Float[Tensor, "steps slots rows cols"], size: Sequence[int]) -> Tensor:
    if tuple(masks.shape[-2:]) == tuple(size):
        return masks
    return torch.nn.functional.interpolate(masks, tuple(size), mode="bilinear", align_corners=False)


def _on_ground(image: Float[Tensor, "channels height width"], mask: Float[Tensor, "height width"]) -> np.ndarray:
    return paint_frame(image.clamp(0, 1) * mask + _EMPTY * (1 - mask))


def _heat(values: Float[Tensor, "rows cols"], colours: Colormap = _HEAT) -> UInt8[np.ndarray, "rows cols 3"]:
    return (255 * np.asarray(colours(values.numpy()))[..., :3]).round().astype(np.uint8)


def _over(image: np.ndarray, frame: Float[Tensor, "channels height width"], cell: tuple[int, int]) -> np.ndarray:
    """An image over the frame in grey."""
    below = _enlarged(paint_frame(frame.mean(0, keepdim=True)), cell)
    return ((1 - _BELOW) * image + _BELOW * below).round().astype(np.uint8)


def _enlarged(image: np.ndarray, cell: tuple[int, int]) -> np.ndarray:
    return np.asarray(Image.fromarray(image).resize((cell[1], cell[0]), Image.Resampling.NEAREST))


def _colour(slot: int) -> tuple[int, int, int]:
    red, green, blue = SLOT_COLOURS[slot % len(SLOT_COLOURS)].tolist()
    return red, green, blue
