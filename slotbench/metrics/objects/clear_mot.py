"""CLEAR-MOT of many clips, by the code of `slotbench score`, and labels of what a model paints."""

from __future__ import annotations

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from slotbench.metrics.contingency import counted, frame_tables, integer_ids, masks_to_labels
from slotbench.metrics.distinct import DistinctMetric
from slotbench.metrics.tracking import Tracking, TrackingRule, track

__all__ = ["DARK", "ClearMOT", "track_labels"]

DARK = 0.2
"""A pixel whose brightest channel is no brighter belongs to no track."""


def track_labels(
    masks: Float[Tensor, "*batch slots height width"],
    frames: Float[Tensor, "*batch channels height width"] | None = None,
    dark: float = DARK,
) -> Integer[Tensor, "*batch height width"]:
    """The slot with the largest share of each pixel, from 1; 0 where no mask covers it or the frame is dark.

    A model without a slot for the background gives dark pixels to some slot all the same, which is no track.
    """
    slots = masks.shape[-3]
    labels = (masks_to_labels(masks).long() + 1) % (slots + 1)
    return labels if frames is None else labels.masked_fill(frames.amax(-3) <= dark, 0)


class ClearMOT(DistinctMetric):
    """MOTA, MOTP and the errors they are made of, over all clips: 1 - (misses + switches + false positives) / objects.

    Predicted label 0 is no track; every other label is one, the same in all frames of a clip.

    Example:
        >>> true = torch.zeros(1, 2, 4, 4, dtype=torch.long)
        >>> true[..., :2, :] = 1
        >>> metric = ClearMOT()
        >>> metric.update(true * torch.tensor([1, 2]).view(1, 2, 1, 1), true)
        >>> {name: value.item() for name, value in metric.compute().items() if name in ("mota", "switches")}
        {'mota': 0.5, 'switches': 0.5}
    """

    higher_is_better = True
    is_differentiable = False
    full_state_update = False
    counts: Tensor

    names = ("objects", "matches", "misses", "false_positives", "switches", "iou")

    def __init__(self, rule: TrackingRule | None = None) -> None:
        super().__init__()
        self.rule = rule or TrackingRule()
        self.add_state("counts", torch.zeros(len(self.names), dtype=torch.float64), dist_reduce_fx="sum")

    def update(
        self, predicted: Integer[Tensor, "batch time height width"], true: Integer[Tensor, "batch time height width"]
    ) -> None:
        """Adds some clips; of the true ids, 0 is background."""
        found = Tracking()
        # A row of pixels of no track beside each frame puts label and id 0 into the first column and row of the tables,
        # where a clip without a dark pixel, or without background, would have another there.
        ids = {"predicted labels": predicted, "true labels": true}
        rows = [torch.nn.functional.pad(integer_ids(labels, what).long(), (0, 0, 0, 1)) for what, labels in ids.items()]
        for table in frame_tables(rows[0], rows[1], counted(rows[1]))[:, :, 0].cpu().numpy():
            table[:, 0, 0] -= true.shape[-1]
            found += track(table, self.rule, no_track=0)
        self.counts += torch.tensor([getattr(found, name) for name in self.names]).to(self.counts)

    def compute(self) -> dict[str, Float[Tensor, ""]]:
        """MOTA, MOTP (mean IoU of matches), and misses, false positives and switches per object; nan without any."""
        objects, matches, misses, false_positives, switches, iou = self.counts
        return {
            "mota": 1 - (misses + false_positives + switches) / objects,
            "motp": iou / matches,
            "misses": misses / objects,
            "false_positives": false_positives / objects,
            "switches": switches / objects,
        }
