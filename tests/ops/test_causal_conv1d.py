from __future__ import annotations

from importlib import import_module

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from slotbench.ops import available_kernels, causal_conv1d

EVERY = ("reference", "torch", "numba")


def inputs_of(batch: int, time: int, dim: int, width: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, time, dim), (dim, width), (dim,), (batch, width - 1, dim)]
    x, weight, bias, state = (torch.randn(*s, generator=generator, dtype=torch.float64) for s in shapes)
    return tuple(value.requires_grad_() for value in (x, weight, bias, state))


def results(inputs: tuple[Tensor, ...], activation: str | None, kernel: str) -> list[Tensor]:
    y, state = causal_conv1d(*inputs, activation, kernel=kernel)
    weights = [torch.cos(3 * x.detach()) for x in (y, state)]
    return [y, state, *torch.autograd.grad((y, state), inputs, weights, allow_unused=True, materialize_grads=True)]


@pytest.mark.parametrize("kernel", EVERY)
def test_computes_the_equation(kernel):
    x, weight, bias, state = (value.detach() for value in inputs_of(2, 5, 3, 4))
    y, last = causal_conv1d(x, weight, bias, state, "silu", kernel=kernel)
    seen = torch.cat([state, x], dim=1)
    for t in range(5):
        before = bias + sum(weight[:, k] * seen[:, t + k] for k in range(4))
        torch.testing.assert_close(y[:, t], before / (1 + torch.exp(-before)), rtol=1e-10, atol=1e-12)
    assert torch.equal(last, seen[:, -3:])


@given(
    batch=st.integers(1, 40),
    time=st.integers(1, 12),
    dim=st.integers(1, 40),
    width=st.integers(1, 6),
    activation=st.sampled_from([None, "silu"]),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=25)
def test_kernels_agree_with_the_reference_in_value_and_every_gradient(batch, time, dim, width, activation, seed):
    inputs = inputs_of(batch, time, dim, width, seed)
    expected = results(inputs, activation, "reference")
    for kernel in ("torch", "numba"):
        for actual, value in zip(results(inputs, activation, kernel), expected, strict=True):
            torch.testing.assert_close(actual, value, rtol=1e-9, atol=1e-9)


@given(
    batch=st.integers(1, 35),
    time=st.integers(1, 9),
    dim=st.integers(1, 20),
    width=st.integers(1, 6),
    before=st.integers(0, 3),
    after=st.integers(0, 3),
    step=st.integers(1, 2),
    slots_inside=st.booleans(),
)
@settings(max_examples=25)
def test_the_compiled_kernel_reads_a_part_of_a_projection_where_it_lies(
    batch, time, dim, width, before, after, step, slots_inside
):
    _, weight, bias, state = inputs_of(batch, time, dim, width)
    shape = (time * step, batch) if slots_inside else (batch, time * step)
    generator = torch.Generator().manual_seed(3)
    wide = torch.randn(*shape, before + dim + after, generator=generator, dtype=torch.float64).requires_grad_()
    x = (wide.transpose(0, 1) if slots_inside else wide)[:, ::step, before : before + dim]

    def of(kernel: str, x: Tensor) -> list[Tensor]:
        y, last = causal_conv1d(x, weight, bias, state, "silu", kernel=kernel)
        loss = y.sin().sum() + last.sin().sum()
        return [y, last, *torch.autograd.grad(loss, [wide, weight, bias], materialize_grads=True)]

    for actual, expected in zip(of("numba", x), of("reference", x.clone()), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kernel", EVERY)
@pytest.mark.parametrize("cut", [1, 2, 3, 6])
def test_a_clip_in_two_pieces_equals_the_whole(kernel, cut):
    x, weight, bias, state = inputs_of(2, 7, 3, 4)
    whole, last = causal_conv1d(x, weight, bias, state, "silu", kernel=kernel)
    first, between = causal_conv1d(x[:, :cut], weight, bias, state, "silu", kernel=kernel)
    second, end = causal_conv1d(x[:, cut:], weight, bias, between, "silu", kernel=kernel)
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole, rtol=1e-12, atol=1e-12)
    assert torch.equal(end, last)


@pytest.mark.parametrize("kernel", EVERY)
def test_half_inputs_come_back_in_their_dtype_under_autocast(kernel):
    x, weight, bias, state = (value.detach().float() for value in inputs_of(2, 7, 3, 4))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, last = causal_conv1d(x.bfloat16(), weight, bias, state.bfloat16(), "silu", kernel=kernel)
    expected, _ = causal_conv1d(x.bfloat16().float(), weight, bias, state.bfloat16().float(), "silu", kernel=kernel)
    assert y.dtype == last.dtype == torch.bfloat16
    torch.testing.assert_close(y, expected.bfloat16(), rtol=1e-2, atol=1e-3)


def test_the_cuda_kernel_is_given_the_window_in_front_and_its_outputs_are_dropped(monkeypatch):
    # by name: the package's attribute of that name is the function
    module = import_module("slotbench.ops.causal_conv1d")

    def from_zeros(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str | None) -> Tensor:
        assert x.is_contiguous()
        y, _ = causal_conv1d(x.mT, weight, bias, None, activation, kernel="reference")
        return y.mT

    monkeypatch.setattr(module, "causal_conv1d_convolution", lambda: from_zeros)
    x, weight, bias, state = inputs_of(2, 5, 3, 4)
    y = module._with_causal_conv1d(torch.cat([state, x], dim=1).mT, weight, bias, "silu").mT
    torch.testing.assert_close(y, causal_conv1d(x, weight, bias, state, "silu", kernel="reference")[0])


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", ["torch", "causal_conv1d"])
def test_kernels_on_cuda_agree_with_the_reference_on_the_cpu(kernel):
    reason = available_kernels("causal_conv1d", "cuda")[kernel]
    if reason is not None:
        pytest.skip(reason)
    inputs = inputs_of(3, 40, 24, 4)
    on_gpu = tuple(x.detach().float().cuda().requires_grad_() for x in inputs)
    for actual, value in zip(results(on_gpu, "silu", kernel), results(inputs, "silu", "reference"), strict=True):
        torch.testing.assert_close(actual.cpu().double(), value, rtol=1e-3, atol=1e-3)
