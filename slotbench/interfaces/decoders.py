"""Decoder, the interface of what turns slots into pixels or logits, and `Decoded`, its output."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar

from jaxtyping import Float, Integer
from torch import Tensor, nn

from slotbench.interfaces.batch import VideoBatch
from slotbench.interfaces.encoders import CodeTables

__all__ = ["AutoregressiveDecoder", "Decoded", "Decoder"]


@dataclass
class Decoded:
    """What a decoder made of the slots.

    Attributes:
        reconstruction: pixels, or logits of the classes.
        masks: share of each slot in each pixel, summing to 1 over slots, if the decoder has such a notion.
        components: each slot's own image.
        losses: terms that the decoder itself adds to the loss, scalars by name.
        depth: distance along the ray of each pixel, in the unit of the rays.
        background: share of each pixel that belongs to no slot; the slots' are then `masks` times the rest.
    """

    reconstruction: Float[Tensor, "batch time *views channels height width"]
    masks: Float[Tensor, "batch time *views slots height width"] | None = None
    components: Float[Tensor, "batch time *views slots channels height width"] | None = None
    losses: dict[str, Tensor] = field(default_factory=dict)
    depth: Float[Tensor, "batch time *views height width"] | None = None
    background: Float[Tensor, "batch time *views height width"] | None = None

    def add_losses(self, value: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """`value` plus the terms of the decoder."""
        for term in self.losses.values():
            value = value + term
        return value


class Decoder(nn.Module, ABC):
    """Turns slots into pixels or logits, each time step on its own.

    A subclass takes a `SlotSpec` and the target's `VideoSpec` as its first two arguments and gives every other one a
    default.
    """

    takes_views: ClassVar[bool] = False
    """Whether it paints the views whose rays are in the batch, if there are several."""
    paints_rays: ClassVar[bool] = False
    """Whether it paints each ray of the batch on its own: `VideoBatch.take_rays` then gives any of them, as a view of a
    single row, and the output has the views, rows and columns of `batch.rays`, whatever `video_spec` says. Such a
    decoder takes views, too."""
    paints_pixels: bool = False
    """Whether a sigmoid of its own bounds the image to [0, 1]. A task refuses it where the loss squashes the image."""

    @abstractmethod
    def forward(self, slots: Float[Tensor, "batch time slots dim"], batch: VideoBatch | None = None) -> Decoded:
        """Decodes every step of `slots`; `batch` is there for decoders that need the target or camera rays."""


class AutoregressiveDecoder(Decoder):
    """A decoder of classes, such as a tokenizer's codes, that reads the cells of a step that it has already predicted.

    In training it is given the true ones, `VideoBatch.target` with one target per step; `sample` predicts cell by cell.
    """

    @abstractmethod
    def forward(self, slots: Float[Tensor, "batch time slots dim"], batch: VideoBatch | None = None) -> Decoded:
        """Logits of every cell, in row-major order, from the slots and the true cells before it."""

    @property
    def tables(self) -> CodeTables | None:
        """The vectors by which it reads codes, for a `CodeEncoder` to share; None where it has none to give."""
        return None

    @abstractmethod
    def sample(
        self, slots: Float[Tensor, "batch time slots dim"], batch: VideoBatch | None = None, temperature: float = 0.0
    ) -> tuple[Integer[Tensor, "batch time *views rows cols"], Decoded]:
        """The cells, predicted one by one, with the logits they were chosen by; the target of `batch` is not read."""
