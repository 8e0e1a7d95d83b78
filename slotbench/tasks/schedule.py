"""Learning-rate schedules that know how long the training is."""

from __future__ import annotations

import math

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

__all__ = ["ConstantRate", "WarmupCosine", "WarmupHalfLife", "WarmupStepsCosine"]


class WarmupCosine(LambdaLR):
    """Linear warm-up, then a cosine down to a fraction of the peak rate.

    The length of the training is handed over by the task, so that it is written once, as `trainer.max_steps`.

    Args:
        optimizer: the optimiser whose rate is the peak.
        total_steps: optimiser steps of the whole training.
        warmup: share of `total_steps` spent warming up, in [0, 1).
        final_fraction: rate at the end, as a fraction of the peak.

    Raises:
        ValueError: `warmup` is not a share, or `final_fraction` is negative.
    """

    def __init__(self, optimizer: Optimizer, total_steps: int, warmup: float = 0.025, final_fraction: float = 0.0):
        if not 0 <= warmup < 1:
            raise ValueError(
                f"WarmupCosine: warmup is the share of the training spent warming up, in [0, 1); got {warmup}"
            )
        if not 0 <= final_fraction < math.inf:
            raise ValueError(
                f"WarmupCosine: final_fraction is a fraction of the peak rate, from 0 on; got {final_fraction}"
            )
        warmup_steps = max(1, round(warmup * total_steps))

        def factor(step: int) -> float:
            if step < warmup_steps:
                return (step + 1) / warmup_steps
            done = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
            return final_fraction + (1 - final_fraction) * 0.5 * (1 + math.cos(math.pi * done))

        super().__init__(optimizer, factor)


class WarmupStepsCosine(LambdaLR):
    """Linear warm-up from 0 over a number of steps, then a cosine that reaches 0 as many steps before the end.

    The rate is 0 at the first step and for the last `warmup_steps` ones. That is the schedule that the ConvS5 models
    were trained with: the length of the decay was meant without the warm-up, and optax counts it in. A training of at
    most twice `warmup_steps` has no cosine, and one shorter than `warmup_steps` never leaves the warm-up.

    Source: code of ConvS5 (see `slotbench.nn.resnet_blocks`), 5,000 of 300,000 steps.

    Args:
        optimizer: the optimiser whose rate is the peak.
        total_steps: optimiser steps of the whole training.
        warmup_steps: steps from 0 to the peak.
        reach_zero_at_end: let the cosine last until the end of the training.

    Raises:
        ValueError: a negative `warmup_steps`.
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
    """Linear warm-up over a number of steps; the rate halves every `half_life` steps, whatever the training's length.

    The factor is min(1, (step + 1) / warmup_steps) times a half to the power of (steps of decay) / half_life. The decay
    starts with the training, so that the rate never quite reaches the optimiser's, or at the end of the warm-up.

    Source: code of Slot Attention (Locatello et al., NeurIPS 2020) and of PSB, which decay from the start; DINOSAUR
    (Seitzer et al., ICLR 2023) decays after the warm-up.

    Args:
        optimizer: the optimiser whose rate is the peak.
        total_steps: not used; every schedule takes it. None where nothing but the clock ends the training.
        warmup_steps: steps from 0 to the peak.
        half_life: steps in which the rate halves.
        decay_after_warmup: count the steps of decay from the end of the warm-up.

    Raises:
        ValueError: a negative `warmup_steps` or a `half_life` below 1.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        total_steps: int | None,
        warmup_steps: int = 10_000,
        half_life: int = 100_000,
        decay_after_warmup: bool = False,
    ):
        if warmup_steps < 0:
            raise ValueError(f"WarmupHalfLife: warmup_steps is {warmup_steps}; expected a number of steps from 0 on")
        if half_life < 1:
            raise ValueError(f"WarmupHalfLife: half_life is {half_life}; expected a number of steps from 1 on")
        decay_starts = warmup_steps if decay_after_warmup else 0

        def factor(step: int) -> float:
            warmed = min(1.0, (step + 1) / max(1, warmup_steps))
            return warmed * 0.5 ** (max(0, step - decay_starts) / half_life)

        super().__init__(optimizer, factor)


class ConstantRate(LambdaLR):
    """The optimiser's own rate from the first step to the last.

    Args:
        optimizer: the optimiser.
        total_steps: not used; every schedule takes it. None where nothing but the clock ends the training.
    """

    def __init__(self, optimizer: Optimizer, total_steps: int | None):
        super().__init__(optimizer, lambda step: 1.0)
