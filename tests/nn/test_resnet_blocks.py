"""The blocks compute what the authors' blocks compute, and start as theirs do."""

import math

import pytest
import torch
from torch.nn import functional as F

from slotbench.nn.resnet_blocks import ResNetBlock, frame_norm, lecun_normal_


def plain_norm(x, weight, bias, groups):
    """GroupNorm of one frame, written out."""
    parts = [(part - part.mean()) / torch.sqrt(part.var(correction=0) + 1e-6) for part in x.chunk(groups)]
    return torch.cat(parts) * weight[:, None, None] + bias[:, None, None]


def plain_elu(x):
    return torch.where(x > 0, x, torch.exp(x) - 1)


def plain_conv(x, conv):
    """A 3 x 3 convolution of one frame, as a sum over what lies around each pixel."""
    height, width = x.shape[1:]
    padded = F.pad(x, (1, 1, 1, 1))
    out = conv.bias[:, None, None].expand(-1, height, width)
    for dy in range(3):
        for dx in range(3):
            seen = padded[:, dy : dy + height, dx : dx + width]
            out = out + torch.einsum("oi,ihw->ohw", conv.weight[:, :, dy, dx], seen)
    return out


@pytest.mark.parametrize(("channels", "groups"), [(64, 32), (32, 32), (256, 32), (16, 16), (48, 24), (1, 1), (36, 18)])
def test_norms_have_32_groups_or_as_many_as_divide(channels, groups):
    norm = frame_norm(channels, "elu")
    assert norm.num_groups == groups
    assert norm.eps == 1e-6


@pytest.mark.parametrize(("inputs", "outputs"), [(64, 64), (64, 48), (3, 8)])
def test_a_block_is_norm_elu_conv_twice_at_a_tenth(inputs, outputs):
    torch.manual_seed(0)
    block = ResNetBlock(inputs, outputs).double()
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    images = torch.randn(2, inputs, 5, 4, dtype=torch.float64)
    found = block(images)
    for frame, image in zip(found, images, strict=True):
        hidden = plain_norm(image, block.norm1.weight, block.norm1.bias, block.norm1.num_groups)
        hidden = plain_conv(plain_elu(hidden), block.conv1)
        hidden = plain_norm(hidden, block.norm2.weight, block.norm2.bias, block.norm2.num_groups)
        hidden = plain_conv(plain_elu(hidden), block.conv2)
        passed = image if inputs == outputs else torch.einsum("oi,ihw->ohw", block.skip.weight[:, :, 0, 0], image)
        torch.testing.assert_close(frame, passed + 0.1 * hidden, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("inputs", "outputs"), [(32, 32), (64, 128)])
def test_a_block_has_the_parameters_of_the_formula(inputs, outputs):
    expected = 2 * inputs + (9 * inputs * outputs + outputs) + 2 * outputs + 9 * outputs**2 + outputs
    expected += 0 if inputs == outputs else inputs * outputs
    assert sum(parameter.numel() for parameter in ResNetBlock(inputs, outputs).parameters()) == expected


def test_gradients_through_the_elu_in_place_are_right():
    torch.manual_seed(0)
    block = ResNetBlock(2, 4).double()
    images = torch.randn(2, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(block, images)


def test_a_block_leaves_its_input_and_the_layout_alone():
    images = torch.randn(3, 32, 6, 6).contiguous(memory_format=torch.channels_last)
    before = images.clone()
    found = ResNetBlock(32, 64)(images)
    assert torch.equal(images, before)
    assert found.is_contiguous(memory_format=torch.channels_last)


def test_weights_start_lecun_normal_cut_off_at_two_deviations():
    torch.manual_seed(0)
    weight = lecun_normal_(torch.empty(400, 25, 3, 3))
    deviation = math.sqrt(1 / 225)
    assert weight.std().item() == pytest.approx(deviation, rel=0.02)
    assert weight.mean().abs().item() < 0.01 * deviation
    assert 1.95 < weight.abs().max().item() * 0.87962566103423978 / deviation <= 2.0
    assert lecun_normal_(torch.empty(200, 100), fan_in=4).std().item() == pytest.approx(0.5, rel=0.02)
