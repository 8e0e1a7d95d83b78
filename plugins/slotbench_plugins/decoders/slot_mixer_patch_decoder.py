"""Slot mixer decoder of features: a cell chooses among the slots, and an MLP makes its content of their mean."""

from __future__ import annotations

from itertools import pairwise

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import Decoded, Decoder, SlotSpec, VideoBatch, VideoSpec
from slotbench.nn.linear import xavier_linear
from slotbench.nn.parameters import without_decay
from slotbench.nn.slot_predictor import PreNormBlock


class SlotMixerPatchDecoder(Decoder):
    """Each cell of a feature map attends to the slots, which are mixed by one set of weights, and an MLP decodes that.

    A learned position per cell goes through layers of cross-attention to the slots and MLP, without attention among
    cells. Its product with each slot gives the weights, a softmax over slots; they are the masks. The mean of the slots
    plus the position goes through the MLP. So one content is made per cell, not one per cell and slot as in
    `MLPPatchDecoder`, and there are no `components`. The number of slots is free.

    The authors' code multiplies the logits of the layers' attention by the root of a head's width, where it is divided
    everywhere else; with `sharp_attention` so does this.

    Source: VideoSAUR (Zadaianchuk et al., NeurIPS 2023), after OSRT (Sajjadi et al., NeurIPS 2022); martius-lab/
    videosaur, `modules/decoders.py`, with `use_layer_norms`, `pos_embed_mode: add` and a final ReLU of the renderer.
    `hidden_dim` is 1024 there; `num_layers` is 2 and `num_hidden` 4 on MOVi, 3 and 3 on YouTube-VIS.

    Args:
        slot_spec: the output of the core.
        video_spec: the features to produce.
        num_layers: layers of cross-attention.
        num_heads: their heads.
        mlp_ratio: hidden width of their MLPs in units of a slot's.
        hidden_dim: width of the hidden layers of the MLP that decodes.
        num_hidden: these layers.
        sharp_attention: multiply the logits of the layers by the root of a head's width, in place of dividing.
    """

    def __init__(
        self,
        slot_spec: SlotSpec,
        video_spec: VideoSpec,
        num_layers: int = 2,
        num_heads: int = 4,
        mlp_ratio: int = 4,
        hidden_dim: int = 64,
        num_hidden: int = 4,
        sharp_attention: bool = False,
    ):
        super().__init__()
        dim = slot_spec.dim
        self.grid = (video_spec.height, video_spec.width)
        cells = video_spec.height * video_spec.width
        self.positions = without_decay(nn.Parameter(torch.randn(cells, dim) * dim**-0.5))
        self.memory_norm = nn.LayerNorm(dim)
        self.layers = nn.ModuleList(PreNormBlock(dim, num_heads, mlp_ratio, sharp_attention) for _ in range(num_layers))
        self.choice = nn.Sequential(nn.LayerNorm(dim), xavier_linear(dim, dim, bias=False))
        self.key = nn.Sequential(nn.LayerNorm(dim), xavier_linear(dim, dim, bias=False))
        widths = [dim, *[hidden_dim] * num_hidden]
        hidden = [nn.Linear(*pair) for pair in pairwise(widths)]
        for linear in hidden:
            nn.init.zeros_(linear.bias)
        self.mlp = nn.Sequential(*(layer for linear in hidden for layer in (linear, nn.ReLU())))
        self.head = xavier_linear(widths[-1], video_spec.channels)
        for mlp in (part for part in self.layers.modules() if isinstance(part, nn.Sequential)):
            for linear in (part for part in mlp if isinstance(part, nn.Linear)):
                linear.reset_parameters()  # the MLPs of PyTorch's layer stay as it makes them

    def forward(self, slots: Float[Tensor, "batch time slots dim"], batch: VideoBatch | None = None) -> Decoded:
        """The cells of every step; `batch` is not read."""
        given = slots.flatten(0, 1)
        memory, x = self.memory_norm(given), self.positions[None]
        for layer in self.layers:
            x = layer(x, memory)
        logits = self.choice(x) @ self.key(given).mT * given.shape[-1] ** -0.5
        weights = logits.softmax(dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
        content = self.head(self.mlp(weights.to(given.dtype) @ given + self.positions))
        return Decoded(self._laid_out(content, slots.shape[1]), self._laid_out(weights, slots.shape[1]))

    def _laid_out(self, cells: Float[Tensor, "frames cells values"], time: int) -> Tensor:
        return rearrange(cells, "(b t) (row col) values -> b t values row col", t=time, row=self.grid[0])
