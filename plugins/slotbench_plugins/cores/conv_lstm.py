"""ConvLSTM: an image of gated memory cells, updated step by step."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import CoreOutput, SlotSpec, TemporalCore, TokenSpec
from slotbench.nn.conv_lstm_layer import ConvLSTMLayer, ConvLSTMState
from slotbench.nn.grid import grid_of, to_images, to_tokens
from slotbench.nn.lecun_linear import lecun_linear
from slotbench.nn.resnet_blocks import NORM_EPS


class ConvLSTM(TemporalCore):
    """Convolutional LSTM layers over the grid of tokens, each with a residual and a LayerNorm after it.

    Its slots are the cells of the grid. What lies `kernel_size` // 2 cells away enters a cell per layer and step. The
    layers run one after the other over the whole clip, so that the input half of every layer's gates, and not of the
    first one's alone, is one convolution over all steps. The cost of a step does not depend on how many came before.

    Source: the baseline of Smith, De Mello, Kautz, Linderman, Byeon, "Convolutional State Space Models for Long-Range
    Spatiotemporal Modeling", NeurIPS 2023, section 5.1; layers as in the public code.

    Args:
        token_spec: what the encoder hands over; without a grid its tokens count as one row.
        dim: channels of the images inside, the state's included, and width of a slot.
        num_layers: layers, at least one.
        kernel_size: cells along each side of the kernels, an odd number.

    Raises:
        ValueError: no layers, an even kernel, or a grid that is not that of the tokens.
    """

    def __init__(self, token_spec: TokenSpec, dim: int = 64, num_layers: int = 2, kernel_size: int = 3):
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"num_layers must be at least 1, got {num_layers}")
        self.grid = grid_of(token_spec)
        self.slot_spec = SlotSpec(token_spec.num_tokens, dim, self.grid)
        self.input_map = lecun_linear(token_spec.dim, dim)
        layers = nn.ModuleList(ConvLSTMLayer(dim, kernel_size) for _ in range(num_layers))
        self.layers: Sequence[ConvLSTMLayer] = layers  # type: ignore[assignment]
        self.norms = nn.ModuleList(nn.LayerNorm(dim, eps=NORM_EPS) for _ in range(num_layers))

    def forward(
        self, tokens: Float[Tensor, "batch time tokens dim"], state: tuple[ConvLSTMState, ...] | None = None
    ) -> CoreOutput:
        """A slot per cell after every step, and the cells and hidden images of every layer after the last."""
        batch = tokens.shape[0]
        # in the weights' precision, so that the residual stream is not bfloat16 under autocast
        x = self.input_map(tokens).to(self.input_map.weight.dtype)
        after = []
        for index, (layer, norm) in enumerate(zip(self.layers, self.norms, strict=True)):
            hidden, layer_state = layer(to_images(x, self.grid), batch, None if state is None else state[index])
            x = norm(x + to_tokens(hidden, batch))
            after.append(layer_state)
        return CoreOutput(slots=x, attention=None, state=tuple(after))
