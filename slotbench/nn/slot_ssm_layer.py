"""Layers of a slot state space model: each slot through time on its own, then all slots of a step together."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from slotbench.nn.mamba import MambaBlock, MambaState
from slotbench.nn.slot_mixer import SlotMixer

__all__ = ["SlotSSMLayer", "SlotSSMStack"]


class SlotSSMLayer(nn.Module):
    """Every slot runs through time on its own with the same Mamba block; then the slots of each step are mixed.

    Source: SlotSSM, Eq 3-5 and 9-10.

    Args:
        dim: width of a slot.
        ssm: the Mamba block.
        mixer: what lets slots exchange information within a step.
    """

    def __init__(self, dim: int, ssm: MambaBlock, mixer: nn.Module):
        super().__init__()
        self.ssm_norm = nn.LayerNorm(dim)
        self.ssm = ssm
        self.mixer = mixer

    def forward(
        self, slots: Float[Tensor, "batch time slots dim"], state: MambaState | None = None
    ) -> tuple[Float[Tensor, "batch time slots dim"], MambaState]:
        """(slots, state); the leaves of the state are "batch slots ..."."""
        batch, time, num_slots, _ = slots.shape
        # One sequence per slot: the block-diagonal transition of Eq 3-5 is K independent scans.
        sequences = self.ssm_norm(slots).transpose(1, 2).flatten(0, 1)
        folded = None if state is None else MambaState(*(leaf.flatten(0, 1) for leaf in state))
        change, folded = self.ssm(sequences, folded)
        slots = slots + change.unflatten(0, (batch, num_slots)).transpose(1, 2)
        mixed = self.mixer(slots.flatten(0, 1)).unflatten(0, (batch, time))
        return mixed, MambaState(*(leaf.unflatten(0, (batch, num_slots)) for leaf in folded))


class SlotSSMStack(nn.ModuleList):
    """Layers of one width, one after the other, each with its own Mamba block and slot mixer.

    With one slot it is the single-state model: a mixer's attention over one slot is a map of its value.

    Source: SlotSSM, Eq 11-13 for a constant number of slots, and section 7.1 for one slot.

    Args:
        dim: width of a slot.
        num_layers: layers, at least one.
        num_heads: heads of the mixers' attention.
        mlp_ratio: hidden width of the mixers' MLPs in units of `dim`.
        state_dim: SSM state per channel.
        expand: inner width of a Mamba block in units of `dim`.
        conv_width: steps that a Mamba block's causal convolution sees.
        exact_zoh: discretise the input matrix exactly instead of Mamba's first-order form.
        kernel: which kernel of `slotbench.ops.selective_scan` runs the scan.

    Raises:
        ValueError: `num_layers` below 1, or `num_heads` does not divide `dim`.
    """

    def __init__(
        self,
        dim: int,
        num_layers: int = 2,
        num_heads: int = 4,
        mlp_ratio: int = 4,
        state_dim: int = 16,
        expand: float = 1.25,
        conv_width: int = 4,
        exact_zoh: bool = False,
        kernel: str = "auto",
    ):
        if num_layers < 1:
            raise ValueError(f"num_layers must be at least 1, got {num_layers}")
        super().__init__(
            SlotSSMLayer(
                dim,
                MambaBlock(dim, state_dim, expand, conv_width, exact_zoh=exact_zoh, kernel=kernel),
                SlotMixer(dim, num_heads, mlp_ratio),
            )
            for _ in range(num_layers)
        )

    def forward(
        self, slots: Float[Tensor, "batch time slots dim"], state: tuple[MambaState, ...] | None = None
    ) -> tuple[Float[Tensor, "batch time slots dim"], tuple[MambaState, ...]]:
        """(slots after the last layer, one state per layer with leaves "batch slots ...")."""
        states = []
        for index, layer in enumerate(self):
            slots, layer_state = layer(slots, None if state is None else state[index])
            states.append(layer_state)
        return slots, tuple(states)
