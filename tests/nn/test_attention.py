from __future__ import annotations

import pytest
import torch
from torch import nn

from slotbench.nn.attention import LONG_SEQUENCE, CrossAttention, SelfAttention


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


def test_cross_attention_and_its_weights_equal_those_of_torch():
    attention = with_random_biases(CrossAttention(dim=12, context_dim=7, num_heads=3))
    queries, context = torch.randn(2, 4, 12, dtype=torch.float64), torch.randn(2, 5, 7, dtype=torch.float64)
    output, weights = attention(queries, context)
    expected, expected_weights = torch_attention(attention)(queries, context, context, average_attn_weights=False)
    torch.testing.assert_close(output, expected)
    torch.testing.assert_close(weights, expected_weights)


def test_weights_of_a_query_sum_to_one_over_the_tokens():
    _, weights = CrossAttention(dim=8, num_heads=2)(3 * torch.randn(2, 4, 8), 3 * torch.randn(2, 5, 8))
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(2, 2, 4))


def test_shared_queries_are_those_repeated_over_the_batch():
    attention = CrossAttention(dim=8, num_heads=2)
    queries, context = torch.randn(1, 4, 8), torch.randn(3, 5, 8)
    for shared, repeated in zip(
        attention(queries, context), attention(queries.expand(3, -1, -1), context), strict=True
    ):
        torch.testing.assert_close(shared, repeated)


@pytest.mark.parametrize("attention", [SelfAttention, CrossAttention])
@pytest.mark.parametrize("num_heads", [0, 3])
def test_heads_must_divide_the_width(attention, num_heads):
    with pytest.raises(ValueError, match=f"dim=8 does not split into num_heads={num_heads}"):
        attention(8, num_heads=num_heads)


def test_parameters_at_the_papers_width():
    for attention in (SelfAttention(64), CrossAttention(64)):
        assert sum(parameter.numel() for parameter in attention.parameters()) == 16_640


def test_each_of_several_stacked_maps_starts_by_its_own_fan():
    # One Xavier draw over the stack would take the fan of all three maps and start them sqrt(2) smaller.
    weight = SelfAttention(256).query_key_value.weight
    for part in weight.chunk(3):
        assert part.std().item() == pytest.approx((2 / (256 + 256)) ** 0.5, rel=0.02)
