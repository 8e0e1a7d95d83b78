"""ConvS5: a state space model whose state is an image, one linear recurrence per pixel and convolutions between."""

from __future__ import annotations

from typing import ClassVar

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from slotbench.interfaces import CoreOutput, SlotSpec, TemporalCore, TokenSpec
from slotbench.nn.conv_s5_layer import ConvS5Layer, ConvS5State, ConvStateSpace
from slotbench.nn.frame_activations import FrameActivationName
from slotbench.nn.grid import grid_of, to_images
from slotbench.nn.hippo import Initialisation
from slotbench.nn.lecun_linear import lecun_linear

LONG_SKIPS = {8: 3, 11: 6}
"""Layer -> the layer whose input is added to its own, where `skip_connections` are on."""


class ConvS5(TemporalCore):
    """Layers of a linear recurrence on images, parallel over time, with the eigenvalues of HiPPO at every pixel.

    The tokens are the cells of a grid and so are the slots that come out; tokens without a grid are one row. A linear
    map takes the tokens to `dim` channels; every layer then runs a complex diagonal recurrence per pixel between two
    convolutions, a non-linear block per frame, a residual and a LayerNorm. Pixels hear of each other only through the
    convolutions, so the field of view grows with the layers and not with time. A step of a roll-out costs the same
    however long it has been going on.

    Source: Smith, De Mello, Kautz, Linderman, Byeon, "Convolutional State Space Models for Long-Range Spatiotemporal
    Modeling", NeurIPS 2023, section 3 and appendix B; what the paper leaves open follows its code.

    Args:
        token_spec: what the encoder hands over.
        dim: channels of every layer (U).
        state_dim: real states per pixel, an even number; half as many complex ones are kept (S; P = S/2).
        num_layers: layers.
        b_kernel: size of the input kernel B in cells, odd.
        c_kernel: size of the output kernel C in cells, odd.
        activation: what follows the recurrence: "resnet", "half_glu", "standard" (the one with a feed-through D) or
            "diag_resnet".
        activation_kernel: size of the activation block's kernels in cells, odd; "half_glu" has none.
        blocks: blocks that the HiPPO matrix is cut into; `state_dim` must be a multiple of twice the number.
        clip_eigs: hold the real parts of the eigenvalues at -1e-4 or below, so that no state can grow.
        initialisation: how the eigenvalues start: "hippo", "random", "lin" or "ring"; None for what the class is named
            after, "hippo" for ConvS5 and "random" for ConvSSM.
        prenorm: put the LayerNorms before the recurrences instead of at the end of the layers.
        dropout: share of a layer's outputs that are dropped in training, the same at all steps of a call.
        squeeze_excite: gate the channels of each frame in the activation block.
        skip_connections: add the input of layer 3 to that of layer 8 and that of layer 6 to that of layer 11, counted
            from 0.
        step_rescale: factor of all step sizes: 2 to run at half the frame rate of the training clips.
        checkpoint_layers: compute every layer again in the backward pass; memory then holds one image per layer and
            step, and what one layer needs.
        kernel: which kernel of `slotbench.ops.linear_scan` runs the recurrence.

    Raises:
        ValueError: no layers, an even kernel, a `state_dim` that does not fit `blocks`, `skip_connections` with so
            few layers that there is none, or an unknown name.
    """

    default_initialisation: ClassVar[Initialisation] = "hippo"
    split_tolerance: ClassVar[float] = 1e-6
    """Norms over a handful of nearly equal cells amplify rounding up to a thousand times, one after the other."""

    def __init__(
        self,
        token_spec: TokenSpec,
        dim: int = 64,
        state_dim: int = 64,
        num_layers: int = 2,
        b_kernel: int = 3,
        c_kernel: int = 3,
        activation: FrameActivationName = "resnet",
        activation_kernel: int = 3,
        blocks: int = 1,
        clip_eigs: bool = True,
        initialisation: Initialisation | None = None,
        prenorm: bool = False,
        dropout: float = 0.0,
        squeeze_excite: bool = False,
        skip_connections: bool = False,
        step_rescale: float = 1.0,
        checkpoint_layers: bool = False,
        kernel: str = "auto",
    ):
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"num_layers must be at least 1, got {num_layers}")
        if skip_connections and num_layers <= min(LONG_SKIPS):
            raise ValueError(
                f"skip_connections reach layer {min(LONG_SKIPS)} and there are {num_layers} layers, counted from 0: "
                f"give num_layers of {min(LONG_SKIPS) + 1} or more, or leave skip_connections at False"
            )
        self.grid = grid_of(token_spec)
        self.slot_spec = SlotSpec(num_slots=token_spec.num_tokens, dim=dim, grid=self.grid)
        self.skips = LONG_SKIPS if skip_connections else {}
        self.checkpoint_layers = checkpoint_layers
        self.input_map = lecun_linear(token_spec.dim, dim)
        self.layers = nn.ModuleList()
        for _ in range(num_layers):
            ssm = ConvStateSpace(
                dim,
                state_dim,
                b_kernel,
                c_kernel,
                blocks=blocks,
                initialisation=initialisation or self.default_initialisation,
                clip_eigs=clip_eigs,
                step_rescale=step_rescale,
                kernel=kernel,
            )
            self.layers.append(
                ConvS5Layer(
                    ssm,
                    activation,
                    activation_kernel,
                    squeeze_excite=squeeze_excite,
                    prenorm=prenorm,
                    dropout=dropout,
                )
            )

    @classmethod
    def paper(cls, token_spec: TokenSpec) -> ConvS5:
        """The settings of the paper's Moving-MNIST models, for training clips of 300 and of 600 frames.

        Source: its Tables 12 and 13.
        """
        return cls(token_spec, dim=256, state_dim=256, num_layers=8)

    @classmethod
    def released_600(cls, token_spec: TokenSpec) -> ConvS5:
        """The settings that the authors released for training clips of 600 frames: half the paper's widths.

        Source: configs/Moving-MNIST/600_train_len of github.com/NVlabs/ConvSSM.
        """
        return cls(token_spec, dim=128, state_dim=128, num_layers=8)

    def forward(
        self, tokens: Float[Tensor, "batch time tokens dim"], state: tuple[ConvS5State, ...] | None = None
    ) -> CoreOutput:
        """Cells of every step, and one state per layer: a complex image of `state_dim` / 2 channels."""
        # in the weights' precision, so that the residual stream is not bfloat16 under autocast
        x = to_images(self.input_map(tokens).to(self.input_map.weight.dtype), self.grid)
        x = rearrange(x, "(batch time) dim rows cols -> batch time rows cols dim", batch=len(tokens))
        states: list[ConvS5State] = []
        kept: dict[int, Tensor] = {}
        for index, layer in enumerate(self.layers):
            if index in self.skips:
                x = x + kept.pop(self.skips[index])
            if index in self.skips.values():
                kept[index] = x
            before = None if state is None else state[index]
            if self.checkpoint_layers and torch.is_grad_enabled():
                x, after = checkpoint(layer, x, before, use_reentrant=False)
            else:
                x, after = layer(x, before)
            states.append(after)
        return CoreOutput(slots=x.flatten(2, 3), attention=None, state=tuple(states))
