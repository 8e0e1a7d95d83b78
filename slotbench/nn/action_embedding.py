"""What a core reads beside what is seen: vectors of actions, and a constant in the place of frames that are hidden."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

__all__ = ["HIDDEN", "ActionEmbedding", "hide_steps"]

HIDDEN = -2.0
"""What the tokens of a frame are that is hidden from a temporal core, as in the code of ConvS5."""


def hide_steps(
    tokens: Float[Tensor, "batch time tokens dim"], hidden: Bool[Tensor, "batch time"] | None
) -> Float[Tensor, "batch time tokens dim"]:
    """Tokens with `HIDDEN` in the place of those of hidden steps, if there are any (`VideoBatch.hidden`)."""
    return tokens if hidden is None else tokens.masked_fill(hidden[:, :, None, None], HIDDEN)


class ActionEmbedding(nn.Module):
    """A learned vector per action, and one more for a masked action.

    An action is a one-hot vector; all zeros is an action that is masked, which has the last row of the table. Where the
    data has no actions, every step has row 0, and the last row is never used. The authors' models keep the embedding
    there too, a number that the next layer could have as a bias.

    Source: ConvS5 code (see `slotbench.nn.resnet_blocks`), used for Moving-MNIST with one action and one channel, and
    for the 3D environments with six actions and 16 channels.

    With `vectors` an action is a vector of any numbers, such as a pose, of which the rows of the table are summed with
    these weights: a linear map.

    Args:
        num_actions: actions to choose from, or numbers of an action; 0 where the data has none.
        dim: width of the vector.
        vectors: whether actions are vectors of any numbers; otherwise they are one-hot.
        scale: standard deviation that the table starts with; None for one over the root of `dim`.
    """

    def __init__(self, num_actions: int, dim: int, vectors: bool = False, scale: float | None = None):
        super().__init__()
        self.num_actions, self.vectors = num_actions, vectors
        self.table = nn.Parameter(torch.randn(max(1, num_actions) + 1, dim) * (dim**-0.5 if scale is None else scale))

    def forward(
        self, actions: Float[Tensor, "batch time num_actions"] | None, batch: int, time: int
    ) -> Float[Tensor, "batch time dim"]:
        """The vector of every step.

        Args:
            actions: one-hot, or vectors, or all zeros; not read where the data has no actions.
            batch: clips.
            time: steps.
        """
        if self.num_actions == 0:
            return self.table[0].expand(batch, time, -1)
        if actions is None or actions.shape != (batch, time, self.num_actions):
            got = "none" if actions is None else f"actions of shape {tuple(actions.shape)}"
            raise ValueError(
                f"expected actions of shape {(batch, time, self.num_actions)}, clips x steps x actions, and got {got}: "
                "choose a data set that gives the actions its spec announces, or set the encoder's action_dim to 0"
            )
        if self.vectors:
            masked = (actions == 0).all(-1, keepdim=True)
            return torch.where(masked, self.table[-1], actions.to(self.table) @ self.table[:-1])
        given = actions.amax(dim=-1) > 0
        return nn.functional.embedding(torch.where(given, actions.argmax(dim=-1), self.num_actions), self.table)

    def beside(
        self, tokens: Float[Tensor, "batch time tokens dim"], actions: Float[Tensor, "batch time num_actions"] | None
    ) -> Float[Tensor, "batch time tokens width"]:
        """Each token with the vector of its step's action behind it."""
        vectors = self(actions, *tokens.shape[:2]).to(tokens)
        return torch.cat([tokens, vectors[:, :, None].expand(-1, -1, tokens.shape[2], -1)], dim=-1)
