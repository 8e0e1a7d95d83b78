"""Single-state SSM: one vector per step and one state space model for the whole scene."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from slotbench.interfaces import CoreOutput, SlotSpec, TemporalCore, TokenSpec
from slotbench.nn.slot_encoder import SlotEncoder
from slotbench.nn.slot_ssm_layer import SlotSSMStack, SSMName, SSMState


class SingleStateSSM(TemporalCore):
    """`SlotSSM` with its state in one piece: one learned query reads the tokens, one sequence runs through the layers.

    The mixers stay, so that a layer has the weights of a SlotSSM layer of the same width; their attention over one slot
    is a linear map. At equal `dim` the model has as many weights as `SlotSSM` but `num_slots` - 1 queries, and
    1 / `num_slots` of its state; a fair comparison says which of the two it holds equal, and `dim` is there to match
    either.

    Source: SlotSSM (Jiang et al., NeurIPS 2024), section 7.1, "Single State SSM". Its width is not given there.

    Args:
        token_spec: what the encoder hands over.
        dim: width of the one slot.
        num_layers: SSM layers.
        num_heads: heads of every attention.
        encoder_layers: self-cross layers of the encoder.
        mlp_ratio: hidden width of the MLPs in units of `dim`.
        ssm: the block that carries a sequence through time, "mamba" or "mamba2".
        state_dim: SSM state per channel.
        expand: inner width of the SSM block in units of `dim`.
        conv_width: steps that the SSM block's causal convolution sees.
        head_dim: channels that share a decay in Mamba-2; must divide the inner width. Mamba has no heads.
        exact_zoh: discretise the input matrix exactly instead of Mamba's first-order form.
        kernel: which kernel of `slotbench.ops.selective_scan` (of `slotbench.ops.ssd` for Mamba-2) runs the scan.

    Raises:
        ValueError: no layers, `num_heads` does not divide `dim`, or `head_dim` the inner width of Mamba-2.
    """

    def __init__(
        self,
        token_spec: TokenSpec,
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
    ):
        super().__init__()
        self.slot_spec = SlotSpec(num_slots=1, dim=dim)
        self.encoder = SlotEncoder(token_spec.dim, 1, dim, encoder_layers, num_heads, mlp_ratio)
        self.layers = SlotSSMStack(
            dim, num_layers, num_heads, mlp_ratio, ssm, state_dim, expand, conv_width, head_dim, exact_zoh, kernel
        )

    def forward(
        self, tokens: Float[Tensor, "batch time tokens dim"], state: tuple[SSMState, ...] | None = None
    ) -> CoreOutput:
        """One slot after every step, where it looked, and one state of the SSM per layer with leaves "batch 1 ..."."""
        batch, time = tokens.shape[:2]
        slot, attention = self.encoder(tokens.flatten(0, 1))
        slot, state = self.layers(slot.unflatten(0, (batch, time)), state)
        return CoreOutput(
            slots=slot, attention=attention.unflatten(0, (batch, time)), state=state, attention_kind="reading"
        )
