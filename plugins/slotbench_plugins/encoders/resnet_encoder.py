"""ResNet encoder: frames to the cells of a smaller grid, by convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.interfaces import Encoder, TokenSpec, VideoBatch, VideoSpec
from slotbench.nn.action_embedding import ActionEmbedding, hide_steps
from slotbench.nn.grid import to_tokens
from slotbench.nn.resnet_blocks import ResNetBlock, frame_conv


class ResNetEncoder(Encoder):
    """Residual blocks with average pooling between levels; the cells that remain are the tokens, row by row.

    Frames enter as 2x - 1, in [-1, 1], and vectors of codes as they are (`rescale`). The first level has one block
    whatever `blocks` is, as in the authors' code. Nothing tells a token its place or its time: the cells keep their
    order, for cores that convolve over them. The cells of a hidden frame are -2, beside the embedding of its action.

    Source: Smith et al., "Convolutional State Space Models for Long-Range Spatiotemporal Modeling", NeurIPS 2023,
    Appendix D and its code; the paper's Moving-MNIST models have depths (64, 128, 256) and action_dim 1.

    Args:
        video_spec: one step of the input.
        depths: channels of every level; each level after the first has half the rows and columns.
        blocks: residual blocks of every level but the first.
        action_dim: channels of an embedding of the step's action that every cell is given beside its own; 0 for none.
            `VideoBatch.actions[t]` leads from frame t to frame t + 1. Data without actions gets one learned vector.
        rescale: take frames in [0, 1] as 2x - 1; False for maps of other numbers, such as vectors of codes.
    """

    hides_frames: ClassVar[bool] = True

    def __init__(
        self,
        video_spec: VideoSpec,
        depths: tuple[int, ...] = (16, 32, 64),
        blocks: int = 1,
        action_dim: int = 0,
        rescale: bool = True,
    ):
        super().__init__()
        factor = 2 ** (len(depths) - 1)
        if video_spec.height % factor or video_spec.width % factor:
            raise ValueError(
                f"{len(depths)} depths make a frame {factor} times smaller, and {video_spec.height} x "
                f"{video_spec.width} pixels are no multiple of that: give fewer depths, or choose another resolution"
            )
        grid = (video_spec.height // factor, video_spec.width // factor)
        self.token_spec = TokenSpec(depths[-1] + action_dim, grid[0] * grid[1], grid)
        self.rescale = rescale
        self.conv = frame_conv(video_spec.channels, depths[0])
        stack, self._starts_level = [ResNetBlock(depths[0], depths[0])], [False]
        for below, depth in pairwise(depths):
            stack += [ResNetBlock(depth if i else below, depth) for i in range(blocks)]
            self._starts_level += [i == 0 for i in range(blocks)]
        self.blocks: Sequence[ResNetBlock] = nn.ModuleList(stack)  # type: ignore[assignment]
        self.actions = None
        if action_dim:
            self.actions = ActionEmbedding(video_spec.num_actions, action_dim, video_spec.vector_actions)

    def forward(self, batch: VideoBatch) -> Float[Tensor, "batch time tokens dim"]:
        """Tokens of every step: the cells of the last level, then the action's embedding."""
        count = len(batch)
        images = self.conv((2 * batch.pixels - 1 if self.rescale else batch.pixels).flatten(0, 1))
        # after the convolution, because a frame of one channel has no layout that tells it channels-last
        images = images.contiguous(memory_format=torch.channels_last)
        for block, starts_level in zip(self.blocks, self._starts_level, strict=True):
            images = block(F.avg_pool2d(images, 2) if starts_level else images)
        tokens = hide_steps(to_tokens(images, count), batch.hidden)
        return tokens if self.actions is None else self.actions.beside(tokens, batch.actions)
