"""The layers between tokens and slots: self-cross layer, slot encoder, slot mixer."""

from __future__ import annotations

import torch
from torch import nn

from slotbench.nn.attention import SelfCrossLayer, SlotMixer
from slotbench.nn.linear import MLP
from slotbench.nn.slot_encoder import SlotEncoder


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_parameter_counts_are_those_of_the_paper():
    assert count(MLP(64)) == 33_088
    assert count(SelfCrossLayer(64)) == 66_880
    assert count(SlotEncoder(context_dim=64, num_slots=6, dim=64)) == 205_184
    assert count(SlotMixer(64)) == 16_640 + 33_088 + 2 * 128


def test_linear_maps_start_with_xavier_weights_and_without_bias():
    for layer in (part for part in SlotEncoder(64, 6, 64).modules() if isinstance(part, nn.Linear)):
        maps = layer.out_features // 64 if layer.in_features == 64 and layer.out_features == 128 else 1
        maps = 3 if layer.out_features == 192 else maps
        bound = (6 / (layer.in_features + layer.out_features / maps)) ** 0.5
        assert 0.98 * bound < layer.weight.abs().max().item() <= bound
        assert not layer.bias.any()


def test_shared_queries_give_what_repeated_queries_give():
    layer = SelfCrossLayer(8, context_dim=6, num_heads=2)
    queries, context = torch.randn(1, 4, 8), torch.randn(3, 5, 6)
    for shared, repeated in zip(layer(queries, context), layer(queries.expand(3, -1, -1), context), strict=True):
        torch.testing.assert_close(shared, repeated)


def test_shared_queries_attend_to_each_other_once():
    seen = []
    encoder = SlotEncoder(6, num_slots=4, dim=8, num_heads=2)
    for layer in encoder.layers:
        layer.self_attention.register_forward_hook(lambda _module, given, _out: seen.append(given[0].shape[0]))
    encoder(torch.randn(10, 5, 6))
    assert seen == [1, 10, 10]


def test_equal_queries_give_equal_slots_and_the_default_start_does_not():
    encoder, tokens = SlotEncoder(6, 4, 16), torch.randn(2, 5, 6)
    slots, _ = encoder(tokens)
    assert torch.pdist(slots[0]).min() > 0.1
    with torch.no_grad():
        encoder.queries.copy_(encoder.queries[:1].expand_as(encoder.queries))
    slots, _ = encoder(tokens)
    torch.testing.assert_close(slots, slots[:, :1].expand_as(slots))


def test_mixer_carries_information_between_slots_of_a_set_and_not_between_sets():
    mixer, slots = SlotMixer(8, num_heads=2), torch.randn(2, 3, 8, requires_grad=True)
    (gradient,) = torch.autograd.grad(mixer(slots)[0, 0].square().sum(), slots)
    assert (gradient[0].abs().amax(dim=-1) > 0).all()
    assert not gradient[1].any()
