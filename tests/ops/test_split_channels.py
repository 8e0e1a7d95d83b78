from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from slotbench.ops import split_channels
from slotbench.ops._memory import parts_of_rows


class Scaled(torch.autograd.Function):
    """Three times its inputs, whose gradients it writes as the compiled kernels do, in an order of its own choice."""

    @staticmethod
    def forward(ctx, order, *parts: Tensor):
        ctx.order = order
        return tuple(3 * part for part in parts)

    @staticmethod
    def backward(ctx, *grads: Tensor):
        places = parts_of_rows(grads[0], *[(grads[index].shape[-1],) for index in ctx.order])
        out = dict(zip(ctx.order, places, strict=True))
        for index, grad in enumerate(grads):
            out[index].copy_(3 * grad)
        return None, *[out[index] for index in range(len(grads))]


@given(
    batch=st.integers(1, 3),
    time=st.integers(1, 3),
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    data=st.data(),
)
def test_gradients_are_those_of_a_split_however_they_lie_in_memory(batch, time, sizes, data):
    order = data.draw(st.permutations(range(len(sizes))))
    x = torch.randn(batch, time, sum(sizes), dtype=torch.float64).requires_grad_()
    weights = torch.randn_like(x)

    def gradient(split) -> Tensor:
        joined = torch.cat(Scaled.apply(order, *split(x, sizes)), dim=-1)
        return torch.autograd.grad((joined * weights).sum(), x)[0]

    expected = gradient(lambda x, sizes: x.split(sizes, dim=-1))
    torch.testing.assert_close(gradient(split_channels), expected)
    assert all(torch.equal(a, b) for a, b in zip(split_channels(x, sizes), x.split(sizes, dim=-1), strict=True))


def test_gradients_that_lie_next_to_one_another_are_not_copied(monkeypatch):
    x = torch.randn(2, 3, 5, requires_grad=True)
    outputs = Scaled.apply((0, 1), *split_channels(x, (2, 3)))

    def refuse(*_args: object, **_options: object) -> None:
        raise AssertionError("the gradients were copied")

    monkeypatch.setattr(torch, "cat", refuse)
    (gradient,) = torch.autograd.grad(outputs, x, [torch.ones_like(part) for part in outputs])
    assert torch.equal(gradient, torch.full_like(x, 3))
    swapped = Scaled.apply((1, 0), *split_channels(x, (2, 3)))
    with pytest.raises(AssertionError, match="copied"):
        torch.autograd.grad(swapped, x, [torch.ones_like(part) for part in swapped])


def test_a_part_that_nobody_uses_has_a_gradient_of_zero_and_it_can_be_differentiated_twice():
    x = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(split_channels(x, (2, 3))[0].sum(), x)
    assert torch.equal(gradient[..., 2:], torch.zeros(2, 3, 3, dtype=torch.float64))

    def product(x: Tensor) -> Tensor:
        first, second = split_channels(x, (2, 3))
        return first.square().sum() * second.sin().sum()

    assert torch.autograd.gradgradcheck(product, x)
