"""Where frames enter a part or a task: bytes are turned into floats in [0, 1] before a method reads them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar

from slotbench.interfaces.batch import VideoBatch, to_unit_range

__all__ = ["TakesFrames"]


class TakesFrames:
    """Base of classes whose methods take clips: a subclass's methods are given frames in [0, 1], whoever calls them.

    These are the public methods with an argument of one of the names in `frame_arguments`. A subclass writes nothing
    for it, and reads `batch.frames` as floats also in a loop of one's own, over bytes.
    """

    frame_arguments: ClassVar[tuple[str, ...]] = ("batch",)

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        for name, method in list(vars(cls).items()):
            if inspect.isfunction(method) and not (name.startswith("_") or hasattr(method, "takes_unit_frames")):
                taken = [given for given in inspect.signature(method).parameters if given in cls.frame_arguments]
                if taken:
                    setattr(cls, name, _given_unit_frames(method))

    def received(self, given: Any) -> Any:
        """A batch as the method reads it; anything else as it is."""
        return to_unit_range(given) if isinstance(given, VideoBatch) else given


def _given_unit_frames(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def given_unit_frames(self: Any, *given: Any, **named: Any) -> Any:
        return method(self, *map(self.received, given), **{name: self.received(value) for name, value in named.items()})

    given_unit_frames.__dict__["takes_unit_frames"] = True
    return given_unit_frames
