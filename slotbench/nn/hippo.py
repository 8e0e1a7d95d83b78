"""How the states of a diagonal state space model start: HiPPO and what it is compared with, and the time scales.

All of it is computed in float64. Eigenvectors have arbitrary phases, so that only what they reconstruct has a meaning.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Literal

import numpy as np
import torch
from jaxtyping import Complex, Float
from torch import Tensor

__all__ = [
    "Initialisation",
    "hippo_basis",
    "hippo_eigenvalues",
    "hippo_normal",
    "initial_eigenvalues",
    "initial_log_step",
]

Initialisation = Literal["hippo", "random", "lin", "ring"]
"""How the eigenvalues start."""

SLOWEST_STEP, FASTEST_STEP = 1e-3, 1e-1
RING = (0.9, 0.999)


def hippo_normal(size: int) -> Float[Tensor, "state state"]:
    """The normal part of the HiPPO-LegS matrix: -1/2 on the diagonal, -sqrt((n+1/2)(k+1/2)) below it, plus that above.

    Source: ConvS5, appendix B, where Eq. 29 lacks the change of sign above the diagonal; S5, appendix B.1.

    Args:
        size: states.
    """
    root = torch.sqrt(torch.arange(size, dtype=torch.float64) + 0.5)
    outer = torch.outer(root, root)
    return outer.triu(1) - outer.tril(-1) - 0.5 * torch.eye(size, dtype=torch.float64)


def hippo_eigenvalues(state_dim: int, blocks: int = 1) -> Complex[Tensor, " half"]:
    """The eigenvalues with negative frequency, lowest frequency first in every block; the others are their conjugates.

    Args:
        state_dim: real states, twice as many as are kept.
        blocks: how many times the matrix of size `state_dim` / `blocks` is repeated.

    Raises:
        ValueError: `state_dim` is no multiple of twice the number of blocks.
    """
    size = _block_size(state_dim, blocks)
    frequencies = torch.tensor(_diagonalise(size)[0][: size // 2])
    return torch.complex(torch.full_like(frequencies, -0.5), frequencies).repeat(blocks)


def hippo_basis(state_dim: int, blocks: int = 1) -> Complex[Tensor, "state half"]:
    """The eigenvectors V that belong to `hippo_eigenvalues`, as columns; its conjugate transpose takes states to modes.

    Args:
        state_dim: real states, twice as many as are kept.
        blocks: how many times the matrix of size `state_dim` / `blocks` is repeated.

    Raises:
        ValueError: `state_dim` is no multiple of twice the number of blocks.
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
      they are clipped. The paper's ablation draws "from a Gaussian" and says no more.
    - "lin": -1/2 + i pi n, n = 0, 1, ...; Gu et al., "On the Parameterization and Initialization of Diagonal State
      Space Models" (NeurIPS 2022), S4D-Lin.
    - "ring": what makes exp(eigenvalue * step) uniform on the ring of radii 0.9 to 0.999; Orvieto et al.,
      "Resurrecting Recurrent Neural Networks for Long Sequences" (ICML 2023), LRU.

    Args:
        initialisation: one of the names above.
        step: step size of every state that is kept, which "ring" divides by.
        blocks: blocks of the HiPPO matrix; the other initialisations have none.

    Raises:
        ValueError: no initialisation has that name, or the HiPPO matrix cannot be cut into so many blocks.
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
