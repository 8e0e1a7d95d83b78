"""Parts that break a law: a sound part whose input, output or attributes are changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import nn

__all__ = ["changed", "forgetful", "mistakes", "with_dead_parameter"]


def changed(
    base: type,
    output: Callable[..., Any] | None = None,
    given: Callable[..., tuple] | None = None,
    made: Callable[[Any], Any] | None = None,
    method: str = "forward",
    **attributes: Any,
) -> type:
    """A subclass of a part.

    Args:
        base: the part.
        output: takes the part, what `method` returned, and its arguments; gives what is returned in its place.
        given: takes the arguments of `method` and gives those that it is called with.
        made: is called with a new part.
        method: that is changed.
        **attributes: of the class.
    """

    class Changed(base):
        def __init__(self, *specs):
            super().__init__(*specs)
            if made is not None:
                made(self)

    def call(self, *positional, **named):
        arguments = (*positional, *named.values())
        found = getattr(super(Changed, self), method)(*(given(*arguments) if given else arguments))
        return found if output is None else output(self, found, *arguments)

    if output or given:
        attributes[method] = call
    return type("Changed", (Changed,), attributes) if attributes else Changed


def with_dead_parameter(base: type, **more: Any) -> type:
    """A part with a parameter that nothing reads."""
    return changed(base, made=lambda part: part.register_parameter("forgotten", nn.Parameter(torch.zeros(3))), **more)


def forgetful(base: type, size: int, output: Callable[..., Any], **more: Any) -> type:
    """A part with a random `offset` that its checkpoint does not hold."""

    def made(part):
        part.register_buffer("offset", torch.rand(size), persistent=False)

    return changed(base, output, made=made, **more)


def mistakes(broken: Mapping[Callable, Mapping[str, tuple[type, str]]]) -> list[Any]:
    """Law, part and message, of laws with the parts that break them by what these do wrong."""
    return [
        pytest.param(law, part, message, id=name)
        for law, parts in broken.items()
        for name, (part, message) in parts.items()
    ]
