"""Slots of clips with the labels of their objects, collected from a trained task for probing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.evaluation.batches import for_each_batch
from slotbench.evaluation.probe_factors import KNOWN, ProbeError, by_object, count_objects
from slotbench.interfaces import Segmentation, Segmenter, VideoBatch
from slotbench.metrics.contingency import contingency, masks_to_labels

__all__ = ["Clips", "MaskSource", "collect"]

MaskSource = Literal["decoder", "attention"]
"""Which masks say what a slot covers: the decoder's, or the core's attention over the tokens."""


@dataclass(frozen=True)
class Clips:
    """Slots of clips, and the labels of their objects.

    Attributes:
        slots: of every frame, frozen.
        tables: pixels by true id (row 0 is the background, row i + 1 object i) and slot; None without masks.
        visible: which objects show at least the pixels asked for, in all shown cameras together.
        shapes: centre of each slot's mask (x and y in 0..1) and its share of the frame; of several posed cameras where
            the rays of its pixels meet, their mean origin and direction, and its share of all; None without masks.
        labels: of each object by name; the axis of time has length one for what does not change.
        fingerprints: of the frames of each clip, equal for equal clips.
    """

    slots: Float[Tensor, "clips time slots dim"]
    tables: Integer[Tensor, "clips time true slots"] | None
    visible: Bool[Tensor, "clips time objects"]
    shapes: Float[Tensor, "clips time slots numbers"] | None
    labels: dict[str, Tensor]
    fingerprints: list[bytes]

    def __len__(self) -> int:
        return len(self.slots)

    def with_slots_of_other_clips(self) -> Clips:
        """Each clip with the slots of the next one: slots like the real ones that know nothing of these objects."""
        return replace(self, slots=self.slots.roll(1, 0), tables=None, shapes=None)


def collect(
    task: nn.Module,
    batches: Iterable[VideoBatch],
    num_clips: int,
    *,
    masks: MaskSource | None = "decoder",
    min_pixels: int = 1,
    names: Sequence[str] = (),
    rows: Sequence[int] = (),
    report: Callable[[int], None] = lambda done: None,
) -> Clips:
    """Slots and labels of the first clips.

    Where the data has a "to_world" (`slotbench.data.posed_data`), positions and velocities are those in the frame of
    the rays, which is all that a model is told of the world.

    Masks are reduced to tables of counts as they come. Slots that are drawn are those of the task's own evaluation of
    the same clips.

    Args:
        task: trained; it is used as it is, without gradient.
        batches: clips with `masks` and `objects`, frames in [0, 1], on the task's device.
        num_clips: how many to take; fewer if there are fewer.
        masks: which masks say what a slot covers; None if that is not needed.
        min_pixels: an object with fewer visible pixels in a frame is left out of that frame.
        names: entries of `objects` to keep beside the known ones.
        rows: the objects to keep, by their rows in the annotations; all if there are none.
        report: called with the number of clips that are done.
    """
    if not isinstance(task, Segmenter):
        raise ProbeError(
            f"{type(task).__name__} does not give the slots of every frame with their masks: choose another run, such "
            "as one of SlotAutoencoding"
        )
    parts: list[Clips] = []
    task.eval()

    def step(batch: VideoBatch) -> None:
        parts.append(_part(task, batch, masks, min_pixels, names, rows))

    for_each_batch(task, batches, num_clips, step, report)
    if not parts:
        raise ProbeError("there are no clips to collect")
    return _joined(parts)


def _part(
    task: Segmenter,
    batch: VideoBatch,
    source: MaskSource | None,
    min_pixels: int,
    names: Sequence[str],
    rows: Sequence[int],
) -> Clips:
    if not batch.objects or batch.masks is None:
        missing = "annotations of its objects" if batch.masks is not None else "instance masks"
        raise ProbeError(f"this data set has no {missing}, without which there is nothing to hold slots against")
    out = task.evaluate(batch)
    steps, (height, width) = out.slots.shape[1], batch.masks.shape[-2:]
    objects = _in_frame_of_rays(batch.objects)
    num_objects = count_objects(objects, steps)
    if beyond := [row for row in rows if row >= num_objects]:
        raise ProbeError(f"the data has {num_objects} objects, 0 to {num_objects - 1}, and {beyond[0]} is asked for")
    there = sorted(set(rows)) or range(num_objects)
    # the new id of each: what is not kept, and ids beyond the annotated objects, count as nothing
    ids = torch.zeros(num_objects + 1, dtype=torch.long, device=batch.masks.device)
    ids[[row + 1 for row in there]] = torch.arange(1, len(there) + 1, device=ids.device)
    true = batch.masks[:, :steps].flatten(2).long()
    true = ids[torch.where(true <= num_objects, true, 0).clamp(min=0)]
    num_slots = out.slots.shape[2]
    tables = shapes = None
    if source is not None:
        labels = masks_to_labels(_masks(task, out, source, (height, width)), (height, width))
        # without the column of the pixels of no slot
        tables = contingency(labels.flatten(2), true, num_slots + 1, len(there) + 1)[..., :num_slots].int().cpu()
        if labels.ndim == 5 and batch.rays is not None:
            shapes = _ray_shapes(labels, batch.rays[:, :steps], num_slots).float().cpu()
        else:
            shapes = _shapes(labels, num_slots).float().cpu()
    # every pixel in one column: the sizes of the objects
    pixels = contingency(torch.zeros_like(true), true, 1, len(there) + 1)[..., 1:, 0]
    kept = {
        name: by_object(name, value, steps, num_objects)[:, :, list(there)].cpu()
        for name, value in objects.items()
        if name in KNOWN or name in names
    }
    for name in names:
        if name not in kept:
            known = ", ".join(sorted(objects))
            raise ProbeError(f"the data has no {name} of its objects; it has {known}")
    frames = batch.frames.contiguous().cpu().numpy()
    return Clips(
        slots=out.slots.float().cpu(),
        tables=tables,
        visible=(pixels >= min_pixels).cpu(),
        shapes=shapes,
        labels=kept,
        fingerprints=[hashlib.blake2b(clip.tobytes(), digest_size=16).digest() for clip in frames],
    )


def _masks(task: Segmenter, out: Segmentation, source: MaskSource, size: tuple[int, int]) -> Tensor:
    if source == "decoder":
        masks, other = out.masks, "attention"
    else:
        attention, other = None if out.attention_kind == "reading" else out.attention, "decoder"
        masks = None if attention is None else task.attention_masks(attention, size)
    if masks is None:
        whose = "decoder has no masks" if source == "decoder" else "core has no slots that compete for a grid of tokens"
        raise ProbeError(f"this run's {whose}: match by masks of the {other}, or by position")
    return masks


def _shapes(
    labels: Integer[Tensor, "clips time *views height width"], num_slots: int
) -> Float[Tensor, "clips time slots 3"]:
    """Centre and share of the pixels that each slot has won, means over views; the middle for a slot that has none."""
    height, width = labels.shape[-2:]
    flat = labels.flatten(2).long()
    ones = torch.ones_like(flat, dtype=torch.float32)
    rows = ((torch.arange(height, device=flat.device) + 0.5) / height).repeat_interleave(width)
    columns = ((torch.arange(width, device=flat.device) + 0.5) / width).repeat(height)
    rows, columns = (places.repeat(flat.shape[2] // len(places)) for places in (rows, columns))
    empty = torch.zeros(*flat.shape[:2], num_slots + 1, device=flat.device)
    sums = (empty.scatter_add(2, flat, ones * weight) for weight in (1.0, columns, rows))
    count, x, y = (value[..., :num_slots] for value in sums)
    seen = count > 0
    centres = [torch.where(seen, axis / count.clamp(min=1), 0.5) for axis in (x, y)]
    return torch.stack([*centres, count / flat.shape[2]], dim=-1)


def _ray_shapes(
    labels: Integer[Tensor, "clips time views height width"],
    rays: Float[Tensor, "clips time views 6 height width"],
    num_slots: int,
) -> Float[Tensor, "clips time slots 10"]:
    """What the rays of each slot's pixels say: where they meet, their mean origin and direction, their share of all.

    They meet at the point nearest to the mean rays of the cameras, weighted by pixels. Where these are nearly parallel,
    or of a single camera, it is the point of them nearest to the origin.
    """
    slots = F.one_hot(labels.flatten(3).long(), num_slots + 1)[..., :num_slots].double()
    sums = torch.einsum("ctvps,ctvdp->ctvsd", slots, rays.flatten(4).double())
    pixels = slots.sum(3)
    total = pixels.sum(2)[..., None]
    directions = F.normalize(sums[..., 3:], dim=-1)
    identity = torch.eye(3, dtype=torch.float64, device=rays.device)
    # the square of the distance from a ray is that of what is across it
    across = pixels[..., None, None] * (identity - directions[..., :, None] * directions[..., None, :])
    aims = torch.einsum("ctvsij,ctvj->ctsi", across, rays[..., :3, 0, 0].double())
    points = torch.linalg.solve(across.sum(2) + (3e-3 * total + 1e-9)[..., None] * identity, aims)
    return torch.cat([points, sums.sum(2) / total.clamp(min=1), total / labels[0, 0].numel()], dim=-1)


def _in_frame_of_rays(objects: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The annotations with positions and velocities in the frame of the rays, where they are in the world."""
    if (to_world := objects.get("to_world")) is None:
        return dict(objects)
    rotation, centre = to_world[:, None, :3, :3], to_world[:, None, None, :3, 3]
    moved = {name: objects[name] for name in ("positions", "velocities") if name in objects}
    if "positions" in moved:
        moved["positions"] = moved["positions"] - centre
    return {**objects, **{name: value.to(rotation) @ rotation for name, value in moved.items()}}


def _joined(parts: list[Clips]) -> Clips:
    def cat(name: str) -> Tensor | None:
        values = [getattr(part, name) for part in parts]
        return None if values[0] is None else torch.cat(values)

    tensors: dict[str, Any] = {name: cat(name) for name in ("slots", "tables", "visible", "shapes")}
    labels = {name: torch.cat([part.labels[name] for part in parts]) for name in parts[0].labels}
    return Clips(**tensors, labels=labels, fingerprints=[clip for part in parts for clip in part.fingerprints])
