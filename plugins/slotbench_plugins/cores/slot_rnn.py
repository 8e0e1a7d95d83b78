"""Slots in one shared GRU, mixed by self-attention between the steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import RecurrentCore, SlotSpec, TokenSpec
from slotbench.nn.attention import SelfAttention, SlotMixer
from slotbench.nn.gru import SharedGRU
from slotbench.nn.slot_encoder import SlotEncoder

MixerNorm = Literal["after", "before", "none"]

SlotRNNState = tuple[Float[Tensor, "batch slots dim"], ...]


class SlotRNNInputs(NamedTuple):
    """What the steps of a `SlotRNN` read, computed for all of them at once.

    Attributes:
        gates: input half of the first layer's gates.
        attention: where in the tokens the slots looked.
    """

    gates: Float[Tensor, "batch *time slots gates"]
    attention: Float[Tensor, "batch *time slots tokens"]


class AttentionMixer(nn.Module):
    """Self-attention over a set of slots with a residual, and a LayerNorm after it, before it, or nowhere.

    The result is fed back, so that the norm decides what becomes of the state in a long clip. A norm after it blows the
    state up to unit size at every step, what all slots have in common first, so that the slots become alike. Without
    one, or with one before the attention alone, every step adds to the state: slots stay further apart, gates saturate,
    and without any norm the state can grow without end. "after" learns faster (docs/benchmarks.md).

    Source: SlotSSM, Eq 31; residual and LayerNorm are our choice.

    Args:
        dim: width of a slot.
        num_heads: heads, which must divide `dim`.
        norm: where the LayerNorm is: "after" the residual, "before" the attention, or "none".
    """

    def __init__(self, dim: int, num_heads: int, norm: MixerNorm = "after"):
        super().__init__()
        self.attention = SelfAttention(dim, num_heads)
        self.norm = nn.Identity() if norm == "none" else nn.LayerNorm(dim)
        self.norm_is_last = norm == "after"

    def forward(self, slots: Float[Tensor, "batch slots dim"]) -> Float[Tensor, "batch slots dim"]:
        """Each set of slots on its own."""
        if self.norm_is_last:
            return self.norm(slots + self.attention(slots))
        return slots + self.attention(self.norm(slots))


class SlotRNNLayer(nn.Module):
    """One step of every slot through the same GRU, then the slots are mixed; the mixed slots are the next state.

    Source: SlotSSM, Eq 30-32.

    Args:
        dim: width of a slot.
        mixer: what lets slots exchange information within a step.
    """

    def __init__(self, dim: int, mixer: nn.Module):
        super().__init__()
        self.gru = SharedGRU(dim, dim)
        self.mixer = mixer

    def forward(
        self, gates: Float[Tensor, "batch slots gates"], state: Float[Tensor, "batch slots dim"]
    ) -> Float[Tensor, "batch slots dim"]:
        """The state after the step, which is the output too; `gates` is `gru.input_gates` of the step's input."""
        return self.mixer(self.gru(gates, state))


class SlotRNN(RecurrentCore):
    """Slots that each run through a GRU with shared weights, and attend to one another between the steps.

    A slot encoder turns the tokens of a step into slots, for all steps in parallel. Since the mixed slots are what the
    next step starts from, the rest is one step after the other. A layer above the first reads the mixed slots of the
    layer below. Every clip starts from zeros, so only the encoder's learned queries tell the slots apart.

    Source: Jiang, Deng, Singh, Lee, Ahn, "Slot State Space Models", NeurIPS 2024, Eq 29-32. The initial state and the
    number of layers are not stated there.

    Args:
        num_slots: slots.
        dim: width of a slot.
        num_layers: GRU layers.
        num_heads: heads of every attention.
        encoder_layers: self-cross layers of the slot encoder.
        mlp_ratio: hidden width of the MLPs in units of `dim`.
        mixer: what follows the GRU: self-attention alone (as in the paper), self-attention and an MLP (as in SlotSSM),
            or nothing, which leaves the slots on their own.
        mixer_norm: where the mixer's LayerNorm is: "after" its residual, so that every state is of unit size, "before"
            its attention, or "none". The norms within "attention_mlp" stay, and "before" is the same as "none" there.
    """

    attention_kind = "reading"

    def __init__(
        self,
        token_spec: TokenSpec,
        num_slots: int = 8,
        dim: int = 64,
        num_layers: int = 2,
        num_heads: int = 4,
        encoder_layers: int = 3,
        mlp_ratio: int = 4,
        mixer: Literal["attention", "attention_mlp", "none"] = "attention",
        mixer_norm: MixerNorm = "after",
    ):
        super().__init__()
        mixers = {
            "attention": lambda: AttentionMixer(dim, num_heads, mixer_norm),
            "attention_mlp": lambda: nn.Sequential(
                SlotMixer(dim, num_heads, mlp_ratio), nn.LayerNorm(dim) if mixer_norm == "after" else nn.Identity()
            ),
            "none": nn.Identity,
        }
        self.slot_spec = SlotSpec(num_slots, dim)
        self.encoder = SlotEncoder(token_spec.dim, num_slots, dim, encoder_layers, num_heads, mlp_ratio)
        layers = nn.ModuleList(SlotRNNLayer(dim, mixers[mixer]()) for _ in range(num_layers))
        self.layers: Sequence[SlotRNNLayer] = layers  # type: ignore[assignment]

    def initial_state(self, tokens: Float[Tensor, "batch tokens token_dim"]) -> SlotRNNState:
        """Zeros for every layer, in the precision of the weights."""
        zeros = self.encoder.queries.new_zeros(tokens.shape[0], self.slot_spec.num_slots, self.slot_spec.dim)
        return (zeros,) * len(self.layers)

    def per_step(self, tokens: Float[Tensor, "batch time tokens token_dim"]) -> SlotRNNInputs:
        """Encodes the steps into slots and projects these onto the first layer's gates."""
        slots, attention = self.encoder(tokens)
        return SlotRNNInputs(self.layers[0].gru.input_gates(slots), attention)

    def cell(
        self, inputs: SlotRNNInputs, state: SlotRNNState
    ) -> tuple[Float[Tensor, "batch slots dim"], Float[Tensor, "batch slots tokens"], SlotRNNState]:
        """One step of all layers: (slots of the last layer, attention of the encoder, state)."""
        gates = inputs.gates
        after: list[Tensor] = []
        for index, (layer, hidden) in enumerate(zip(self.layers, state, strict=True)):
            if index > 0:
                gates = layer.gru.input_gates(after[-1])
            after.append(layer(gates, hidden))
        return after[-1], inputs.attention, tuple(after)

    def slot_parameters(self) -> dict[str, int]:
        """The learned queries of the encoder: everything after it treats all slots alike."""
        return {"encoder.queries": 0}
