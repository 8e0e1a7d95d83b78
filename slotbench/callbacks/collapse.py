"""Callback that warns of a collapsed training: equal slots, one slot for everything, swapped slots, constant output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from lightning.pytorch import Callback, LightningModule, Trainer
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.hooks import RemovableHandle

from slotbench.interfaces import CoreOutput, Decoded, VideoBatch
from slotbench.metrics.contingency import masks_to_labels

__all__ = ["Collapse", "largest_share", "places_traded", "prediction_spread", "slots_apart"]

_LIMITS = {"slots_apart": 0.001, "largest_share": 0.99, "places_traded": 0.3, "prediction_spread": 0.01}
_ALARM_ABOVE = ("largest_share", "places_traded")
_TRY = {
    "slots_apart": (
        "all slots are alike: {value:.2g} of their power tells them apart (alarm below {limit:g}); try starting slots "
        "or queries further apart, a lower learning rate with a longer warm-up, or a norm that leaves slots apart "
        "(SlotRNN: --model.core.mixer_norm before)"
    ),
    "largest_share": (
        "one slot has everything: {value:.4f} of each clip on average (alarm above {limit:g}); try a lower learning "
        "rate with a longer warm-up, fewer slots, or a smaller decoder, which a single slot does not satisfy"
    ),
    "places_traded": (
        "slots trade places: in {value:.2f} of a frame another slot has what one had in the frame before (alarm above "
        "{limit:g}), so that scores per video are far below those per frame; try longer clips in training "
        "(--data.num_frames), another seed, or a lower learning rate of the core (--model.part_rates)"
    ),
    "prediction_spread": (
        "the prediction is the same whatever is seen: it varies by {value:.2g} of what the truth does (alarm below "
        "{limit:g}), as the mean frame would; try a lower and a higher learning rate, gradient clipping, a longer "
        "training, or more weight on what is rare (--model.class_weights)"
    ),
}


def slots_apart(slots: Float[Tensor, "batch time slots dim"]) -> float:
    """Share of the slots' power that is not common to all slots of a step, in [0, 1]."""
    slots = slots.float()
    own = (slots - slots.mean(dim=2, keepdim=True)).square().mean()
    return float(own / slots.square().mean().clamp(min=1e-20))


def largest_share(shares: Float[Tensor, "batch time slots *cells"]) -> float:
    """The largest slot's share of a whole clip, mean over the clips, in [0, 1].

    Args:
        shares: of each slot in each pixel or token, summing to one over slots.
    """
    per_slot = shares.float().flatten(3).mean(dim=3).mean(dim=1)
    return float(per_slot.amax(dim=1).mean())


def places_traded(shares: Float[Tensor, "batch time slots *cells"]) -> float:
    """Share of a frame that changes its slot and would keep it under the best renaming of slots, in [0, 1].

    The best renaming is that of most cells (Hungarian), so that what moves from slot to slot with its object does not
    count. 0 for clips of one step.

    Args:
        shares: of each slot in each pixel or token.
    """
    slots = shares.shape[2] + 1  # one is no slot
    owner = masks_to_labels(shares.flatten(3)[..., None, :]).flatten(2).long()
    pairs = (owner[:, :-1] * slots + owner[:, 1:]).flatten(0, 1)
    if not len(pairs):
        return 0.0
    counts = torch.zeros(len(pairs), slots * slots, device=pairs.device)
    counts = counts.scatter_add_(1, pairs, torch.ones_like(pairs, dtype=counts.dtype)).unflatten(1, (slots, slots))
    stays = counts.diagonal(dim1=1, dim2=2).sum()
    best = sum(float(table[linear_sum_assignment(table, maximize=True)].sum()) for table in counts.cpu().numpy())
    return (best - float(stays)) / pairs.numel()


def prediction_spread(
    predicted: Float[Tensor, "batch time channels height width"],
    true: Float[Tensor, "batch steps channels height width"],
) -> float:
    """Variance of the prediction from clip to clip and step to step at a pixel, in units of that of the truth."""
    own, due = (frames.float().flatten(0, 1).var(dim=0, unbiased=False).mean() for frames in (predicted, true))
    return float(own / due.clamp(min=1e-20))


class Collapse(Callback):
    """Warns once that a training has collapsed, with the number and with what to try.

    Looks at the first batches of each validation, at the outputs of core and decoder there; the training goes on. What
    a model does early on is no collapse: the alarm needs two validations in a row, after a fifth of the training. Of a
    core with one slot, or whose slots are the cells of a grid, the prediction alone is looked at. No labels are needed.

    Args:
        batches: of a validation that are looked at.
        share: of the training before which there is no warning.
    """

    def __init__(self, batches: int = 2, share: float = 0.2) -> None:
        self._batches, self._share = batches, share
        self._hooks: list[RemovableHandle] = []
        self._slots: CoreOutput | None = None
        self._decoded: Decoded | None = None
        self._found: dict[str, list[float]] = {}
        self._before: set[str] = set()
        self._said: set[str] = set()

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Captures the first output of core and decoder."""
        core, decoder = getattr(pl_module, "core", None), getattr(pl_module, "decoder", None)
        if trainer.sanity_checking or trainer.state.fn != "fit" or batch_idx >= self._batches:
            return
        if isinstance(core, nn.Module) and isinstance(decoder, nn.Module):
            self._hooks = [part.register_forward_hook(self._capture_output) for part in (core, decoder)]

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Measures the captured outputs."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        captured, self._slots, decoded, self._decoded = self._slots, None, self._decoded, None
        if captured is not None and isinstance(batch, VideoBatch):
            self._measure(pl_module, captured, decoded, batch)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Warns of what two validations in a row have shown."""
        found, self._found = self._found, {}
        means = {name: sum(values) / len(values) for name, values in found.items()}
        now = {
            name
            for name, value in means.items()
            if (value > _LIMITS[name] if name in _ALARM_ABOVE else value < _LIMITS[name])
        }
        early = trainer.max_steps > 0 and trainer.global_step < self._share * trainer.max_steps
        due = (now & self._before) - self._said
        self._before = set() if early else now
        for name in sorted(due) if trainer.is_global_zero else ():
            self._said.add(name)
            sentence = _TRY[name].format(value=means[name], limit=_LIMITS[name])
            trainer.print(f"collapse alarm at step {trainer.global_step:,}: {sentence}")

    def state_dict(self) -> dict[str, list[str]]:
        """Findings of the last validation and past warnings, so that a resumed run repeats none."""
        return {"before": sorted(self._before), "said": sorted(self._said)}

    def load_state_dict(self, state_dict: dict[str, list[str]]) -> None:
        """Continues from `state_dict`."""
        self._before, self._said = set(state_dict["before"]), set(state_dict["said"])

    def _capture_output(self, module: nn.Module, arguments: object, output: object) -> None:
        if isinstance(output, CoreOutput):
            self._slots = self._slots or output
        elif isinstance(output, Decoded):
            self._decoded = self._decoded or output

    def _measure(self, task: LightningModule, core: CoreOutput, decoded: Decoded | None, batch: VideoBatch) -> None:
        spec = getattr(getattr(task, "core", None), "slot_spec", None)
        if core.slots.shape[2] > 1 and getattr(spec, "grid", None) is None:
            self._add("slots_apart", slots_apart(core.slots))
            shares = decoded.masks if decoded is not None else None
            if shares is None or shares.ndim != 5:
                shares = core.attention if core.attention_kind == "assignment" else None
            if shares is not None:
                self._add("largest_share", largest_share(shares))
                self._add("places_traded", places_traded(shares))
        if decoded is not None and (pair := _as_frames(task, decoded, batch)) is not None:
            self._add("prediction_spread", prediction_spread(*pair))

    def _add(self, name: str, value: float) -> None:
        self._found.setdefault(name, []).append(value)


def _as_frames(task: LightningModule, decoded: Decoded, batch: VideoBatch) -> tuple[Tensor, Tensor] | None:
    """The prediction and the truth in one range: frames, or probabilities of classes; None where they are neither."""
    predicted, target = decoded.reconstruction, batch.target
    if predicted.ndim != 5 or getattr(task, "learns_features", False):
        return None
    if target is not None and not target.is_floating_point() and target.ndim == 4:
        classes = F.one_hot(target.long(), predicted.shape[2]).movedim(-1, 2)
        return predicted.softmax(dim=2), classes.to(predicted.dtype)
    paint: Callable[[Decoded], Tensor] | None = getattr(task, "frames", None)
    frames = predicted if paint is None else paint(decoded)
    return (frames, batch.pixels) if frames.shape[2:] == batch.frames.shape[2:] else None
