"""Optimisers and schedules of ours, and how a task builds those that it is given; a refusal names the key."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import CyclicLR, LambdaLR, LRScheduler, OneCycleLR, ReduceLROnPlateau
from torch.optim.optimizer import ParamsT

from slotbench.errors import lines
from slotbench.tasks.schedule_calls import UNSUITABLE, built_class, schedule_call

__all__ = [
    "NO_END",
    "AdamTF",
    "ConstantRate",
    "TrainingSettingsError",
    "WarmupCosine",
    "WarmupHalfLife",
    "WarmupStepsCosine",
    "build_optimizer",
    "build_schedule",
]

NO_END = "the training has no end in steps"
"""How a message begins that asks for a length."""

FUSED_DEVICES = ("cpu", "cuda")
"""Where AdamW is fused unless the user says otherwise."""

# what torch calls an argument in its messages, where that is not its name
_SPOKEN = {"learning rate": "lr", "beta parameter": "betas", "beta": "betas", "epsilon": "eps", "momentum": "momentum"}
_GIVE_LENGTH = "--trainer.max_steps N or --trainer.max_epochs N beside it, or --model.schedule ConstantRate"


class AdamTF(Optimizer):
    """Adam whose epsilon is added before the second moment is corrected for its start at zero.

    With m and v the running averages of the gradient and of its square, step t takes
    lr sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) + eps). `torch.optim.Adam` adds eps to sqrt(v / (1 - beta2^t)):
    beside it the eps here acts as one 1 / sqrt(1 - beta2^t) times as large, which matters in the first steps where
    gradients are no larger than eps. There is no weight decay.

    Source: Kingma and Ba, ICLR 2015, the paragraph after Algorithm 1 ("epsilon hat"); code of Krimmel et al.,
    "Attention Normalization Impacts Cardinality Generalization in Slot Attention", TMLR 2024, for their CLEVR models.

    Args:
        params: parameters, or groups of them.
        lr: learning rate.
        betas: how much of the averages of the gradient and of its square stays at each step.
        eps: added to the root of the average square.

    Raises:
        ValueError: a number out of its range.
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

    The length of the training is handed over by the task, so that it is written once, as `trainer.max_steps`.

    Args:
        optimizer: the optimiser whose learning rate is the peak.
        total_steps: optimiser steps of the whole training.
        warmup: share of `total_steps` spent warming up, in [0, 1).
        final_fraction: learning rate at the end, as a fraction of the peak.

    Raises:
        ValueError: `warmup` is not a share, or `final_fraction` is negative.
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

    The learning rate is 0 at the first step and for the last `warmup_steps` ones. That is the schedule that the ConvS5
    models were trained with: the length of the decay was meant without the warm-up, and optax counts it in. A training
    of at most twice `warmup_steps` has no cosine, and one shorter than `warmup_steps` never leaves the warm-up.

    Source: code of ConvS5 (see `slotbench.nn.resnet_blocks`), 5,000 of 300,000 steps.

    Args:
        optimizer: the optimiser whose learning rate is the peak.
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
    """Linear warm-up over a number of steps, and a learning rate that halves every `half_life` steps.

    The factor is min(1, (step + 1) / warmup_steps) times a half to the power of (steps of decay) / half_life. The decay
    starts with the training, so that it never quite reaches the optimiser's, or at the end of the warm-up.

    Source: code of Slot Attention (Locatello et al., NeurIPS 2020) and of PSB, which decay from the start; DINOSAUR
    (Seitzer et al., ICLR 2023) decays after the warm-up.

    Args:
        optimizer: the optimiser whose learning rate is the peak.
        total_steps: not used; it is taken as by the other schedules.
        warmup_steps: steps from 0 to the peak.
        half_life: steps in which the learning rate halves; None for a rate that stays after the warm-up.
        decay_after_warmup: count the steps of decay from the end of the warm-up.

    Raises:
        ValueError: a negative `warmup_steps` or a `half_life` below 1.
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


class TrainingSettingsError(ValueError):
    """The optimiser or the schedule cannot be what the configuration says."""


def build_optimizer(factory: Callable[[Iterable], Optimizer], groups: Iterable, *, fuse: bool = True) -> Optimizer:
    """The optimiser over these parameter groups.

    An AdamW for which neither `fused` nor `foreach` has been said is PyTorch's fused one, where that can be: the same
    step up to rounding, in one call for all parameters of a group. Every other optimiser is as the factory makes it.

    Args:
        factory: makes an optimiser from parameters, or groups of them.
        groups: the parameters.
        fuse: whether AdamW may be fused. A fused one takes gradients that a scaler has enlarged, so that what reads or
            clips them before the step would see the enlarged ones.

    Raises:
        TrainingSettingsError: it refuses an argument, or one is not a finite number.
    """
    groups = list(groups)
    try:
        # copies, because an optimiser writes its settings into the groups
        optimizer = factory(_copied(groups))
    except (ValueError, RuntimeError, TypeError) as error:
        built = built_class(factory)
        if not isinstance(error, ValueError) and (built is None or not built.__module__.startswith("torch.")):
            raise  # a mistake in code of the user's, whose traceback says where
        raise _refusal(error, factory, "optimizer") from error
    if fuse:
        optimizer = _fused(optimizer, groups)
    for name, value in optimizer.defaults.items():
        numbers = value if isinstance(value, tuple | list) else [value]
        if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
            raise TrainingSettingsError(
                lines(f"{name} of {type(optimizer).__name__} cannot be {value}", key=f"model.optimizer.{name}")
            )
    return optimizer


def _copied(groups: list[Any]) -> list[Any]:
    return [dict(group) if isinstance(group, dict) else group for group in groups]


def _fused(optimizer: Optimizer, groups: list[Any]) -> Optimizer:
    """The fused form of a plain AdamW for which nobody has chosen an implementation; any other as it is."""
    said = optimizer.defaults
    if type(optimizer) is not AdamW or (said["fused"], said["foreach"]) != (None, None) or said["differentiable"]:
        return optimizer
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if not all(x.is_floating_point() and x.device.type in FUSED_DEVICES for x in trained):
        return optimizer
    settings = {name: said[name] for name in inspect.signature(AdamW).parameters if name != "params"}
    return AdamW(_copied(groups), **settings | {"fused": True})


def build_schedule(factory: Callable[..., LRScheduler], optimizer: Optimizer, total_steps: int | None) -> LRScheduler:
    """The schedule of the learning rate, one step of which follows each step of the optimiser.

    A schedule that has an argument for its length (`total_steps`, or torch's `T_max` or `total_iters`) and was not
    given one is told that of the training, by this name; to every other one nothing is handed but the optimiser. A
    function with a second argument of another name, and no default for it, takes the length there.

    Args:
        factory: makes a schedule from the optimiser.
        optimizer: whose learning rate it sets.
        total_steps: steps of the whole training; None if nothing but the clock ends it.

    Raises:
        TrainingSettingsError: it refuses an argument or lacks one, needs to know how long the training is, is none
            that a step can follow, or sets one learning rate where parts have rates of their own.
    """
    call, name = schedule_call(factory), _name(factory, "the schedule")
    if call.missing:
        key = f"model.schedule.{call.missing[0]}"
        needed = " and ".join(call.missing)
        raise TrainingSettingsError(lines(f"{name} needs {needed}", key=key, expected=f"--{key} VALUE"))
    if total_steps is None and call.needs_length:
        raise TrainingSettingsError(
            lines(f"{NO_END}, and {name} needs one", key="trainer.max_steps", expected=_GIVE_LENGTH)
        )
    before = [group["lr"] for group in optimizer.param_groups]
    by_place = [total_steps] if call.by_place else []
    by_name = {call.by_name: total_steps} if call.by_name is not None else {}
    try:
        schedule = factory(optimizer, *by_place, **by_name)
    except (ValueError, TypeError, KeyError, ZeroDivisionError) as error:
        built = built_class(factory)
        if not isinstance(error, ValueError) and (built is None or not built.__module__.startswith("torch.")):
            raise  # a mistake in code of the user's, whose traceback says where
        raise _refusal(error, factory, "schedule") from error
    _check_schedule(schedule, before, total_steps)
    return schedule


def _check_schedule(schedule: Any, before: list[float], total_steps: int | None) -> None:
    """Refuses what cannot be stepped after each step of the optimiser.

    Args:
        schedule: that was made.
        before: learning rate of each parameter group, before there was a schedule.
        total_steps: steps of the whole training, if they are known.
    """
    name = type(schedule).__name__
    if not isinstance(schedule, LRScheduler):
        raise TrainingSettingsError(
            lines(f"the schedule that was made is a {name}, and no LRScheduler of torch", key="model.schedule")
        )
    if isinstance(schedule, ReduceLROnPlateau):
        raise TrainingSettingsError(lines(f"{name} {UNSUITABLE['ReduceLROnPlateau']}", key="model.schedule"))
    if isinstance(schedule, OneCycleLR) and total_steps is not None and schedule.total_steps < total_steps:
        raise TrainingSettingsError(
            lines(
                f"{name} ends after {schedule.total_steps:,} steps, and the training has {total_steps:,}",
                key="model.schedule.total_steps",
                expected="at least as many, or none: then it is as long as the training",
            )
        )
    for key in ("step_size", "T_max"):
        if getattr(schedule, key, 1) < 1:
            refused = f"{name}: {key} is {getattr(schedule, key)}; expected 1 or more"
            raise TrainingSettingsError(lines(refused, key=f"model.schedule.{key}"))
    after = [group.get("initial_lr", group["lr"]) for group in schedule.optimizer.param_groups]
    if len(set(before)) > 1 and after != before and isinstance(schedule, OneCycleLR | CyclicLR):
        raise TrainingSettingsError(
            lines(
                f"{name} sets one learning rate, and parts of the model have rates of their own",
                key="model.part_rates",
                expected="a schedule that multiplies rates, such as WarmupCosine; or no part_rates",
            )
        )


def _refusal(error: Exception, factory: Callable[..., Any], part: str) -> TrainingSettingsError:
    # a KeyError's own text is its message in quotes
    said = " ".join(str(error.args[0] if isinstance(error, KeyError) else error).split())
    built = built_class(factory)
    # without the first, which is parameters or the optimiser, and not the user's
    known = list(inspect.signature(built).parameters)[1:] if built is not None else []
    named = [name for name in known if name in re.findall(r"\w+", said)]
    spoken = [name for words, name in _SPOKEN.items() if words in said and name in known]
    key = ".".join(["model", part, *(named or spoken)[:1]])
    return TrainingSettingsError(
        lines(
            f"invalid arguments for {_name(factory, f'the {part}')}: {said.removeprefix(_name(factory, '') + ': ')}",
            key=key,
        )
    )


def _name(factory: Callable[..., Any], otherwise: str) -> str:
    built = built_class(factory)
    return otherwise if built is None else built.__name__
