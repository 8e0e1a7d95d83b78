"""Attention in which slots compete for tokens: the softmax runs over the slots, not over the tokens."""

from __future__ import annotations

from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import Aggregation, StagedAggregation, State
from slotbench.nn.aggregation import TokenSums, sums_suffice
from slotbench.nn.attention import check_heads
from slotbench.nn.inverted_attention.competition import Competition, compete
from slotbench.nn.inverted_attention.memory import KeyValueMemory, Memory, StepSums, TokenMemory
from slotbench.nn.inverted_attention.streaming import streamed_sums
from slotbench.nn.linear import xavier_linear
from slotbench.nn.temporal_attention import TimeBias

__all__ = ["InvertedAttention", "Path", "keys_cost_more"]

Path = Literal["auto", "plain", "projected", "streamed"]
"""How inverted attention comes to its updates; all agree.

"plain": keys and values of all tokens, and all weights. "projected": queries and sums are mapped in the place of the
tokens. "streamed": the same, and no weights are kept. "auto": plain or streamed, what is cheaper.
"""

USUAL_QUERIES, USUAL_READS = 32, 6
"""Queries that a token is taken to meet, in so many calls, where nobody says how many there will be."""

OVERHEAD = 2**22
"""Multiply-adds in whose time a CPU starts the operations by which the ways differ."""

FEWEST_NUMBERS = 2**10
"""Numbers in the tokens of a step from which on it pays to sum over time, however short the clip."""


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
    return frames * (keys - none) > OVERHEAD


class InvertedAttention(nn.Module):
    """Slots compete for tokens; what each has won becomes its update.

    For one step's slots and tokens call the module. Where the same tokens are asked several times (iterations), or
    where slots read the tokens of many steps (`causal`), compute `memory` once and call `attend`. Where iterations
    share what the aggregation measured at the first one, call `attend_again`.

    Over time a slot of step t reads the tokens of the steps t' that it may see, and the competition for a token of step
    t' is among the slots of step t alone. Were it among the slots of all steps, later slots would take from earlier
    ones, and the past would know the future. What may not be seen is set to zero after the softmax: all competitors of
    a hidden token are hidden alike, so that minus infinity before the softmax would leave 0 / 0.

    With one head, (Wq s) . (Wk e) = (Wk' Wq s) . e, and what a slot gathers of the values is Wv times what it gathers
    of the tokens. So where there are more tokens than queries (`keys_cost_more`) and the aggregation is a
    `SummedAggregation`, neither keys nor values are made: the queries and the sums are mapped, both few. Tokens then go
    in chunks, whose weights the backward pass computes anew; the sums are in float32 at least, under autocast too.
    `path` names a way by hand. All give the same, and "plain" is the one to read.

    Source: Slot Attention (Locatello et al., 2020), Eq 1-2; over time PSB (Singh et al., 2024), Appendix D.1.2.

    Args:
        dim: width of a slot.
        token_dim: width of a token; `dim` if None.
        num_heads: heads, which must divide `dim`.
        aggregation: turns (assignment, values) into updates, an `Aggregation`. It is called with an
            assignment "batch heads time slots tokens", tokens of all visible steps in a row and zero where a slot may
            not look, and with values "batch heads 1 tokens head_dim".
            One that is a `StagedAggregation` gathers chunk by chunk, and rescales all at once.
        across_heads: the slots of all heads compete with one another; otherwise those of each head on their own.
        bias: give the linear maps a bias.
        output_map: put a linear map after the aggregation; otherwise the update of a slot is what its heads have
            gathered, side by side.

    Raises:
        ValueError: `num_heads` does not divide `dim`.

    Attributes:
        path: how updates are computed; "auto" is the faster way.
    """

    path: Path = "auto"

    def __init__(
        self,
        dim: int,
        token_dim: int | None = None,
        num_heads: int = 1,
        *,
        aggregation: Aggregation,
        across_heads: bool = True,
        bias: bool = True,
        output_map: bool = True,
    ):
        super().__init__()
        check_heads(dim, num_heads)
        self.num_heads = num_heads
        self.across_heads = across_heads
        self.query = xavier_linear(dim, dim, bias=bias)
        self.key_value = xavier_linear(dim if token_dim is None else token_dim, dim, maps=2, bias=bias)
        self.aggregation = aggregation
        self.output = xavier_linear(dim, dim, bias=bias) if output_map else nn.Identity()

    def forward(
        self, slots: Float[Tensor, "batch slots dim"], tokens: Float[Tensor, "batch tokens token_dim"]
    ) -> tuple[Float[Tensor, "batch slots dim"], Float[Tensor, "batch slots tokens"]]:
        """One step: (updates, assignment, which sums to 1 over the slots for each token)."""
        updates, assignment = self.attend(slots[:, None], self.memory(tokens[:, None], slots.shape[1]))
        assert assignment is not None
        return updates[:, 0], assignment[:, 0]

    def memory(
        self,
        tokens: Float[Tensor, "batch time tokens token_dim"],
        queries: int | None = None,
        norm: nn.LayerNorm | None = None,
    ) -> Memory:
        """What `attend` reads of the tokens: themselves, or keys and values of them where these are cheaper.

        Args:
            tokens: of steps.
            queries: that a token is going to meet: slots x steps that read it x iterations; None if that is not known.
            norm: the LayerNorm whose weight and bias the tokens have not got yet; None for nothing.
        """
        if self.path == "auto" and sums_suffice(self.aggregation):
            frames = tokens.shape[0] * tokens.shape[1]
            if queries is None:
                queries, frames = USUAL_QUERIES, frames // USUAL_READS
            dim, token_dim = self.query.in_features, self.key_value.in_features
            stay = keys_cost_more(tokens.shape[2], queries, dim, token_dim, self.num_heads, frames)
        else:
            stay = self.path != "plain" and sums_suffice(self.aggregation)
        memory = TokenMemory(tokens, norm)
        return memory if stay else self._keys_and_values(memory)

    def attend(
        self,
        slots: Float[Tensor, "batch time slots dim"],
        memory: Memory,
        *,
        causal: bool = False,
        window: int | None = None,
        time_bias: TimeBias | None = None,
        shares: bool = True,
    ) -> tuple[Float[Tensor, "batch time slots dim"], Float[Tensor, "batch time slots tokens"] | None]:
        """(updates, assignment) of `attend_again` where there is no earlier iteration."""
        updates, assignment, _ = self.attend_again(
            slots, memory, None, causal=causal, window=window, time_bias=time_bias, shares=shares
        )
        return updates, assignment

    def attend_again(
        self,
        slots: Float[Tensor, "batch time slots dim"],
        memory: Memory,
        statistics: State,
        *,
        causal: bool = False,
        window: int | None = None,
        time_bias: TimeBias | None = None,
        shares: bool = True,
    ) -> tuple[Float[Tensor, "batch time slots dim"], Float[Tensor, "batch time slots tokens"] | None, State]:
        """Lets the slots of each step compete for the tokens that this step may see.

        Args:
            slots: of the last steps that `memory` holds.
            statistics: what the call of an earlier iteration returned as such; None at the first.
            memory: of these steps and, with `causal`, of earlier ones.
            causal: look at no later step.
            window: steps that a slot sees, its own included, with `causal`; None for no limit.
            time_bias: maps signed offsets, step of the token less step of the slot, to a number per head that is added
                to the logit. Within a head all competitors for a token have the same offset, and what is added to all
                of them makes no difference: it acts between heads only.
            shares: whether to return the assignment.

        Returns:
            (updates, assignment of each step's own tokens: the share that each slot has won of each token before
            aggregation, with all heads; it sums to 1 over the slots; None without `shares`, statistics of a
            `StagedAggregation` for the next iteration, a pytree of tensors that lead with the batch, or None).

        Raises:
            ValueError: without `causal`, a `window`, or other than one step of memory per step of slots.
        """
        time, steps = slots.shape[1], memory.size[0]
        if not causal and (steps != time or window is not None):
            raise ValueError(
                f"{steps} steps of memory for {time} steps of slots with window={window}: without causal=True every "
                "slot reads all steps, so give as many steps of tokens as of slots, and no window"
            )
        query = self._queries(slots)
        competition = Competition(self.across_heads, causal, window, steps - time)
        bias = None
        if time_bias is not None and self.across_heads and self.num_heads > 1:
            bias = time_bias(competition.offsets(time, steps, slots.device))
        assignment: Tensor | None
        if isinstance(memory, KeyValueMemory) or not sums_suffice(self.aggregation):
            pairs = memory if isinstance(memory, KeyValueMemory) else self._keys_and_values(memory)
            gathered, assignment = compete(self._gather, query, None, *pairs, bias, competition)
            assignment = assignment if shares else None
        else:
            folded, query_bias = self._fold(query, memory)
            values, mass, assignment = self._sums(folded, query_bias, memory.tokens, bias, competition, shares)
            count = competition.num_visible(slice(0, time), memory.size, mass)
            gathered = self.aggregation.from_sums(self._unfold(values, mass, count, memory))
        updates, statistics = self._updates(gathered, statistics, query.dtype)
        return updates, assignment, statistics

    @property
    def adds_up(self) -> bool:
        """Whether `attend_alike` is there: only heads that compete with one another know how long ago a step was."""
        return not (self.across_heads and self.num_heads > 1) and sums_suffice(self.aggregation)

    def pays_to_add_up(self, num_tokens: int) -> bool:
        """Whether to call `attend_alike`, by the tokens of a step, of which all calls for a clip have the same."""
        large = self.path != "auto" or num_tokens * self.key_value.in_features >= FEWEST_NUMBERS
        return self.adds_up and self.path != "plain" and large

    def attend_alike(
        self,
        slots: Float[Tensor, "batch slots dim"],
        memory: TokenMemory,
        earlier: StepSums | None = None,
        *,
        window: int | None = None,
        shares: bool = True,
    ) -> tuple[Float[Tensor, "batch time slots dim"], Float[Tensor, "batch time slots tokens"] | None, StepSums]:
        """Causal attention where the slots of all steps are the same, in a time that grows with the steps alone.

        The competition for a token is then the same whichever step it is for, so that each step is read once, and what
        slots have won of the steps so far is a sum over steps. Where the slots of the steps differ, so does each of
        their competitions, and nothing can be summed.

        Args:
            slots: of every step.
            memory: of the steps that are new.
            earlier: what the call before returned as such; None at the start.
            window: steps that a step sees, its own included; None for no limit.
            shares: whether to return the assignment.

        Returns:
            (updates, assignment as in `attend_again`, what the next call needs of the steps so far).

        Raises:
            ValueError: the attention is not one that `adds_up`.
        """
        if not self.adds_up or not sums_suffice(self.aggregation):
            raise ValueError(
                "attend_alike needs heads that do not compete with one another, and an aggregation that needs sums "
                "alone; see adds_up, and call attend"
            )
        batch, (steps, num_tokens) = slots.shape[0], memory.size
        query = self._queries(slots[:, None])
        folded, query_bias = (
            x.expand(-1, steps, -1, -1, -1).reshape(batch * steps, 1, *x.shape[2:]) for x in self._fold(query, memory)
        )
        frames = memory.tokens.flatten(0, 1)[:, None]
        values, mass, assignment = self._sums(folded, query_bias, frames, None, Competition(self.across_heads), shares)
        values, mass = (x.unflatten(0, (batch, steps))[:, :, 0] for x in (values, mass))
        count = mass.new_full((batch, steps, 1, 1, 1), num_tokens)
        seen, kept = StepSums(values, mass, count).so_far(earlier, window)
        gathered = self.aggregation.from_sums(
            self._unfold(seen.values, seen.mass, seen.num_tokens.transpose(1, 2), memory)
        )
        if assignment is not None:
            assignment = assignment.view(batch, steps, *assignment.shape[2:])
        return self._updates(gathered, None, query.dtype)[0], assignment, kept

    def _queries(self, slots: Tensor) -> Tensor:
        """Scaled, "batch heads time slots head_dim"."""
        pattern = "batch time slots (heads dim) -> batch heads time slots dim"
        query = rearrange(self.query(slots), pattern, heads=self.num_heads)
        return query * query.shape[-1] ** -0.5

    def _keys_and_values(self, memory: TokenMemory) -> KeyValueMemory:
        tokens, norm = memory
        if norm is None:
            pairs = self.key_value(tokens)
        else:  # in the map, because the tokens are many
            weight, bias = self.key_value.weight, self.key_value.bias
            shift = weight @ norm.bias if bias is None else torch.addmv(bias, weight, norm.bias)
            pairs = nn.functional.linear(tokens, weight * norm.weight, shift)
        pattern = "batch time tokens (part heads dim) -> part batch heads time tokens dim"
        return KeyValueMemory(*rearrange(pairs, pattern, part=2, heads=self.num_heads))

    def _gather(self, weights: Tensor, values: Tensor, count: Tensor) -> Tensor:
        """What the aggregation makes of a chunk of steps."""
        if sums_suffice(self.aggregation):
            return self.aggregation.from_sums(self.aggregation.sums(weights, values, count))
        if isinstance(self.aggregation, StagedAggregation):
            return self.aggregation.gather(weights, values)
        return self.aggregation(weights, values)

    def _updates(self, gathered: Tensor, statistics: State, dtype: torch.dtype) -> tuple[Tensor, State]:
        if isinstance(self.aggregation, StagedAggregation):
            gathered, statistics = self.aggregation.rescale(gathered, statistics)
        merged = rearrange(gathered.to(dtype), "batch heads time slots dim -> batch time slots (heads dim)")
        return self.output(merged), statistics

    def _maps(self, dtype: torch.dtype) -> tuple[tuple[Tensor, Tensor], tuple[Tensor | None, Tensor | None]]:
        """Weights "heads head_dim token_dim" and biases "heads head_dim" of keys and of values."""
        key, value = self.key_value.weight.to(dtype).view(2, self.num_heads, -1, self.key_value.in_features)
        if self.key_value.bias is None:
            return (key, value), (None, None)
        key_bias, value_bias = self.key_value.bias.to(dtype).view(2, self.num_heads, -1)
        return (key, value), (key_bias, value_bias)

    def _fold(self, query: Tensor, memory: TokenMemory) -> tuple[Tensor, Tensor]:
        """What tokens are multiplied with, and what is added, to be the logits; both "batch time heads slots dim".

        What the bias of the keys adds is the same for all tokens, but not for all slots, which compete.
        """
        dtype = torch.promote_types(memory.tokens.dtype, torch.float32)
        with torch.autocast(query.device.type, enabled=False):
            query = query.to(dtype)
            (weight, _), (bias, _) = self._maps(dtype)
            folded = torch.einsum("bhtnd,hde->bthne", query, weight)
            added = None if bias is None else torch.einsum("bhtnd,hd->bthn", query, bias)[..., None]
            if memory.norm is not None:
                shift = folded @ memory.norm.bias.to(dtype)[:, None]
                added = shift if added is None else added + shift
                folded = folded * memory.norm.weight.to(dtype)
            return folded, folded.new_zeros(*folded.shape[:-1], 1) if added is None else added

    def _unfold(self, values: Tensor, mass: Tensor, count: Tensor, memory: TokenMemory) -> TokenSums:
        """Sums of values from sums of tokens "batch time heads slots token_dim"."""
        with torch.autocast(values.device.type, enabled=False):
            (_, weight), (_, bias) = self._maps(values.dtype)
            if memory.norm is not None:
                values = values * memory.norm.weight.to(values.dtype) + mass * memory.norm.bias.to(values.dtype)
            values = torch.einsum("bthne,hde->bhtnd", values, weight)
            mass = mass.transpose(1, 2)
            if bias is not None:
                values = values + mass * bias[:, None, None]
            return TokenSums(values, mass, count)

    def _sums(
        self,
        query: Tensor,
        query_bias: Tensor,
        tokens: Tensor,
        time_bias: Tensor | None,
        competition: Competition,
        shares: bool,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """`streamed_sums`, or the same with all weights there at once."""
        aggregation = self.aggregation
        assert sums_suffice(aggregation)
        with torch.autocast(query.device.type, enabled=False):
            if self.path != "projected":
                return streamed_sums(
                    query, query_bias, tokens, time_bias, competition, aggregation.share_offset, shares
                )

            def gather(weights: Tensor, values: Tensor, count: Tensor) -> Tensor:
                return torch.cat(aggregation.sums(weights, values, count)[:2], dim=-1)

            shared = tokens[:, None].to(query.dtype)
            query, query_bias = query.transpose(1, 2), query_bias.transpose(1, 2)
            sums, assignment = compete(gather, query, query_bias, shared, shared, time_bias, competition)
        values, mass = sums.transpose(1, 2).split([tokens.shape[-1], 1], dim=-1)
        return values, mass, assignment if shares else None
