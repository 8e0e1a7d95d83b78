"""One GRU over all tokens of a step: the monolithic baseline of modular cores."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import CoreOutput, SlotSpec, TemporalCore, TokenSpec


class GRU(TemporalCore):
    """A gated recurrent unit whose state is one vector, and whose input are the tokens of a step side by side.

    There is one slot, the state. It starts from zeros, and the initial weights are PyTorch's.

    Source: the baseline of Lin, "Modular Neural Networks for Video Prediction", M.Sc. thesis, TU Delft, 2022, whose
    width there is 600 on Moving MNIST, as much as six modules together, and 258 on Moving Sprites.

    Args:
        token_spec: what the encoder hands over.
        dim: width of the state.

    Raises:
        ValueError: `dim` below 1.
    """

    def __init__(self, token_spec: TokenSpec, dim: int = 256):
        super().__init__()
        if dim < 1:
            raise ValueError(f"dim={dim}: give the width of the state, at least 1")
        self.slot_spec = SlotSpec(1, dim)
        self.gru = nn.GRU(token_spec.num_tokens * token_spec.dim, dim, batch_first=True)

    def forward(
        self, tokens: Float[Tensor, "batch time tokens token_dim"], state: Float[Tensor, "batch dim"] | None = None
    ) -> CoreOutput:
        """The state after every step, as one slot."""
        hidden = None if state is None else state[None].contiguous()
        states, last = self.gru(tokens.flatten(2), hidden)
        return CoreOutput(states[:, :, None], None, last[0])
