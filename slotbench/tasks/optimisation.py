"""The optimiser and the schedules of slotbench, which a configuration names as it names those of torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.optimizer import ParamsT

__all__ = ["AdamTF", "ConstantRate", "Decay", "WarmupCosine", "WarmupHalfLife", "WarmupStepsCosine"]

Decay = Literal["matrices", "all"]
"""What weight decay is for: matrices, and everything else is left alone, or all parameters in one group."""


class AdamTF(Optimizer):
    """Adam whose epsilon is added before the second moment is corrected for its start at zero, as in TensorFlow.

    With m and v the running averages of the gradient and of its square, step t takes
    lr sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + eps).

    Source: Kingma and Ba, ICLR 2015, the paragraph after Algorithm 1 ("epsilon hat"); code of Krimmel et al.,
    "Attention Normalization Impacts Cardinality Generalization in Slot Attention", TMLR 2024, for their CLEVR models.

    Args:
        params: parameters, or groups of them.
        lr: learning rate.
        betas: how much of the averages of the gradient and of its square stays at each step.
        eps: added to the root of the average square.
    """

    def __init__(self, params: ParamsT, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8):
        for name, value in (("lr", lr), ("eps", eps)):
            if not value >= 0:
                raise ValueError(f"AdamTF: {name} is {value}; expected a number of at least 0")
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"AdamTF: betas is {tuple(betas)}; expected two numbers in [0, 1)")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """One step, for every parameter that has a gradient; returns what `closure`, which computes it, returns."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            trained = [parameter for parameter in group["params"] if parameter.grad is not None]
            if trained:
                self._update(group, trained)
        return loss

    def _update(self, group: dict[str, Any], trained: list[Tensor]) -> None:
        beta1, beta2 = group["betas"]
        for parameter in trained:
            if not self.state[parameter]:
                self.state[parameter] = {
                    "step": 0,
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }
        states = [self.state[parameter] for parameter in trained]
        gradients = [parameter.grad for parameter in trained if parameter.grad is not None]
        averages, squares = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq"))
        torch._foreach_lerp_(averages, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)
        roots = torch._foreach_sqrt(squares)
        torch._foreach_add_(roots, group["eps"])
        rates = []
        for state in states:
            state["step"] += 1
            rates.append(-group["lr"] * math.sqrt(1 - beta2 ** state["step"]) / (1 - beta1 ** state["step"]))
        torch._foreach_addcdiv_(trained, averages, roots, rates)


class WarmupCosine(LambdaLR):
    """Linear warm-up, then a cosine down to a fraction of the peak.

    The task supplies the length of the training, so that it is written once, as `trainer.max_steps`.

    Args:
        optimizer: the optimiser whose learning rate is the peak.
        total_steps: optimiser steps of the whole training.
        warmup: share of `total_steps` spent warming up, in [0, 1).
        final_fraction: learning rate at the end, as a fraction of the peak.
    """

    def __init__(self, optimizer: Optimizer, total_steps: int, warmup: float = 0.025, final_fraction: float = 0.0):
        if not 0 <= warmup < 1:
            raise ValueError(
                f"WarmupCosine: warmup is the share of the training spent warming up, in [0, 1); got {warmup}"
            )
        if not 0 <= final_fraction < math.inf:
            raise ValueError(f"WarmupCosine: final_fraction is a fraction of the peak, from 0 on; got {final_fraction}")
        warmup_steps = max(1, round(warmup * total_steps))

        def factor(step: int) -> float:
            if step < warmup_steps:
                return (step + 1) / warmup_steps
            done = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
            return final_fraction + (1 - final_fraction) * 0.5 * (1 + math.cos(math.pi * done))

        super().__init__(optimizer, factor)


class WarmupStepsCosine(LambdaLR):
    """Linear warm-up from 0 over a number of steps, then a cosine that reaches 0 as many steps before the end.

    Source: code of ConvS5 (see `slotbench.nn.resnet_blocks`), 5,000 of 300,000 steps; optax counts the warm-up in.

    Args:
        optimizer: the optimiser whose learning rate is the peak.
        total_steps: optimiser steps of the whole training.
        warmup_steps: steps from 0 to the peak.
        reach_zero_at_end: let the cosine last until the end of the training.
    """

    def __init__(
        self, optimizer: Optimizer, total_steps: int, warmup_steps: int = 5000, reach_zero_at_end: bool = False
    ):
        if warmup_steps < 0:
            raise ValueError(f"WarmupStepsCosine: warmup_steps is {warmup_steps}; expected a number of steps from 0 on")
        decay_steps = total_steps - warmup_steps * (1 if reach_zero_at_end else 2)

        def factor(step: int) -> float:
            if step < warmup_steps:
                return step / warmup_steps
            done = min(1.0, (step - warmup_steps) / max(1, decay_steps))
            return 0.5 * (1 + math.cos(math.pi * done))

        super().__init__(optimizer, factor)


class WarmupHalfLife(LambdaLR):
    """Linear warm-up over a number of steps, and a learning rate that halves every `half_life` steps.

    Source: code of Slot Attention (Locatello et al., NeurIPS 2020) and of PSB, which decay from the start; DINOSAUR
    (Seitzer et al., ICLR 2023) decays after the warm-up.

    Args:
        optimizer: the optimiser whose learning rate is the peak.
        total_steps: not used; it is taken as by the other schedules.
        warmup_steps: steps from 0 to the peak.
        half_life: steps in which the learning rate halves; None for a rate that stays after the warm-up.
        decay_after_warmup: count the steps of decay from the end of the warm-up.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        total_steps: int | None,
        warmup_steps: int = 10_000,
        half_life: int | None = 100_000,
        decay_after_warmup: bool = False,
    ):
        if warmup_steps < 0:
            raise ValueError(f"WarmupHalfLife: warmup_steps is {warmup_steps}; expected a number of steps from 0 on")
        if half_life is not None and half_life < 1:
            raise ValueError(f"WarmupHalfLife: half_life is {half_life}; expected a number of steps from 1 on")
        decay_starts = warmup_steps if decay_after_warmup else 0

        def factor(step: int) -> float:
            warmed = min(1.0, (step + 1) / max(1, warmup_steps))
            return warmed if half_life is None else warmed * 0.5 ** (max(0, step - decay_starts) / half_life)

        super().__init__(optimizer, factor)


class ConstantRate(LambdaLR):
    """The optimiser's own learning rate from the first step to the last.

    Args:
        optimizer: the optimiser.
        total_steps: not used; it is taken as by the other schedules.
    """

    def __init__(self, optimizer: Optimizer, total_steps: int | None):
        super().__init__(optimizer, lambda step: 1.0)
