"""Keyed encoder: cells of a memory, each times a key of where it was seen, beside the key of what is asked for next."""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import Encoder, PartError, TokenSpec, VideoBatch, VideoSpec
from slotbench.nn.action_embedding import ActionEmbedding
from slotbench.nn.linear import lecun_linear


class KeyedEncoder(Encoder):
    """Tokens that are what is seen times a key of the pose that it is seen from; the last number is the next key.

    An MLP with one hidden layer makes `num_tokens` cells of `dim - 1` numbers from all pixels at once. A cell is
    multiplied by the key that the pose of its frame gives it, one number per cell, and the key of the pose that comes
    next stands behind. Both poses have the same keys. A core that adds such tokens up over time, read by `KeyedMemory`,
    is an associative memory that a pose can be asked for. Cells of a hidden frame are zero.

    The action of a step is the pose of its frame and that of the next one, such as `Maze` gives with
    `conditioning: pose`. Where data has no actions, a cell always has the same key.

    Source: outer products of keys and values as a memory, Schmidhuber, "Learning to Control Fast-Weight Memories",
    Neural Computation 1992; here the product of each value with one number.

    Args:
        video_spec: one step of the input.
        num_tokens: cells of the memory.
        dim: width of a token, the key included.
        hidden_dim: width of the hidden layer.
    """

    hides_frames: ClassVar[bool] = True

    def __init__(self, video_spec: VideoSpec, num_tokens: int = 128, dim: int = 9, hidden_dim: int = 256):
        super().__init__()
        numbers = video_spec.num_actions
        if numbers and (numbers % 2 or not video_spec.vector_actions):
            kind = "vectors of" if video_spec.vector_actions else "one of"
            raise PartError(
                f"KeyedEncoder takes the pose of each frame and that of the next one as its action, and this data has "
                f"{kind} {numbers}: choose data with poses, such as Maze with conditioning: pose, or "
                "ActionConditionedEncoder"
            )
        self.token_spec = TokenSpec(dim, num_tokens)
        pixels = video_spec.channels * video_spec.height * video_spec.width
        self.cells = nn.Sequential(
            lecun_linear(pixels, hidden_dim), nn.GELU(), lecun_linear(hidden_dim, num_tokens * (dim - 1))
        )
        # a pose is four one-hot codes in Maze: a key then starts with a variance of one
        self.keys = ActionEmbedding(numbers // 2, num_tokens, vectors=True, scale=0.5)

    def forward(self, batch: VideoBatch) -> Float[Tensor, "batch time tokens dim"]:
        """Tokens of every step: the numbers of a cell, and its next key."""
        size = batch.frames.shape[:2]
        cells = self.cells(batch.pixels.flatten(2)).unflatten(-1, (self.token_spec.num_tokens, -1))
        if batch.hidden is not None:
            cells = cells.masked_fill(batch.hidden[:, :, None, None], 0.0)
        here, ahead = (None, None) if batch.actions is None else batch.actions.chunk(2, dim=-1)
        key, asked = (self.keys(pose, *size).to(cells)[..., None] for pose in (here, ahead))
        return torch.cat([cells * key, asked], dim=-1)
