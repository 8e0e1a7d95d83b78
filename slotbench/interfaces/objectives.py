"""Objective, the interface of a term of the loss, and `Scene`, what it reads of a batch of clips."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["Objective", "Scene"]


@dataclass(frozen=True)
class Scene:
    """What a task has made of a batch of clips, for one objective.

    Attributes:
        slots: as the core returned them: of a core with a predictor, corrected by their frame.
        attention: the core's weights of slots and tokens, of either kind, if it has any.
        masks: share of each slot in each cell that the decoder painted, if it has such a notion.
        target: the features or pixels that are reconstructed.
        painted: the channels of the decoder's output that are the objective's own; None if it has none.
    """

    slots: Float[Tensor, "batch time slots dim"]
    attention: Float[Tensor, "batch time slots tokens"] | None
    masks: Float[Tensor, "batch time slots rows cols"] | None
    target: Float[Tensor, "batch time channels rows cols"]
    painted: Float[Tensor, "batch time paints rows cols"] | None


class Objective(nn.Module, ABC):
    """A term of the loss of a batch of clips.

    A subclass takes the core's `SlotSpec` and the target's `VideoSpec` as its first two arguments, gives every other
    one a default, and may set `paints`. A clip of a single step has a finite value, zero where there is nothing to
    compare.

    Attributes:
        weight: the term's factor in the loss.
        paints: channels of the decoder's output that are this objective's own.
    """

    weight: float = 1.0
    paints: int = 0
    reconstructs: ClassVar[bool] = False
    """Whether what it has painted is the target, to be shown as the image."""

    @abstractmethod
    def forward(self, scene: Scene) -> Float[Tensor, ""]:
        """The term, without its weight."""
