"""Utilisation of cells: how much of a decoded frame depends on each cell's state.

Source: Lin, "Modular Neural Networks for Video Prediction" (2022), equation 4.3 and figure 4.10.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["cell_utilisation"]


def cell_utilisation(
    paint: Callable[[Tensor], Tensor], slots: Float[Tensor, "batch time cells dim"], normalise: bool = True
) -> Float[Tensor, "batch time cells"]:
    """Sum of the absolute derivatives of the sum of all pixels of a frame with respect to each cell's state.

    Example:
        >>> cell_utilisation(lambda slots: (slots * torch.tensor([[1.0], [-3.0]])).sum(-1), torch.ones(1, 1, 2, 1))
        tensor([[[0.2500, 0.7500]]])
    """
    # an evaluation may run in inference mode, whose tensors take no gradient
    with torch.inference_mode(False), torch.enable_grad():
        states = slots.detach().clone().requires_grad_()
        (slope,) = torch.autograd.grad(paint(states).sum(), states)
    share = slope.abs().sum(-1)
    if not normalise:
        return share
    total = share.sum(-1, keepdim=True)
    return share / total.masked_fill(total == 0, 1.0)
