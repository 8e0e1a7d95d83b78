"""Encoder, the interface of what turns the frames of a batch into tokens; an abstract class, which the parser can find.

`CodeEncoder` reads a tokenizer's codes in the place of pixels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces.batch import VideoBatch
from slotbench.interfaces.specs import TokenSpec

__all__ = ["CodeEncoder", "CodeTables", "Encoder"]


class Encoder(nn.Module, ABC):
    """Turns each time step, on its own, into tokens.

    A subclass takes a `VideoSpec` as its first argument, gives every other argument a default, and sets `token_spec`.
    `forward` reads `VideoBatch.pixels`. The tokens of a step are those of all views that are shown;
    `VideoBatch.held_out` is not read.
    """

    token_spec: TokenSpec
    takes_views: ClassVar[bool] = False
    """Whether there may be several views per step. A task refuses an encoder that takes one, where data gives more."""
    hides_frames: ClassVar[bool] = False
    """Whether `VideoBatch.hidden` is read: the tokens of a hidden step depend on its action alone."""

    @abstractmethod
    def forward(self, batch: VideoBatch) -> Float[Tensor, "batch time tokens dim"]:
        """Tokens of every step."""


class CodeTables(NamedTuple):
    """The vectors of codes, and of places in a frame "1 + cells, dim": that before the first cell, then the cells'."""

    codes: nn.Embedding
    positions: nn.Parameter


class CodeEncoder(Encoder):
    """An encoder that reads the codes of each frame, `VideoBatch.codes`, and not its pixels.

    A task whose decoder predicts the codes has both read them by the same vectors (`AutoregressiveDecoder.tables`).
    """

    @abstractmethod
    def share(self, tables: CodeTables) -> None:
        """Reads by these vectors from now on, which are trained through both parts."""
