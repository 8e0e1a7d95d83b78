"""Figures of one clip's slots over time: what each slot painted, when it was active, where it attended, and its track.

They are made of the outputs of any core and decoder: `Decoded.masks` and `.components`, `CoreOutput.attention` and
`.details`. A figure whose data is missing is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from einops import rearrange
from jaxtyping import Float, Integer
from matplotlib import colormaps
from matplotlib.colors import Colormap
from torch import Tensor

from slotbench.figures.painting import (
    Painted,
    evenly_spaced,
    paint_alone,
    paint_frame,
    paint_slots,
    resize,
    slot_colour,
)
from slotbench.figures.sheets import Entry, Row, contact_sheet
from slotbench.figures.slot_charts import activity_chart, track_chart
from slotbench.interfaces import CoreOutput, Decoded
from slotbench.metrics.contingency import masks_to_labels, resized_masks

__all__ = ["STORIES", "SlotStory", "component_sheet", "reading_sheet", "story_pictures"]

STORIES = 2
"""Clips of an evaluation whose slots are shown."""

_MAX_COLUMNS = 8
_CELL = 72
_HEAT, _LEVELS = colormaps["cividis"], colormaps["viridis"]  # both can be read without telling red from green
_SHARES = {
    True: "the share of the frame that it has won, on average",
    False: "what it spent on the frame on average (the rest went to the null input)",
}
_BELOW = 0.35  # how much of the frame shows through attention


@dataclass(frozen=True)
class SlotStory:
    """One clip with the outputs of a core and a decoder, each step with the frame that it paints.

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
        context: true frames that a roll-out reads first; dark pixels then belong to no slot. None without a roll-out.
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
    context: int | None = None
    competes: bool = False

    @classmethod
    def of_clips(
        cls,
        read: Float[Tensor, "batch steps channels height width"],
        true: Float[Tensor, "batch steps channels height width"],
        output: CoreOutput,
        decoded: Decoded,
        true_masks: Integer[Tensor, "batch steps height width"] | None = None,
        grid: tuple[int, int] | None = None,
        context: int | None = None,
    ) -> list[SlotStory]:
        """The stories of a batch.

        Args:
            read: see above, as the arguments that are not described here.
            true: see above.
            output: of the core, for all steps.
            decoded: of the decoder, for all steps; its images in [0, 1].
            true_masks: see above.
            grid: see above.
            context: see above.
        """

        def on_host(values: Any, clip: int) -> Any:
            return None if values is None else values[clip].detach().float().cpu()

        return [
            cls(
                on_host(true, clip),
                on_host(decoded.reconstruction, clip),
                on_host(read, clip),
                on_host(decoded.masks, clip),
                on_host(decoded.components, clip),
                None if true_masks is None else true_masks[clip].cpu().long(),
                on_host(output.attention, clip),
                {name: on_host(values, clip) for name, values in output.details.items()},
                grid,
                context,
                output.attention_kind == "assignment",
            )
            for clip in range(len(true))
        ]

    @property
    def alone_from(self) -> int:
        """The first step whose frame follows the context of a roll-out; 0 without one."""
        return 0 if self.context is None else self.context - 1

    def column(self, step: int) -> str:
        """Label of a step: the frame that it paints, counted from the context in a roll-out."""
        if self.context is None:
            return f"t = {step}"
        return f"t = {step + 1}" if step < self.alone_from else f"+{step - self.alone_from + 1}"

    def shown_steps(self) -> list[int]:
        """At most eight steps: two of the context at most, the rest of the roll-out, evenly spaced; the last is one."""
        last = len(self.true) - 1
        before = evenly_spaced(self.alone_from // 2, self.alone_from - 1, 2)
        return [*before, *evenly_spaced(self.alone_from, last, _MAX_COLUMNS - len(before))]


def story_pictures(stories: Sequence[SlotStory]) -> dict[str, Painted]:
    """Every figure that there is something for, by name: "components", "activity", "reading" and "tracks".

    With more than one clip, the clip's number stands at the end of the name.
    """
    return {
        f"{name}_{clip}" if len(stories) > 1 else name: picture
        for clip, story in enumerate(stories)
        for name, picture in _pictures(story).items()
    }


def _pictures(story: SlotStory) -> dict[str, Painted]:
    found, painting = {}, None
    if story.masks is not None:
        found["components"] = component_sheet(story)
        dark = story.context is not None
        found["tracks"] = track_chart(
            story.true, story.true_masks, story.painted, story.masks, story.alone_from, dark=dark
        )
        painting = _light(story.masks, story.painted)
    if story.details.keys() & {"active", "reads", "schemata"}:
        found["activity"] = activity_chart(story.details, painting, story.context)
    if story.attention is not None and story.grid is not None and story.grid != (1, 1):
        found["reading"] = reading_sheet(story)
    return found


def component_sheet(story: SlotStory) -> Painted:
    """What each slot paints over time: its share of the picture, with alpha, and all that it would paint, without.

    Args:
        story: with masks; without components, each slot's share of what is painted is shown alone.
    """
    assert story.masks is not None
    steps = story.shown_steps()
    masks = resized_masks(story.masks, _size(story.painted))
    rows = [
        Row("truth", [paint_frame(story.true[t]) for t in steps]),
        Row("painted", [paint_frame(story.painted[t]) for t in steps]),
        Row("slots", [paint_slots(masks_to_labels(masks[t]), (story.painted[t].amax(0) > 0.2).long()) for t in steps]),
    ]
    for slot in range(masks.shape[1]):
        own = story.painted if story.components is None else story.components[:, slot]
        images = [paint_alone(own[t], masks[t, slot]) for t in steps]
        rows.append(Row(f"slot {slot}\nwith alpha", images, slot_colour(slot)))
        if story.components is not None:
            rows.append(Row("without\nalpha", [paint_frame(own[t]) for t in steps], slot_colour(slot)))
    entries: list[Entry] = [
        *_times(story),
        (None, "slots: whose each pixel is, dimmed where it is dark."),
        (None, "with alpha: the slot's image where its share is, light grey where it has none."),
    ]
    if story.components is not None:
        entries.append((None, "without alpha: the slot's whole image, also where others are in front."))
    return contact_sheet(rows, [story.column(t) for t in steps], _cell(story), entries)


def reading_sheet(story: SlotStory) -> Painted:
    """Where each slot attended: its attention over the frame that was read, the brighter the more.

    With inputs between tokens and slots (`details["inputs"]`), which input has won each place, and in the last row
    which of them each slot read.

    Args:
        story: with attention, whose tokens lie on a grid.
    """
    assert story.attention is not None
    assert story.grid is not None
    steps = story.shown_steps()
    cell = _cell(story)
    rows = [Row("read", [_enlarged(paint_frame(story.read[t]), cell) for t in steps])]
    if (inputs := story.details.get("inputs")) is not None:
        levels = inputs.argmax(1).unflatten(-1, story.grid) / max(1, inputs.shape[1] - 1)
        rows.append(Row("inputs", [_over(_heat(levels[t], _LEVELS), story.read[t], cell) for t in steps]))
    maps = rearrange(story.attention, "steps slots (rows cols) -> steps slots rows cols", rows=story.grid[0])
    shown = maps / maps.amax(dim=(1, 2, 3), keepdim=True).clamp(min=1e-9)
    for slot in range(maps.shape[1]):
        spent = story.attention[steps, slot]
        total = float(spent.mean() if story.competes else spent.sum(-1).mean())
        images = [_over(_heat(shown[t, slot]), story.read[t], cell) for t in steps]
        rows.append(Row(f"slot {slot}\n{100 * total:.0f} %", images, slot_colour(slot)))
    entries: list[Entry] = [
        *_times(story),
        (None, "slot: its attention, bright where there is most, on one scale for all slots of a step;"),
        (None, f"the percentage is {_SHARES[story.competes]}."),
    ]
    if (reads := story.details.get("reads")) is not None and inputs is not None:
        rows.append(Row("reads", [_enlarged(_heat(reads[t]), cell) for t in steps]))
        entries.append(
            (None, f"inputs: which of {reads.shape[-1] - 1} won each place, a colour each (not those of the slots).")
        )
        entries.append((None, "reads: how much each slot (a row) took of each input and, last, of null (columns)."))
    return contact_sheet(rows, [story.column(t) for t in steps], cell, entries)


def _times(story: SlotStory) -> list[Entry]:
    if story.context is None:
        return [(None, "t: number of the frame.")]
    return [
        (None, "t: frames that follow true ones."),
        (None, "+n: the n-th of the roll-out, which reads its own frames."),
    ]


def _light(
    masks: Float[Tensor, "steps slots rows cols"], painted: Float[Tensor, "steps channels height width"]
) -> Float[Tensor, "steps slots"]:
    """Each slot's share of the light that is painted at a step."""
    light = resized_masks(masks, _size(painted)) * painted.mean(1, keepdim=True)
    return light.sum((2, 3)) / light.sum((1, 2, 3))[:, None].clamp(min=1e-6)


def _size(frames: Tensor) -> tuple[int, int]:
    return frames.shape[-2], frames.shape[-1]


def _cell(story: SlotStory) -> tuple[int, int]:
    """Height and width of an image on a sheet: enlarged by whole pixels, or shrunk to some 72 of them."""
    height, width = _size(story.true)
    longer = max(height, width)
    if longer > _CELL:
        return round(_CELL * height / longer), round(_CELL * width / longer)
    return round(_CELL / longer) * height, round(_CELL / longer) * width


def _heat(values: Float[Tensor, "rows cols"], colours: Colormap = _HEAT) -> Painted:
    return (255 * np.asarray(colours(values.numpy()))[..., :3]).round().astype(np.uint8)


def _over(image: np.ndarray, frame: Float[Tensor, "channels height width"], cell: tuple[int, int]) -> np.ndarray:
    """An image, brought to the size of a cell, over the frame in grey."""
    below = _enlarged(paint_frame(frame.mean(0, keepdim=True)), cell)
    return ((1 - _BELOW) * _enlarged(image, cell) + _BELOW * below).round().astype(np.uint8)


def _enlarged(image: np.ndarray, cell: tuple[int, int]) -> np.ndarray:
    return resize(image, cell, smooth=False)
