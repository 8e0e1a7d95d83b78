"""Callback that warns of a collapsed training: equal slots, one slot for everything, constant output."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from slotbench.interfaces import CoreOutput, Decoded, Reporter

__all__ = ["Collapse", "largest_share", "prediction_spread", "slots_apart"]

# name -> (limit, whether the alarm is above it, what to say and try)
_ALARMS = {
    "slots_apart": (1e-3, False, "all slots are alike ({:.2g} of their power differs); try a lower learning rate"),
    "largest_share": (0.99, True, "one slot has everything: {:.4f} of each clip; try a longer warm-up or fewer slots"),
    "prediction_spread": (1e-5, False, "the prediction is the same whatever is seen ({:.2g}); try gradient clipping"),
}


def slots_apart(slots: Float[Tensor, "batch time slots dim"]) -> float:
    """Share of the slots' power that is not common to all slots of a step, in [0, 1]."""
    slots = slots.float()
    own = (slots - slots.mean(dim=2, keepdim=True)).square().mean()
    return float(own / slots.square().mean().clamp(min=1e-20))


def largest_share(shares: Float[Tensor, "batch time slots *cells"]) -> float:
    """The largest slot's share of a whole clip, mean over the clips, in [0, 1]; shares sum to one over slots."""
    return float(shares.float().flatten(3).mean(dim=(1, 3)).amax(dim=1).mean())


def prediction_spread(predicted: Float[Tensor, "batch time *axes"]) -> float:
    """Variance of the prediction from clip to clip and step to step at a pixel, in units of its power."""
    predicted = predicted.float().flatten(0, 1)
    return float(predicted.var(dim=0, unbiased=False).mean() / predicted.square().mean().clamp(min=1e-20))


class Collapse(Callback):
    """Warns once that a training has collapsed, with the number, after two such validations in a row.

    Looks at core and decoder in the first `batches` of each validation, after a `share` of the training. Of a core with
    one slot, or whose slots are the cells of a grid, the prediction alone is looked at.
    """

    def __init__(self, batches: int = 2, share: float = 0.2) -> None:
        self._batches, self._share = batches, share
        self._hooks: dict[nn.Module, RemovableHandle] = {}
        self._found: dict[str, list[float]] = {}
        self._before: set[str] = set()
        self._said: set[str] = set()

    def on_validation_batch_start(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        if trainer.state.fn == "fit" and not trainer.sanity_checking and args[1] < self._batches:
            parts = (getattr(pl_module, name, None) for name in ("core", "decoder"))
            self._hooks = {p: p.register_forward_hook(self._measure) for p in parts if isinstance(p, nn.Module)}

    def on_validation_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        for hook in self._hooks.values():
            hook.remove()
        self._hooks = {}

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        means = {name: sum(values) / len(values) for name, values in self._found.items()}
        self._found = {}
        now = {name for name, value in means.items() if (value > _ALARMS[name][0]) == _ALARMS[name][1]}
        due = (now & self._before) - self._said
        steps = pl_module.total_steps if isinstance(pl_module, Reporter) else None
        early = trainer.global_step < self._share * (steps or 0)
        self._before = set() if early else now
        self._said |= due
        for name in sorted(due) if trainer.is_global_zero else ():
            sentence = _ALARMS[name][2].format(means[name])
            trainer.print(f"collapse alarm at step {trainer.global_step:,}: {sentence}")

    def _measure(self, part: nn.Module, arguments: object, output: object) -> None:
        self._hooks.pop(part).remove()  # the first output of a batch is enough
        if isinstance(output, Decoded):
            self._found.setdefault("prediction_spread", []).append(prediction_spread(output.reconstruction))
            if output.masks is not None and output.masks.shape[2] > 1:
                self._found.setdefault("largest_share", []).append(largest_share(output.masks))
        elif isinstance(output, CoreOutput):
            spec = getattr(part, "slot_spec", None)
            if output.slots.shape[2] > 1 and getattr(spec, "grid", None) is None:
                self._found.setdefault("slots_apart", []).append(slots_apart(output.slots))
                if output.attention is not None and output.attention_kind == "assignment":
                    self._found.setdefault("largest_share", []).append(largest_share(output.attention))
