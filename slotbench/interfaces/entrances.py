"""Where frames enter a part or a task: bytes are turned into floats in [0, 1] before a method reads them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from slotbench.errors import UserError
from slotbench.interfaces.batch import VideoBatch, to_unit_range
from slotbench.interfaces.frames import check_pixels

__all__ = ["TakesFrames", "check_first_pixels"]

_SEEN: WeakKeyDictionary[Any, set[bool]] = WeakKeyDictionary()
"""Modules whose frames were looked at -> in which modes; not on the modules, which a call leaves as they were."""


class TakesFrames:
    """Base of classes whose methods take clips: a subclass's methods are given frames in [0, 1], whoever calls them.

    These are the public methods with an argument of one of the names in `frame_arguments`. A subclass writes nothing
    for it, and reads `batch.frames` as floats also in a loop of one's own, over bytes. Frames alone are made a batch.
    """

    frame_arguments: ClassVar[tuple[str, ...]] = ("batch",)

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        for name, method in list(vars(cls).items()):
            if inspect.isfunction(method) and not (name.startswith("_") or hasattr(method, "takes_unit_frames")):
                taken = [given for given in inspect.signature(method).parameters if given in cls.frame_arguments]
                if taken:
                    setattr(cls, name, _given_unit_frames(method, taken))

    def as_frames(self, given: Any) -> Any:
        """A batch as it is; frames alone, a tensor or an array, as a batch of them.

        Raises:
            UserError: it is something else.
        """
        if given is None or isinstance(given, VideoBatch):
            return given
        if isinstance(given, Tensor | np.ndarray):
            return VideoBatch(given)  # type: ignore[arg-type]  # it makes a tensor of an array
        raise UserError(
            f"{type(self).__name__} was given a {type(given).__name__}; expected a VideoBatch, or frames, a tensor "
            '"batch time channels height width"'
        )

    def received(self, given: Any) -> Any:
        """A batch as the method reads it; anything else as it is."""
        return to_unit_range(given) if isinstance(given, VideoBatch) else given


def check_first_pixels(module: nn.Module, frames: Tensor) -> None:
    """Refuses pixels that are not in [0, 1], of the first floats that a module is given in training and in evaluation.

    It reads every pixel and waits for a GPU, so that later calls have none of it, nor has a function that is compiled.

    Raises:
        UserError: a pixel is outside, or no number.
    """
    if torch.compiler.is_compiling() or not frames.is_floating_point():
        return
    modes = _SEEN.setdefault(module, set())
    if module.training not in modes:
        check_pixels(frames)
        modes.add(module.training)


def _given_unit_frames(method: Callable[..., Any], frames: Sequence[str]) -> Callable[..., Any]:
    places = {place for place, name in enumerate(list(inspect.signature(method).parameters)[1:]) if name in frames}

    @wraps(method)
    def given_unit_frames(self: Any, *given: Any, **named: Any) -> Any:
        positional = [
            self.received(self.as_frames(value) if place in places else value) for place, value in enumerate(given)
        ]
        by_name = {
            name: self.received(self.as_frames(value) if name in frames else value) for name, value in named.items()
        }
        return method(self, *positional, **by_name)

    given_unit_frames.__dict__["takes_unit_frames"] = True
    return given_unit_frames
