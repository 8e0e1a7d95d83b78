"""Inputs of every op of `slotbench.ops` at (sequences, steps, width), as a block of a model calls it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from slotbench import ops

__all__ = ["Call", "inputs_of"]

STATES, HEAD_DIM, TAPS = 16, 32, 4


@dataclass(frozen=True)
class Call:
    """An op with inputs that take gradients.

    Attributes:
        inputs: in the order of the op's arguments.
        outputs: calls the op with inputs and the name of a kernel.
    """

    inputs: list[Tensor]
    outputs: Callable[[list[Tensor], str], tuple[Tensor, ...]]

    def head(self, sequences: int, dtype: torch.dtype) -> Call:
        """The same on the first sequences, in float32 or float64."""

        def cut(value: Tensor) -> Tensor:
            # inputs of three axes and more have one of sequences
            value = value.detach()[:sequences] if value.ndim >= 3 else value.detach()
            wanted = (torch.complex128 if dtype == torch.float64 else torch.complex64) if value.is_complex() else dtype
            return value.to(wanted, copy=True).requires_grad_()

        return Call([cut(value) for value in self.inputs], self.outputs)

    def forward(self, kernel: str) -> tuple[Tensor, ...]:
        """The outputs, with what the backward needs."""
        return self.outputs(self.inputs, kernel)

    def both(self, kernel: str) -> tuple[Tensor, ...]:
        """The gradients of the first output's sum over a fixed pattern: forward and backward."""
        y = self.forward(kernel)[0]
        weights = torch.linspace(-1, 1, y.shape[-1], device=y.device).to(y.dtype).expand_as(y)
        return torch.autograd.grad(y, self.inputs, weights)


def inputs_of(op: str, sequences: int, steps: int, width: int, device: str) -> Call:
    """Random inputs in single precision, the same ones at every call.

    Args:
        op: name of an op.
        sequences: clips times slots.
        steps: of each.
        width: channels.
        device: "cuda" or "cpu".

    Raises:
        ValueError: there is no such op here.
    """
    generator = torch.Generator(device).manual_seed(0)

    def randn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=device)

    def rate(*shape: int) -> Tensor:
        return functional.softplus(randn(*shape) - 3)

    if op == "selective_scan":
        A = -torch.arange(1.0, STATES + 1, device=device).repeat(width, 1)
        given = [randn(sequences, steps, width), rate(sequences, steps, width), A]
        given += [randn(sequences, steps, STATES), randn(sequences, steps, STATES), randn(width)]
        given += [randn(sequences, steps, width)]
        call = Call(given, lambda x, kernel: ops.selective_scan(*x, kernel=kernel))
    elif op == "ssd":
        heads = max(1, width // HEAD_DIM)
        given = [randn(sequences, steps, heads, width // heads), rate(sequences, steps, heads), -1 - rate(heads)]
        given += [randn(sequences, steps, 1, STATES), randn(sequences, steps, 1, STATES)]
        call = Call(given, lambda x, kernel: ops.ssd(*x, kernel=kernel))
    elif op == "causal_conv1d":
        given = [randn(sequences, steps, width), randn(width, TAPS), randn(width)]
        call = Call(given, lambda x, kernel: ops.causal_conv1d(x[0], x[1], x[2], None, "silu", kernel=kernel))
    elif op == "linear_scan":
        decay = torch.polar(torch.exp(-rate(width)), 3 * randn(width))
        drive = torch.complex(randn(sequences, steps, width), randn(sequences, steps, width))
        call = Call([drive, decay], lambda x, kernel: ops.linear_scan(*x, kernel=kernel))
    elif op == "group_norm_activation":
        given = [randn(sequences, width, steps), randn(width), randn(width)]
        call = Call(given, lambda x, kernel: (ops.group_norm_activation(x[0], 1, x[1], x[2], kernel=kernel),))
    else:
        raise ValueError(f"no inputs are known for the op {op}: add them to slotbench/bench/gpu/kernel_inputs.py")
    for value in call.inputs:
        value.requires_grad_()
    return call
