"""Charts of the slots of one clip: when each was active, how much it read and painted, and its track."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Integer
from matplotlib.figure import Figure
from torch import Tensor

from slotbench.figures.charts import chart_pixels
from slotbench.figures.painting import Painted, slot_colour
from slotbench.metrics.contingency import resized_masks
from slotbench.metrics.objects.clear_mot import ClearMOT, track_labels

__all__ = ["activity_chart", "centres", "track_chart"]

_ASLEEP = (0.93, 0.93, 0.93)
_SMALLEST = 5  # pixels beyond which a label is somewhere
_MARKERS = "osD^vP*X<>hd"


def activity_chart(
    details: Mapping[str, Tensor],
    painting: Float[Tensor, "steps slots"] | None = None,
    context: int | None = None,
) -> Painted:
    """A ribbon per slot over time: when it was active, how much it read and painted, and which schema it took.

    Args:
        details: of one clip, "steps ...": `active`, `reads`, `schemata` and `communication`, of which those are drawn
            that there are.
        painting: each slot's share of what is painted.
        context: true frames before a roll-out, whose begin is marked; None where every frame is read.
    """
    ribbons: list[tuple[str, Tensor | None]] = []
    if "active" in details:
        ribbons.append(("active", None))
    if "reads" in details:
        ribbons.append(("read of the input (not null)", 1 - details["reads"][..., -1]))
    if painting is not None:
        ribbons.append(("share of what is painted", painting))
    if "schemata" in details:
        ribbons.append(("schema taken", details["schemata"].argmax(-1)))
    slots = next(values for name, values in details.items() if name in ("active", "reads", "schemata")).shape[1]
    heard = details.get("communication")
    rows = len(ribbons)
    figure = Figure(figsize=(7.6 + 3.0 * (heard is not None), 0.8 + rows * (0.65 + 0.19 * slots)), dpi=110)
    figure.set_layout_engine("constrained")
    parts: Any = [figure, None] if heard is None else figure.subfigures(1, 2, width_ratios=(7.6, 3.0))
    left, right = parts
    axes = left.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
    for axis, (title, values) in zip(axes, ribbons, strict=True):
        if values is None:
            _draw_active(axis, details["active"])
        elif title == "schema taken":
            _draw_schemata(axis, values, details["schemata"].shape[-1])
        else:
            _draw_heat(left, axis, values)
        axis.set_title(title, loc="left", fontsize=9)
        axis.set_yticks(range(slots), [str(slot) for slot in range(slots)], fontsize=7)
        axis.set_ylabel("slot", fontsize=8)
        axis.tick_params(axis="x", labelsize=8)
        for tick, slot in zip(axis.get_yticklabels(), range(slots), strict=True):
            tick.set_bbox({"facecolor": _rgb(slot), "edgecolor": "none", "pad": 1.2})
        if context is not None:
            axis.axvline(context - 1.5, color="black", linewidth=1.4, linestyle="--")
    _label_time(axes[-1], len(next(iter(details.values()))), context)
    if right is not None and heard is not None:
        _draw_heard(right, heard)
    return chart_pixels(figure)


def track_chart(
    true: Float[Tensor, "steps channels height width"],
    true_masks: Integer[Tensor, "steps height width"] | None,
    painted: Float[Tensor, "steps channels height width"],
    masks: Float[Tensor, "steps slots rows cols"],
    alone_from: int = 0,
    dark: bool = False,
) -> Painted:
    """Where the objects went and where the slots' masks did, over all that was seen in grey.

    A mark for each frame; the first of a track is hollow, and at its last stands the object's id or the slot's number.
    Crosses are frames of the context; without a roll-out there are none.

    Args:
        true: the frames that were to be painted.
        true_masks: ids of the objects; without them only the slots are drawn.
        painted: the frames that were.
        masks: share of each slot in each pixel.
        alone_from: the first step of the roll-out, from which on the slots are drawn.
        dark: whether dark pixels belong to no slot.
    """
    masks = resized_masks(masks, (painted.shape[-2], painted.shape[-1]))
    labels = track_labels(masks, painted if dark else None)[alone_from:]
    panels = 1 + (true_masks is not None)
    figure = Figure(figsize=(4.1 * panels, 4.65), dpi=110, layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False)[0]
    where = "in the roll-out" if alone_from else "in the clip"
    if true_masks is not None:
        _trace(axes[0], true)
        for number, track in centres(true_masks).items():
            colour = np.array((0.15, 0.15, 0.15))
            _draw_track(axes[0], track[:alone_from], colour, "x", None)
            _draw_track(axes[0], track[alone_from:], colour, _MARKERS[(number - 1) % len(_MARKERS)], str(number))
        axes[0].set_title(f"true objects\n{'x: context; marks: roll-out' if alone_from else where}", fontsize=9)
    _trace(axes[-1], painted[alone_from:])
    found = centres(labels)
    for label, track in found.items():
        _draw_track(axes[-1], track, _rgb(label - 1), _MARKERS[(label - 1) % len(_MARKERS)], str(label - 1))
    if not found:
        axes[-1].text(0.5, 0.5, "no slot paints more than five pixels", ha="center", transform=axes[-1].transAxes)
    axes[-1].set_title(f"slots' masks {where}\n{_score(labels, true_masks, alone_from)}", fontsize=9)
    return chart_pixels(figure)


def centres(labels: Integer[Tensor, "steps height width"]) -> dict[int, Float[np.ndarray, "steps 2"]]:
    """The centre (x, y) of every label but 0 in each frame, in pixels; nan where it has at most five of them."""
    height, width = labels.shape[1:]
    ys, xs = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    found = {}
    for number in labels.unique().tolist():
        here = (labels == number).float()
        count = here.sum((1, 2))
        middle = torch.stack([(here * xs).sum((1, 2)), (here * ys).sum((1, 2))], dim=1) / count[:, None].clamp(min=1)
        middle[count <= _SMALLEST] = torch.nan
        if number and not middle.isnan().all():
            found[int(number)] = middle.double().numpy()
    return found


def _score(labels: Tensor, true_masks: Tensor | None, alone_from: int) -> str:
    if true_masks is None:
        return ""
    metric = ClearMOT()
    metric.update(labels[None].long(), true_masks[None, alone_from:].long())
    mota = float(metric.compute()["mota"])
    return f"MOTA of this clip {mota:.2f}" if np.isfinite(mota) else "no object to track"


def _trace(axis: Any, frames: Tensor) -> None:
    """What was seen in all frames, the later the darker, in light grey on white."""
    light = frames.amax(1)
    ages = torch.linspace(0.35, 1, len(light)).view(-1, 1, 1)
    shade = 1 - 0.4 * (light * ages).amax(0).clamp(0, 1).numpy()
    axis.imshow(shade, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axis.set_xticks([])
    axis.set_yticks([])


def _draw_track(axis: Any, track: np.ndarray, colour: np.ndarray, marker: str, name: str | None) -> None:
    there = np.flatnonzero(np.isfinite(track[:, 0]))
    if not len(there):
        return
    edge = {} if marker == "x" else {"markeredgecolor": "black", "markeredgewidth": 0.5}
    line = {"linewidth": 0.8 if marker == "x" else 1.6, "markersize": 4 if marker == "x" else 5}
    axis.plot(track[:, 0], track[:, 1], color=colour, marker=marker, **line, **edge)
    if name is None:
        return
    axis.plot(*track[there[0]], marker=marker, color=colour, markerfacecolor="white", markersize=6, linestyle="none")
    axis.annotate(
        name,
        track[there[-1]],
        xytext=(6, 6),
        textcoords="offset points",
        fontsize=9,
        fontweight="bold",
        color="black",
        annotation_clip=False,
        bbox={"facecolor": "white", "edgecolor": colour, "boxstyle": "round,pad=0.15", "alpha": 0.9},
    )


def _draw_active(axis: Any, active: Float[Tensor, "steps slots"]) -> None:
    image = np.empty((active.shape[1], active.shape[0], 3))
    for slot in range(active.shape[1]):
        image[slot] = np.where(active[:, slot, None].numpy() > 0.5, _rgb(slot), _ASLEEP)
    axis.imshow(image, aspect="auto", interpolation="nearest")


def _draw_heat(figure: Any, axis: Any, values: Float[Tensor, "steps slots"]) -> None:
    image = axis.imshow(values.T.numpy(), aspect="auto", interpolation="nearest", cmap="cividis", vmin=0, vmax=1)
    figure.colorbar(image, ax=axis, fraction=0.04, pad=0.01).ax.tick_params(labelsize=7)


def _draw_schemata(axis: Any, taken: Integer[Tensor, "steps slots"], count: int) -> None:
    axis.imshow(taken.T.numpy(), aspect="auto", interpolation="nearest", cmap="cividis", vmin=-0.5, vmax=count - 0.5)
    for step, slot in np.ndindex(*taken.shape):
        dark = taken[step, slot] < count / 2
        ink = "white" if dark else "black"
        axis.text(step, slot, str(int(taken[step, slot])), ha="center", va="center", fontsize=6, color=ink)


def _draw_heard(figure: Any, heard: Float[Tensor, "steps slots others"]) -> None:
    axis = figure.subplots()
    image = axis.imshow(heard.mean(0).numpy(), cmap="cividis", vmin=0, interpolation="nearest")
    slots = heard.shape[1]
    axis.set_xticks(range(slots), [str(slot) for slot in range(slots)], fontsize=8)
    axis.set_yticks(range(slots), [str(slot) for slot in range(slots)], fontsize=8)
    axis.set_title("who heard whom\n(mean over steps)", loc="left", fontsize=9)
    axis.set_xlabel("heard slot", fontsize=8)
    axis.set_ylabel("listening slot", fontsize=8)
    figure.colorbar(image, ax=axis, orientation="horizontal", fraction=0.06, pad=0.02).ax.tick_params(labelsize=7)


def _label_time(axis: Any, steps: int, context: int | None) -> None:
    first = 0 if context is None else 1  # a roll-out paints the frame after the one that is read
    every = max(1, steps // 12)
    ticks = list(range(0, steps, every))
    axis.set_xticks(ticks, [str(first + step) for step in ticks], fontsize=8)
    after = "" if context is None else "; right of the dashed line the model reads its own frames"
    axis.set_xlabel(f"frame that is painted{after}", fontsize=8)


def _rgb(slot: int) -> np.ndarray:
    return np.array(slot_colour(slot)) / 255
