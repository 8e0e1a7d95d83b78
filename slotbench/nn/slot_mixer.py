"""Lets the slots of one time step exchange what they know."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from slotbench.nn.attention import SelfAttention
from slotbench.nn.mlp import MLP

__all__ = ["SlotAttentionMixer", "SlotMixer"]


class SlotMixer(nn.Module):
    """Self-attention over a set of slots, then an MLP on each, both with a residual and a LayerNorm before it.

    There is neither mask nor position, so permuting the slots permutes the output.

    Source: SlotSSM, Eq 9-10; the width of the MLP is not given there.

    Args:
        dim: width of a slot.
        num_heads: heads of the attention.
        mlp_ratio: hidden width of the MLP in units of `dim`.

    Raises:
        ValueError: `num_heads` does not divide `dim`.
    """

    def __init__(self, dim: int, num_heads: int = 4, mlp_ratio: int = 4):
        super().__init__()
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = SelfAttention(dim, num_heads)
        self.mlp_norm = nn.LayerNorm(dim)
        self.mlp = MLP(dim, mlp_ratio * dim)

    def forward(self, slots: Float[Tensor, "batch slots dim"]) -> Float[Tensor, "batch slots dim"]:
        """Each set of slots on its own."""
        slots = slots + self.attention(self.attention_norm(slots))
        return slots + self.mlp(self.mlp_norm(slots))


class SlotAttentionMixer(nn.Module):
    """A slot mixer without its MLP: self-attention over a set of slots with a residual and a LayerNorm before it.

    Source: SlotSSM's public code, which has no MLP unless told.

    Args:
        dim: width of a slot.
        num_heads: heads of the attention.

    Raises:
        ValueError: `num_heads` does not divide `dim`.
    """

    def __init__(self, dim: int, num_heads: int = 4):
        super().__init__()
        self.attention_norm = nn.LayerNorm(dim)
        self.attention = SelfAttention(dim, num_heads)

    def forward(self, slots: Float[Tensor, "batch slots dim"]) -> Float[Tensor, "batch slots dim"]:
        """Each set of slots on its own."""
        return slots + self.attention(self.attention_norm(slots))
