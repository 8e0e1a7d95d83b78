"""Transformer: one vector per step, and causal attention over the steps."""

from __future__ import annotations

from slotbench.interfaces import TokenSpec
from slotbench_plugins.cores.slot_transformer import SlotTransformer


class Transformer(SlotTransformer):
    """A causal transformer over steps, each read into one vector by one learned query.

    `SlotTransformer` with one slot: at equal `dim` it has the same weights but for `num_slots` - 1 queries. What
    `window` and `random_offset` mean for a long roll-out: see there.

    Source: SlotSSM (Jiang et al., NeurIPS 2024), section 7.1, "Transformer". Its width is not given there.

    Args:
        dim: width of the vector of a step, an even number; the other arguments are those of `SlotTransformer`.
    """

    def __init__(
        self,
        token_spec: TokenSpec,
        dim: int = 64,
        num_layers: int = 2,
        num_heads: int = 4,
        encoder_layers: int = 3,
        mlp_ratio: int = 4,
        window: int | None = None,
        random_offset: int = 0,
    ):
        super().__init__(token_spec, 1, dim, num_layers, num_heads, encoder_layers, mlp_ratio, window, random_offset)

    def slot_parameters(self) -> None:
        """None, since the number of slots is fixed."""
