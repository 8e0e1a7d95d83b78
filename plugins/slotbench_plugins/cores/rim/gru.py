"""One GRU over all tokens of a step: the monolithic baseline of modular cores."""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import CoreOutput, SlotSpec, TemporalCore, TokenSpec
from slotbench.nn.slot_init import clip_noise

GRUStart = Literal["zeros", "normal"]
"""The state before the first step."""


class GRU(TemporalCore):
    """A gated recurrent unit whose state is one vector, and whose input are the tokens of a step side by side.

    There is one slot, the state. The initial weights are PyTorch's.

    Source: the baseline of Lin, "Modular Neural Networks for Video Prediction", M.Sc. thesis, TU Delft, 2022, whose
    width there is 600 on Moving MNIST, as much as six modules together, and 258 on Moving Sprites.

    Args:
        dim: width of the state.
        initial: state before the first step: "zeros", as in the text of the source, or "normal" noise for every clip,
            as in its author's code, in training drawn anew and in evaluation by the number of the clip.
    """

    def __init__(self, token_spec: TokenSpec, dim: int = 256, initial: GRUStart = "zeros"):
        super().__init__()
        self.initial = initial
        self.slot_spec = SlotSpec(1, dim)
        self.gru = nn.GRU(token_spec.num_tokens * token_spec.dim, dim, batch_first=True)

    def forward(
        self, tokens: Float[Tensor, "batch time tokens token_dim"], state: Float[Tensor, "batch dim"] | None = None
    ) -> CoreOutput:
        """The state after every step, as one slot."""
        if state is None and self.initial == "normal":
            state = clip_noise(len(tokens), (self.slot_spec.dim,), next(self.gru.parameters()))
        hidden = None if state is None else state[None].contiguous()
        states, last = self.gru(tokens.flatten(2), hidden)
        return CoreOutput(states[:, :, None], None, last[0])
