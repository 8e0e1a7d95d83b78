"""Parameter groups for weight decay, counts of trainable parameters, and what is computed from parameters alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

__all__ = ["WhileUnchanged", "decay_groups", "one_group", "trainable_parameters", "without_decay"]

T = TypeVar("T")


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


class WhileUnchanged(Generic[T]):
    """What is computed from parameters alone, for calls without gradient; computed anew once one of them is another.

    It compares memory, dtype and version of every parameter at each call, and so sees a step of an optimiser,
    `load_state_dict`, weights that are swapped (an average of the weights, `torch.func.functional_call`) and a move to
    another device or dtype. A parameter written in place through its `.data` has no new version: code that does that
    makes a new one of these, as every roll-out does. With gradients enabled, and for parameters that keep no version
    (made in inference mode), it computes at every call.

    Args:
        compute: makes the value.
        parameters: the tensors that it depends on, as they are at the time of the call.
    """

    def __init__(self, compute: Callable[[], T], parameters: Callable[[], Sequence[Tensor]]):
        self._compute = compute
        self._parameters = parameters
        self._marks: list[tuple[Any, ...]] | None = None
        self._sources: list[Tensor] = []
        self._value: T

    def __call__(self) -> T:
        """The value for the parameters as they are now."""
        if torch.is_grad_enabled():
            return self._compute()
        parameters = self._parameters()
        try:
            marks = [(parameter.data_ptr(), parameter._version, parameter.dtype) for parameter in parameters]
        except RuntimeError:  # made in inference mode, without a version
            return self._compute()
        if marks != self._marks:
            self._value, self._marks = self._compute(), marks
            # kept alive, so that no other tensor gets the same memory
            self._sources = [parameter.detach() for parameter in parameters]
        return self._value


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)
