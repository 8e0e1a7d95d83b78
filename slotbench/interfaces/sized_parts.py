"""What encoders, cores and decoders share: the sizes that each was built from, and a refusal of tensors of others."""

from __future__ import annotations

import inspect
from abc import abstractmethod
from collections.abc import Callable
from functools import wraps
from typing import Any, Self, TypeVar

from torch import Tensor, nn

from slotbench.errors import UserError
from slotbench.interfaces.specs import SlotSpec, TokenSpec, VideoSpec

__all__ = ["PartError", "SizedPart"]

Spec = TypeVar("Spec", bound=VideoSpec | TokenSpec | SlotSpec)


class PartError(UserError, ValueError):
    """An encoder, core or decoder breaks its interface; a command ends with the sentence, without a traceback."""


class SizedPart(nn.Module):
    """Base of encoders, cores and decoders: a call with a tensor of other sizes ends with a sentence.

    Attributes:
        built_from: the specs among the constructor's arguments.
    """

    built_from: tuple[VideoSpec | TokenSpec | SlotSpec, ...] = ()

    def __new__(cls, *given: Any, **named: Any) -> Self:
        """A part without anything but `built_from`."""
        part = super().__new__(cls)
        specs = [value for value in (*given, *named.values()) if isinstance(value, VideoSpec | TokenSpec | SlotSpec)]
        part.__dict__["built_from"] = tuple(specs)  # nn.Module cannot set attributes before its constructor
        return part

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if inspect.isfunction(forward := vars(cls).get("forward")):
            cls.forward = _checked(forward)  # type: ignore[method-assign]

    def built_for(self, kind: type[Spec]) -> Spec | None:
        """The spec of a kind that the part was built from; None where there is none."""
        return next((spec for spec in self.built_from if isinstance(spec, kind)), None)

    @abstractmethod
    def check_given(self, given: Any) -> None:
        """Refuses what `forward` is given first if it does not fit the sizes that the part was built from.

        Raises:
            PartError: it has other axes or sizes.
        """

    def check_width(self, given: Any, kind: type[TokenSpec] | type[SlotSpec], axes: str, instead: str) -> None:
        """Refuses anything but a tensor of these four axes, the last as wide as the spec of a kind says.

        Args:
            given: in its place.
            kind: of the spec that the part was built from; without one nothing is refused.
            axes: that are expected.
            instead: what to type.

        Raises:
            PartError: it is something else.
        """
        spec = self.built_for(kind)
        if spec is not None and not (isinstance(given, Tensor) and given.dim() == 4 and given.shape[-1] == spec.dim):
            raise self.refuse(given, axes, f"dim {spec.dim}", instead)

    def refuse(self, given: Any, axes: str, built_for: str, instead: str) -> PartError:
        """The error of `check_given`.

        Args:
            given: in its place.
            axes: that are expected.
            built_for: what the part was built for.
            instead: what to type.
        """
        shape = getattr(given, "shape", None)
        found = f"a {type(given).__name__}" if shape is None else f"a tensor of shape {list(shape)}"
        return PartError(
            f'{type(self).__name__} was given {found}; expected "{axes}" with {built_for}, which it was built for: '
            f"{instead}"
        )


def _checked(forward: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(forward)
    def checked(self: SizedPart, *given: Any, **named: Any) -> Any:
        # a subclass may hand other sizes to the `forward` of its base
        if type(self).forward is checked and self.built_from and (given or named):
            self.check_given(given[0] if given else next(iter(named.values())))
        return forward(self, *given, **named)

    return checked
