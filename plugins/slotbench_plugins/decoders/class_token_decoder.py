"""Class-token decoder: a small transformer over the slots of a step, read out by one learned token."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import Decoded, Decoder, SlotSpec, VideoBatch, VideoSpec
from slotbench.nn.attention import SlotMixer
from slotbench.nn.linear import xavier_linear


class ClassTokenDecoder(Decoder):
    """A learned token and the slots attend to each other; a linear map of the token gives the logits.

    The logits are those of a frame of one pixel, the label of a clip. Of a larger target every pixel gets its own from
    the same token. There is no position, so slots may come in any order.

    Source: SlotSSM, section 7.4 (CATER): one CLS token, a transformer and a linear layer; its sizes are not stated.

    Args:
        slot_spec: the output of the core.
        video_spec: the target: classes, and 1 x 1 pixels for a label.
        dim: width of the transformer; that of the slots if None.
        num_layers: layers of attention and MLP.
        num_heads: heads of the attention, which must divide `dim`.
        mlp_ratio: hidden width of the MLPs in units of `dim`.
    """

    def __init__(
        self,
        slot_spec: SlotSpec,
        video_spec: VideoSpec,
        dim: int | None = None,
        num_layers: int = 2,
        num_heads: int = 4,
        mlp_ratio: int = 2,
    ):
        super().__init__()
        dim = slot_spec.dim if dim is None else dim
        self.video_spec = video_spec
        self.slots = nn.Identity() if dim == slot_spec.dim else xavier_linear(slot_spec.dim, dim)
        self.token = nn.Parameter(torch.randn(dim) * dim**-0.5)
        self.layers = nn.ModuleList(SlotMixer(dim, num_heads, mlp_ratio) for _ in range(num_layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, video_spec.channels * video_spec.height * video_spec.width)

    def forward(self, slots: Float[Tensor, "batch time slots dim"], batch: VideoBatch | None = None) -> Decoded:
        """Logits of every step; `batch` is not read."""
        context = self.slots(slots).flatten(0, 1)
        tokens = torch.cat([self.token.to(context.dtype).expand(len(context), 1, -1), context], dim=1)
        for layer in self.layers:
            tokens = layer(tokens)
        logits = self.head(self.norm(tokens[:, 0]))
        spec = self.video_spec
        return Decoded(logits.view(*slots.shape[:2], spec.channels, spec.height, spec.width))
