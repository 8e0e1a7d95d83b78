"""VQGAN: the sizes of the public code, its layers, and the two terms of the codebook with their gradients by hand."""

from __future__ import annotations

import pytest
import torch
from slotbench_plugins.tokenizers.vqgan import VQGAN, _Attention
from torch import nn

from slotbench.interfaces import VideoSpec
from slotbench.nn.parameters import trainable_parameters

FRAME = VideoSpec(channels=3, height=8, width=12)


def vqgan(**arguments):
    torch.manual_seed(0)
    small = {"num_codes": 6, "embedding_dim": 4, "channels": 8, "multipliers": (1, 2), "map_channels": 8}
    return VQGAN(FRAME, **small | arguments).double()


def frames():
    return torch.rand(2, 3, 3, 8, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def conv(before, after, size=3):
    return before * after * size**2 + after


def residual(before, after):
    return (
        2 * before + conv(before, after) + 2 * after + conv(after, after) + (before != after) * conv(before, after, 1)
    )


def attention(width):
    return 2 * width + 4 * conv(width, width, 1)


def test_tamings_preset_has_the_sizes_of_the_public_code():
    widths, middle = [128, 128, 256, 256, 512], 2 * residual(512, 512) + attention(512)
    encoder = conv(3, 128) + middle + 2 * 512 + conv(512, 256)
    for level, (before, width) in enumerate(zip([128, *widths], widths, strict=False)):
        encoder += residual(before, width) + residual(width, width)
        encoder += 2 * attention(width) if level == 4 else conv(width, width)
    decoder = conv(256, 512) + middle + 2 * 128 + conv(128, 3)
    for level, (width, before) in enumerate(zip(widths, [*widths[1:], 512], strict=True)):
        decoder += residual(before, width) + 2 * residual(width, width)
        decoder += 3 * attention(width) * (level == 4) + conv(width, width) * (level > 0)
    with torch.device("meta"):
        model = VQGAN.taming(VideoSpec(3, 256, 256))
    counts = trainable_parameters(model)
    assert model.code_spec == VideoSpec(channels=1024, height=16, width=16)
    assert counts["encoder"] == encoder + conv(256, 256, 1)
    assert counts["decoder"] == decoder + conv(256, 256, 1)
    assert counts["total"] == encoder + decoder + 2 * conv(256, 256, 1) + 1024 * 256 == 72_141_699
    assert model.embedding_dim == 256


def test_attention_is_at_the_named_heights_and_at_the_lowest_level():
    def heights(**arguments):
        found, model = [], vqgan(**arguments)
        for module in model.modules():
            if isinstance(module, _Attention):
                module.register_forward_hook(lambda _, given, __: found.append(given[0].shape[-2]))
        model(frames())
        return found

    assert heights() == [4, 4]
    assert heights(attention_sides=(8,), num_res_blocks=2) == [8, 8, 4, 4, 8, 8, 8]


def test_a_map_is_halved_with_zeros_to_the_right_and_below():
    pad, halving = next(layer for layer in vqgan().encoder if isinstance(layer, nn.Sequential))
    nn.init.ones_(halving.weight)
    nn.init.zeros_(halving.bias)
    found = halving(pad(torch.ones(1, 8, 4, 4, dtype=torch.float64)))[0, 0] / 8
    assert found.tolist() == [[9, 6], [6, 4]]


def test_attention_is_the_softmax_of_scaled_products():
    torch.manual_seed(0)
    layer, images = _Attention(4).double(), torch.randn(1, 4, 2, 3, dtype=torch.float64)
    query, key, value = (linear(layer.norm(images)).flatten(2)[0] for linear in layer.query_key_value)
    read = value @ (query.T @ key / 2).softmax(1).T
    torch.testing.assert_close(layer(images), images + layer.project(read.view(1, 4, 2, 3)))


@pytest.mark.parametrize("legacy", [False, True])
def test_the_commitment_weight_is_on_the_vectors_and_in_the_legacy_form_on_the_rows(legacy):
    model = vqgan(commitment_weight=0.1, legacy_beta=legacy)
    kept = []
    model.encoder.register_forward_hook(lambda _, __, maps: kept.append(maps) or maps.retain_grad())
    found = model(frames())
    sum(found.losses.values()).backward()
    (maps,) = kept
    rows = model.codebook.detach()[found.codes.flatten(0, 1)].movedim(-1, 1)
    to_vectors = 2 * (maps.detach() - rows) / maps.numel()
    torch.testing.assert_close(maps.grad, (1.0 if legacy else 0.1) * to_vectors)
    for code in range(6):
        own = (-to_vectors).movedim(1, -1)[found.codes.flatten(0, 1) == code].sum(0)
        torch.testing.assert_close(model.codebook.grad[code], (0.1 if legacy else 1.0) * own)


def test_the_decoders_gradient_passes_the_choice_of_rows():
    model = vqgan()
    kept = []
    model.encoder.register_forward_hook(lambda _, __, maps: kept.append(maps) or maps.retain_grad())
    painted = model(frames()).reconstruction
    painted.square().sum().backward()
    rows = model.codebook.detach()[model.encode(frames()).flatten(0, 1)].movedim(-1, 1).requires_grad_()
    ((model.decoder(rows) + 1) / 2).square().sum().backward()
    torch.testing.assert_close(kept[0].grad, rows.grad)
    assert model.codebook.grad is None
