"""GroupNorm and activation: the equation, every kernel in value and gradient, layouts, dtypes, threads."""

from __future__ import annotations

import logging
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slotbench.ops import chosen_kernels, dispatch, group_norm_activation
from slotbench.ops.group_norm import activation as op

KERNELS = ("torch", "numba")
ACTIVATIONS = ("gelu_tanh", "elu")


def inputs_of(shape, dtype=torch.float64, *, channels_last=True, seed=0):
    generator = torch.Generator().manual_seed(seed)
    # far from zero mean, where a variance from the mean of squares would lose its digits
    x = (3 * torch.randn(shape, generator=generator, dtype=torch.float64) + 7).to(dtype)
    if channels_last:
        x = x.movedim(1, -1).contiguous().movedim(-1, 1)
    numbers = torch.float64 if dtype == torch.float64 else torch.float32
    weight, bias = (torch.randn(shape[1], generator=generator, dtype=torch.float64).to(numbers) for _ in range(2))
    return [value.requires_grad_() for value in (x, weight, bias)]


def results(inputs, groups, activation, kernel, eps=1e-6):
    x, weight, bias = inputs
    y = group_norm_activation(x, groups, weight, bias, eps, activation, kernel=kernel)
    # the same numbers in every dtype
    outer = torch.cos(torch.arange(y.numel())).bfloat16().view(y.shape).to(y)
    return [y, *torch.autograd.grad(y, inputs, outer)]


@pytest.mark.parametrize("kernel", ["reference", *KERNELS])
def test_computes_the_equation(kernel):
    x, weight, bias = (value.detach() for value in inputs_of((2, 4, 3, 5)))
    for activation in ACTIVATIONS:
        y = group_norm_activation(x, 2, weight, bias, 0.5, activation, kernel=kernel)
        for frame in range(2):
            for channel in range(4):
                group = x[frame, :2] if channel < 2 else x[frame, 2:]
                variance = ((group - group.mean()) ** 2).mean()
                z = weight[channel] * (x[frame, channel] - group.mean()) / math.sqrt(variance + 0.5) + bias[channel]
                expected = torch.where(z > 0, z, z.exp() - 1)
                if activation == "gelu_tanh":
                    expected = z * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))
                torch.testing.assert_close(y[frame, channel], expected, rtol=1e-10, atol=1e-12)


SIZES = {
    "frames": st.integers(1, 40),
    "groups": st.integers(1, 8),
    "per_group": st.integers(1, 9),
    "rows": st.integers(1, 9),
    "cols": st.integers(1, 9),
    "activation": st.sampled_from(ACTIVATIONS),
    "channels_last": st.booleans(),
    "seed": st.integers(0, 2**16),
}


@given(**SIZES)
@settings(max_examples=40)
def test_kernels_agree_with_the_reference_in_value_and_every_gradient(
    frames, groups, per_group, rows, cols, activation, channels_last, seed
):
    inputs = inputs_of((frames, groups * per_group, rows, cols), channels_last=channels_last, seed=seed)
    expected = results(inputs, groups, activation, "reference", 1e-3)
    for kernel in KERNELS:
        for actual, value in zip(results(inputs, groups, activation, kernel, 1e-3), expected, strict=True):
            torch.testing.assert_close(actual, value, rtol=1e-8, atol=1e-8)


@given(**SIZES | {"rows": st.integers(4, 40)})
@settings(max_examples=20)
def test_float32_is_as_close_to_double_as_float32_can_be(
    frames, groups, per_group, rows, cols, activation, channels_last, seed
):
    inputs = inputs_of((frames, groups * per_group, rows, cols), torch.float32, channels_last=channels_last, seed=seed)
    doubles = [value.detach().double().requires_grad_() for value in inputs]
    expected = results(doubles, groups, activation, "reference", 1e-3)
    for actual, value in zip(results(inputs, groups, activation, "numba", 1e-3), expected, strict=True):
        assert (actual - value).norm() <= 3e-6 * value.norm() + 1e-5


@given(**SIZES | {"rows": st.integers(4, 20)})
@settings(max_examples=20)
def test_bfloat16_images_are_computed_in_float32_and_rounded_once(
    frames, groups, per_group, rows, cols, activation, channels_last, seed
):
    shape = (frames, groups * per_group, rows, cols)
    inputs = inputs_of(shape, torch.bfloat16, channels_last=channels_last, seed=seed)
    widened = [value.detach().float().requires_grad_() for value in inputs]
    y, grad_x, *of_parameters = results(inputs, groups, activation, "numba", 1e-3)
    expected, expected_grad, *expected_of_parameters = results(widened, groups, activation, "numba", 1e-3)
    assert torch.equal(y, expected.bfloat16())
    torch.testing.assert_close(grad_x.float(), expected_grad, rtol=2**-8, atol=1e-5)
    for actual, value in zip(of_parameters, expected_of_parameters, strict=True):
        assert actual.dtype == torch.float32
        torch.testing.assert_close(actual, value, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel", ["auto", *KERNELS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_output_and_gradient_keep_layout_and_dtype(kernel, dtype):
    for channels_last in (True, False):
        inputs = inputs_of((3, 8, 4, 4), dtype, channels_last=channels_last)
        y, grad_x, *_ = results(inputs, 2, "elu", kernel)
        for value in (y, grad_x):
            assert value.dtype == dtype
            assert value.is_contiguous(memory_format=torch.channels_last) == channels_last
            assert value.is_contiguous() != channels_last


def test_gradients_are_the_same_bits_on_any_number_of_threads():
    inputs, threads = inputs_of((40, 16, 12, 12), torch.float32), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = results(inputs, 4, "gelu_tanh", "numba")
        torch.set_num_threads(3)
        together = results(inputs, 4, "gelu_tanh", "numba")
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(value, other) for value, other in zip(alone, together, strict=True))


def test_auto_takes_torch_for_few_images_with_a_gradient_and_numba_else(monkeypatch, caplog):
    monkeypatch.setattr(dispatch, "_chosen", {})
    small, large = (inputs_of((frames, 64, 8, 8), torch.float32) for frames in (1, 8))
    with caplog.at_level(logging.INFO, logger="slotbench.ops"):
        results(small, 32, "elu", "auto")
        assert chosen_kernels() == {"group_norm_activation": "torch"}
        with torch.no_grad():
            group_norm_activation(small[0], 32, *small[1:])
        results(large, 32, "elu", "auto")
    assert chosen_kernels() == {"group_norm_activation": "torch, numba"}


def test_a_dtype_without_compiled_code_is_refused_by_name_and_run_by_torch():
    x, weight, bias = (value.detach().half() for value in inputs_of((2, 4, 3, 3)))
    with pytest.raises(RuntimeError, match=r"'numba' of group_norm_activation.*torch\.float16.*kernel='torch'"):
        group_norm_activation(x, 2, weight, bias, kernel="numba")
    y = group_norm_activation(x, 2, weight, bias)
    expected = op.group_norm_activation_reference(x.double(), 2, weight, bias, 1e-5, "gelu_tanh")
    torch.testing.assert_close(y.double(), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.gpu
def test_torch_on_cuda_agrees_with_the_reference_on_the_cpu():
    inputs = inputs_of((3, 8, 6, 6))
    on_gpu = [value.detach().float().cuda().requires_grad_() for value in inputs]
    for actual, value in zip(results(on_gpu, 4, "elu", "auto"), results(inputs, 4, "elu", "reference"), strict=True):
        torch.testing.assert_close(actual.cpu().double(), value, rtol=1e-3, atol=1e-3)
