"""Says into which slots a trained run puts the objects of its validation clips, and which get none of their own.

    python docs/scripts/where_objects_go.py RUN [RUN ...]

A run is one of `experiments/movi_like.yaml`, or another of SlotAutoencoding on clips with masks and an object log. The
slot of an object is the one that has most of its pixels in the clip, by the decoder's masks; the object has it alone,
shares it with another object, or it is a slot of the background, more than three quarters of whose pixels are none of
an object's. Then: how much of an object its slot has and how much of it slots of the background have, and how it is
with small objects and those of another's colour.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

ALONE, SHARED, BACKGROUND = "a slot of its own", "shared with another object", "a slot of the background"
BACKGROUND_SHARE = 0.75
SMALL = 16


class Placed(NamedTuple):
    """What became of one object in one clip.

    Attributes:
        object: its id in the masks, from 1.
        slot: the slot with most of its pixels.
        fate: `ALONE`, `SHARED` or `BACKGROUND`.
        covered: share of its pixels that this slot has.
        lost: share of its pixels that slots of the background have.
        pixels: its pixels in a frame that shows it, the mean.
    """

    object: int
    slot: int
    fate: str
    covered: float
    lost: float
    pixels: float


def placed(slots: Tensor, masks: Tensor) -> list[Placed]:
    """What became of each object that is to be seen in a clip.

    Args:
        slots: the slot of each pixel "time height width".
        masks: the object of each pixel "time height width", 0 is the background.
    """
    num_slots = int(slots.max()) + 1
    objects = [int(one) for one in masks.unique() if one > 0]
    counts = {one: torch.bincount(slots[masks == one], minlength=num_slots) for one in objects}
    background = torch.bincount(slots[masks == 0], minlength=num_slots)
    is_background = background > BACKGROUND_SHARE * torch.bincount(slots.flatten(), minlength=num_slots)
    chosen = {one: int(count.argmax()) for one, count in counts.items()}
    found = []
    for one, slot in chosen.items():
        shared = sum(other == slot for other in chosen.values()) > 1
        seen = (masks == one).flatten(1).any(1).sum()
        found.append(
            Placed(
                object=one,
                slot=slot,
                fate=BACKGROUND if is_background[slot] else SHARED if shared else ALONE,
                covered=float(counts[one][slot] / counts[one].sum()),
                lost=float(counts[one][is_background].sum() / counts[one].sum()),
                pixels=float(counts[one].sum() / seen),
            )
        )
    return found


@torch.no_grad()
def clips_of(task, data) -> Iterator[tuple[list[Placed], list[int]]]:
    """For every validation clip its objects, and the colour of each row of its log."""
    for stored in data.val_dataloader():
        batch = data.on_after_batch_transfer(stored, 0)
        slots = task.evaluate(batch).decoded.masks.argmax(2)
        for clip, (taken, masks) in enumerate(zip(slots, batch.masks, strict=True)):
            yield placed(taken, masks), batch.objects["color_label"][clip].tolist()


def said(found: list[tuple[list[Placed], list[int]]]) -> Iterator[str]:
    """The lines about a run."""
    rows = []
    for objects, colours in found:
        for one in objects:
            others = [colours[other.object - 1] for other in objects if other is not one]
            rows.append((one, colours[one.object - 1] in others))
    kinds = {
        "all": rows,
        f"of fewer than {SMALL} pixels": [row for row in rows if row[0].pixels < SMALL],
        f"of {SMALL} and more": [row for row in rows if row[0].pixels >= SMALL],
        "with another's colour": [row for row in rows if row[1]],
        "of a colour of their own": [row for row in rows if not row[1]],
    }
    for kind, chosen in kinds.items():
        if chosen:
            fates = [one.fate for one, _ in chosen]
            shares = ", ".join(f"{fates.count(fate) / len(fates):.2f} {fate}" for fate in (ALONE, SHARED, BACKGROUND))
            own = [one for one, _ in chosen if one.fate == ALONE]
            yield f"{len(fates)} objects, {kind}: {shares}"
            if own:
                covered, lost = (sum(values) / len(own) for values in ([o.covered for o in own], [o.lost for o in own]))
                yield f"  of an object with a slot of its own: {covered:.2f} in it, {lost:.2f} in the background's"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run's folder")
    options = parser.parse_args()
    from draw_cores import Run

    for folder in options.runs:
        run = Run(folder)
        print(folder.name)
        for line in said(list(clips_of(run.load(), run.data()))):
            print(f"  {line}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
