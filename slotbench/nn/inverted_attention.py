"""The layer of inverted attention: the softmax runs over the slots, not over the tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import Aggregation, State
from slotbench.nn.attention import check_heads
from slotbench.nn.linear import xavier_linear
from slotbench.nn.temporal_attention import TimeBias
from slotbench.ops.inverted_attention import (
    Attended,
    AttentionMaps,
    KeyValueMemory,
    Memory,
    StepSums,
    TokenMemory,
    cumulative_attention,
    inverted_attention,
    read_frames,
    read_tokens,
    supports_cumulative,
)

__all__ = ["InvertedAttention"]

FEWEST_NUMBERS = 2**10
"""Numbers in the tokens of a step from which on it pays to sum over time, however short the clip."""


class InvertedAttention(nn.Module):
    """Inverted attention: slots compete for tokens. `slotbench.ops.inverted_attention` with its linear maps.

    Where the same tokens are asked several times (iterations), compute `frames` once and call the layer with each;
    where slots read the tokens of many steps (`causal`), call it with their `memory`.

    Args:
        dim: width of a slot.
        token_dim: width of a token; `dim` if None.
        num_heads: heads, which must divide `dim`.
        aggregation: turns (assignment, values) into updates, for values of width `dim` / `num_heads`.
        across_heads: the slots of all heads compete with one another; otherwise those of each head on their own.
        bias: give the linear maps a bias.
        output_map: put a linear map after the aggregation; otherwise the update of a slot is the outputs of its heads,
            side by side.

    Attributes:
        kernel: of the op; "auto" chooses by size.
    """

    kernel: str = "auto"
    kernel_op: ClassVar[str] = "inverted_attention"

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

    @property
    def maps(self) -> AttentionMaps:
        """Queries, keys and values, and who competes with whom."""
        return AttentionMaps(self.query, self.key_value, self.num_heads, self.across_heads)

    def forward(
        self,
        slots: Float[Tensor, "batch *time slots dim"],
        tokens: Float[Tensor, "batch *time tokens token_dim"] | Memory,
        statistics: State = None,
        *,
        causal: bool = False,
        window: int | None = None,
        time_bias: TimeBias | None = None,
        shares: bool = True,
    ) -> Attended:
        """(updates, assignment, statistics) of `slotbench.ops.inverted_attention`, whose arguments these are."""
        updates, assignment, statistics = inverted_attention(
            slots,
            tokens,
            self.maps,
            self.aggregation,
            statistics,
            causal=causal,
            window=window,
            time_bias=time_bias,
            shares=shares,
            kernel=self.kernel,
        )
        return Attended(self.output(updates), assignment, statistics)

    def frames(
        self, tokens: Float[Tensor, "batch time tokens token_dim"], num_slots: int, num_iterations: int = 1
    ) -> Iterator[Memory]:
        """What the layer reads of each frame on its own, for `num_iterations` calls with `num_slots` each."""
        return read_frames(tokens, self.maps, self.aggregation, num_slots, num_iterations, kernel=self.kernel)

    def memory(
        self, tokens: Float[Tensor, "batch time tokens token_dim"], queries: int, norm: nn.LayerNorm | None = None
    ) -> TokenMemory | KeyValueMemory:
        """What the layer reads of all steps, by `slotbench.ops.inverted_attention.read_tokens`."""
        return read_tokens(tokens, self.maps, self.aggregation, queries, norm=norm, kernel=self.kernel)

    def prefer_cumulative(self, num_tokens: int) -> bool:
        """Whether to call `cumulative`, by the tokens of a step, of which all calls for a clip have the same."""
        large = self.kernel != "auto" or num_tokens * self.key_value.in_features >= FEWEST_NUMBERS
        return large and self.kernel != "reference" and supports_cumulative(self.maps, self.aggregation)

    def cumulative(
        self,
        slots: Float[Tensor, "batch slots dim"],
        memory: TokenMemory,
        earlier: StepSums | None = None,
        *,
        window: int | None = None,
        shares: bool = True,
    ) -> tuple[Float[Tensor, "batch time slots dim"], Float[Tensor, "batch time slots tokens"] | None, StepSums]:
        """`slotbench.ops.inverted_attention.cumulative_attention`, for slots that are the same at all steps."""
        updates, assignment, kept = cumulative_attention(
            slots, memory, self.maps, self.aggregation, earlier, window=window, shares=shares, kernel=self.kernel
        )
        return self.output(updates), assignment, kept
