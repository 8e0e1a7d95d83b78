"""Tokenizer, the interface of what turns frames into discrete codes and back, and `Tokenized`, its output."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.interfaces.specs import PartError, VideoSpec

__all__ = ["Tokenized", "Tokenizer"]


@dataclass
class Tokenized:
    """What a tokenizer made of frames: codes, a reconstruction where anything is learned, and its own loss terms."""

    codes: Integer[Tensor, "batch time *views rows cols"]
    reconstruction: Float[Tensor, "batch time *views channels height width"] | None = None
    losses: dict[str, Tensor] = field(default_factory=dict)


class Tokenizer(nn.Module, ABC):
    """Turns each frame, on its own, into a grid of discrete codes, and codes into frames.

    A subclass takes a `VideoSpec` as its first argument, gives every other argument a default, and sets `code_spec`:
    its channels are the codes, its height and width the cells. One that decodes a code by its row in a table has that
    table as `codebook` (the tensor that `decode` reads), for models that read `embed`.
    """

    code_spec: VideoSpec
    codebook: Float[Tensor, "codes embedding_dim"]

    @abstractmethod
    def forward(self, frames: Float[Tensor, "batch time *views channels height width"]) -> Tokenized:
        """Codes of frames in [0, 1], and what a training of the tokenizer needs."""

    def encode(
        self, frames: Float[Tensor, "batch time *views channels height width"]
    ) -> Integer[Tensor, "batch time *views rows cols"]:
        """The codes of a call alone, for those who need nothing else; a subclass may spare the rest."""
        return self(frames).codes

    @abstractmethod
    def decode(
        self, codes: Integer[Tensor, "batch time *views rows cols"]
    ) -> Float[Tensor, "batch time *views channels height width"]:
        """Frames in [0, 1] of codes."""

    def embed(
        self, codes: Integer[Tensor, "batch time *views rows cols"]
    ) -> Float[Tensor, "batch time *views embedding_dim rows cols"]:
        """Rows of the codebook by code, without a gradient."""
        return F.embedding(codes, self._table().detach()).movedim(-1, -3)

    @property
    def embedding_dim(self) -> int:
        """Width of `embed`."""
        return self._table().shape[1]

    @property
    def last_layer(self) -> nn.Parameter | None:
        """Weights of the layer that paints frames, at which an adversarial loss is weighed; None without one."""
        return None

    def _table(self) -> Tensor:
        table = getattr(self, "codebook", None)
        if not isinstance(table, Tensor):
            raise PartError(
                f"{type(self).__name__} has no codebook, and a model of code embeddings reads one: choose PatchKMeans "
                "or DVAE, or let it have its table as codebook, a tensor of codes x embedding_dim"
            )
        return table

    @property
    def fit_frames(self) -> int:
        """Frames of the training split that `fit` needs before the training; 0 where nothing needs fitting.

        A tokenizer that has been fitted, or has the weights of one that has, gives 0.
        """
        return 0

    def at_step(self, step: int) -> None:
        """Told before every step of a training which one it is, from 0 on, for what is annealed."""

    def fit(self, frames: Float[Tensor, "frames channels height width"]) -> None:
        """Fits what is not trained by gradients to frames in [0, 1], before the training; see `fit_frames`."""
