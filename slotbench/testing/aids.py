"""What the laws of all parts need: noise, weights off their initial values, and what a module holds."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor, nn

__all__ = ["like", "module_snapshot", "move_off_initial_values", "ready", "scalar", "unchanged"]

Part = TypeVar("Part", bound=nn.Module)


def move_off_initial_values(module: nn.Module, seed: int = 0) -> None:
    """Adds noise to every parameter, of the size of a usual initialisation."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            size = 0.5 * parameter.shape[-1] ** -0.5 if parameter.ndim > 1 else 0.1
            parameter.add_(size * torch.randn(parameter.shape, generator=generator).to(parameter))


def ready(part: Part) -> Part:
    """A part in float64 and evaluation mode, off its initial values, so that a zero-initialised head hides nothing."""
    move_off_initial_values(part)
    return part.double().eval()


def like(x: Tensor) -> Tensor:
    """Noise of the shape of `x`."""
    return torch.randn(x.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64).to(x)


def scalar(x: Tensor) -> Tensor:
    """A random weighting, because a plain sum is blind to what a LayerNorm takes out."""
    return (x * like(x)).sum()


def module_snapshot(core: nn.Module) -> dict[str, Any]:
    """All that a module holds: values of parameters and buffers, and what attributes of its submodules refer to."""
    held: dict[str, Any] = {name: tensor.detach().clone() for name, tensor in core.named_parameters()}
    held |= {name: tensor.detach().clone() for name, tensor in core.named_buffers()}
    for prefix, module in core.named_modules():
        for name, value in vars(module).items():
            if name in ("_parameters", "_buffers", "_modules"):
                continue
            content = list(value.items()) if isinstance(value, dict) else value
            held[f"{prefix}.{name}".lstrip(".")] = [*content] if isinstance(content, list | tuple | set) else value
    return held


def unchanged(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Two snapshots of a module are of the same content."""
    changed = sorted(name for name in before.keys() | after.keys() if not _same(before.get(name), after.get(name)))
    assert not changed, f"a call changed {', '.join(changed)}: the caller owns the state, the module keeps none"


def _same(before: Any, after: Any) -> bool:
    if isinstance(before, Tensor) and isinstance(after, Tensor):
        return before.shape == after.shape and torch.equal(before, after)
    if isinstance(before, list | tuple) and isinstance(after, list | tuple):
        return len(before) == len(after) and all(map(_same, before, after))
    return before is after or (isinstance(before, int | float | str | bool) and before == after)
