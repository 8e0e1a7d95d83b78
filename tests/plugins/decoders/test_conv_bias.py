"""A transposed convolution that sums the gradient of its bias by itself is the convolution, in both passes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from slotbench_plugins.decoders.spatial_broadcast_decoder import conv_transpose

from slotbench.interfaces import SlotSpec, VideoSpec
from slotbench.registry import load


def made(channels, size, stride, *, bias=True, dtype=torch.float64):
    torch.manual_seed(0)
    conv = torch.nn.ConvTranspose2d(
        *channels, size, stride, padding=(size - 1) // 2, output_padding=stride - 1 if size % 2 else 0, bias=bias
    )
    return conv.to(dtype)


def images_of(conv, count, rows, cols, memory_format):
    images = torch.randn(count, conv.in_channels, rows, cols, dtype=conv.weight.dtype)
    return images.contiguous(memory_format=memory_format).requires_grad_()


@given(
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 6)),
    st.integers(1, 5),
    st.sampled_from([1, 2]),
    st.sampled_from([torch.contiguous_format, torch.channels_last]),
)
def test_values_and_gradients_are_those_of_the_convolution(channels, shape, size, stride, memory_format):
    if size == 1 and stride == 2:
        size = 2
    conv = made(channels, size, stride)
    images = images_of(conv, *shape, memory_format)
    found, wanted = conv_transpose(conv, images), conv(images)
    torch.testing.assert_close(found, wanted)
    weights = torch.randn_like(wanted)
    inputs = [images, conv.weight, conv.bias]
    torch.testing.assert_close(
        torch.autograd.grad((found * weights).sum(), inputs), torch.autograd.grad((wanted * weights).sum(), inputs)
    )


def test_it_has_a_second_derivative_and_may_be_changed_in_place():
    conv = made((2, 3), 3, 2)
    images = images_of(conv, 2, 2, 3, torch.channels_last)

    def squared(images, weight, bias):
        out = torch.func.functional_call(_Layer(conv), {"conv.weight": weight, "conv.bias": bias}, (images,))
        return torch.nn.functional.relu(out, inplace=True).square()

    arguments = (images, conv.weight.detach().requires_grad_(), conv.bias.detach().requires_grad_())
    assert torch.autograd.gradcheck(squared, arguments)
    assert torch.autograd.gradgradcheck(squared, arguments)


class _Layer(torch.nn.Module):
    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, images):
        return conv_transpose(self.conv, images)


@pytest.mark.parametrize("bias", [True, False])
def test_a_bias_that_is_not_trained_gets_no_gradient(bias):
    conv = made((2, 3), 4, 2, bias=bias)
    if bias:
        conv.bias.requires_grad_(False)
    images = images_of(conv, 2, 3, 3, torch.channels_last)
    conv_transpose(conv, images).sum().backward()
    assert images.grad is not None
    assert not bias or conv.bias.grad is None


def test_the_names_of_the_weights_are_those_of_convolutions():
    decoder = load("decoders", "SpatialBroadcastDecoder")(SlotSpec(3, 8), VideoSpec(3, 32, 32))
    names = [name for name in decoder.state_dict() if name.startswith("convs")]
    assert names == [f"convs.{layer}.{part}" for layer in range(len(decoder.convs)) for part in ("weight", "bias")]
