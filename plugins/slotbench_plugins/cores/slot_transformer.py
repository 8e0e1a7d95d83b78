"""SlotTransformer: block-causal attention among the slots of all steps so far."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from slotbench.interfaces import CoreOutput, SlotSpec, TemporalCore, TokenSpec
from slotbench.nn.causal_transformer import CausalTransformer, CausalTransformerState
from slotbench.nn.slot_encoder import SlotEncoder


class SlotTransformer(TemporalCore):
    """Slots that attend to all slots of their own step and of every earlier one.

    A slot encoder turns the tokens of a step into slots, the step's index is added to them as sines and cosines, and
    pre-norm layers of block-causal attention and an MLP follow. There is no separate mixer: a layer mixes steps and
    slots at once. `CoreOutput.attention` is the last cross-attention of the encoder.

    Work and memory grow with the square of the clip's length; streaming, a step costs what the cache of keys and values
    holds. Without a `window` that is every step so far, so a roll-out slows down, and past the length of the
    training clips the layers look across distances that they were never trained on. With a `window` of at most the
    training length the cost of a step is bounded and no layer ever looks further back than `window` - 1 steps, however
    long the roll-out; what is older reaches the present only through the layers in between, `window` - 1 steps per
    layer. The step index itself keeps growing either way: `random_offset` of at least the number of steps by which
    a roll-out is longer than the training clips lets training meet every index of it.

    Source: Jiang, Deng, Singh, Lee, Ahn, "Slot State Space Models", NeurIPS 2024, Eq 33-34. The position of a step
    and the window are not given there.

    Args:
        num_slots: slots.
        dim: width of a slot, an even number.
        num_layers: layers of attention and MLP.
        num_heads: heads of every attention.
        encoder_layers: self-cross layers of the slot encoder.
        mlp_ratio: hidden width of the MLPs in units of `dim`.
        window: steps that a slot sees in a layer, its own included; None for all of them.
        random_offset: highest step index that a training clip may begin at; each begins at one drawn uniformly.
    """

    def __init__(
        self,
        token_spec: TokenSpec,
        num_slots: int = 8,
        dim: int = 64,
        num_layers: int = 2,
        num_heads: int = 4,
        encoder_layers: int = 3,
        mlp_ratio: int = 4,
        window: int | None = None,
        random_offset: int = 0,
    ):
        super().__init__()
        self.slot_spec = SlotSpec(num_slots=num_slots, dim=dim)
        self.encoder = SlotEncoder(token_spec.dim, num_slots, dim, encoder_layers, num_heads, mlp_ratio)
        self.transformer = CausalTransformer(dim, num_layers, num_heads, mlp_ratio, window, random_offset)

    def forward(
        self, tokens: Float[Tensor, "batch time tokens dim"], state: CausalTransformerState | None = None
    ) -> CoreOutput:
        """Slots after every step, where they looked, and the cache of every layer with the index of the next step."""
        slots, attention = self.encoder(tokens)
        slots, state = self.transformer(slots, state)
        return CoreOutput(slots, attention, state, "reading")

    def slot_parameters(self) -> dict[str, int] | None:
        """The encoder's learned queries: everything after it treats all slots alike."""
        return {"encoder.queries": 0}
