"""Random inputs of the scans, and their values and gradients as one dictionary."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from slotbench.ops import selective_scan

NAMES = ("u", "delta", "A", "B", "C", "D", "z", "state")


def scan_inputs(
    batch: int, time: int, dim: int = 4, num_states: int = 3, *, dtype: torch.dtype = torch.float64, seed: int = 0
) -> dict[str, Tensor]:
    """Leaves that require gradients, by argument name; drawn in float64, so that dtypes see the same numbers."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    inputs = {
        "u": normal(batch, time, dim),
        "delta": functional.softplus(normal(batch, time, dim) - 1),
        "A": -torch.exp(normal(dim, num_states)),
        "B": normal(batch, time, num_states),
        "C": normal(batch, time, num_states),
        "D": normal(dim),
        "z": normal(batch, time, dim),
        "state": normal(batch, dim, num_states),
    }
    return {name: value.to(dtype).requires_grad_() for name, value in inputs.items()}


def linear_scan_inputs(
    batch: int = 2,
    time: int = 5,
    space: tuple[int, ...] = (2, 3),
    num_states: int = 4,
    *,
    decay: str = "state",
    dtype: torch.dtype = torch.complex128,
    seed: int = 0,
) -> dict[str, Tensor]:
    """Leaves that require gradients, by argument name; drawn in complex128, so that dtypes see the same numbers."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.complex128)

    sizes = {"batch": batch, "time": time, "state": num_states}
    factor = normal(*(sizes[axis] for axis in decay.split()))
    inputs = {
        "drive": normal(batch, time, *space, num_states),
        "decay": factor / (0.05 + factor.abs()),  # of magnitude below 1, often close to it
        "state": normal(batch, *space, num_states),
    }
    return {name: value.to(dtype).requires_grad_() for name, value in inputs.items()}


def ssd_inputs(
    batch: int,
    time: int,
    heads: int = 4,
    head_dim: int = 3,
    groups: int = 2,
    num_states: int = 5,
    *,
    dtype: torch.dtype = torch.float64,
    seed: int = 0,
) -> dict[str, Tensor]:
    """Leaves that require gradients, by argument name; drawn in float64, so that dtypes see the same numbers."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    inputs = {
        "x": normal(batch, time, heads, head_dim),
        "delta": functional.softplus(normal(batch, time, heads) - 1),
        "A": -torch.exp(normal(heads)),
        "B": normal(batch, time, groups, num_states),
        "C": normal(batch, time, groups, num_states),
        "D": normal(heads),
        "state": normal(batch, heads, head_dim, num_states),
    }
    return {name: value.to(dtype).requires_grad_() for name, value in inputs.items()}


def values_and_gradients(
    inputs: dict[str, Tensor], scan: str | Callable[..., tuple[Tensor, Tensor]], seed: int = 1
) -> dict[str, Tensor]:
    """y, the last state, and the gradient of a random linear function of both for every input."""
    y, last = selective_scan(**inputs, kernel=scan) if isinstance(scan, str) else scan(**inputs)
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(x.shape, generator=generator, dtype=_widest(x)).to(x) for x in (y, last)]
    gradients = torch.autograd.grad((y, last), list(inputs.values()), weights)
    return {"y": y, "last state": last} | {f"grad {name}": g for name, g in zip(inputs, gradients, strict=True)}


def assert_agree(actual: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    """Every entry within `tolerance` of the expected one, relative to its norm."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        assert actual[name].shape == value.shape, name
        mine, wanted = (x.cpu().to(_widest(value)) for x in (actual[name], value))
        error = (mine - wanted).norm() / (wanted.norm() + 1e-30)
        assert error <= tolerance, f"{name} is off by {error:.1e} of its norm"


def without(inputs: dict[str, Tensor], *names: str) -> dict[str, Tensor]:
    """The inputs but those of these names."""
    return {name: value for name, value in inputs.items() if name not in names}


def _widest(x: Tensor) -> torch.dtype:
    return torch.complex128 if x.is_complex() else torch.float64
