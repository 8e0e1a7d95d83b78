"""Prepared convolutions: the equation on both ways, layouts, what each way is for."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from slotbench.ops.frame_conv import NormBefore, PreparedConv, prepared
from slotbench.ops.frame_conv.prepared import convolve_reference

BEFORE = ("nothing", "elu", "gelu_tanh")


@pytest.fixture
def compiled(monkeypatch):
    """How often the compiled kernel has run."""
    calls: list[Tensor] = []
    run = PreparedConv._compiled
    monkeypatch.setattr(
        PreparedConv, "_compiled", lambda self, images, *rest: calls.append(images) or run(self, images, *rest)
    )
    return calls


def numbers(seed: int, dtype: torch.dtype = torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def norm_of(draw, channels: int, groups: int, before: str) -> NormBefore | None:
    return None if before == "nothing" else NormBefore(groups, draw(channels), draw(channels), 1e-3, before)  # type: ignore[arg-type]


SIZES = {
    "frames": st.integers(1, 3),
    "groups": st.integers(1, 4),
    "per_group": st.integers(1, 12),
    "outputs": st.integers(1, 40),
    "rows": st.integers(1, 20),
    "cols": st.integers(1, 20),
    "size": st.sampled_from([1, 3, 3, 3, 5]),
    "before": st.sampled_from(BEFORE),
    "has_bias": st.booleans(),
    "adds": st.booleans(),
    "factor": st.sampled_from([1.0, 0.1]),
    "channels_last": st.booleans(),
    "seed": st.integers(0, 2**16),
}


def case(frames, groups, per_group, outputs, rows, cols, size, before, has_bias, adds, channels_last, seed, dtype):
    draw, inputs = numbers(seed, dtype), groups * per_group
    images, weight = draw(frames, inputs, rows, cols), draw(outputs, inputs, size, size)
    passed = draw(frames, outputs, rows, cols) if adds else None
    if channels_last:
        images = images.contiguous(memory_format=torch.channels_last)
    return images, weight, draw(outputs) if has_bias else None, norm_of(draw, inputs, groups, before), passed


@given(**SIZES)
@settings(max_examples=60)
def test_both_ways_agree_with_the_reference(factor, **sizes):
    images, weight, bias, norm, passed = case(**sizes, dtype=torch.float64)
    expected = convolve_reference(images, weight, bias, norm, passed, factor)
    conv = PreparedConv(weight, bias, norm)
    with torch.no_grad():
        torch.testing.assert_close(conv(images, passed, factor), expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(conv(images, passed, factor), expected, rtol=1e-9, atol=1e-9)


@given(**SIZES)
@settings(max_examples=30)
def test_float32_is_as_close_to_double_as_float32_can_be(factor, **sizes):
    images, weight, bias, norm, passed = case(**sizes | {"rows": sizes["rows"] + 3}, dtype=torch.float32)
    wide = [None if value is None else value.double() for value in (images, weight, bias, passed)]
    wide_norm = None if norm is None else norm._replace(weight=norm.weight.double(), bias=norm.bias.double())
    expected = convolve_reference(*wide[:3], wide_norm, wide[3], factor)
    with torch.no_grad():
        found = PreparedConv(weight, bias, norm)(images, passed, factor)
    assert found.dtype == torch.float32
    assert (found - expected).norm() <= 3e-6 * expected.norm() + 1e-5


@given(**SIZES)
@settings(max_examples=15)
def test_gradients_are_those_of_the_reference(factor, **sizes):
    images, weight, bias, norm, passed = case(**sizes, dtype=torch.float64)
    given_ = [value.requires_grad_() for value in (images, weight, bias, passed) if value is not None]
    if norm is not None:
        given_ += [norm.weight.requires_grad_(), norm.bias.requires_grad_()]
    found = PreparedConv(weight, bias, norm)(images, passed, factor)
    expected = convolve_reference(images, weight, bias, norm, passed, factor)
    outer = torch.cos(torch.arange(found.numel(), dtype=torch.float64)).view(found.shape)
    gradients = torch.autograd.grad(found, given_, outer), torch.autograd.grad(expected, given_, outer)
    torch.testing.assert_close(*gradients, rtol=1e-7, atol=1e-7)


def test_few_frames_without_gradient_take_the_compiled_way_and_give_channels_last(compiled):
    draw = numbers(0, torch.float32)
    conv, images = PreparedConv(draw(6, 4, 3, 3)), draw(2, 4, 8, 8).requires_grad_()
    with torch.no_grad():
        found = conv(images)
    assert len(compiled) == 1
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert not found.requires_grad


def test_gradients_many_frames_autocast_and_other_dtypes_take_torch(compiled, monkeypatch):
    draw = numbers(0, torch.float32)
    weight, images = draw(6, 4, 3, 3), draw(3, 4, 8, 8)
    conv, norm = PreparedConv(weight), norm_of(draw, 4, 2, "elu")
    assert conv(images.requires_grad_()).requires_grad
    with torch.no_grad():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert conv(images).dtype == torch.bfloat16
        PreparedConv(draw(6, 4, 5, 5))(images)
        PreparedConv(weight.bfloat16())(images.bfloat16())
        assert norm is not None
        PreparedConv(weight, None, norm._replace(kernel="torch"))(images)
        monkeypatch.setattr(prepared, "MAX_FRAMES", 2)
        conv(images)
        assert not compiled
        conv(images[:2])
        assert len(compiled) == 1


@pytest.mark.parametrize("size", [1, 3])
def test_what_does_not_fit_is_refused_by_torch_and_not_read(size):
    draw = numbers(0)
    conv = PreparedConv(draw(6, 4, size, size))
    with torch.no_grad():
        with pytest.raises(RuntimeError, match="channels"):
            conv(draw(2, 3, 8, 8))
        with pytest.raises(RuntimeError, match="size of tensor"):
            conv(draw(2, 4, 8, 8), draw(2, 6, 8, 7))


def test_more_threads_than_one_give_the_same_bits():
    draw, threads = numbers(0, torch.float32), torch.get_num_threads()
    conv, images = PreparedConv(draw(6, 4, 3, 3), draw(6), norm_of(draw, 4, 2, "elu")), draw(7, 4, 9, 8)
    try:
        with torch.no_grad():
            torch.set_num_threads(1)
            one = conv(images)
            torch.set_num_threads(3)
            assert torch.equal(conv(images), one)
    finally:
        torch.set_num_threads(threads)
