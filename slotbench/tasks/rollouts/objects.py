"""Scores of the objects in roll-outs: error where there is something to see, F1, tracking by masks, and identity."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn

from slotbench.interfaces import Decoded
from slotbench.metric_info import MetricInfo, Reference
from slotbench.metrics.colour_tracker import simple_trackers
from slotbench.metrics.contingency import resized_masks
from slotbench.metrics.frames import frame_sum_mse
from slotbench.metrics.means import Mean
from slotbench.metrics.objects.cell_identity import CellIdentity, objects_of_cells
from slotbench.metrics.objects.clear_mot import ClearMOT, track_labels
from slotbench.metrics.objects.foreground import ForegroundF1
from slotbench.tasks.rollouts.rollout import simple_predictions

__all__ = ["ObjectScores", "visible_parts"]

Frames = Float[Tensor, "batch time channels height width"]
Ids = Integer[Tensor, "batch time height width"]
Layers = Float[Tensor, "batch time objects channels height width"]

_COPIED = "baseline|copy the last true masks"


OBJECT_INFOS = (
    MetricInfo("rollout_mse_sum", "squared error of a frame, summed over pixels", False),
    MetricInfo("rollout_occupied", "share of clips with an object in every frame"),
    MetricInfo("rollout_f1", "soft F1 of the foreground", True),
    MetricInfo("rollout_f1_all_steps", "soft F1 of the foreground, all frames", True),
    MetricInfo("rollout_mota", "MOTA of the masks", True),
    MetricInfo("rollout_motp", "MOTP of the masks (mean IoU)", True),
    MetricInfo("rollout_mota_patches", "MOTA of patches of the predicted frames", True),
    MetricInfo("rollout_motp_patches", "MOTP of patches of the predicted frames", True),
    MetricInfo("rollout_acl", "average consistency length", True),
    MetricInfo("rollout_mcl", "maximum consistency length", True),
    MetricInfo("rollout_acl_shuffled", "average consistency length, shuffled in time"),
    MetricInfo("rollout_mcl_shuffled", "maximum consistency length, shuffled in time"),
    MetricInfo("rollout_object_share", "share of slots' frames that show an object"),
    MetricInfo("slot_utilisation", "share of a slot in the first predicted frame"),
)
"""What the scores of `ObjectScores` are."""


class ObjectScores(nn.Module):
    """What a roll-out does with the objects of its clips, beside what learns nothing; `OBJECT_INFOS` names the scores.

    `/occupied` is of clips that show an object in every predicted frame; `_all_steps` also counts the frames of the
    context but the first, each predicted from the true ones before it. Baselines of MOTA are the true masks of the last
    frame seen, and trackers that look at the *true* frames; `_patches` is the best of these on the *predicted* frames.
    Scores of masks are there if the decoder gives masks.

    Args:
        horizon: predicted frames per clip.
        context: frames before them.
    """

    def __init__(self, horizon: int, context: int = 1) -> None:
        super().__init__()
        self.horizon = horizon
        self.context = context
        self.errors = nn.ModuleDict()
        self.foregrounds = nn.ModuleDict()
        self.openings = nn.ModuleDict()
        self.utilisation = nn.ModuleDict()
        self.tracks = nn.ModuleDict()
        self.identity = CellIdentity()
        self._labels: list[Ids] = []
        self._ids: list[Integer[Tensor, "batch 1 cells"]] = []

    def watch_context(
        self, predicted: Frames, clip: Float[Tensor, "batch steps channels height width"], first: int, beside: bool
    ) -> None:
        """Takes predictions, in [0, 1], of the context's frames from number `first` on, each made from those before it.

        Those of the horizon are left out; `beside` scores baselines too.
        """
        numbers = range(first, min(first + predicted.shape[1], self.context))
        if not numbers:
            return
        shown = {"": predicted[:, : len(numbers)]}
        if beside:
            before = [simple_predictions(clip[:, :number], 1) for number in numbers]
            shown |= {f"baseline|{name}": torch.cat([by[name] for by in before], dim=1) for name in before[0]}
        for whose, frames in shown.items():
            self._add_foreground("openings", whose, frames, clip[:, first : numbers[-1] + 1], first - 1)

    def add_utilisation(self, shares: Float[Tensor, "batch slots"]) -> None:
        """Takes how much an image of each clip depends on each slot, as shares."""
        named = {f"slot_{slot}": share for slot, share in enumerate(shares.unbind(1))}
        for name, share in (named | {"largest": shares.amax(1)}).items():
            self._update("utilisation", name, Mean, shares.device, share)

    def watch(self, steps: Iterable[Decoded], layers: Layers) -> Iterator[Decoded]:
        """Hands the steps of a roll-out on, and notes whose each pixel is and which object each slot paints."""
        self._labels, self._ids = [], []
        for time, step in enumerate(steps):
            if step.masks is not None:
                masks = resized_masks(step.masks, (step.reconstruction.shape[-2], step.reconstruction.shape[-1]))
                self._labels.append(track_labels(masks, step.reconstruction))
                parts = step.reconstruction[:, :, None] if step.components is None else step.components
                self._ids.append(objects_of_cells(masks[:, :, :, None] * parts, layers[:, time : time + 1]))
            yield step

    def look(
        self, pieces: Iterable[tuple[Mapping[str, Frames], Frames]], masks: Ids, beside: bool
    ) -> Iterator[tuple[Mapping[str, Frames], Frames]]:
        """Hands pieces of `RolloutScores.update` on and scores them, and at their end what `watch` has seen."""
        occupied = (masks[:, 1:].flatten(2) > 0).any(2).all(1)
        first, predicted, followed = 0, [], []
        for shown, true in pieces:
            self._add_frames(shown, true, first, occupied)
            first += true.shape[1]
            predicted.append(shown[""])
            followed.append(true)
            yield shown, true
        self._update("errors", "|occupied_share", Mean, masks.device, occupied.double())
        if self._labels:
            self.identity.to(masks.device).update(torch.cat(self._ids, dim=1))
            labels = {
                "": torch.cat(self._labels, dim=1),
                "_patches": simple_trackers(torch.cat(predicted, dim=1))["patches"],
            }
            if beside:
                labels[_COPIED] = masks[:, :1].expand_as(masks[:, 1:])
                trackers = simple_trackers(torch.cat(followed, dim=1))
                labels |= {f"baseline|tracker of true frames: {name}": ids for name, ids in trackers.items()}
            for whose, ids in labels.items():
                self._update("tracks", f"{whose}|", ClearMOT, masks.device, ids, masks[:, 1:])

    def compute(self) -> dict[str, float]:
        """Every score, by name. Gathers over processes, so every process must take part."""
        found: dict[str, float] = {}
        for key, mean in self.errors.items():
            whose, _, part = key.rpartition("|")
            suffix = {"all": "", "occupied": "/occupied"}.get(part)
            name = "rollout_occupied" if suffix is None else _named("rollout_mse_sum", whose, suffix)
            if mean.update_called and torch.isfinite(value := mean.compute()):  # type: ignore[operator]
                found[name] = float(value)
        for key, metric in self.foregrounds.items():
            if metric.update_called:
                whose = key.removesuffix("|")
                found[_named("rollout_f1", whose)] = value = float(metric.compute())  # type: ignore[operator]
                if key in self.openings and (opening := self.openings[key]).update_called:
                    sums = value * self.horizon + float(opening.compute()) * (self.context - 1)  # type: ignore[operator]
                    found[_named("rollout_f1_all_steps", whose)] = sums / (self.horizon + self.context - 1)
        for name, mean in self.utilisation.items():
            if mean.update_called:
                found[f"slot_utilisation/{name}"] = float(mean.compute())  # type: ignore[operator]
        for key, metric in self.tracks.items():
            if metric.update_called:
                values = metric.compute()  # type: ignore[operator]
                for name in ("mota", "motp"):
                    if torch.isfinite(values[name]):
                        found[_named(f"rollout_{name}", key.removesuffix("|"))] = float(values[name])
        if self.identity.update_called:
            found |= {f"rollout_{name}": float(value) for name, value in self.identity.compute().items()}
        return found

    def _add_frames(
        self, shown: Mapping[str, Frames], true: Frames, first: int, occupied: Bool[Tensor, " batch"]
    ) -> None:
        for whose, frames in shown.items():
            errors = frame_sum_mse(frames, true)
            self._update("errors", f"{whose}|all", Mean, true.device, errors)
            self._update("errors", f"{whose}|occupied", Mean, true.device, errors[occupied])
            self._add_foreground("foregrounds", whose, frames, true, first)

    def _add_foreground(self, kind: str, whose: str, frames: Frames, true: Frames, first: int) -> None:
        steps = self.horizon if kind == "foregrounds" else self.context - 1
        self._update(kind, f"{whose}|", partial(ForegroundF1, steps), true.device, frames, true, first)

    def _update(
        self, kind: str, key: str, make: Callable[[], nn.Module], device: torch.device, *values: Tensor | int
    ) -> None:
        metrics = getattr(self, kind)
        if key not in metrics:  # made on first use: which baselines and oracles there are, the data says
            metrics[key] = make().to(device)
        metrics[key].update(*values)


def visible_parts(frames: Frames, masks: Ids) -> Layers:
    """Every object alone where it is seen, for data that does not know more; in the order of the ids, from 1."""
    ids = torch.arange(1, max(1, int(masks.max())) + 1, device=masks.device)
    own = rearrange(masks, "batch time height width -> batch time 1 1 height width") == ids.view(-1, 1, 1, 1)
    return frames[:, :, None] * own


def _named(name: str, whose: str, suffix: str = "") -> str:
    kind, bar, reference = whose.partition("|")
    named = f"{name}{suffix}"
    return Reference(kind, named, reference) if bar else f"{name}{whose}{suffix}"  # type: ignore[arg-type]
