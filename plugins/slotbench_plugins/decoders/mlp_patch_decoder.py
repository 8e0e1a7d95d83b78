"""MLP patch decoder: slots to the cells of a feature map, or to patches of pixels, each cell on its own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.interfaces import Decoded, Decoder, SlotSpec, VideoBatch, VideoSpec
from slotbench.nn.parameters import without_decay


class MLPPatchDecoder(Decoder):
    """An MLP of slot plus position gives the content of every cell and its mask logit; slots are mixed by softmax.

    The position table is learned, begins with normal noise, and is shared by the slots. The MLP has
    ReLUs; its output is the content of the cell, `patch_size` x `patch_size` pixels of it, and a mask logit for each of
    them. A softmax of the logits over the slots, in float32, gives the masks, and the reconstruction is the sum of the
    contents in their proportion. The number of slots is free.

    The contents are by far the largest thing here (1.7 GB for 64 frames of 28 x 28 x 768 features and 11 slots). They
    are made once, cells before slots, so that with `patch_size` 1 `components` is a view of them and the mixture a
    product of matrices that copies nothing.

    Source: Krimmel et al., TMLR 2024, Appendix F, Table 5 and Eq 41, after DINOSAUR (Seitzer et al., ICLR 2023), with
    hidden_dim=1024 on 28 x 28 features. Patches of pixels instead of features are ours: hidden_dim=64 and patch_size=4
    make a decoder for small videos that costs little.

    Args:
        slot_spec: the output of the core.
        video_spec: the image or the features to produce.
        hidden_dim: width of the hidden layers.
        num_hidden: hidden layers.
        patch_size: side of a cell in pixels; it must divide the height and the width.
        position_std: deviation of the noise that positions begin with; in VideoSAUR's code, which is this decoder with
            `hidden_dim=1024`, it is one over the root of a slot's width.
    """

    def __init__(
        self,
        slot_spec: SlotSpec,
        video_spec: VideoSpec,
        hidden_dim: int = 64,
        num_hidden: int = 3,
        patch_size: int = 1,
        position_std: float = 1.0,
    ):
        super().__init__()
        if patch_size < 1 or video_spec.height % patch_size or video_spec.width % patch_size:
            raise ValueError(
                f"patches of {patch_size} x {patch_size} pixels do not tile an image of {video_spec.height} x "
                f"{video_spec.width}: choose a patch_size that divides both"
            )
        self.grid = (video_spec.height // patch_size, video_spec.width // patch_size)
        self.patch_size = patch_size
        self.positions = without_decay(
            nn.Parameter(position_std * torch.randn(self.grid[0] * self.grid[1], slot_spec.dim))
        )
        self.first = nn.Linear(slot_spec.dim, hidden_dim)
        layers = [nn.Linear(hidden_dim, hidden_dim) for _ in range(num_hidden - 1)]
        self.hidden: Sequence[nn.Linear] = nn.ModuleList(layers)  # type: ignore[assignment]
        self.sizes = (patch_size**2 * video_spec.channels, patch_size**2)
        self.head = nn.Linear(hidden_dim, sum(self.sizes))

    def forward(self, slots: Float[Tensor, "batch time slots dim"], batch: VideoBatch | None = None) -> Decoded:
        """The cells of every step; `batch` is not read."""
        # the first layer is linear, so slots and cells go through it before there is one of them per pair
        cells = F.linear(self.positions, self.first.weight, self.first.bias)
        x = F.relu_(cells[:, None] + F.linear(slots.flatten(0, 1), self.first.weight)[:, None])
        pairs = x.shape[:-1]
        # as a matrix: a linear layer's output would otherwise be a view, and a ReLU in place costs a view dear
        x = x.flatten(0, -2)
        for layer in self.hidden:
            x = F.relu_(layer(x))
        # one head and a split: the backward pass of two heads holds two gradients of the last hidden layer
        content, logits = self.head(x).unflatten(0, pairs).split(self.sizes, dim=-1)
        masks = logits.softmax(dim=2, dtype=torch.promote_types(logits.dtype, torch.float32))
        content = content.unflatten(-1, (self.patch_size**2, -1))
        mixture = torch.einsum("fnsp,fnspc->fnpc", masks.to(content.dtype), content)
        return Decoded(
            reconstruction=self._arrange(mixture[:, :, None], slots.shape[1])[:, :, 0],
            masks=self._arrange(masks[..., None], slots.shape[1])[:, :, :, 0],
            components=self._arrange(content, slots.shape[1]),
        )

    def _arrange(
        self, cells: Float[Tensor, "frames cells slots pixels channels"], time: int
    ) -> Float[Tensor, "batch time slots channels height width"]:
        return rearrange(
            cells,
            "(batch time) (row col) slots (y x) channels -> batch time slots channels (row y) (col x)",
            time=time,
            row=self.grid[0],
            y=self.patch_size,
        )
