"""The encoder of SAVi++: its sizes, its start, and its tokens beside the description."""

import pytest
import torch
from torch import nn

from slotbench.interfaces import TokenSpec, VideoBatch, VideoSpec
from slotbench.registry import load
from slotbench.testing.aids import move_off_initial_values

Encoder = load("encoders", "ResNetTransformerEncoder")
FRAME = VideoSpec(channels=3, height=12, width=20)


def batch_of(frames):
    return VideoBatch(frames, torch.arange(frames.shape[1]).expand(len(frames), -1))


def noise(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


def test_the_papers_size_has_the_parameters_of_a_resnet_34_without_its_head():
    with torch.device("meta"):
        encoder = Encoder(
            VideoSpec(channels=3, height=128, width=128),
            width=64,
            blocks=(3, 4, 6, 3),
            norm_groups=32,
            residual_scale=0.0,
            num_layers=4,
            mlp_dim=1024,
            attention_dim=64,
        )
    assert encoder.token_spec == TokenSpec(512, 256, (16, 16))
    # 21,797,672 with a head of 513,000 and a 7 x 7 kernel at the start in place of 3 x 3
    resnet = 21_797_672 - 513_000 - 3 * 64 * (49 - 9)
    assert sum(parameter.numel() for parameter in encoder.convs.parameters()) == resnet

    position = 2 * 512 + 512 + 2 * 512 + (512 * 64 + 64) + (64 * 512 + 512)
    layer = 4 * 512 + (512 * 192 + 192) + (64 * 512 + 512) + (512 * 1024 + 1024) + (1024 * 512 + 512)
    assert sum(parameter.numel() for parameter in encoder.parameters()) == resnet + position + 4 * layer


def normed(x, axes, norm):
    """Over these axes, with the norm's own scale and offset along the first axis but one, or the last."""
    x = (x - x.mean(axes, keepdim=True)) / (x.var(axes, unbiased=False, keepdim=True) + 1e-6).sqrt()
    if isinstance(norm, nn.LayerNorm):
        return x * norm.weight + norm.bias
    return x.flatten(1, 2) * norm.weight[:, None, None] + norm.bias[:, None, None]


def group_normed(x, norm):
    return normed(x.unflatten(1, (norm.num_groups, -1)), (2, 3, 4), norm)


def convolved(x, conv, stride):
    """Windows that begin a pixel before the image, or where every second is left out and the side is even, at it."""
    kernel = conv.weight.shape[-1]
    x = nn.functional.pad(x, (1, 2, 1, 2)) if kernel == 3 else x
    rows, cols = (0 if stride == 1 or side % 2 else 1 for side in (x.shape[-2] - 3, x.shape[-1] - 3))
    rows, cols = (rows, cols) if kernel == 3 else (0, 0)
    found = torch.einsum(
        "fcrxkl,ockl->forx", x[..., rows:, cols:].unfold(2, kernel, stride).unfold(3, kernel, stride), conv.weight
    )
    return found


def by_the_book(encoder, frames):
    """What SAVi++'s encoder is said to do, one step after the other."""
    stem, norm, *blocks = encoder.convs
    sizes = [frames.shape[-2:]]
    x = group_normed(convolved(frames, stem, 1)[..., : sizes[0][0], : sizes[0][1]], norm)
    for block in blocks:
        stride = block.first.stride[0]
        rows, cols = (-(-side // stride) for side in x.shape[-2:])
        change = group_normed(convolved(x, block.first, stride)[..., :rows, :cols], block.first_norm).relu()
        change = group_normed(convolved(change, block.second, 1)[..., :rows, :cols], block.second_norm)
        if not isinstance(block.shortcut, nn.Identity):
            x = group_normed(convolved(x, block.shortcut[0], stride), block.shortcut[1])
        x = (x + change).relu()
    rows, cols = x.shape[-2:]
    down, along = torch.meshgrid(torch.linspace(-1, 1, rows), torch.linspace(-1, 1, cols), indexing="ij")
    place = torch.stack([down, along], -1).double()
    x = x.permute(0, 2, 3, 1) + encoder.position.linear(place)
    mlp = encoder.position_mlp
    x = mlp[3](mlp[1](normed(x, (-1,), mlp[0])).relu()).flatten(1, 2)
    for layer in encoder.layers:
        maps = layer.query_key_value(normed(x, (-1,), layer.attention_norm)).unflatten(-1, (3, layer.num_heads, -1))
        query, key, value = maps.permute(2, 0, 3, 1, 4)
        weights = (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1)
        x = x + layer.output((weights @ value).transpose(1, 2).flatten(2))
        x = x + layer.mlp[3](layer.mlp[1](normed(x, (-1,), layer.mlp[0])).relu())
    return x


@pytest.mark.parametrize("size", [(12, 20), (9, 14), (7, 5)])
def test_tokens_are_those_of_the_description(size):
    torch.manual_seed(0)
    frame = VideoSpec(3, *size)
    encoder = Encoder(
        frame, width=4, blocks=(2, 1, 1), norm_groups=2, num_layers=2, num_heads=2, attention_dim=6
    ).double()
    move_off_initial_values(encoder)
    frames = torch.rand(1, 2, 3, *size, dtype=torch.float64)
    torch.testing.assert_close(encoder(batch_of(frames))[0], by_the_book(encoder, frames[0]))


def test_weights_are_lecun_normal_and_biases_zero():
    torch.manual_seed(0)
    encoder = Encoder(
        VideoSpec(3, 8, 8), width=64, blocks=(1, 1), norm_groups=8, num_layers=1, mlp_dim=256, attention_dim=64
    )
    for layer in encoder.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            fan_in = layer.weight[0].numel()
            assert layer.weight.detach().std() == pytest.approx(fan_in**-0.5, rel=0.15)
            assert layer.weight.abs().max() <= 2 * fan_in**-0.5 / 0.8796
            assert layer.bias is None or not layer.bias.any()


def test_at_a_residual_scale_of_zero_a_block_starts_as_its_shortcut():
    encoder = Encoder(FRAME, width=8, blocks=(1,), residual_scale=0.0)
    images = noise(2, 8, 12, 20)
    torch.testing.assert_close(encoder.convs[2](images), images)
