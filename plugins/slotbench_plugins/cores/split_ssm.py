"""Split single-state SSM: slots come in and go out, but one state space model carries them all through time."""

from __future__ import annotations

from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import CoreOutput, SlotSpec, TemporalCore, TokenSpec
from slotbench.nn.linear import xavier_linear
from slotbench.nn.slot_encoder import SlotEncoder
from slotbench.nn.slot_ssm_layer import SlotSSMStack, SSMName, SSMState, slot_mixers, ssm_blocks


class SplitSSM(TemporalCore):
    """`SlotSSM` between slots that are concatenated before time and split again after it.

    Encoder and decoder see slots as with SlotSSM; in between a step is one vector with one state, so that modularity in
    time is all that is missing. The slots of a step are concatenated once, mapped to `stack_dim`, run through all
    layers, mapped back and split once.

    Every slot that comes out depends on every slot that went in, through weights of its own. So the slots do not follow
    a permutation of the queries, and `CoreOutput.attention` is None where there are several: what a query looked at is
    not what the slot of the same number is about.

    Source: SlotSSM (Jiang et al., NeurIPS 2024), section 7.1, "Single State SSM (Split)". Where to concatenate, how
    wide the stack is and the two linear maps are not given there: plain concatenation would make the layers
    `num_slots` squared times as large.

    Args:
        num_slots: slots that come in, and go out.
        dim: width of a slot.
        stack_dim: width of the layers. 48 makes the model of the default sizes about as large as SlotSSM of the same.
            None leaves the two linear maps out: the layers run on the concatenation, `num_slots * dim` wide.
        num_layers: SSM layers.
        num_heads: heads of every attention.
        encoder_layers: self-cross layers of the encoder.
        mlp_ratio: hidden width of the MLPs in units of the width around them.
        ssm: the block that carries a sequence through time, "mamba" or "mamba2".
        state_dim: SSM state per channel.
        expand: inner width of the SSM block in units of the width of the layers.
        conv_width: steps that the SSM block's causal convolution sees.
        head_dim: channels that share a decay in Mamba-2; must divide the inner width. Mamba has no heads.
        exact_zoh: discretise the input matrix exactly instead of Mamba's first-order form.
        kernel: which kernel of `slotbench.ops.selective_scan` (of `slotbench.ops.ssd` for Mamba-2) runs the scan.
    """

    def __init__(
        self,
        token_spec: TokenSpec,
        num_slots: int = 8,
        dim: int = 64,
        stack_dim: int | None = 48,
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
        self.slot_spec = SlotSpec(num_slots=num_slots, dim=dim)
        self.encoder = SlotEncoder(token_spec.dim, num_slots, dim, encoder_layers, num_heads, mlp_ratio)
        joint_dim = num_slots * dim
        self.join: nn.Module = nn.Identity()
        self.split: nn.Module = nn.Identity()
        if stack_dim is not None:
            self.join = xavier_linear(joint_dim, stack_dim)
            self.split = xavier_linear(stack_dim, joint_dim)
        width = joint_dim if stack_dim is None else stack_dim
        self.layers = SlotSSMStack(
            width,
            num_layers,
            ssm_blocks(ssm, state_dim, expand, conv_width, head_dim, exact_zoh, kernel),
            slot_mixers("attention_mlp", num_heads, mlp_ratio),
        )

    def forward(
        self, tokens: Float[Tensor, "batch time tokens dim"], state: tuple[SSMState, ...] | None = None
    ) -> CoreOutput:
        """Slots after every step, and one state of the SSM per layer with leaves "batch 1 ..."."""
        num_slots = self.slot_spec.num_slots
        slots, attention = self.encoder(tokens)
        joined, state = self.layers(
            self.join(rearrange(slots, "batch time slots dim -> batch time 1 (slots dim)")), state
        )
        slots = rearrange(self.split(joined), "batch time 1 (slots dim) -> batch time slots dim", slots=num_slots)
        return CoreOutput(slots, attention, state, "reading") if num_slots == 1 else CoreOutput(slots, None, state)
