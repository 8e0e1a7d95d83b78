"""Adam as TensorFlow writes it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

__all__ = ["AdamTF"]


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
