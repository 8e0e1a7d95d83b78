"""Diagonal state space models (S5, ConvS5): initial eigenvalues such as HiPPO's, time scales, zero-order hold."""

from __future__ import annotations

import math
from functools import cache
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn

__all__ = [
    "DiagonalDynamics",
    "Discretised",
    "Initialisation",
    "as_complex",
    "as_pairs",
    "hippo_basis",
    "hippo_eigenvalues",
    "initial_eigenvalues",
    "initial_log_step",
]

LARGEST_REAL_PART = -1e-4

Initialisation = Literal["hippo", "random", "lin", "ring"]
"""How the eigenvalues start."""

SLOWEST_STEP, FASTEST_STEP = 1e-3, 1e-1

RING = (0.9, 0.999)


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
        initialisation: how the eigenvalues start, see `slotbench.nn.diagonal_ssm.initial_eigenvalues`.
        clip_eigs: hold the eigenvalues' real parts at -1e-4 or below; one that is clipped gets no gradient.
        step_rescale: factor of all step sizes: 2 to run at half the frame rate of the training clips.
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
        self.blocks = blocks
        self.clip_eigs = clip_eigs
        self.step_rescale = step_rescale
        log_step = initial_log_step(state_dim // 2)
        eigenvalues = initial_eigenvalues(initialisation, log_step.exp(), blocks)
        dtype = torch.get_default_dtype()
        self.Lambda_re = nn.Parameter(eigenvalues.real.to(dtype, copy=True))
        self.Lambda_im = nn.Parameter(eigenvalues.imag.to(dtype, copy=True))
        self.log_step = nn.Parameter(log_step.to(dtype))

    def eigenvalues(self) -> Complex[Tensor, " state"]:
        """The eigenvalues in use, clipped if configured so, in complex128."""
        real = self.Lambda_re.double()
        return torch.complex(real.clamp(max=LARGEST_REAL_PART) if self.clip_eigs else real, self.Lambda_im.double())

    def hippo_basis(self) -> Complex[Tensor, "state half"]:
        """The eigenvectors of the HiPPO matrix, into which input and output maps are rotated, see `hippo_basis`."""
        return hippo_basis(2 * len(self.log_step), self.blocks)

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


def hippo_eigenvalues(state_dim: int, blocks: int = 1) -> Complex[Tensor, " half"]:
    """The eigenvalues with negative frequency, lowest frequency first in every block; the others are their conjugates.

    Args:
        state_dim: real states, twice as many as are kept.
        blocks: how many times the matrix of size `state_dim` / `blocks` is repeated.
    """
    size = _block_size(state_dim, blocks)
    frequencies = torch.tensor(_diagonalise(size)[0][: size // 2])
    return torch.complex(torch.full_like(frequencies, -0.5), frequencies).repeat(blocks)


def hippo_basis(state_dim: int, blocks: int = 1) -> Complex[Tensor, "state half"]:
    """The eigenvectors V that belong to `hippo_eigenvalues`, as columns; its conjugate transpose takes states to modes.

    Args:
        state_dim: real states, twice as many as are kept.
        blocks: how many times the matrix of size `state_dim` / `blocks` is repeated.
    """
    size = _block_size(state_dim, blocks)
    vectors = torch.tensor(_diagonalise(size)[1][:, : size // 2])
    return torch.block_diag(*[vectors] * blocks)


def initial_eigenvalues(
    initialisation: Initialisation, step: Float[Tensor, " half"], blocks: int = 1
) -> Complex[Tensor, " half"]:
    """Eigenvalues to start from, in complex128.

    - "hippo": those of the HiPPO matrix.
    - "random": real and imaginary part drawn from a standard normal distribution, so that half of them grow unless
      they are clipped. The paper's ablation draws "from a Gaussian" without a scale.
    - "lin": -1/2 + i pi n, n = 0, 1, ...; Gu et al., "On the Parameterization and Initialization of Diagonal State
      Space Models" (NeurIPS 2022), S4D-Lin.
    - "ring": what makes exp(eigenvalue * step) uniform on the ring of radii 0.9 to 0.999; Orvieto et al.,
      "Resurrecting Recurrent Neural Networks for Long Sequences" (ICML 2023), LRU.

    Args:
        initialisation: one of the names above.
        step: step size of every state that is kept, which "ring" divides by.
        blocks: blocks of the HiPPO matrix; the other initialisations have none.
    """
    step = step.double()
    if initialisation == "hippo":
        return hippo_eigenvalues(2 * len(step), blocks).to(step.device)
    if initialisation == "random":
        return torch.complex(torch.randn_like(step), torch.randn_like(step))
    if initialisation == "lin":
        frequency = torch.pi * torch.arange(len(step), dtype=torch.float64, device=step.device)
        return torch.complex(torch.full_like(frequency, -0.5), frequency)
    if initialisation == "ring":
        inner, outer = (radius**2 for radius in RING)
        radius = torch.sqrt(inner + (outer - inner) * torch.rand_like(step))
        return torch.complex(radius.log(), 2 * torch.pi * torch.rand_like(step)) / step
    raise ValueError(f"no initialisation is named '{initialisation}': use 'hippo', 'random', 'lin' or 'ring'")


def initial_log_step(count: int) -> Float[Tensor, " count"]:
    """Logarithms of `count` step sizes, uniform between those of 0.001 and 0.1, in float64."""
    low, high = math.log(SLOWEST_STEP), math.log(FASTEST_STEP)
    return low + (high - low) * torch.rand(count, dtype=torch.float64)


def _block_size(state_dim: int, blocks: int) -> int:
    if blocks < 1 or state_dim < 2 * blocks or state_dim % (2 * blocks):
        raise ValueError(
            f"state_dim={state_dim} cannot be cut into {blocks} blocks of conjugate pairs: "
            f"give a multiple of 2 * blocks = {2 * blocks}"
        )
    return state_dim // blocks


@cache
def _diagonalise(size: int) -> tuple[np.ndarray, np.ndarray]:
    """(frequencies, ascending; eigenvectors as columns) of the HiPPO matrix. Layers of a model share one size."""
    # numpy, which knows no default device: models are built on the meta device and on GPUs too
    root = np.sqrt(np.arange(size) + 0.5)
    outer = np.outer(root, root)
    # without -1/2 I the matrix is skew-symmetric, and -i times it Hermitian
    return np.linalg.eigh(-1j * (np.triu(outer, 1) - np.tril(outer, -1)))
