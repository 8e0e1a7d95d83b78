"""Transformer: one vector per step, and causal attention over the steps."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from slotbench.interfaces import CoreOutput, SlotSpec, TemporalCore, TokenSpec
from slotbench.nn.causal_transformer import CausalTransformer, CausalTransformerState
from slotbench.nn.slot_encoder import SlotEncoder


class Transformer(TemporalCore):
    """A causal transformer over steps, each read into one vector by one learned query.

    `SlotTransformer` without slots: the same encoder and the same layers on a sequence of one token per step, so that
    at equal `dim` it has the same weights but for `num_slots` - 1 queries. What `window` and `random_offset` mean for a
    long roll-out: see there.

    Source: SlotSSM (Jiang et al., NeurIPS 2024), section 7.1, "Transformer". Its width is not given there.

    Args:
        token_spec: what the encoder hands over.
        dim: width of the vector of a step, an even number.
        num_layers: layers of attention and MLP.
        num_heads: heads of every attention.
        encoder_layers: self-cross layers of the encoder.
        mlp_ratio: hidden width of the MLPs in units of `dim`.
        window: steps that a step sees in a layer, its own included; None for all of them.
        random_offset: highest step index that a training clip may begin at; each begins at one drawn uniformly.

    Raises:
        ValueError: no layers, a `dim` that is odd or that `num_heads` does not divide, `window` below 1, or
            `random_offset` below 0.
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
        super().__init__()
        self.slot_spec = SlotSpec(num_slots=1, dim=dim)
        self.encoder = SlotEncoder(token_spec.dim, 1, dim, encoder_layers, num_heads, mlp_ratio)
        self.transformer = CausalTransformer(dim, num_layers, num_heads, mlp_ratio, window, random_offset)

    def forward(
        self, tokens: Float[Tensor, "batch time tokens dim"], state: CausalTransformerState | None = None
    ) -> CoreOutput:
        """One slot after every step, where it looked, and each layer's cache with the index of the next step."""
        batch, time = tokens.shape[:2]
        slot, attention = self.encoder(tokens.flatten(0, 1))
        slot, state = self.transformer(slot.unflatten(0, (batch, time)), state)
        return CoreOutput(
            slots=slot, attention=attention.unflatten(0, (batch, time)), state=state, attention_kind="reading"
        )
