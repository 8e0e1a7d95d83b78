from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from slotbench.nn.attention import FEW_QUERIES_TOKENS, LONG_SEQUENCE, CrossAttention, SelfAttention


def torch_attention(attention: SelfAttention | CrossAttention) -> nn.MultiheadAttention:
    """PyTorch's module with the same weights."""
    dim = attention.output.in_features
    if isinstance(attention, SelfAttention):
        stacked = attention.query_key_value
        weights, biases = stacked.weight.chunk(3), stacked.bias
    else:
        weights = [attention.query.weight, *attention.key_value.weight.chunk(2)]
        biases = torch.cat([attention.query.bias, attention.key_value.bias])
    context_dim = weights[1].shape[1]
    theirs = nn.MultiheadAttention(dim, attention.num_heads, batch_first=True, kdim=context_dim, vdim=context_dim)
    with torch.no_grad():
        if theirs.in_proj_weight is None:
            parts = (theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight)
            for part, weight in zip(parts, weights, strict=True):
                part.copy_(weight)
        else:
            theirs.in_proj_weight.copy_(torch.cat(list(weights)))
        theirs.in_proj_bias.copy_(biases)
        theirs.out_proj.load_state_dict(attention.output.state_dict())
    return theirs.double()


def with_random_biases(attention: nn.Module) -> nn.Module:
    for name, parameter in attention.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter)
    return attention.double()


@pytest.mark.parametrize("tokens", [1, 5, LONG_SEQUENCE - 1, LONG_SEQUENCE, 70])
def test_self_attention_equals_that_of_torch_at_every_length(tokens):
    attention = with_random_biases(SelfAttention(dim=12, num_heads=3))
    x = torch.randn(2, tokens, 12, dtype=torch.float64)
    expected, _ = torch_attention(attention)(x, x, x)
    torch.testing.assert_close(attention(x), expected)


@pytest.mark.parametrize("tokens", [5, FEW_QUERIES_TOKENS])
def test_cross_attention_and_its_weights_equal_those_of_torch(tokens):
    attention = with_random_biases(CrossAttention(dim=12, context_dim=7, num_heads=3))
    queries, context = torch.randn(2, 3, 12, dtype=torch.float64), torch.randn(2, tokens, 7, dtype=torch.float64)
    output, weights = attention(queries, context)
    expected, expected_weights = torch_attention(attention)(queries, context, context, average_attn_weights=False)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(weights, expected_weights)


@settings(max_examples=30, deadline=None)
@given(
    batch=st.integers(1, 3),
    shared=st.booleans(),
    queries=st.integers(1, 5),
    tokens=st.integers(1, 40),
    heads=st.integers(1, 3),
    head_dim=st.integers(1, 4),
    context_dim=st.integers(1, 9),
)
def test_few_queries_read_what_the_definition_reads(batch, shared, queries, tokens, heads, head_dim, context_dim):
    attention = with_random_biases(CrossAttention(heads * head_dim, context_dim, heads))
    query = torch.randn(1 if shared else batch, heads, queries, head_dim, dtype=torch.float64, requires_grad=True)
    context = torch.randn(batch, tokens, context_dim, dtype=torch.float64, requires_grad=True)
    found = {}
    for path in (attention.reference, attention.few_queries):
        mixed, weights = path(query, context)
        # the key's bias moves nothing, so one path has no gradient for it and the other one of rounding errors
        loss = (mixed * torch.arange(1.0, 1 + head_dim)).square().sum() + (weights**3).sum()
        weight, bias = attention.key_value.weight, attention.key_value.bias
        gradients = torch.autograd.grad(loss, [query, context, weight, bias])
        found[path.__name__] = (mixed, weights, *gradients[:3], gradients[3].chunk(2)[1])
    for ours, expected in zip(found["few_queries"], found["reference"], strict=True):
        torch.testing.assert_close(ours, expected)


def test_the_path_is_chosen_by_the_number_of_queries_and_of_tokens(monkeypatch):
    attention = CrossAttention(dim=8, num_heads=2)
    taken = []
    for name in ("reference", "few_queries"):
        path = getattr(attention, name)
        monkeypatch.setattr(attention, name, lambda *args, name=name, path=path: taken.append(name) or path(*args))
    many = FEW_QUERIES_TOKENS
    for queries, tokens in ((3, many), (4, many), (3, many - 1)):
        attention(torch.randn(1, queries, 8), torch.randn(2, tokens, 8))
    assert taken == ["few_queries", "reference", "reference"]


def test_parameters_at_the_papers_width():
    for attention in (SelfAttention(64), CrossAttention(64)):
        assert sum(parameter.numel() for parameter in attention.parameters()) == 16_640


def test_each_of_several_stacked_maps_starts_by_its_own_fan():
    # One Xavier draw over the stack would take the fan of all three maps and start them sqrt(2) smaller.
    weight = SelfAttention(256).query_key_value.weight
    for part in weight.chunk(3):
        assert part.std().item() == pytest.approx((2 / (256 + 256)) ** 0.5, rel=0.02)
