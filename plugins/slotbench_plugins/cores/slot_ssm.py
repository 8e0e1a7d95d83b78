"""Slot state space model: one selective SSM per slot, shared weights, slots mixed after every layer."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import CoreOutput, SlotSpec, TemporalCore, TokenSpec
from slotbench.nn.slot_encoder import SlotEncoder
from slotbench.nn.slot_ssm_layer import MixerName, SlotSSMStack, SSMName, SSMState, slot_mixers, ssm_blocks


class SlotSSM(TemporalCore):
    """Slots that each carry their own state through time under shared weights, and attend to one another within a step.

    A slot encoder turns the tokens of a step into slots; each layer then runs an SSM block per slot and mixes the
    slots. Where `num_slots` changes from one layer to the next, another slot encoder reads the slots of the layer below
    into the new number; the tokens themselves are seen by the first layer only.

    `CoreOutput.attention` is the last cross-attention of the first layer's encoder. It is None where the number of
    slots changes, because the slots that come out are then not the ones that looked at the tokens.

    Source: Jiang, Deng, Singh, Lee, Ahn, "Slot State Space Models", NeurIPS 2024, Eq 3-13. The number of layers is
    not stated there.

    Args:
        num_slots: slots, or one number per layer.
        dim: width of a slot.
        num_layers: SSM layers.
        num_heads: heads of every attention.
        encoder_layers: self-cross layers of a slot encoder.
        mlp_ratio: hidden width of the MLPs in units of `dim`.
        ssm: the block that carries a sequence through time, "mamba" or "mamba2".
        state_dim: SSM state per channel.
        expand: inner width of the SSM block in units of `dim`.
        conv_width: steps that the SSM block's causal convolution sees.
        head_dim: channels that share a decay in Mamba-2; must divide the inner width. Mamba has no heads.
        exact_zoh: discretise the input matrix exactly instead of Mamba's first-order form.
        kernel: which kernel of `slotbench.ops.selective_scan` (of `slotbench.ops.ssd` for Mamba-2) runs the scan.
        mixer: what follows the SSM of every layer: attention over the slots and an MLP on each (as in the paper), the
            attention alone, the MLP alone, or nothing; the last two leave the slots on their own.
    """

    def __init__(
        self,
        token_spec: TokenSpec,
        num_slots: int | list[int] = 8,
        dim: int = 64,
        num_layers: int = 2,
        num_heads: int = 4,
        encoder_layers: int = 3,
        mlp_ratio: int = 4,
        ssm: SSMName = "mamba",
        state_dim: int = 16,
        expand: float = 1.25,
        conv_width: int = 4,
        head_dim: int = 20,
        exact_zoh: bool = False,
        kernel: str = "auto",
        mixer: MixerName = "attention_mlp",
    ):
        super().__init__()
        counts = [num_slots] * num_layers if isinstance(num_slots, int) else list(num_slots)
        if len(counts) != num_layers:
            raise ValueError(
                f"num_slots={counts} names {len(counts)} layers, but num_layers={num_layers}: "
                f"give one number for all layers, or a list of {num_layers}"
            )
        if min(counts) < 1:
            raise ValueError(f"every layer needs at least one slot, got num_slots={counts}")
        self.slot_spec = SlotSpec(num_slots=counts[-1], dim=dim)
        self.encoders = nn.ModuleDict()
        for index, count in enumerate(counts):
            # Layer 0 always has its encoder, even if there happen to be as many tokens as slots.
            if index == 0 or count != counts[index - 1]:
                context_dim = token_spec.dim if index == 0 else dim
                self.encoders[str(index)] = SlotEncoder(context_dim, count, dim, encoder_layers, num_heads, mlp_ratio)
        self.layers = SlotSSMStack(
            dim,
            num_layers,
            ssm_blocks(ssm, state_dim, expand, conv_width, head_dim, exact_zoh, kernel),
            slot_mixers(mixer, num_heads, mlp_ratio),
        )

    def forward(
        self, tokens: Float[Tensor, "batch time tokens dim"], state: tuple[SSMState, ...] | None = None
    ) -> CoreOutput:
        """Slots after every step, and one state of the SSM per layer with leaves "batch slots ..."."""
        x, attention, states = tokens, None, []
        for index, layer in enumerate(self.layers):
            if str(index) in self.encoders:
                x, weights = self.encoders[str(index)](x)
                # Only the first layer's slots look at the tokens.
                attention = weights if index == 0 else None
            x, layer_state = layer(x, None if state is None else state[index])
            states.append(layer_state)
        return CoreOutput(slots=x, attention=attention, state=tuple(states), attention_kind="reading")

    def slot_parameters(self) -> dict[str, int]:
        """The learned queries of the last encoder: everything after it treats all slots alike."""
        last = list(self.encoders)[-1]
        return {f"encoders.{last}.queries": 0}
