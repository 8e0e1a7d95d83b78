"""Every part under tools of torch: checkpointing, functional calls, an output used twice, a batch of no clips."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any

import pytest
import torch
from any_part import PARTS, any_part
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from slotbench import registry
from slotbench.interfaces import VideoBatch
from slotbench.ops import set_kernel
from slotbench.testing import laws
from slotbench.testing.aids import move_off_initial_values, scalar

TRAINED = [part for part in PARTS if part[0] != "tokenizers"]
pytestmark = pytest.mark.usefixtures("unchecked_shapes")


def leaves(value: Any) -> list[Tensor]:
    """The tensors of floats in what a part returned."""
    if isinstance(value, Tensor):
        return [value] if value.is_floating_point() else []
    if is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for one in value for leaf in leaves(one)] if isinstance(value, list | tuple) else []


def of_none(batch: VideoBatch) -> VideoBatch:
    objects = {name: value[:0] for name, value in batch.objects.items()}
    held = {name: value[:0] for name, value in vars(batch).items() if isinstance(value, Tensor)}
    return replace(batch, objects=objects, **held)


def kernels_of(core: str) -> list[str]:
    """The kernels that run here of the ops of a core."""
    return [name for name in laws._kernels(registry.load("cores", core)(laws.SPEC)) if name != "auto"]


def loss_of(output: Any) -> Tensor:
    return torch.stack([scalar(leaf) for leaf in leaves(output) if leaf.requires_grad]).sum()


Made = tuple[nn.Module, tuple[Any, ...]]


def made(kind: str, name: str, kernel: str | None = None) -> Made:
    torch.manual_seed(0)
    part, given = any_part(kind, name)
    move_off_initial_values(part)
    if kernel is not None:
        set_kernel(part, kernel)
    floats = [value.requires_grad_() for value in given if isinstance(value, Tensor)]
    return part, (*floats, *given[len(floats) :])


def call(part: Callable[..., Any], given: tuple[Any, ...]) -> Any:
    torch.manual_seed(1)
    return part(*given)


def results(made: Made, output: Any, *losses: Tensor) -> list[Tensor]:
    """What a part returned, and the gradients of losses, one after the other."""
    part, given = made
    inputs = [*part.parameters(), *(value for value in given if isinstance(value, Tensor))]
    for value in inputs:
        value.grad = None
    for index, loss in enumerate(losses, 1):
        loss.backward(retain_graph=index < len(losses))
    gradients = [torch.zeros_like(value) if value.grad is None else value.grad for value in inputs]
    return [*(leaf.detach() for leaf in leaves(output)), *gradients]


def checkpointed(made: Made) -> list[Tensor]:
    output = call(partial(checkpoint, made[0], use_reentrant=False), made[1])
    return results(made, output, loss_of(output))


def functional(made: Made) -> list[Tensor]:
    part, given = made
    weights = {name: value.detach().clone().requires_grad_() for name, value in part.named_parameters()}
    with torch.no_grad():
        for value in part.parameters():
            value.fill_(float("nan"))
    output = call(lambda *given: torch.func.functional_call(part, weights, given), given)
    expected = results(made, output, loss_of(output))
    gradients = [torch.zeros_like(value) if value.grad is None else value.grad for value in weights.values()]
    return [*expected[: len(leaves(output))], *gradients, *expected[len(leaves(output)) + len(weights) :]]


def twice(made: Made) -> list[Tensor]:
    """Two backward passes, the second of two losses of the same output."""
    output = call(*made)
    return results(made, output, loss_of(output) / 2, loss_of(output) / 4 + loss_of(output) / 4)


TOOLS = (checkpointed, functional, twice)
KERNELS = [("cores", name, kernel) for name in registry.names("cores") for kernel in kernels_of(name)]


@pytest.mark.parametrize(
    ("kind", "name", "kernel"), [*((*part, None) for part in TRAINED if part[0] != "encoders"), *KERNELS]
)
def test_a_tool_changes_neither_values_nor_gradients(kind, name, kernel):
    output = call(*(plain := made(kind, name, kernel)))
    expected = results(plain, output, loss_of(output))
    for tool in TOOLS:
        for found, value in zip(tool(made(kind, name, kernel)), expected, strict=True):
            torch.testing.assert_close(found, value, rtol=1e-9, atol=1e-11, msg=partial("{}: {}".format, tool.__name__))


# they make images of tokens, whose sizes are unknown without any
REFUSE_NONE = {"CNNEncoder", "ResNetEncoder", "ResNetTransformerEncoder", "StridedCNNEncoder"}
REFUSE_NONE |= {"ConvLSTM", "ConvS5", "ConvSSM", "VideoTransformer", "ResNetDecoder"}


@pytest.mark.filterwarnings("ignore:var_mean\\(\\). degrees of freedom")
@pytest.mark.parametrize(("kind", "name"), TRAINED)
def test_a_batch_of_none_gives_nothing_or_is_refused_in_a_sentence(kind, name):
    part, given = made(kind, name)
    shapes = [leaf.shape[1:] for leaf in leaves(call(part, given)) if leaf.ndim]
    given = tuple(value.detach()[:0] if isinstance(value, Tensor) else of_none(value) for value in given)
    given = tuple(value.requires_grad_() if isinstance(value, Tensor) else value for value in given)
    if name in REFUSE_NONE:
        with pytest.raises(ValueError, match=r"no clips|0 clips|none of them 0"):
            call(part, given)
        return
    output = call(part, given)
    found = leaves(output)
    assert [leaf.shape for leaf in found if leaf.ndim] == [(0, *shape) for shape in shapes]
    loss = torch.stack([leaf.sum() for leaf in found if leaf.requires_grad and leaf.ndim]).sum()
    assert not any(gradient.any() for gradient in results((part, given), output, loss)[len(found) :])
