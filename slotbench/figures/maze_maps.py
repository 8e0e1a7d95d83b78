"""Maps of mazes: walls and path from above, what was in view when, and what a roll-out still paints right."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from PIL import Image, ImageDraw
from torch import Tensor
from torch.nn import functional as F

from slotbench.figures.painting import Painted
from slotbench.figures.sheets import Entry, Row, contact_sheet
from slotbench.interfaces import VideoBatch

__all__ = ["has_maze", "maze_maps"]

_MAX_CLIPS, _SIDE = 3, 192
_NEEDED = ("walls", "patterns", "poses", "surfaces")
_SAME_HUE = 0.999
"""Least cosine of two colours of which one is the other in less light, rounded to bytes."""
_PASSAGE, _OUT_OF_VIEW = (244, 244, 244), (178, 178, 178)
_READ, _PREDICTED = (150, 150, 150), (20, 20, 20)
_LONG_AGO, _LATELY = (240, 170, 40), (60, 130, 220)
_WRONG, _HALF, _RIGHT = (215, 60, 50), (240, 205, 70), (50, 160, 80)


def has_maze(batch: VideoBatch) -> bool:
    """Whether the log of a batch has what `maze_maps` draws."""
    return all(name in batch.objects for name in _NEEDED)


def maze_maps(
    batch: VideoBatch, predicted: Float[Tensor, "batch horizon channels height width"], context: int, recent: int = 32
) -> Painted:
    """Per clip, three maps: walls and path, which walls the context showed, and which the roll-out paints right.

    A wall cell is drawn in four quarters, as the pattern divides its two colours among them. A quarter of the third map
    has the share of the predicted pixels of its colour that are right: nearer to the true colour than to any other one
    in the clip, in the same light. Walls that the context did not show are left out there, and so are those that the
    true frames do not show again. At most three clips are drawn.
    """
    horizon = predicted.shape[1]
    rows = []
    for clip in range(min(len(batch), _MAX_CLIPS)):
        log = {name: batch.objects[name][clip].cpu() for name in _NEEDED}
        surfaces = log["surfaces"][: context + horizon].long()
        frames = batch.pixels[clip, : context + horizon].float().cpu()
        colours, known = _brightest(frames, surfaces, 2 * log["walls"].numel())
        right, shown = _shares_right(predicted[clip].float().cpu(), frames[context:], surfaces[context:], colours)
        last = _last_in_view(surfaces[:context], len(colours))
        early = (last >= 0) & (last < context - recent)
        late = (last >= 0) & ~early
        walls = np.where(known[:, None], (colours * 255).round().byte().numpy(), _OUT_OF_VIEW)
        seen = np.select([early[:, None], late[:, None]], [_LONG_AGO, _LATELY], _OUT_OF_VIEW)
        shares = np.where((shown > 0)[:, None] & (early | late)[:, None], _graded(right / shown), _OUT_OF_VIEW)
        pictures = [_from_above(log["walls"], log["patterns"], values) for values in (walls, seen, shares)]
        _draw_path(pictures[0], log["poses"][: context + horizon], len(log["walls"]), context)
        name = "\n".join(
            [
                f"clip {clip + 1}, right:",
                _percent("long ago", right, shown, early),
                _percent("lately", right, shown, late),
            ]
        )
        rows.append(Row(name, [np.asarray(picture) for picture in pictures]))
    columns = ["walls and path", "seen in the context", "painted right"]
    return contact_sheet(rows, columns, rows[0].images[0].shape[:2], _entries(context, horizon, recent))


def _entries(context: int, horizon: int, recent: int) -> list[Entry]:
    return [
        (None, "walls and path:"),
        (_READ, f"path in the {context} frames of context"),
        (_PREDICTED, f"in the {horizon} predicted, from the dot on"),
        (_OUT_OF_VIEW, "wall that was not in view, on each map."),
        (None, "seen in the context:"),
        (_LATELY, f"in its last {recent} frames"),
        (_LONG_AGO, "before them alone."),
        (None, "painted right, of the predicted pixels of what the context showed:"),
        (_WRONG, "none"),
        (_HALF, "half"),
        (_RIGHT, "all"),
    ]


def _percent(name: str, right: Tensor, shown: Tensor, chosen: Bool[Tensor, " surfaces"]) -> str:
    total = float(shown[chosen].sum())
    return f"{name} {100 * float(right[chosen].sum()) / total:.0f} %" if total else f"{name} -"


def _brightest(
    frames: Float[Tensor, "time 3 height width"], surfaces: Integer[Tensor, "time height width"], count: int
) -> tuple[Float[Tensor, "surfaces 3"], Bool[Tensor, " surfaces"]]:
    """(the colour of each surface in the brightest light that any surface of the colour is in, whether it is seen)."""
    colours = torch.zeros(count, 3)
    pixels, ids = frames.movedim(1, -1)[surfaces >= 0], surfaces[surfaces >= 0]
    colours.scatter_reduce_(0, ids[:, None].expand(-1, 3), pixels, "amax")
    hues = F.normalize(colours, dim=1)
    brightness = (hues @ hues.T > _SAME_HUE) * colours.sum(1)
    return colours[brightness.argmax(1)], torch.bincount(ids, minlength=count) > 0


def _last_in_view(surfaces: Integer[Tensor, "time height width"], count: int) -> Integer[Tensor, " surfaces"]:
    """The last step at which each surface is in view; -1 for never."""
    steps = torch.arange(len(surfaces))[:, None, None].expand_as(surfaces)
    last = torch.full((count,), -1)
    return last.scatter_reduce_(0, surfaces[surfaces >= 0], steps[surfaces >= 0], "amax")


def _shares_right(
    predicted: Float[Tensor, "time 3 height width"],
    true: Float[Tensor, "time 3 height width"],
    surfaces: Integer[Tensor, "time height width"],
    colours: Float[Tensor, "surfaces 3"],
) -> tuple[Float[Tensor, " surfaces"], Float[Tensor, " surfaces"]]:
    """(predicted pixels of each surface that are nearest to the true colour, all its pixels)."""
    there = surfaces >= 0
    ids, seen = surfaces[there], true.movedim(1, -1)[there]
    painted, own = predicted.movedim(1, -1)[there], colours[surfaces[there]]
    light = seen.sum(1, keepdim=True) / own.sum(1, keepdim=True)
    error = (painted - seen).square().sum(1)
    right = torch.ones_like(error, dtype=torch.bool)
    walls = colours[colours.sum(1) > 0].unique(dim=0)
    for other in walls:
        nearer = (painted - light * other).square().sum(1) <= error
        right &= ~nearer | (own == other).all(1)
    for other in true.movedim(1, -1)[~there].unique(dim=0):  # ceiling and ground
        right &= (painted - other).square().sum(1) > error
    count = len(colours)
    return torch.bincount(ids, right.float(), count), torch.bincount(ids, minlength=count).float()


def _graded(shares: Float[Tensor, " surfaces"]) -> np.ndarray:
    """Colours from red by yellow to green."""
    steps = np.array([_WRONG, _HALF, _RIGHT])
    places = shares.nan_to_num().numpy()
    return np.stack([np.interp(places, [0, 0.5, 1], channel) for channel in steps.T], axis=-1)


def _from_above(
    walls: Integer[Tensor, "rows cols"], patterns: Integer[Tensor, "rows cols"], colours: np.ndarray
) -> Image.Image:
    """The maze from above, each quarter of a wall cell in the colour that is given for its surface."""
    rows, cols = torch.meshgrid(*(torch.arange(2 * len(walls)),) * 2, indexing="ij")
    lower, right = rows % 2, cols % 2
    pattern = patterns.long()[rows // 2, cols // 2]
    which = torch.stack([torch.zeros_like(lower), lower, right, (lower + right) % 2])
    surface = 2 * (len(walls) * (rows // 2) + cols // 2) + which.gather(0, pattern[None])[0]
    wall = walls.bool()[rows // 2, cols // 2].numpy()
    image = np.where(wall[..., None], colours[surface.numpy()], _PASSAGE).round().astype(np.uint8)
    scale = max(1, _SIDE // len(image))
    return Image.fromarray(image.repeat(scale, 0).repeat(scale, 1))


def _draw_path(picture: Image.Image, poses: Tensor, cells: int, context: int) -> None:
    """Draws the way of the agent, in quarters of a cell, and a dot where the predicted frames begin."""
    pen, unit = ImageDraw.Draw(picture), picture.width / (4 * cells)
    places = [(float(x) * unit, float(y) * unit) for x, y in poses[:, :2].tolist()]
    pen.line(places[:context], fill=_READ, width=7)
    pen.line(places[context - 1 :], fill=_PREDICTED, width=2)
    x, y = places[context - 1]
    pen.ellipse((x - 4, y - 4, x + 4, y + 4), fill=_PREDICTED)
