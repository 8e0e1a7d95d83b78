"""The predictor of SAVi, and that of VideoSAUR."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from slotbench.nn.attention import CrossAttention
from slotbench.nn.slot_attention import check_epsilon, relu_mlp
from slotbench.nn.temporal_attention import TemporalAttention

__all__ = ["PreNormBlock", "SlotPredictor"]


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


class PreNormBlock(nn.Module):
    """Attention and an MLP with a ReLU, each after a LayerNorm and with a residual.

    Source: martius-lab/videosaur, `modules/networks.py`, `TransformerEncoder`: the predictor, and with a memory the
    layers of its slot mixer. Its attention multiplies logits by the root of a head's width, where it is divided
    everywhere else: `sharp`.

    Args:
        dim: width.
        num_heads: heads of the attention.
        mlp_ratio: hidden width of the MLP in units of `dim`.
        sharp: multiply logits by the root of a head's width, in place of dividing.
        norm_eps: added to the variance in the LayerNorms.
    """

    def __init__(self, dim: int, num_heads: int, mlp_ratio: int, sharp: bool, norm_eps: float = 1e-5):
        super().__init__()
        self.norm = nn.LayerNorm(dim, norm_eps)
        self.attention = CrossAttention(dim, dim, num_heads)
        self.gain = float(dim // num_heads) if sharp else 1.0
        self.mlp = nn.Sequential(nn.LayerNorm(dim, norm_eps), *relu_mlp(dim, mlp_ratio))

    def forward(
        self, x: Float[Tensor, "#batch queries dim"], memory: Float[Tensor, "batch tokens dim"] | None = None
    ) -> Float[Tensor, "batch queries dim"]:
        """What is read is the memory as it is given; `x` itself, normalised, if there is none."""
        normed = self.norm(x)
        x = x + self.attention(normed, normed if memory is None else memory, self.gain)[0]
        return x + self.mlp(x)
