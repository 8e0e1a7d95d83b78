"""Compares the Triton ops under torch.compile with themselves: `python triton_under_compile.py DEVICE BACKEND`.

A process of its own, because the tests' checks of types are nothing that torch.compile could see through.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor

from slotbench.ops import linear_scan, selective_scan


def calls() -> dict[str, tuple[Callable[..., tuple[Tensor, ...]], Callable[[int], list[Tensor]]]]:
    """The ops by name, and what makes inputs of so many steps for them."""

    def randn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=noise)

    noise = torch.Generator().manual_seed(0)
    return {
        "selective_scan": (
            lambda *x: selective_scan(*x, kernel="triton"),
            lambda time: [
                *(randn(2, time, 3), randn(2, time, 3).exp(), -randn(3, 4).exp(), randn(2, time, 4)),
                *(randn(2, time, 4), randn(3), randn(2, time, 3), randn(2, 3, 4)),
            ],
        ),
        "linear_scan": (
            lambda *x: linear_scan(*x, kernel="triton"),
            lambda time: [
                torch.complex(randn(2, time, 3, 4), randn(2, time, 3, 4)),
                torch.polar(torch.sigmoid(randn(4)), randn(4)),
                torch.complex(randn(2, 3, 4), randn(2, 3, 4)),
            ],
        ),
    }


def results(call: Callable[..., tuple[Tensor, ...]], inputs: list[Tensor]) -> list[Tensor]:
    """Outputs, and the gradients of their sum of squares."""
    outputs = call(*inputs)
    loss = sum((torch.view_as_real(x) if x.is_complex() else x).square().sum() for x in outputs)
    return [*outputs, *torch.autograd.grad(loss, inputs)]


def main(device: str, backend: str) -> None:
    """Ends with an error where something differs, or where the graph breaks."""
    for op, (call, make) in calls().items():
        compiled = torch.compile(call, backend=backend, fullgraph=True)
        for time in (3, 5, 6):  # from the second on with a symbol for the number of steps
            inputs = [value.to(device).requires_grad_() for value in make(time)]
            for actual, expected in zip(results(compiled, inputs), results(call, inputs), strict=True):
                torch.testing.assert_close(actual, expected, msg=lambda text, op=op: f"{op}: {text}")
        print(op, "in one graph")


if __name__ == "__main__":
    main(*sys.argv[1:])
