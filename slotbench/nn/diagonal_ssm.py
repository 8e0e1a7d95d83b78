"""The part that S5 and ConvS5 share: diagonal dynamics with learned time scales, discretised with a zero-order hold."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn

from slotbench.nn.hippo import Initialisation, initial_eigenvalues, initial_log_step

__all__ = ["DiagonalDynamics", "Discretised", "as_complex", "as_pairs"]

LARGEST_REAL_PART = -1e-4


class Discretised(NamedTuple):
    """Dynamics at given step sizes.

    Attributes:
        decay: factor of the state from one step to the next, exp(eigenvalue * step).
        gain: factor of the input map, (decay - 1) / eigenvalue.
    """

    decay: Complex[Tensor, "*steps state"]
    gain: Complex[Tensor, "*steps state"]


class DiagonalDynamics(nn.Module):
    """Eigenvalues and step sizes of a diagonal state space model; only one of each conjugate pair is there.

    Real and imaginary parts are parameters of their own. Discretisation runs in float64 whatever the dtype of the
    parameters, because the phase of the fastest HiPPO states goes to thousands of radians.

    Source: ConvS5 (Smith et al., NeurIPS 2023), Eq. 27-28 and appendix B; clipping as in its code.

    Args:
        state_dim: real states, an even number; half of them are kept.
        blocks: blocks of the HiPPO matrix.
        initialisation: how the eigenvalues start, see `slotbench.nn.hippo.initial_eigenvalues`.
        clip_eigs: hold the eigenvalues' real parts at -1e-4 or below; one that is clipped gets no gradient.
        step_rescale: factor of all step sizes: 2 to run at half the frame rate of the training clips.

    Raises:
        ValueError: `state_dim` is no multiple of twice the number of blocks, or `step_rescale` is not positive.
    """

    def __init__(
        self,
        state_dim: int,
        blocks: int = 1,
        initialisation: Initialisation = "hippo",
        clip_eigs: bool = True,
        step_rescale: float = 1.0,
    ):
        super().__init__()
        if state_dim < 2 or state_dim % 2:
            raise ValueError(f"state_dim must be even, states come in conjugate pairs; got {state_dim}")
        if step_rescale <= 0:
            raise ValueError(f"step_rescale must be positive, got {step_rescale}")
        self.clip_eigs = clip_eigs
        self.step_rescale = step_rescale
        log_step = initial_log_step(state_dim // 2)
        eigenvalues = initial_eigenvalues(initialisation, log_step.exp(), blocks)
        dtype = torch.get_default_dtype()
        self.Lambda_re = nn.Parameter(eigenvalues.real.to(dtype, copy=True))
        self.Lambda_im = nn.Parameter(eigenvalues.imag.to(dtype, copy=True))
        self.log_step = nn.Parameter(log_step.to(dtype))

    def eigenvalues(self) -> Complex[Tensor, " state"]:
        """The eigenvalues as they are used, clipped if they are to be, in complex128."""
        real = self.Lambda_re.double()
        return torch.complex(real.clamp(max=LARGEST_REAL_PART) if self.clip_eigs else real, self.Lambda_im.double())

    def forward(self, step_scale: Float[Tensor, "*steps"] | None = None) -> Discretised:
        """Decay and gain of every state, for all steps alike or for each of `step_scale`.

        Args:
            step_scale: factor of the step sizes, one per step: the time since the step before, 1 where it is regular.

        Returns:
            complex64, or complex128 if the parameters are float64.
        """
        eigenvalues = self.eigenvalues()
        step = self.log_step.double().exp() * self.step_rescale
        if step_scale is not None:
            step = step_scale.double().unsqueeze(-1) * step
        decay = torch.exp(eigenvalues * step)
        gain = (decay - 1) / eigenvalues
        dtype = torch.complex128 if self.Lambda_re.dtype == torch.float64 else torch.complex64
        return Discretised(decay.to(dtype), gain.to(dtype))


def as_complex(pairs: Float[Tensor, "*rest channels"]) -> Complex[Tensor, "*rest half"]:
    """Interleaved (re, im) in the last axis as complex numbers, a view where memory and precision allow it."""
    if pairs.dtype != torch.float64:
        pairs = pairs.float()
    return torch.view_as_complex(pairs.contiguous().unflatten(-1, (-1, 2)))


def as_pairs(values: Complex[Tensor, "*rest half"]) -> Float[Tensor, "*rest channels"]:
    """Complex numbers as interleaved (re, im) in the last axis, a view."""
    return torch.view_as_real(values).flatten(-2)
