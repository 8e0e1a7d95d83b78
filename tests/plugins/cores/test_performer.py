from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from slotbench_plugins.cores import performer
from slotbench_plugins.cores.frame_transformer import FrameTransformer
from slotbench_plugins.cores.performer import (
    FavorAttention,
    Performer,
    favor_attention,
    favor_attention_reference,
    key_features,
    orthogonal_directions,
    query_features,
)
from torch import Tensor

from slotbench.interfaces import TokenSpec

SPEC = TokenSpec(dim=5, num_tokens=4, grid=(2, 2))


def test_its_weights_are_those_of_the_transformer_and_with_many_features_so_are_its_slots():
    torch.manual_seed(0)
    transformer = FrameTransformer(SPEC, dim=16).double()
    with torch.no_grad():
        for layer in transformer.sequence.layers:
            # short queries and keys, where features are a good stand-in
            layer.attention.query_key_value.weight[:32] *= 0.4
    tokens = torch.randn(2, 20, 4, 5, dtype=torch.float64)
    exact = transformer(tokens).slots
    errors = []
    for num_features in (8, 4096):
        performer = Performer(SPEC, dim=16, num_features=num_features).double()
        missing, unexpected = performer.load_state_dict(transformer.state_dict(), strict=False)
        assert not unexpected
        assert {name.rpartition(".")[2] for name in missing} == {"directions", "clips"}
        errors.append(((performer(tokens).slots - exact).norm() / exact.norm()).item())
    assert errors[1] < 0.2 * errors[0], errors
    assert errors[1] < 0.01, errors


def test_layers_have_features_of_their_own_which_no_global_seed_changes():
    first = [layer.attention.directions for layer in Performer(SPEC).sequence.layers]
    torch.manual_seed(123)
    second = [layer.attention.directions for layer in Performer(SPEC).sequence.layers]
    assert not torch.equal(first[0], first[1])
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


DOUBLE = torch.float64


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)


def directions(count: int, dim: int, seed: int = 0) -> Tensor:
    return orthogonal_directions(count, dim, seed).to(DOUBLE)


def test_directions_of_a_block_are_orthogonal_and_as_long_as_normal_vectors():
    found = directions(256, 16)
    for block in found.split(16):
        unit = block / block.norm(dim=-1, keepdim=True)
        torch.testing.assert_close(unit @ unit.T, torch.eye(16, dtype=DOUBLE), atol=1e-6, rtol=0)
    assert found.square().sum(dim=-1).mean().item() == pytest.approx(16, rel=0.1)
    assert found.square().sum(dim=-1).std().item() == pytest.approx(32**0.5, rel=0.3)
    assert directions(20, 16).shape == (20, 16)


def test_the_product_of_features_is_the_softmax_kernel_on_average():
    query, key = normal(3, 8), normal(3, 8, seed=1)
    w = directions(80_000, 8)
    product = (key_features(query, w, eps=0.0) * key_features(key, w, eps=0.0)).mean(dim=-1)
    torch.testing.assert_close(product, ((query * key).sum(dim=-1) * 8**-0.5).exp(), rtol=0.05, atol=0)


def features(query: Tensor, key: Tensor, count: int = 24) -> tuple[Tensor, Tensor]:
    w = directions(count, query.shape[-1])
    return query_features(query, w), key_features(key, w)


@settings(max_examples=25)
@given(
    batch=st.integers(1, 2),
    heads=st.integers(1, 2),
    time=st.integers(1, 12),
    slots=st.integers(1, 4),
    chunk=st.integers(1, 16),
    scale=st.sampled_from([0.3, 1.0, 4.0]),
)
def test_value_and_gradient_are_those_of_the_full_table_of_weights(batch, heads, time, slots, chunk, scale):
    shape = (batch, heads, time, slots, 6)
    query, key, value = (normal(*shape, seed=seed, scale=scale).requires_grad_() for seed in range(3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(performer, "CHUNK_TOKENS", chunk)
        found, _ = favor_attention(*features(query, key), value)
    expected = favor_attention_reference(*features(query, key), value)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    weight = normal(*shape, seed=9)
    for a, b in zip(
        torch.autograd.grad((found * weight).sum(), (query, key, value)),
        torch.autograd.grad((expected * weight).sum(), (query, key, value)),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)


def test_the_reference_is_the_formula_token_by_token():
    query, key, value = (normal(1, 1, 4, 2, 6, seed=seed) for seed in range(3))
    queries, keys = features(query, key)
    found = favor_attention_reference(queries, keys, value)
    for step in range(4):
        for slot in range(2):
            weights = [queries[0, 0, step, slot] @ keys[0, 0, t, s] for t in range(step + 1) for s in range(2)]
            values = [value[0, 0, t, s] for t in range(step + 1) for s in range(2)]
            mean = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
            torch.testing.assert_close(found[0, 0, step, slot], mean)


def softmax_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    weights = (query @ key.mT * query.shape[-1] ** -0.5).masked_fill(
        torch.ones(query.shape[-2], query.shape[-2]).triu(1).bool(), -torch.inf
    )
    return weights.softmax(dim=-1) @ value


def test_more_features_come_closer_to_softmax_attention():
    # short enough for the error to fall with the root of the count: that of a feature grows as exp(|q + k|^2)
    query, key, value = (normal(2, 2, 40, 16, seed=seed, scale=0.4) for seed in range(3))
    exact = softmax_attention(query, key, value)
    errors = []
    for count in (16, 64, 256, 1024, 4096):
        found = []
        for seed in range(4):
            w = directions(count, 16, seed)
            queries, keys = query_features(query, w), key_features(key, w)
            found.append(favor_attention(*(x.unsqueeze(3) for x in (queries, keys, value)))[0].squeeze(3))
        errors.append((torch.stack(found) - exact).square().mean().sqrt().item())
    for fewer, more in pairwise(errors):
        assert more < 0.65 * fewer, errors
    assert errors[-1] < 0.02 * exact.square().mean().sqrt()


def clip(attention: FavorAttention, state=None):
    return attention(torch.randn(1, 2, 1, 8), state)[1]


def test_directions_are_drawn_anew_after_the_given_number_of_training_clips():
    attention = FavorAttention(8, 2, 16, redraw=2)
    seen = []
    for _ in range(5):
        clip(attention)
        seen.append(attention.directions)
    assert torch.equal(seen[0], seen[1])
    assert torch.equal(seen[2], seen[3])
    assert len({tuple(w.flatten().tolist()) for w in (seen[0], seen[2], seen[4])}) == 3


def test_evaluation_and_a_clip_that_goes_on_draw_nothing():
    attention = FavorAttention(8, 2, 16, redraw=1)
    state = clip(attention)
    before = attention.directions.clone()
    for _ in range(3):
        state = clip(attention, state)
    attention.eval()
    for _ in range(3):
        clip(attention)
    assert torch.equal(attention.directions, before)
    attention.train()
    clip(attention)
    assert not torch.equal(attention.directions, before)


def test_directions_and_their_count_resume_from_a_state_dict():
    first = FavorAttention(8, 2, 16, redraw=2)
    for _ in range(3):
        clip(first)
    second = FavorAttention(8, 2, 16, redraw=2, seed=5)
    second.load_state_dict(first.state_dict())
    assert torch.equal(second.directions, first.directions)
    second.seed = first.seed
    for _ in range(2):
        clip(first), clip(second)
        assert torch.equal(second.directions, first.directions)


def test_a_graph_that_a_new_draw_interrupts_can_still_be_walked_back():
    attention = FavorAttention(8, 2, 16, redraw=1)
    output, _ = attention(torch.randn(1, 2, 1, 8))
    clip(attention)
    output.sum().backward()
    assert attention.query_key_value.weight.grad.isfinite().all()
