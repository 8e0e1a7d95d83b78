"""Parameter groups for weight decay, and counts of trainable parameters."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

__all__ = ["decay_groups", "one_group", "trainable_parameters", "without_decay"]


def without_decay(parameter: nn.Parameter) -> nn.Parameter:
    """Marks a parameter (position table, learned query, `A_log`) as one that weight decay must leave alone.

    The mark is the attribute `_no_weight_decay`, which mamba-ssm uses too, so that its modules need nothing done.
    """
    parameter._no_weight_decay = True  # type: ignore[attr-defined]
    return parameter


def decay_groups(parameters: Iterator[nn.Parameter] | list[nn.Parameter]) -> list[dict]:
    """Two parameter groups for an optimiser: matrices, which decay, and everything else, which does not.

    A matrix is a parameter of two or more axes that `without_decay` has not marked.
    """
    matrices: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for parameter in parameters:
        if not parameter.requires_grad:
            continue
        decays = parameter.ndim >= 2 and not getattr(parameter, "_no_weight_decay", False)
        (matrices if decays else rest).append(parameter)
    groups: list[dict] = [{"params": matrices}, {"params": rest, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def one_group(parameters: Iterator[nn.Parameter] | list[nn.Parameter]) -> list[dict]:
    """One parameter group for an optimiser: everything that is trained, so that everything decays."""
    return [{"params": [parameter for parameter in parameters if parameter.requires_grad]}]


def trainable_parameters(module: nn.Module) -> dict[str, int]:
    """Numbers in the trainable parameters of each child that has any, by its name, and under "total" of the module.

    The total counts a parameter once that two children share, and those of the module itself.
    """
    counts = {name: _count(child) for name, child in module.named_children()}
    return {**{name: count for name, count in counts.items() if count}, "total": _count(module)}


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
