"""ConvLSTM: convolutional LSTM layers over the grid of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import conv2d

from slotbench.interfaces import CoreOutput, SlotSpec, TemporalCore, TokenSpec
from slotbench.nn.grid import grid_of, to_images, to_tokens
from slotbench.nn.linear import lecun_linear, lecun_normal_
from slotbench.nn.resnet_blocks import NORM_EPS


class ConvLSTM(TemporalCore):
    """Convolutional LSTM layers over the grid of tokens, each with a residual and a LayerNorm after it.

    Its slots are the cells of the grid. What lies `kernel_size` // 2 cells away enters a cell per layer and step. The
    layers run one after the other over the whole clip, so that the input half of every layer's gates, and not of the
    first one's alone, is one convolution over all steps. The cost of a step does not depend on how many came before.

    Source: the baseline of Smith, De Mello, Kautz, Linderman, Byeon, "Convolutional State Space Models for Long-Range
    Spatiotemporal Modeling", NeurIPS 2023, section 5.1; layers as in the public code.

    Args:
        token_spec: the output of the encoder; without a grid its tokens count as one row.
        dim: channels of the images inside, the state's included, and width of a slot.
        num_layers: layers, at least one.
        kernel_size: cells along each side of the kernels, an odd number.
    """

    def __init__(self, token_spec: TokenSpec, dim: int = 64, num_layers: int = 2, kernel_size: int = 3):
        super().__init__()
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
            before = None if state is None else state[index]
            hidden, layer_state = layer(to_images(x, self.grid), batch, before)
            x = norm(x + to_tokens(hidden, batch))
            after.append(layer_state)
        return CoreOutput(slots=x, attention=None, state=tuple(after))


class ConvLSTMState(NamedTuple):
    """What one layer carries from step to step, an image each."""

    cell: Float[Tensor, "batch dim rows cols"]
    hidden: Float[Tensor, "batch dim rows cols"]


class ConvLSTMLayer(nn.Module):
    """One kernel turns [input, hidden] into the four gates; neither biases nor peepholes, and no initial offset of f.

        i, f, o, g = kernel * [input_t, hidden_(t-1)]
        cell_t = sigmoid(f) cell_(t-1) + sigmoid(i) tanh(g)
        hidden_t = sigmoid(o) tanh(cell_t)

    The convolution is linear, so its half over the inputs runs over all steps in one call, and only the half over the
    hidden state in the loop. A clip starts from zeros, and so does what lies beyond the edges of the image.

    Source: Shi et al., "Convolutional LSTM network", NeurIPS 2015, in the form of the public ConvSSM code (Smith et
    al., NeurIPS 2023, section 5.1, "ConvLSTM"), whose order of gates and initial weights these are.

    Args:
        dim: channels of the input, of the state and of the output.
        kernel_size: cells along each side of the kernel, an odd number.
    """

    def __init__(self, dim: int, kernel_size: int = 3):
        super().__init__()
        if kernel_size < 1 or kernel_size % 2 == 0:
            raise ValueError(f"kernel_size={kernel_size}: an image keeps its size under an odd kernel; give 1, 3, 5...")
        self.dim = dim
        self.kernel = nn.Parameter(torch.empty(4 * dim, 2 * dim, kernel_size, kernel_size))
        # half the fan, 2 dim kernel_size^2, makes it a He-normal start: variance 2 / fan
        lecun_normal_(self.kernel, fan_in=dim * kernel_size**2)

    def forward(
        self,
        images: Float[Tensor, "frames dim rows cols"],
        batch: int,
        state: ConvLSTMState | None = None,
    ) -> tuple[Float[Tensor, "frames dim rows cols"], ConvLSTMState]:
        """(hidden states of all steps, state after the last); both are channels_last."""
        # contiguous, as a slice of the kernel would be copied anew in every step
        input_kernel, hidden_kernel = (
            half.contiguous(memory_format=torch.channels_last) for half in self.kernel.split(self.dim, dim=1)
        )
        padding = self.kernel.shape[-1] // 2
        input_gates = conv2d(images, input_kernel, padding=padding).unflatten(0, (batch, -1))
        if state is None:
            zeros = self.kernel.new_zeros(batch, self.dim, *images.shape[2:]).to(memory_format=torch.channels_last)
            state = ConvLSTMState(zeros, zeros)
        cell, hidden = state
        steps = []
        for gates in input_gates.unbind(1):
            gates = gates + conv2d(hidden, hidden_kernel, padding=padding)
            # in the precision of the state, so that under autocast it keeps float32
            opened, candidate = gates.to(cell.dtype).split((3 * self.dim, self.dim), dim=1)
            write, keep, show = opened.sigmoid().chunk(3, dim=1)
            cell = torch.addcmul(keep * cell, write, candidate.tanh())
            hidden = show * cell.tanh()
            steps.append(hidden)
        # stacked as channels-last pixels, which makes the images channels_last views
        pixels = torch.stack([step.permute(0, 2, 3, 1) for step in steps], dim=1)
        return pixels.flatten(0, 1).permute(0, 3, 1, 2), ConvLSTMState(cell, hidden)
