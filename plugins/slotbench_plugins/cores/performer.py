"""Performer: the frame transformer with attention in linear time and a state of constant size."""

from __future__ import annotations

from typing import NamedTuple

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import CoreOutput, SlotSpec, TemporalCore, TokenSpec
from slotbench.nn.attention import check_heads
from slotbench.nn.frame_sequence import FrameSequence, FrameSequenceState
from slotbench.nn.grid import grid_of
from slotbench.nn.linear import xavier_linear

CHUNK_TOKENS = 128
"""Tokens whose products with one another are computed openly; what is earlier comes as a sum."""

SEED_STRIDE = 1_000_003
"""Between the seeds of one layer's draws, so that layers with neighbouring seeds share none."""

LARGEST_EXPONENT = 60.0
"""Keeps a feature, and the sum of many, within single precision."""


class Performer(TemporalCore):
    """`FrameTransformer` with FAVOR+ in the place of softmax attention; its weights are of the same number and shape.

    A clip is processed in parallel over time, and each step of a roll-out costs the same. The state is two sums per
    layer over all frames so far, which nothing is ever taken out of, so there is no window.

    Source: a baseline of Smith, De Mello, Kautz, Linderman, Byeon, "Convolutional State Space Models for Long-Range
    Spatiotemporal Modeling", NeurIPS 2023, section 5.1, whose model and sizes are not public; attention as in
    Choromanski et al., "Rethinking Attention with Performers", ICLR 2021, section 2. What is ours: everything but the
    attention is that of the Transformer baseline, and the stabiliser looks at no later frame (`key_features`).

    Args:
        token_spec: the output of the encoder; without a grid its tokens count as one row.
        dim: width inside, an even number; a multiple of 4 where a frame has several patches.
        num_layers: layers of attention and MLP, at least one.
        num_heads: heads of every attention.
        mlp_ratio: hidden width of the MLPs in units of `dim`.
        patch: cells per side of a patch; None for one patch of the whole grid.
        output_dim: width of a slot; `dim` if None.
        num_features: random features per head.
        redraw: training clips after which the features are drawn anew; None for never.
    """

    def __init__(
        self,
        token_spec: TokenSpec,
        dim: int = 64,
        num_layers: int = 2,
        num_heads: int = 4,
        mlp_ratio: int = 4,
        patch: int | None = None,
        output_dim: int | None = None,
        num_features: int = 256,
        redraw: int | None = None,
    ):
        super().__init__()
        grid = grid_of(token_spec)
        self.sequence = FrameSequence(
            token_spec.dim,
            grid,
            lambda index: FavorAttention(dim, num_heads, num_features, redraw, seed=index),
            dim,
            num_layers,
            mlp_ratio,
            patch,
            output_dim,
        )
        self.slot_spec = SlotSpec(token_spec.num_tokens, self.sequence.output_dim, grid)

    def forward(
        self, tokens: Float[Tensor, "batch time tokens dim"], state: FrameSequenceState | None = None
    ) -> CoreOutput:
        """A slot per cell after every frame; the state is the next frame's step and the sums of every layer."""
        slots, state = self.sequence(tokens, state)
        return CoreOutput(slots=slots, attention=None, state=state)


class FavorState(NamedTuple):
    """The two running sums of linear attention, sum of phi(k) v^T and sum of phi(k), as a quotient and a logarithm.

    In this form they keep their size however long the clip and however large the features.

    Attributes:
        value: mean of the values of all earlier tokens, one for each feature, weighted by that feature of their keys.
        log_weight: logarithm of the sum of that feature.
    """

    value: Float[Tensor, "batch heads features head_dim"]
    log_weight: Float[Tensor, "batch heads features"]


def orthogonal_directions(num_features: int, dim: int, seed: int) -> Float[Tensor, "features dim"]:
    """Random directions, orthogonal within each block of `dim`, each as long as a normal vector would be.

    Each is by itself a standard normal vector; being orthogonal, their errors cancel better than independent ones do.
    The random generator is their own, so that a seed gives the same directions wherever it is used.

    Source: Choromanski et al., "Rethinking Attention with Performers", ICLR 2021, section 2.4.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64, device="cpu")

    blocks = []
    for _ in range(-(-num_features // dim)):
        basis, upper = torch.linalg.qr(normal(dim, dim))
        # the signs that make the factorisation unique make the basis uniformly distributed
        blocks.append((basis * upper.diagonal().sign()).mT)
    lengths = normal(num_features, dim).norm(dim=-1, keepdim=True)
    return (lengths * torch.cat(blocks)[:num_features]).to(torch.get_default_dtype())


def key_features(
    key: Float[Tensor, "*batch dim"], directions: Float[Tensor, "features dim"], eps: float = 1e-6
) -> Float[Tensor, "*batch features"]:
    """exp(w k' - |k'|^2 / 2) + eps for every direction w, where k' = k / dim^(1/4).

    Over the directions the mean of the exponential is 1, which `eps` is small against. It is at most exp(|w|^2 / 2),
    so that it needs no stabiliser at the widths of attention heads; the exponent is cut at 60, which a key reaches only
    at |w|^2 > 120 and close to w. The public Performer code subtracts the largest exponent over features *and time*,
    so that what it adds to a key depends, through `eps`, on keys of the future; here a key's features are its own.

    Source: Choromanski et al., ICLR 2021, Lemma 1 and Eq 7-8.
    """
    scaled = key * key.shape[-1] ** -0.25
    exponent = _project(scaled, directions) - scaled.square().sum(dim=-1, keepdim=True) / 2
    return exponent.clamp(max=LARGEST_EXPONENT).exp() + eps


def query_features(
    query: Float[Tensor, "*batch dim"], directions: Float[Tensor, "features dim"], eps: float = 1e-6
) -> Float[Tensor, "*batch features"]:
    """exp(w q' - max over w) + eps for every direction w, where q' = q / dim^(1/4).

    A factor that all features of a query share cancels in the attention, so the largest feature is set to 1; this
    looks at no other query.

    Source: Choromanski et al., ICLR 2021, Lemma 1; the stabiliser is that of the public code.
    """
    exponent = _project(query * query.shape[-1] ** -0.25, directions)
    return (exponent - exponent.amax(dim=-1, keepdim=True)).exp() + eps


def favor_attention_reference(
    query: Float[Tensor, "batch heads time slots features"],
    key: Float[Tensor, "batch heads time slots features"],
    value: Float[Tensor, "batch heads time slots head_dim"],
) -> Float[Tensor, "batch heads time slots head_dim"]:
    """The weighted mean of the values of this and of earlier steps, by the full table of weights query . key.

    Quadratic in time: for tests and for reading.
    """
    time, slots = query.shape[2:4]
    query, key, value = (part.flatten(2, 3) for part in (query, key, value))
    weights = (query @ key.mT) * _visible(time, slots, query.device)
    weights = weights / weights.sum(dim=-1, keepdim=True)
    return (weights @ value).unflatten(2, (time, slots))


def favor_attention(
    query: Float[Tensor, "batch heads time slots features"],
    key: Float[Tensor, "batch heads time slots features"],
    value: Float[Tensor, "batch heads time slots head_dim"],
    state: FavorState | None = None,
) -> tuple[Float[Tensor, "batch heads time slots head_dim"], FavorState]:
    """`favor_attention_reference` after the tokens that `state` sums up, and the sums after the last step.

    Linear in time: the clip goes in chunks of about `CHUNK_TOKENS` tokens; within one the weights are computed openly,
    and all earlier chunks are one matrix. That matrix exists once per chunk, never once per token.
    """
    time, slots = query.shape[2:4]
    # a column of ones carries the sum of the weights along with the weighted sum of the values
    value = torch.cat([value, torch.ones_like(value[..., :1])], dim=-1)
    if state is None:
        sums = value.new_zeros(*value.shape[:2], key.shape[-1], value.shape[-1])
    else:
        weight = state.log_weight.exp().unsqueeze(-1)
        sums = torch.cat([state.value * weight, weight], dim=-1).to(value.dtype)
    chunk = min(time, max(1, CHUNK_TOKENS // slots))
    visible = _visible(chunk, slots, query.device)
    outputs = []
    for queries, keys, values in zip(*(part.split(chunk, dim=2) for part in (query, key, value)), strict=True):
        queries, keys, values = (part.flatten(2, 3) for part in (queries, keys, values))
        tokens = queries.shape[2]
        weights = (queries @ keys.mT).masked_fill(~visible[:tokens, :tokens], 0.0)
        outputs.append(weights @ values + queries @ sums)
        sums = sums + keys.mT @ values
    attended = torch.cat(outputs, dim=2).unflatten(2, (time, slots))
    weight = sums[..., -1:]
    return attended[..., :-1] / attended[..., -1:], FavorState(sums[..., :-1] / weight, weight.squeeze(-1).log())


def _project(x: Tensor, directions: Tensor) -> Tensor:
    # not `x @ directions.mT`, which copies the directions once per step where there is one slot
    return torch.einsum("...d,fd->...f", x, directions)


def _visible(time: int, slots: int, device: torch.device) -> Tensor:
    """Which token (columns) each token (rows) sees: those of its own step and of earlier ones."""
    step = torch.arange(time, device=device).repeat_interleave(slots)
    return step[None, :] <= step[:, None]


class FavorAttention(nn.Module):
    """Token (t, k) attends to every slot of every step t' <= t in time and state that do not grow with t.

    Weights approximate those of softmax(q k / sqrt(head width)), with an error that falls with the number of features
    and grows steeply with the length of queries and keys. All heads share the directions. They are drawn at
    construction from a seed of their own and saved with the weights. With `redraw`, new ones take their place in
    training each time that `redraw` more clips have begun; the count is saved too, and a clip that is carried on with a
    state keeps the directions that its sums were made with as long as no other clip begins in between.

    Features, sums and quotient are computed in single precision under autocast.

    Source: Choromanski et al., "Rethinking Attention with Performers", ICLR 2021, section 2 and Algorithm 1.

    Args:
        dim: width of a token.
        num_heads: heads, which must divide `dim`.
        num_features: random features per head.
        redraw: clips (calls without a state, in training mode) after which the directions are drawn anew; None for
            never.
        eps: what is added to every feature.
        seed: of the directions.
    """

    directions: Tensor
    clips: Tensor

    def __init__(
        self,
        dim: int,
        num_heads: int = 4,
        num_features: int = 256,
        redraw: int | None = None,
        eps: float = 1e-6,
        seed: int = 0,
    ):
        super().__init__()
        check_heads(dim, num_heads)
        self.num_heads = num_heads
        self.redraw = redraw
        self.eps = eps
        self.seed = seed
        self.query_key_value = xavier_linear(dim, dim, maps=3)
        self.output = xavier_linear(dim, dim)
        self.register_buffer("directions", orthogonal_directions(num_features, dim // num_heads, seed))
        self.register_buffer("clips", torch.zeros((), dtype=torch.long))

    def forward(
        self, x: Float[Tensor, "batch time slots dim"], state: FavorState | None = None
    ) -> tuple[Float[Tensor, "batch time slots dim"], FavorState]:
        """(output, sums for the steps that follow); `state` is that of the call before."""
        if self.training and self.redraw is not None and state is None:
            self._begin_clip(self.redraw)
        pattern = "batch time slots (part heads dim) -> part batch heads time slots dim"
        query, key, value = rearrange(self.query_key_value(x), pattern, part=3, heads=self.num_heads)
        with torch.autocast(x.device.type, enabled=False):
            query, key, value = (part.to(self.directions.dtype) for part in (query, key, value))
            queries = query_features(query, self.directions, self.eps)
            keys = key_features(key, self.directions, self.eps)
            attended, state = favor_attention(queries, keys, value, state)
        return self.output(rearrange(attended, "batch heads time slots dim -> batch time slots (heads dim)")), state

    def _begin_clip(self, redraw: int) -> None:
        clips = int(self.clips)
        if clips > 0 and clips % redraw == 0:
            count, dim = self.directions.shape
            # a new tensor, because a graph that is still to be walked back may hold the old one
            fresh = orthogonal_directions(count, dim, self.seed + SEED_STRIDE * (clips // redraw))
            self.directions = fresh.to(self.directions)
        self.clips = self.clips + 1
