"""Interfaces of encoders, decoders and tokenizers, with their outputs; `cores` has temporal cores.

They are abstract classes, not protocols, because the configuration parser finds a component by its class name among the
subclasses of its interface.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.interfaces.batch import VideoBatch
from slotbench.interfaces.entrances import TakesFrames, check_first_pixels
from slotbench.interfaces.frames import unit_frames
from slotbench.interfaces.sized_parts import PartError, SizedPart
from slotbench.interfaces.specs import SlotSpec, TokenSpec, VideoSpec

__all__ = [
    "AutoregressiveDecoder",
    "CodeEncoder",
    "CodeTables",
    "Decoded",
    "Decoder",
    "Encoder",
    "Tokenized",
    "Tokenizer",
]


@dataclass
class Decoded:
    """What a decoder made of the slots.

    Attributes:
        reconstruction: pixels, or logits of the classes.
        masks: share of each slot in each pixel, summing to 1 over slots, if the decoder has such a notion.
        components: each slot's own image.
        losses: terms that the decoder itself adds to the loss, scalars by name.
        depth: distance along the ray of each pixel, in the unit of the rays, if the decoder has such a notion.
        background: share of each pixel that belongs to no slot, where a decoder has it beside the slots; `masks` times
            the rest are then the shares of the slots.
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


class Encoder(SizedPart, TakesFrames, ABC):
    """Turns each time step, on its own, into tokens.

    A subclass takes a `VideoSpec` as its first argument, gives every other argument a default, and sets `token_spec`.
    The tokens of a step are those of all views that are shown; `VideoBatch.held_out` is not read. Frames are floats in
    [0, 1] when `forward` reads them: bytes are divided by 255 before (`TakesFrames`), and other pixels refused. Called
    with frames alone, a tensor or an array "batch time channels height width", `forward` reads a `VideoBatch` of them.
    """

    token_spec: TokenSpec
    takes_views: ClassVar[bool] = False
    """Whether there may be several views per step. A task refuses an encoder that takes one, where data gives more."""
    hides_frames: ClassVar[bool] = False
    """Whether `VideoBatch.hidden` is read: the tokens of a hidden step depend on its action alone."""

    @abstractmethod
    def forward(self, batch: VideoBatch) -> Float[Tensor, "batch time tokens dim"]:
        """Tokens of every step."""

    def received(self, given: Any) -> Any:
        """A batch with frames in [0, 1]; floats of the first one, in training and in evaluation, are looked at.

        Raises:
            UserError: frames are of another type or range.
        """
        if isinstance(given, VideoBatch):
            check_first_pixels(self, given.frames)
        return super().received(given)

    def check_given(self, given: Any) -> None:
        """Refuses frames of another size than the `VideoSpec`'s.

        Raises:
            PartError: they are.
        """
        frames, spec = given.frames if isinstance(given, VideoBatch) else given, self.built_for(VideoSpec)
        if spec is None or not hasattr(frames, "shape"):
            return
        if frames.shape[-3:] != (spec.channels, spec.height, spec.width):
            instead = "resize the frames, or build it from the VideoSpec of theirs"
            if frames.shape[-3:] == (spec.height, spec.width, spec.channels):
                instead = "VideoBatch.from_numpy takes arrays with the channels last"
            built_for = f"{spec.channels} channels, {spec.height} x {spec.width}"
            raise self.refuse(frames, "batch time channels height width", built_for, instead)

    def prepared(self) -> Callable[[VideoBatch], Tensor]:
        """A function that does what a call does, for the many short calls of one roll-out; by default the encoder.

        What `TemporalCore.prepared` promises holds for it too. It is given frames that were predicted, floats.
        """
        return self


class CodeTables(NamedTuple):
    """The vectors by which a part reads the codes of a frame.

    Attributes:
        codes: one for each code.
        positions: one for each place in a frame, "1 + cells, dim": that before the first cell, then the cells'.
    """

    codes: nn.Embedding
    positions: nn.Parameter


class CodeEncoder(Encoder):
    """An encoder that reads the codes which a task has for each frame, `VideoBatch.codes`, and not its pixels.

    It is built where `VideoSpec.codes` says which there are. A task whose decoder predicts the codes has both read them
    by the same vectors, if the decoder gives its own (`AutoregressiveDecoder.tables`).
    """

    @abstractmethod
    def share(self, tables: CodeTables) -> None:
        """Reads by these vectors from now on, which are trained through both parts.

        Raises:
            PartError: they are of another width or for other codes than its own.
        """

    def check_given(self, given: Any) -> None:
        """Takes frames of any size, which it does not read."""


class Decoder(SizedPart, TakesFrames, ABC):
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
        """Decodes every step of `slots`; `batch` is there for decoders that need the target or camera rays.

        To paint held-out views, a task gives `VideoBatch.held_out` as the batch.
        """

    def check_given(self, given: Any) -> None:
        """Refuses slots of another width than the `SlotSpec`'s.

        Raises:
            PartError: they are.
        """
        instead = "give output.slots of the core whose slot_spec it was built from"
        self.check_width(given, SlotSpec, "batch time slots dim", instead)

    def prepared(self) -> Callable[[Tensor], Decoded]:
        """A function of slots alone that does what a call does, for the many short calls of one roll-out.

        By default it is the decoder. What `TemporalCore.prepared` promises holds for it too.
        """
        return self


class AutoregressiveDecoder(Decoder):
    """A decoder of classes, such as a tokenizer's codes, that reads the cells of a step that it has already predicted.

    In training it is given the true ones (teacher forcing), `VideoBatch.target` with one target per step. In evaluation
    `sample` predicts cell by cell, from its own predictions. `Decoded.reconstruction` holds the logits in both.
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
        """The cells, predicted one by one, with the logits they were chosen by; the target of `batch` is not read.

        Args:
            slots: of every step.
            batch: for camera rays.
            temperature: the logits are divided by it before a class is drawn; with 0 the most likely class is taken.
        """


@dataclass
class Tokenized:
    """What a tokenizer made of frames.

    Attributes:
        codes: the code of each cell.
        reconstruction: the frames, decoded from the codes in a way that has a gradient; None where nothing is learned.
        losses: terms that the tokenizer itself adds to the loss, scalars by name.
    """

    codes: Integer[Tensor, "batch time *views rows cols"]
    reconstruction: Float[Tensor, "batch time *views channels height width"] | None = None
    losses: dict[str, Tensor] = field(default_factory=dict)


class Tokenizer(TakesFrames, nn.Module, ABC):
    """Turns each frame, on its own, into a grid of discrete codes, and codes into frames.

    A subclass takes a `VideoSpec` as its first argument, gives every other argument a default, and sets `code_spec`,
    from which the decoder that predicts the codes is built: its channels are the codes, its height and width the cells.

    A tokenizer that decodes a code by its row in a table has that table as `codebook`, for models that read `embed`.
    It is the tensor that `decode` reads, or a view of it: a parameter, a buffer or a property. The base declares it and
    sets none.
    """

    code_spec: VideoSpec
    codebook: Float[Tensor, "codes embedding_dim"]
    frame_arguments = ("frames",)

    def as_frames(self, given: Any) -> Any:
        """Frames as they are, a tensor."""
        return given

    def received(self, given: Any) -> Any:
        """Frames of bytes as floats in [0, 1]; floats of the first call, in training and in evaluation, are looked at.

        Raises:
            UserError: frames are of another type or range.
        """
        if not isinstance(given, Tensor):
            return given
        check_first_pixels(self, given)
        return unit_frames(given)

    @abstractmethod
    def forward(self, frames: Float[Tensor, "batch time *views channels height width"]) -> Tokenized:
        """Codes of frames in [0, 1], and what a training of the tokenizer needs.

        In training codes may be drawn; in evaluation they are a function of the frame.
        """

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
        """Rows of the codebook by code, without a gradient.

        Raises:
            PartError: the tokenizer has no `codebook`.
        """
        return F.embedding(codes, self._table().detach()).movedim(-1, -3)

    @property
    def embedding_dim(self) -> int:
        """Width of `embed`.

        Raises:
            PartError: the tokenizer has no `codebook`.
        """
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
        """Told before every step of a training which one it is, from 0 on, for what is annealed.

        Nothing that it sets may matter in evaluation.
        """

    def fit(self, frames: Float[Tensor, "frames channels height width"]) -> None:
        """Fits what is not trained by gradients to frames in [0, 1], before the training; see `fit_frames`."""
