"""The predictor of SAVi."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from slotbench.nn.slot_attention import check_epsilon, relu_mlp
from slotbench.nn.temporal_attention import TemporalAttention

__all__ = ["SlotPredictor"]


class SlotPredictor(nn.Module):
    """A transformer block over the slots of a frame, whose output is where the slots of the next frame start from.

    The slots are normalised first, and the residual starts from the normalised ones; a LayerNorm ends the block. With
    it the slots stay of one size, however long the clip.

    Source: SAVi (Kipf et al., 2022), the predictor; the form is that of the public code of STEVE.

    Args:
        dim: width of a slot.
        num_heads: heads of the attention.
        mlp_ratio: hidden width of the MLP in units of `dim`.
        norm_eps: added to the variance in the LayerNorms.
    """

    def __init__(self, dim: int, num_heads: int = 4, mlp_ratio: int = 4, norm_eps: float = 1e-5):
        super().__init__()
        check_epsilon(norm_eps)
        self.input_norm = nn.LayerNorm(dim, norm_eps)
        self.attention = TemporalAttention(dim, num_heads, bias=False)
        self.mlp = nn.Sequential(nn.LayerNorm(dim, norm_eps), *relu_mlp(dim, mlp_ratio))
        self.output_norm = nn.LayerNorm(dim, norm_eps)

    def forward(self, slots: Float[Tensor, "batch slots dim"]) -> Float[Tensor, "batch slots dim"]:
        """Each set of slots on its own."""
        rows = self.input_norm(slots.flatten(0, 1))
        rows = rows + self.attention.within_step(rows.view(slots.shape)).flatten(0, 1)
        return self.output_norm(rows + self.mlp(rows)).view(slots.shape)
