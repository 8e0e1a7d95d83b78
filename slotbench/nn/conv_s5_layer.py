"""The layer of ConvS5: a state space model whose states are images, an activation block, a residual and a norm."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn
from torch.nn import functional

from slotbench.nn.diagonal_ssm import DiagonalDynamics, as_complex, as_pairs
from slotbench.nn.frame_activations import FrameActivationName, frame_activation
from slotbench.nn.hippo import Initialisation, hippo_basis
from slotbench.nn.resnet_blocks import NORM_EPS, lecun_normal_
from slotbench.ops import linear_scan

__all__ = ["ConvS5Layer", "ConvS5State", "ConvStateSpace"]


class ConvS5State(NamedTuple):
    """What a ConvS5 layer remembers: a complex image."""

    hidden: Complex[Tensor, "batch rows cols state"]


class ConvStateSpace(nn.Module):
    """A linear recurrence on images: input and output map are convolutions, the states of a pixel decay on their own.

        x_t = Abar x_{t-1} + Bbar * u_t        y_t = 2 Re(C * x_t)

    B and C are real parameters with a last axis (re, im), so that an optimiser acts on each part. Each runs as one real
    convolution over interleaved real and imaginary channels; the scan reads and writes the same memory as complex.

    Source: ConvS5 (Smith et al., NeurIPS 2023), section 3 and appendix B; initialisation as in its code.

    Args:
        dim: channels of input and output.
        state_dim: real states per pixel, an even number; half as many complex ones are kept.
        b_kernel: size of the input kernel B, odd.
        c_kernel: size of the output kernel C, odd.
        blocks: blocks of the HiPPO matrix.
        initialisation: how the eigenvalues start; B and C are rotated into the HiPPO basis in any case.
        clip_eigs: hold the eigenvalues' real parts at -1e-4 or below.
        step_rescale: factor of all step sizes.
        kernel: kernel of `slotbench.ops.linear_scan`; `slotbench.ops.set_kernel` changes it.

    Raises:
        ValueError: an even kernel, a `state_dim` that is no multiple of 2 * blocks, or `step_rescale` not positive.
    """

    kernel_op = "linear_scan"

    def __init__(
        self,
        dim: int,
        state_dim: int = 64,
        b_kernel: int = 3,
        c_kernel: int = 3,
        *,
        blocks: int = 1,
        initialisation: Initialisation = "hippo",
        clip_eigs: bool = True,
        step_rescale: float = 1.0,
        kernel: str = "auto",
    ):
        super().__init__()
        for name, size in (("b_kernel", b_kernel), ("c_kernel", c_kernel)):
            if size < 1 or size % 2 == 0:
                raise ValueError(f"{name} must be odd so that it has a centre, got {size}")
        self.kernel = kernel
        self.dynamics = DiagonalDynamics(state_dim, blocks, initialisation, clip_eigs, step_rescale)
        half = state_dim // 2
        self.B = nn.Parameter(torch.empty(half, dim, b_kernel, b_kernel, 2))
        self.C = nn.Parameter(torch.empty(dim, half, c_kernel, c_kernel, 2))
        self._initialise_maps(hippo_basis(state_dim, blocks))

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
        """(outputs, state after the last step).

        Args:
            inputs: frames of channels-last images.
            state: of the call before; zeros if None.
            step_scale: time of each step in units of the learned step sizes, for frames that are not evenly spaced; 1
                for all of them if None.
        """
        batch, time = inputs.shape[:2]
        decay, gain = self.dynamics(step_scale)
        weight = torch.view_as_complex(self.B)
        if step_scale is None:
            # the hold goes into the weights where it is the same for all steps, which are fewer numbers than the drive
            weight = gain[:, None, None, None] * weight
        drive = as_complex(_convolve(inputs.flatten(0, 1), _output_pairs(weight))).unflatten(0, (batch, time))
        if step_scale is not None:
            drive = gain[..., None, None, :] * drive
        states, last = linear_scan(drive, decay, state, kernel=self.kernel)
        outputs = _convolve(as_pairs(states.flatten(0, 1)), _input_pairs(self.C))
        return outputs.unflatten(0, (batch, time)), last


class ConvS5Layer(nn.Module):
    """State space model and activation block around which the input is carried, then a LayerNorm over channels.

    Source: ConvS5, section 3.4, with the order and the constants of its code.

    Args:
        ssm: the recurrence; gives the layer its width.
        activation: name of the activation block, see `slotbench.nn.frame_activations`.
        activation_kernel: size of the activation block's convolutions, odd.
        squeeze_excite: gate the channels of each frame in the activation block.
        prenorm: put the LayerNorm before the state space model instead of at the end.
        dropout: share of the activation block's outputs that are dropped, the same at all steps of a call.

    Raises:
        ValueError: no such activation block, an even kernel, or `dropout` outside [0, 1).
    """

    def __init__(
        self,
        ssm: ConvStateSpace,
        activation: FrameActivationName = "resnet",
        activation_kernel: int = 3,
        *,
        squeeze_excite: bool = False,
        prenorm: bool = False,
        dropout: float = 0.0,
    ):
        super().__init__()
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout is a share in [0, 1), got {dropout}")
        dim = ssm.B.shape[1]
        self.prenorm = prenorm
        self.dropout = dropout
        self.ssm = ssm
        self.activation = frame_activation(activation, dim, activation_kernel, squeeze_excite)
        self.norm = nn.LayerNorm(dim, eps=NORM_EPS)

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
    return functional.conv2d(frames.permute(0, 3, 1, 2), weight, padding=weight.shape[-1] // 2).permute(0, 2, 3, 1)


def _output_pairs(weight: Complex[Tensor, "state dim rows cols"]) -> Float[Tensor, "channels dim rows cols"]:
    """Real weight whose output channels are the real and imaginary parts, interleaved."""
    return torch.view_as_real(weight).movedim(-1, 1).flatten(0, 1)


def _input_pairs(weight: Float[Tensor, "dim state rows cols 2"]) -> Float[Tensor, "dim channels rows cols"]:
    """Real weight that maps interleaved real and imaginary parts x to 2 Re(weight x)."""
    return (weight * weight.new_tensor([2.0, -2.0])).movedim(-1, 2).flatten(1, 2)
