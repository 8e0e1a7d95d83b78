from __future__ import annotations

import torch
from slotbench_plugins.decoders.transformer_decoder import TransformerDecoder

from slotbench.interfaces import SlotSpec, VideoSpec


def decoder(num_slots: int = 4, dim: int = 16, channels: int = 7, side: int = 16, **arguments) -> TransformerDecoder:
    built = TransformerDecoder(SlotSpec(num_slots, dim), VideoSpec(channels, side, side), **arguments)
    torch.nn.init.normal_(built.head.weight, std=0.1)
    return built


def test_first_prediction_is_uniform():
    fresh = TransformerDecoder(SlotSpec(4, 16), VideoSpec(7, 16, 16))
    assert not fresh(torch.randn(1, 2, 4, 16)).reconstruction.any()


def test_masks_are_the_last_cross_attention_averaged_over_heads_and_constant_within_a_patch():
    part, slots, seen = decoder(), torch.randn(1, 1, 4, 16), []
    part.layers[-1].register_forward_hook(lambda _module, _given, out: seen.append(out[1]))
    masks = part(slots).masks[0, 0]
    weights = seen[0][0].mean(dim=0)  # patches slots
    for row, col in ((0, 0), (1, 2), (3, 3)):
        cell = masks[:, 4 * row : 4 * row + 4, 4 * col : 4 * col + 4]
        torch.testing.assert_close(cell, weights[row * 4 + col][:, None, None].expand_as(cell))


def test_a_patch_of_the_image_is_what_its_query_painted():
    part, slots, seen = decoder(channels=2), torch.randn(1, 1, 4, 16), []
    part.head.register_forward_hook(lambda _module, _given, out: seen.append(out))
    image = part(slots).reconstruction[0, 0]
    painted = seen[0][0, 1 * 4 + 2].view(4, 4, 2)  # rows, columns, channels of the patch
    torch.testing.assert_close(image[:, 4:8, 8:12], painted.permute(2, 0, 1))
