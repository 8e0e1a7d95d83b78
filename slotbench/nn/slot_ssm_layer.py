"""Layers of SlotSSM: a state space model per slot along time, then a mixer among the slots of a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from slotbench.nn.attention import SlotAttentionMixer, SlotMixer
from slotbench.nn.linear import MLP
from slotbench.nn.mamba import MambaBlock, MambaState
from slotbench.nn.mamba2 import Mamba2Block, Mamba2State

__all__ = [
    "MixerName",
    "SSMBlock",
    "SSMName",
    "SSMState",
    "SlotSSMLayer",
    "SlotSSMStack",
    "slot_mixers",
    "ssm_blocks",
]

MixerName = Literal["attention_mlp", "attention", "mlp", "none"]
"""What may follow a layer's SSM: attention over the slots and an MLP on each (the paper's), one of the two, nothing."""

SSMName = Literal["mamba", "mamba2"]
"""The state space models that a layer can carry its slots through time with."""

SSMBlock = MambaBlock | Mamba2Block
"""Either of them."""

SSMState = MambaState | Mamba2State
"""The state of either."""


class SlotSSMLayer(nn.Module):
    """Every slot runs through time on its own with the same SSM block; then the slots of each step are mixed.

    Source: SlotSSM, Eq 3-5 and 9-10.

    Args:
        dim: width of a slot.
        ssm: the block that maps each slot's sequence.
        mixer: what lets slots exchange information within a step.
    """

    def __init__(self, dim: int, ssm: SSMBlock, mixer: nn.Module):
        super().__init__()
        self.ssm_norm = nn.LayerNorm(dim)
        self.ssm = ssm
        self.mixer = mixer

    def forward(
        self, slots: Float[Tensor, "batch time slots dim"], state: SSMState | None = None
    ) -> tuple[Float[Tensor, "batch time slots dim"], SSMState]:
        """(slots, state); the leaves of the state are "batch slots ..."."""
        batch, time, num_slots, _ = slots.shape
        # One sequence per slot: the block-diagonal transition of Eq 3-5 is K independent scans.
        sequences = self.ssm_norm(slots).transpose(1, 2).flatten(0, 1)
        folded = None if state is None else type(state)(*(leaf.flatten(0, 1) for leaf in state))
        change, folded = self.ssm(sequences, folded)
        slots = slots + change.unflatten(0, (batch, num_slots)).transpose(1, 2)
        mixed = self.mixer(slots.flatten(0, 1)).unflatten(0, (batch, time))
        return mixed, type(folded)(*(leaf.unflatten(0, (batch, num_slots)) for leaf in folded))


class SlotMLP(nn.Module):
    """A slot mixer without its attention: an MLP on each slot with a residual, so that slots exchange nothing.

    Args:
        dim: width of a slot.
        mlp_ratio: hidden width of the MLP in units of `dim`.
    """

    def __init__(self, dim: int, mlp_ratio: int = 4):
        super().__init__()
        self.mlp_norm = nn.LayerNorm(dim)
        self.mlp = MLP(dim, mlp_ratio * dim)

    def forward(self, slots: Float[Tensor, "batch slots dim"]) -> Float[Tensor, "batch slots dim"]:
        """Each slot on its own."""
        return slots + self.mlp(self.mlp_norm(slots))


class SlotSSMStack(nn.ModuleList):
    """Layers of one width, one after the other, each with its own SSM block and slot mixer.

    With one slot it is the single-state model: a mixer's attention over one slot is a map of its value.

    Source: SlotSSM, Eq 11-13 for a constant number of slots, and section 7.1 for one slot.

    Args:
        dim: width of a slot.
        num_layers: layers, at least one.
        make_block: makes a layer's SSM block from the width of a slot, such as `ssm_blocks` returns.
        make_mixer: makes what follows it, such as `slot_mixers` returns.
    """

    def __init__(
        self,
        dim: int,
        num_layers: int = 2,
        make_block: Callable[[int], SSMBlock] = MambaBlock,
        make_mixer: Callable[[int], nn.Module] = SlotMixer,
    ):
        if num_layers < 1:
            raise ValueError(f"num_layers must be at least 1, got {num_layers}")
        super().__init__(SlotSSMLayer(dim, make_block(dim), make_mixer(dim)) for _ in range(num_layers))

    def forward(
        self, slots: Float[Tensor, "batch time slots dim"], state: tuple[SSMState, ...] | None = None
    ) -> tuple[Float[Tensor, "batch time slots dim"], tuple[SSMState, ...]]:
        """(slots after the last layer, one state per layer with leaves "batch slots ...")."""
        states = []
        for index, layer in enumerate(self):
            slots, layer_state = layer(slots, None if state is None else state[index])
            states.append(layer_state)
        return slots, tuple(states)


def ssm_blocks(
    ssm: SSMName,
    state_dim: int = 16,
    expand: float = 1.25,
    conv_width: int = 4,
    head_dim: int = 20,
    exact_zoh: bool = False,
    kernel: str = "auto",
) -> Callable[[int], SSMBlock]:
    """A factory of SSM blocks from their width: of `MambaBlock`, which has no heads, or of `Mamba2Block`."""
    if ssm == "mamba":
        return lambda dim: MambaBlock(dim, state_dim, expand, conv_width, exact_zoh=exact_zoh, kernel=kernel)
    if ssm == "mamba2":
        return lambda dim: Mamba2Block(dim, state_dim, expand, conv_width, head_dim, exact_zoh=exact_zoh, kernel=kernel)
    raise ValueError(f"no state space model is named '{ssm}': use 'mamba' or 'mamba2'")


def slot_mixers(mixer: MixerName, num_heads: int = 4, mlp_ratio: int = 4) -> Callable[[int], nn.Module]:
    """A factory of slot mixers from the width of a slot."""
    if mixer == "attention_mlp":
        return lambda dim: SlotMixer(dim, num_heads, mlp_ratio)
    if mixer == "attention":
        return lambda dim: SlotAttentionMixer(dim, num_heads)
    if mixer == "mlp":
        return lambda dim: SlotMLP(dim, mlp_ratio)
    if mixer == "none":
        return nn.Identity
    raise ValueError(f"mixer={mixer!r} is none of attention_mlp, attention, mlp, none")
