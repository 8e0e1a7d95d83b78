"""A transposed convolution of copies of one vector."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from slotbench_plugins.decoders.spatial_broadcast_decoder import broadcast_conv_transpose
from torch import nn


@settings(deadline=None, max_examples=40)
@given(
    kernel=st.integers(1, 5),
    stride=st.integers(1, 3),
    rows=st.integers(1, 5),
    cols=st.integers(1, 5),
    data=st.data(),
)
def test_it_is_the_convolution_of_the_broadcast_grid_in_value_and_gradient(kernel, stride, rows, cols, data):
    padding = data.draw(st.integers(0, (kernel - 1) // 2))
    extra = data.draw(st.integers(0, stride - 1))
    if min(rows, cols) * stride - stride - 2 * padding + kernel + extra < 1:
        return
    torch.manual_seed(0)
    conv = nn.ConvTranspose2d(3, 2, kernel, stride, padding, extra, dtype=torch.float64)
    vectors = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    offsets = torch.randn(1, 3, rows, cols, dtype=torch.float64, requires_grad=True)
    expected = conv(vectors[:, :, None, None] + offsets)
    found = broadcast_conv_transpose(conv, vectors, offsets)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    weights = torch.randn_like(expected)
    inputs = [vectors, offsets, conv.weight, conv.bias]
    gradients = [torch.autograd.grad((out * weights).sum(), inputs) for out in (found, expected)]
    for mine, true in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, true, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("size", [4, 5])
def test_the_result_is_channels_last_so_that_no_copy_follows(size):
    conv = nn.ConvTranspose2d(8, 4, size, 2, (size - 1) // 2, size % 2)
    out = broadcast_conv_transpose(conv, torch.randn(3, 8), torch.randn(1, 8, 8, 8))
    assert out.shape == (3, 4, 16, 16)
    assert out.is_contiguous(memory_format=torch.channels_last)
