"""The op: slots compete for tokens, by the kernel that its size asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, cast

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import Aggregation, StagedAggregation, State, SummedAggregation, sums_suffice
from slotbench.ops.dispatch import KERNELS, KernelError
from slotbench.ops.inverted_attention.competition import Competition
from slotbench.ops.inverted_attention.dense import dense_attention, dense_frames
from slotbench.ops.inverted_attention.memory import (
    AttentionMaps,
    FrameMemory,
    KeyValueMemory,
    Memory,
    StepSums,
    TokenMemory,
)
from slotbench.ops.inverted_attention.reference import inverted_attention_reference
from slotbench.ops.inverted_attention.streamed import streamed_attention, streamed_steps

__all__ = [
    "Attended",
    "cumulative_attention",
    "inverted_attention",
    "keys_cost_more",
    "read_frames",
    "read_tokens",
    "supports_cumulative",
]

WEIGHTS_KEPT = 2**20
"""Attention weights that an iteration of the kernel "dense" keeps for the backward pass, at most (4 MiB)."""

OVERHEAD_MACS = 2**22
"""Multiply-adds that take as long as the operations which "streamed" starts and "reference" does not, on a CPU."""


class Attended(NamedTuple):
    """Result of inverted attention.

    Attributes:
        updates: of the slots, the heads side by side.
        assignment: share that each slot has won of each token of its own step, before aggregation, with all heads; it
            sums to 1 over the slots. None where it was not asked for.
        statistics: of a `StagedAggregation`, for the next iteration: tensors that lead with the batch, or None.
    """

    updates: Float[Tensor, "batch *time slots dim"]
    assignment: Float[Tensor, "batch *time slots tokens"] | None
    statistics: State


def inverted_attention(
    slots: Float[Tensor, "batch *time slots dim"],
    tokens: Float[Tensor, "batch *time tokens token_dim"] | Memory,
    maps: AttentionMaps,
    aggregation: Aggregation,
    statistics: State = None,
    *,
    causal: bool = False,
    window: int | None = None,
    time_bias: Callable[[Tensor], Tensor] | None = None,
    shares: bool = True,
    kernel: str = "auto",
) -> Attended:
    """Lets the slots of each step compete for the tokens that the step may see.

        q, k, v = Wq slots, Wk tokens, Wv tokens
        assignment = softmax over slots (and heads, where these compete) of k q / sqrt(head_dim)
        updates = aggregation(assignment, v)

    Over time a slot of step t reads the tokens of the steps t' that it may see, and the competition for a token of step
    t' is among the slots of step t alone. Were it among the slots of all steps, later slots would take from earlier
    ones, and the past would know the future. What may not be seen is set to zero after the softmax: all competitors of
    a hidden token are hidden alike, so that minus infinity before the softmax would leave 0 / 0.

    Kernels: `reference` is the equation, with keys, values and weights, for any aggregation. The others are for a
    `SummedAggregation`, to which sums over the tokens are enough. `dense` is for one head, single frames, single or
    double precision and no biases; it keeps all weights, and makes no keys and values where a frame has many tokens:
    (Wq s) . (Wk e) = (Wk' Wq s) . e, and a sum of values is Wv times that of the tokens. `streamed` does so for several
    heads and over time too: tokens go in chunks, whose weights the backward pass computes again; its sums are in
    float32 at least, under autocast too. `auto` takes `dense` for few weights, otherwise `streamed`
    where it has fewer multiply-adds (`keys_cost_more`), otherwise `reference`.

    Source: Slot Attention (Locatello et al., 2020), Eq 1-2; over time PSB (Singh et al., 2024), Appendix D.1.2.

    Args:
        slots: of the last steps that `tokens` hold, or of one frame, without the axis of time.
        tokens: of these steps and, with `causal`, of earlier ones. Where several calls read the same, the result of
            `read_tokens` or of `read_frames`, which then choose the kernel.
        maps: queries, keys and values.
        aggregation: turns (assignment, values) into updates. It is called with an assignment "batch heads time slots
            tokens", tokens of all visible steps in a row and zero where a slot may not look, and with values "batch
            heads 1 tokens head_dim". A `StagedAggregation` gathers chunk by chunk, and rescales all at once.
        statistics: those of an earlier iteration; None at the first.
        causal: look at no later step.
        window: steps that a slot sees, its own included, with `causal`; None for no limit.
        time_bias: maps signed offsets, step of the token less step of the slot, to a number per head that is added to
            the logit. Within a head all competitors for a token have the same offset, and what is added to all of them
            makes no difference: it acts between heads only.
        shares: whether to return the assignment.
        kernel: "auto" (by size) or the name of a kernel; the kind of a `Memory` has chosen already.
    """
    if isinstance(tokens, FrameMemory):
        gathered, won = dense_attention(slots, tokens, cast(SummedAggregation, aggregation))
        if isinstance(aggregation, StagedAggregation):
            gathered, statistics = aggregation.rescale(gathered, statistics)
        return Attended(gathered, won, statistics)
    if isinstance(tokens, Tensor):
        if slots.ndim == 3:
            (tokens,) = read_frames(tokens[:, None], maps, aggregation, slots.shape[1], kernel=kernel)
            return inverted_attention(slots, tokens, maps, aggregation, statistics, shares=shares, kernel=kernel)
        tokens = read_tokens(tokens, maps, aggregation, slots.shape[1] * slots.shape[2], kernel=kernel)
    if slots.ndim == 3:
        attended = inverted_attention(
            slots[:, None], tokens, maps, aggregation, statistics, shares=shares, kernel=kernel
        )
        updates, assignment, statistics = attended
        return Attended(updates.squeeze(1), None if assignment is None else assignment.squeeze(1), statistics)
    time, (steps, _) = slots.shape[1], tokens.size
    if not causal and (steps != time or window is not None):
        raise ValueError(
            f"{steps} steps of memory for {time} steps of slots with window={window}: without causal=True every "
            "slot reads all steps, so give as many steps of tokens as of slots, and no window"
        )
    query = maps.queries(slots)
    competition = Competition(maps.across_heads, causal, window, steps - time)
    bias = None
    if time_bias is not None and maps.across_heads and maps.num_heads > 1:
        bias = time_bias(competition.offsets(time, steps, slots.device))
    own: Tensor | None
    if isinstance(tokens, TokenMemory) and sums_suffice(aggregation):
        gathered, own = streamed_attention(query, tokens, maps, aggregation, bias, competition, shares)
    else:
        pairs = tokens if isinstance(tokens, KeyValueMemory) else maps.keys_and_values(tokens)
        gathered, own = inverted_attention_reference(query, pairs, aggregation, bias, competition)
    if isinstance(aggregation, StagedAggregation):
        gathered, statistics = aggregation.rescale(gathered, statistics)
    return Attended(_merge_heads(gathered, query.dtype), own if shares else None, statistics)


def read_tokens(
    tokens: Float[Tensor, "batch time tokens token_dim"],
    maps: AttentionMaps,
    aggregation: Aggregation,
    queries: int,
    *,
    norm: nn.LayerNorm | None = None,
    kernel: str = "auto",
) -> TokenMemory | KeyValueMemory:
    """What `inverted_attention` reads of the tokens of all steps: themselves, or keys and values where these cost less.

    Args:
        tokens: of steps.
        maps: queries, keys and values.
        aggregation: which is going to be used.
        queries: that a token is going to meet: slots x steps that read it x iterations.
        norm: the LayerNorm whose weight and bias the tokens have not got yet; None for nothing.
        kernel: "auto", "reference" or "streamed".
    """
    streamable = _streamable(maps, aggregation)
    if kernel == "streamed" and not streamable:
        raise KernelError(
            f"kernel '{kernel}' of inverted_attention cannot run: it takes a SummedAggregation and layers that are "
            "plain nn.Linear: use kernel='auto'"
        )
    if kernel == "dense":
        raise KernelError("kernel 'dense' of inverted_attention cannot run: it takes single frames: use kernel='auto'")
    _check_kernel(kernel)
    if kernel == "auto" and streamable:
        batch, time, num_tokens, token_dim = tokens.shape
        dim = maps.query.in_features
        streamed = keys_cost_more(num_tokens, queries, dim, token_dim, maps.num_heads, batch * time)
    else:
        streamed = kernel == "streamed"
    memory = TokenMemory(tokens, norm)
    return memory if streamed else maps.keys_and_values(memory)


def read_frames(
    tokens: Float[Tensor, "batch time tokens token_dim"],
    maps: AttentionMaps,
    aggregation: Aggregation,
    num_slots: int,
    num_iterations: int = 1,
    *,
    kernel: str = "auto",
) -> Iterator[Memory]:
    """What `inverted_attention` reads of each frame on its own, made for all frames at once.

    Args:
        tokens: of frames.
        maps: queries, keys and values.
        aggregation: which is going to be used.
        num_slots: that compete for each frame.
        num_iterations: calls for each frame.
        kernel: "auto" or the name of a kernel.
    """
    batch, _, num_tokens, _ = tokens.shape
    dense = (
        _streamable(maps, aggregation)
        and maps.num_heads == 1
        and maps.query.bias is None
        and maps.key_value.bias is None
        and tokens.dtype in (torch.float32, torch.float64)
        and not torch.is_autocast_enabled(tokens.device.type)
    )
    if kernel == "dense" and not dense:
        raise KernelError(
            "kernel 'dense' of inverted_attention cannot run: it takes one head without biases, a SummedAggregation, "
            "single or double precision, and no autocast: use kernel='auto'"
        )
    if kernel == "dense" or (kernel == "auto" and dense and batch * num_slots * num_tokens <= WEIGHTS_KEPT):
        return dense_frames(tokens, maps, num_slots, num_iterations)
    return read_tokens(tokens, maps, aggregation, num_slots * num_iterations, kernel=kernel).frames()


def keys_cost_more(num_tokens: int, queries: int, dim: int, token_dim: int, heads: int, frames: int = 1) -> bool:
    """Whether to map queries and sums, in the place of keys and values, by the multiply-adds of both.

    Keys and values cost two maps per token, and two products of the width of a slot with each query. Without them
    a query has the width of a token in every head, and two maps of its own. So with one head tokens stay as they are
    wherever there are more of them than of queries, and with several where (heads - 1) x queries is below `dim`.

    Args:
        num_tokens: that a query reads.
        queries: that a token meets: slots x steps x iterations.
        dim: width of a slot.
        token_dim: width of a token.
        heads: of the attention.
        frames: steps of tokens, in all clips.
    """
    keys = num_tokens * dim * (token_dim + queries)
    none = queries * token_dim * (num_tokens * heads + dim)
    return frames * (keys - none) > OVERHEAD_MACS


def supports_cumulative(maps: AttentionMaps, aggregation: Aggregation) -> bool:
    """Whether `cumulative_attention` can run: competing heads know how long ago a step was, and cannot be summed."""
    return not (maps.across_heads and maps.num_heads > 1) and _streamable(maps, aggregation)


def cumulative_attention(
    slots: Float[Tensor, "batch slots dim"],
    memory: TokenMemory,
    maps: AttentionMaps,
    aggregation: Aggregation,
    earlier: StepSums | None = None,
    *,
    window: int | None = None,
    shares: bool = True,
    kernel: str = "auto",
) -> tuple[Float[Tensor, "batch time slots dim"], Float[Tensor, "batch time slots tokens"] | None, StepSums]:
    """Causal attention where the slots of all steps are the same, in a time that grows with the steps alone.

    The competition for a token is then the same whichever step it is for, so that each step is read once, and what
    slots have won of the steps so far is a sum over steps. Where the slots of the steps differ, so does each of
    their competitions, and nothing can be summed.

    Args:
        slots: of every step.
        memory: of the steps that are new.
        maps: queries, keys and values.
        aggregation: made of sums.
        earlier: returned by the previous call; None at the start.
        window: steps that a step sees, its own included; None for no limit.
        shares: whether to return the assignment.
        kernel: "auto" or "streamed".

    Returns:
        (updates, assignment as in `inverted_attention`, what the next call needs of the steps so far).
    """
    _check_kernel(kernel)
    if not supports_cumulative(maps, aggregation) or not sums_suffice(aggregation):
        raise ValueError(
            "cumulative attention needs heads that do not compete with one another, and an aggregation that needs sums "
            "alone; see supports_cumulative, and call inverted_attention"
        )
    query = maps.queries(slots[:, None])
    gathered, assignment, kept = streamed_steps(query, memory, maps, aggregation, earlier, window, shares)
    if isinstance(aggregation, StagedAggregation):
        gathered, _ = aggregation.rescale(gathered, None)
    return _merge_heads(gathered, query.dtype), assignment, kept


def _streamable(maps: AttentionMaps, aggregation: Aggregation) -> bool:
    """Whether sums are enough for the aggregation, and the maps are neither subclasses nor parametrised layers."""
    return sums_suffice(aggregation) and type(maps.query) is type(maps.key_value) is nn.Linear


def _check_kernel(kernel: str) -> None:
    if kernel not in ("auto", *KERNELS["inverted_attention"]):
        names = ", ".join(KERNELS["inverted_attention"])
        raise ValueError(f"inverted_attention has no kernel named '{kernel}'; use 'auto' or one of {names}")


def _merge_heads(gathered: Tensor, dtype: torch.dtype) -> Tensor:
    return rearrange(gathered.to(dtype), "batch heads time slots dim -> batch time slots (heads dim)")
