"""ConvS5: a state space model whose state is an image, one linear recurrence per pixel and convolutions between."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import torch
from einops import rearrange
from jaxtyping import Complex, Float
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from slotbench.interfaces import CoreOutput, SlotSpec, TemporalCore, TokenSpec
from slotbench.nn.diagonal_ssm import DiagonalDynamics, Initialisation, as_complex, as_pairs
from slotbench.nn.grid import grid_of, to_images
from slotbench.nn.linear import lecun_linear, lecun_normal_
from slotbench.nn.resnet_blocks import NORM_EPS
from slotbench.ops import linear_scan
from slotbench_plugins.cores._frame_activations import FrameActivation, FrameActivationName, frame_activation

LONG_SKIPS = {8: 3, 11: 6}
"""Layer -> the layer whose input is added to its own, where `skip_connections` are on."""


class ConvS5(TemporalCore):
    """Layers of a linear recurrence on images, parallel over time, with the eigenvalues of HiPPO at every pixel.

    The tokens are the cells of a grid and so are the slots that come out; tokens without a grid are one row. A linear
    map takes the tokens to `dim` channels; every layer then runs a complex diagonal recurrence per pixel between two
    convolutions, a non-linear block per frame, a residual and a LayerNorm. Pixels are mixed only by the
    convolutions, so the field of view grows with the layers and not with time. A step of a roll-out costs the same
    whatever its length.

    Source: Smith, De Mello, Kautz, Linderman, Byeon, "Convolutional State Space Models for Long-Range Spatiotemporal
    Modeling", NeurIPS 2023, section 3 and appendix B; what the paper leaves open follows its code.

    Args:
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
        initialisation = initialisation or self.default_initialisation
        layers = nn.ModuleList()
        for _ in range(num_layers):
            dynamics = DiagonalDynamics(state_dim, blocks, initialisation, clip_eigs, step_rescale)
            ssm = ConvStateSpace(dim, dynamics, b_kernel, c_kernel, kernel=kernel)
            block = frame_activation(activation, dim, activation_kernel, squeeze_excite)
            layers.append(ConvS5Layer(ssm, block, prenorm=prenorm, dropout=dropout))
        self.layers: Sequence[ConvS5Layer] = layers  # type: ignore[assignment]

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


class ConvS5State(NamedTuple):
    """What a ConvS5 layer remembers: a complex image."""

    hidden: Complex[Tensor, "batch rows cols state"]


class ConvStateSpace(nn.Module):
    """A linear recurrence on images: input and output maps are convolutions, the recurrence is diagonal per pixel.

        x_t = Abar x_{t-1} + Bbar * u_t        y_t = 2 Re(C * x_t)

    B and C are real parameters with a last axis (re, im), so that an optimiser acts on each part. Each runs as one real
    convolution over interleaved real and imaginary channels; the scan reads and writes the same memory as complex.

    Source: ConvS5 (Smith et al., NeurIPS 2023), section 3 and appendix B; initialisation as in its code.

    Args:
        dim: channels of input and output.
        dynamics: eigenvalues and step sizes; B and C start in the HiPPO basis, whichever the eigenvalues are.
        b_kernel: size of the input kernel B, odd.
        c_kernel: size of the output kernel C, odd.
        kernel: kernel of `slotbench.ops.linear_scan`; `slotbench.ops.set_kernel` changes it.
    """

    kernel_op = "linear_scan"

    def __init__(
        self,
        dim: int,
        dynamics: DiagonalDynamics,
        b_kernel: int = 3,
        c_kernel: int = 3,
        *,
        kernel: str = "auto",
    ):
        super().__init__()
        for name, size in (("b_kernel", b_kernel), ("c_kernel", c_kernel)):
            if size % 2 == 0:
                raise ValueError(f"{name} must be odd so that it has a centre, got {size}")
        self.kernel = kernel
        self.dynamics = dynamics
        half = len(dynamics.log_step)
        self.B = nn.Parameter(torch.empty(half, dim, b_kernel, b_kernel, 2))
        self.C = nn.Parameter(torch.empty(dim, half, c_kernel, c_kernel, 2))
        self._initialise_maps(dynamics.hippo_basis())

    @torch.no_grad()
    def _initialise_maps(self, basis: Complex[Tensor, "state half"]) -> None:
        # He-initialised maps from and to all real states, taken to the modes that are kept
        states = len(basis)
        dim, _, c_kernel, _, _ = self.C.shape
        fan_in = self.B[0, ..., 0].numel()
        real = lecun_normal_(torch.empty(states, fan_in, dtype=torch.float64), fan_in) * math.sqrt(2)
        self.B.copy_(torch.view_as_real(basis.mH @ real.to(basis)).view_as(self.B))
        real = torch.empty(dim, c_kernel, c_kernel, states, dtype=torch.float64)
        real = lecun_normal_(real, states * c_kernel**2) * math.sqrt(2)
        self.C.copy_(torch.view_as_real(real.to(basis) @ basis).movedim(3, 1))

    def forward(
        self,
        inputs: Float[Tensor, "batch time rows cols dim"],
        state: Complex[Tensor, "batch rows cols state"] | None = None,
        step_scale: Float[Tensor, " time"] | Float[Tensor, "batch time"] | None = None,
    ) -> tuple[Float[Tensor, "batch time rows cols dim"], Complex[Tensor, "batch rows cols state"]]:
        """(outputs, state after the last step)."""
        batch, time = inputs.shape[:2]
        frames = inputs.flatten(0, 1)
        if step_scale is None:
            decay, drive_kernel, output_kernel = self._discrete_kernels()
            drive = as_complex(_convolve(frames, drive_kernel)).unflatten(0, (batch, time))
        else:
            decay, gain = self.dynamics(step_scale)
            drive = as_complex(_convolve(frames, _output_pairs(torch.view_as_complex(self.B))))
            drive = gain[..., None, None, :] * drive.unflatten(0, (batch, time))
            output_kernel = _input_pairs(self.C)
        states, last = linear_scan(drive, decay, state, kernel=self.kernel)
        outputs = _convolve(as_pairs(states.flatten(0, 1)), output_kernel)
        return outputs.unflatten(0, (batch, time)), last

    def _discrete_kernels(self) -> tuple[Tensor, Tensor, Tensor]:
        decay, gain = self.dynamics()
        # the hold goes into the weights where it is the same for all steps, which are fewer numbers than the drive
        weight = gain[:, None, None, None] * torch.view_as_complex(self.B)
        return decay, _output_pairs(weight), _input_pairs(self.C)


class ConvS5Layer(nn.Module):
    """State space model and activation block around which the input is carried, then a LayerNorm over channels.

    Source: ConvS5, section 3.4, with the order and the constants of its code.

    Args:
        ssm: the recurrence; gives the layer its width.
        activation: the activation block, such as `frame_activation` returns.
        prenorm: put the LayerNorm before the state space model instead of at the end.
        dropout: share of the activation block's outputs that are dropped, the same at all steps of a call.
    """

    def __init__(
        self,
        ssm: ConvStateSpace,
        activation: FrameActivation,
        *,
        prenorm: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.prenorm = prenorm
        self.dropout = dropout
        self.ssm = ssm
        self.activation = activation
        self.norm = nn.LayerNorm(ssm.B.shape[1], eps=NORM_EPS)

    def forward(
        self,
        x: Float[Tensor, "batch time rows cols dim"],
        state: ConvS5State | None = None,
        step_scale: Float[Tensor, " time"] | Float[Tensor, "batch time"] | None = None,
    ) -> tuple[Float[Tensor, "batch time rows cols dim"], ConvS5State]:
        """(frames, state); `step_scale` is that of `ConvStateSpace`."""
        inputs = self.norm(x) if self.prenorm else x
        outputs, hidden = self.ssm(inputs, None if state is None else state.hidden, step_scale)
        outputs = _as_tokens(self.activation(_as_images(outputs), _as_images(inputs)), x)
        if self.training and self.dropout:
            outputs = outputs * functional.dropout(torch.ones_like(x[:, :1]), self.dropout)
        x = x + outputs
        return x if self.prenorm else self.norm(x), ConvS5State(hidden)


def _as_images(x: Tensor) -> Tensor:
    return x.flatten(0, 1).permute(0, 3, 1, 2)


def _as_tokens(images: Tensor, like: Tensor) -> Tensor:
    return images.permute(0, 2, 3, 1).reshape(like.shape)


def _convolve(frames: Tensor, weight: Tensor) -> Tensor:
    """Channels-last "frames rows cols in" to the same with other channels, zeros around the frame."""
    images = frames.permute(0, 3, 1, 2)
    return functional.conv2d(images, weight, padding=weight.shape[-1] // 2).permute(0, 2, 3, 1)


def _output_pairs(weight: Complex[Tensor, "state dim rows cols"]) -> Float[Tensor, "channels dim rows cols"]:
    """Real weight whose output channels are the real and imaginary parts, interleaved."""
    return torch.view_as_real(weight).movedim(-1, 1).flatten(0, 1)


def _input_pairs(weight: Float[Tensor, "dim state rows cols 2"]) -> Float[Tensor, "dim channels rows cols"]:
    """Real weight that maps interleaved real and imaginary parts x to 2 Re(weight x)."""
    return (weight * weight.new_tensor([2.0, -2.0])).movedim(-1, 2).flatten(1, 2)
