"""A convolution of an upsampled image, made at the small size: the definition and the fast path agree."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from slotbench_plugins.decoders._upsampled_conv import UpsampledConv2d
from torch.nn import functional as F


@given(
    sides=st.tuples(st.integers(2, 7), st.integers(2, 7)),
    channels=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    kernel_size=st.integers(1, 5),
    border=st.integers(0, 3),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_the_small_convolution_equals_that_of_the_upsampled_image_in_value_and_gradient(
    sides, channels, kernel_size, border, seed
):
    if 2 * min(sides) + 2 * border < kernel_size:
        return
    torch.manual_seed(seed)
    conv = UpsampledConv2d(*channels, kernel_size, border).double()
    images = torch.randn(2, channels[0], *sides, dtype=torch.float64, requires_grad=True)
    inputs = [images, conv.weight, conv.bias]

    expected, got = conv.reference(images), conv(images)

    torch.testing.assert_close(got, expected)
    gradient = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(got, inputs, gradient), torch.autograd.grad(expected, inputs, gradient)
    )


def test_the_reference_is_upsampling_then_borders_then_the_convolution():
    conv = UpsampledConv2d(3, 2, 4, border=2)
    images = torch.randn(2, 3, 5, 6)
    large = F.pad(F.interpolate(images, scale_factor=2, mode="bilinear"), (2, 2, 2, 2), mode="replicate")
    torch.testing.assert_close(conv.reference(images), F.conv2d(large, conv.weight, conv.bias))


def test_parameters_start_and_are_saved_as_those_of_a_convolution():
    torch.manual_seed(0)
    plain = torch.nn.Conv2d(3, 2, 4).state_dict()
    torch.manual_seed(0)
    upsampled = UpsampledConv2d(3, 2, 4, border=1).state_dict()
    assert list(upsampled) == ["weight", "bias"]
    torch.testing.assert_close(upsampled, dict(plain))


@pytest.mark.gpu
def test_both_agree_on_a_gpu_under_bfloat16():
    conv = UpsampledConv2d(8, 4, 3).cuda()
    images = torch.randn(2, 8, 9, 9, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        torch.testing.assert_close(conv(images), conv.reference(images), rtol=0.05, atol=0.05)
