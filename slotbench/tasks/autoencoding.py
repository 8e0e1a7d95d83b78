"""A task that decodes frames from slots: what it reads, what the slots cover, and what is predicted and shown of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor
from torch.nn import functional as F

from slotbench.interfaces import CoreOutput, Decoded, Segmentation, Segmenter, State, VideoBatch
from slotbench.metrics.contingency import masks_to_labels
from slotbench.metrics.discovery_scores import DiscoveryScores
from slotbench.pretrained.feature_extractor import FeatureExtractor
from slotbench.tasks.pieces import (
    WHOLE,
    SlotRecording,
    StreamPosition,
    continue_stream,
    frame_by_frame,
    may_be_cut,
    piece_frames,
)
from slotbench.tasks.slot_pictures import slot_panel, slot_video
from slotbench.tasks.slot_story import STORIES, SlotStory, numbered_pictures
from slotbench.tasks.slot_task import SlotTask

__all__ = ["Autoencoded", "AutoencodingTask", "Pixels", "frame_size", "resized_masks"]

Pixels = Literal["unit", "signed"]
"""The range of pixels that a decoder paints: [0, 1] or [-1, 1]."""


@dataclass
class Autoencoded(Segmentation):
    """What a clip was taken apart into.

    Attributes:
        decoded: what the decoder made of the slots, in its own range and size.
        masks: those of `decoded` at the size of the frames; in training at the decoder's own, which costs nothing.
        read: what the encoder read, with features in the place of frames where features are learned.
        core: what the core handed over.
    """

    decoded: Decoded = field(kw_only=True)
    read: VideoBatch = field(kw_only=True)
    core: CoreOutput = field(kw_only=True)


def frame_size(batch: VideoBatch) -> tuple[int, int]:
    """Height and width of the frames."""
    height, width = batch.frames.shape[-2:]
    return height, width


def resized_masks(masks: Float[Tensor, "batch time slots rows cols"], size: tuple[int, int]) -> Tensor:
    """Masks at another size, bilinear."""
    if tuple(masks.shape[-2:]) == size:
        return masks
    resized = F.interpolate(masks.flatten(0, 1).float(), size=size, mode="bilinear", align_corners=False)
    return resized.unflatten(0, masks.shape[:2])


class AutoencodingTask(SlotTask, Segmenter):
    """Encodes frames or their features, and decodes them from slots; a subclass says what is learned and scored.

    Attributes:
        pixels: the range that the decoder paints pixels in.
        extractor: the frozen network whose features are read and reconstructed in place of pixels, if there is one.
        learns_features: whether features are read, of the extractor or of the data.
        eval_window: in evaluation, each step is computed from so many last frames alone; None for all.
        slot_pictures: whether to show also what became of each slot, of frames alone.
    """

    pixels: Pixels
    extractor: FeatureExtractor | None
    learns_features: bool
    eval_window: int | None
    slot_pictures: bool = False
    _position: StreamPosition | None = None

    @frame_by_frame
    def forward(self, batch: VideoBatch) -> Autoencoded:
        """Slots of every frame, and what the decoder makes of them."""
        read = self._read(batch)
        return self._decode(batch, read, self.core(self.encoder(read), self.core.first_state(batch)))

    def evaluate(self, batch: VideoBatch) -> Autoencoded:
        """The same as in validation and test: through windows, if `eval_window` is set."""
        if self.eval_window is None:
            return self(batch)
        read = self._read(batch)
        state = self.core.first_state(batch)
        return self._decode(batch, read, continue_stream(self.core, self.encoder(read), state, self.eval_window)[0])

    def stream(self, batch: VideoBatch, state: State | None) -> tuple[Autoencoded, State]:
        """The next frames, as if the clips had been read whole."""
        read = self._read(batch)
        state = self.core.first_state(batch) if state is None else state
        out, state = continue_stream(self.core, self.encoder(read), state, self.eval_window)
        return self._decode(batch, read, out), state

    def target(self, batch: VideoBatch) -> Float[Tensor, "batch time channels rows cols"]:
        """What is to be reconstructed, in the decoder's range."""
        return self._target(self._read(batch))

    def frames(self, decoded: Decoded) -> Float[Tensor, "batch time channels height width"]:
        """What the decoder painted, as frames in [0, 1].

        Raises:
            ValueError: it painted features.
        """
        if self.learns_features:
            raise ValueError("this task reconstructs features, which are no frames")
        return self._unit(decoded.reconstruction)

    def painted(self, out: Autoencoded) -> Float[Tensor, "batch time channels height width"]:
        """The frames in [0, 1] that are shown and saved of a clip."""
        return self.frames(out.decoded)

    def painted_truth(self, batch: VideoBatch) -> Float[Tensor, "batch time channels height width"] | None:
        """What is to be painted, in [0, 1], where that is something else than the frames; None by default."""
        return None

    def on_validation_start(self) -> None:
        """Has the last validation of a training, and any other evaluation, keep the scores of every clip."""
        trainer = self.trainer
        goes_on = trainer.state.fn == TrainerFn.FITTING and trainer.global_step < trainer.estimated_stepping_batches
        self.scores_of("val").per_clip = not goes_on

    def on_test_start(self) -> None:
        """Has the test keep the scores of every clip."""
        self.scores_of("test").per_clip = True

    def attention_masks(
        self, attention: Float[Tensor, "batch time slots tokens"], size: tuple[int, int]
    ) -> Float[Tensor, "batch time slots height width"] | None:
        """Attention over tokens as masks of `size` (height, width), bilinear; None if the tokens are on no grid."""
        grid = self.encoder.token_spec.grid
        return None if grid is None else resized_masks(attention.unflatten(-1, grid), size)

    def predict(self, batch: VideoBatch) -> dict[str, Tensor]:
        """The slots, their shares in each pixel, the one that wins it, and the reconstructed frames, if it is frames.

        A piece of a video that continues the one before it gives what the whole video would.
        """
        if may_be_cut(self.forward):
            out, state = self.stream(batch, None if self._position is None else self._position.state_for(batch))
            self._position = StreamPosition.after(batch, state) if len(batch) == 1 else None
        else:
            out = self.evaluate(batch)
        found = {"slots": out.slots}
        if out.masks is not None:
            found |= {"masks": out.masks, "labels": masks_to_labels(out.masks, frame_size(batch))}
        if (attention := self._attention(out, batch)) is not None:
            found["attention"] = attention
        return found if self.learns_features else found | self._found(out, batch)

    @property
    def piece_frames(self) -> int:
        """Videos are read piece by piece in prediction, each with the core's state after the one before.

        Those of a task with a `forward` of its own are read whole.
        """
        return piece_frames(self.core) if may_be_cut(self.forward) else WHOLE

    def recording(self, folder: Path, frames: int, save: Sequence[str] = ()) -> SlotRecording:
        """Gathers what `predict_step` makes of the pieces of one video."""
        components = None if self.learns_features else self._components
        return SlotRecording(folder, frames, components, keep_soft_masks="soft_masks" in save)

    def pictures(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        """A panel per clip: frames, reconstruction, slots over the frames, and each slot's own image.

        With `slot_pictures` also what became of each slot in the first two clips.
        """
        with self.deterministic_sampling(batch, 0):
            out = self.evaluate(batch)
        components = None if self.learns_features or out.decoded.components is None else out.decoded.components
        shown = {"components": None if components is None else self._unit(components)}
        panels = self._drawn(slot_panel, batch, out, shown | {"attention_masks": self._attention(out, batch)})
        if not self.slot_pictures or self.learns_features:
            return panels
        decoded = Decoded(self.painted(out), out.masks, shown["components"])
        frames, grid = (batch.frames, batch.frames, decoded.reconstruction), self.encoder.token_spec.grid
        stories = (
            SlotStory.of_clip(clip, frames, out.core, decoded, true_masks=batch.masks, grid=grid)
            for clip in range(min(len(batch), STORIES))
        )
        return panels | numbered_pictures(list(stories))

    def videos(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        """Of each clip, side by side: frames, reconstruction, slots over the frames, and the truth."""
        with self.deterministic_sampling(batch, 0):
            out = self.evaluate(batch)
        return self._drawn(slot_video, batch, out, {})

    def _drawn(
        self, draw: Callable[..., np.ndarray], batch: VideoBatch, out: Autoencoded, more: dict[str, Tensor | None]
    ) -> dict[str, np.ndarray]:
        """What `draw` makes of each clip, if there are masks to draw."""
        if out.masks is None:
            return {}
        painted = None if self.learns_features else self.painted(out)
        shown = {"reconstruction": painted, "masks": out.masks, "true_masks": batch.masks} | more
        shown |= {"target": None if self.learns_features else self.painted_truth(batch)}
        return {
            f"clip_{i}": draw(batch.frames[i], **{name: x if x is None else x[i] for name, x in shown.items()})
            for i in range(len(batch))
        }

    def _read(self, batch: VideoBatch) -> VideoBatch:
        """The batch that the encoder reads: with features in the place of frames, where features are learned."""
        if not self.learns_features:
            return batch
        if self.extractor is not None:
            found = self.extractor(batch.frames)
        else:
            found = batch.require("features").to(next(self.encoder.parameters()).dtype)
        # what has a pixel for each of the frames' does not go with them
        return replace(batch, frames=found, features=None, masks=None, rays=None)

    def _decode(self, batch: VideoBatch, read: VideoBatch, out: CoreOutput) -> Autoencoded:
        decoded = self.decoder(out.slots, read)
        masks = decoded.masks
        if masks is not None and not self.training:
            masks = resized_masks(masks, frame_size(batch))
        # what slots have merely read is no segmentation: several may read the same token
        attention = out.attention if out.attention_kind == "assignment" else None
        return Autoencoded(out.slots, attention, masks, out.attention_kind, decoded=decoded, read=read, core=out)

    def _score_masks(
        self, out: Autoencoded, batch: VideoBatch, scores: DiscoveryScores, more: Mapping[str, Tensor] = {}
    ) -> None:
        """Scores the decoder's masks, the attention if slots compete for the tokens, and more, beside baselines."""
        for name, masks in ({"decoder": out.masks, "attention": self._attention(out, batch)} | dict(more)).items():
            if masks is not None:
                labels = masks_to_labels(masks, frame_size(batch))
                scores.update_masks(name, labels, masks.shape[2], batch.masks, batch.index)
        if batch.masks is not None:
            scores.update_baselines(batch, out.slots.shape[2])

    def _found(self, out: Autoencoded, batch: VideoBatch) -> dict[str, Tensor]:
        """What a prediction says of a clip beside slots and masks: the frames that are shown of it."""
        return {"frames": self.painted(out)}

    def _attention(self, out: Autoencoded, batch: VideoBatch) -> Tensor | None:
        return None if out.attention is None else self.attention_masks(out.attention, frame_size(batch))

    def _components(self, batch: VideoBatch, slots: Tensor) -> Tensor | None:
        components = self.decoder(slots, self._read(batch)).components
        return None if components is None else self._unit(components)

    def _target(self, read: VideoBatch) -> Tensor:
        return 2 * read.frames - 1 if self.pixels == "signed" and not self.learns_features else read.frames

    def _unit(self, painted: Tensor) -> Tensor:
        return ((painted + 1) / 2 if self.pixels == "signed" else painted).clamp(0, 1)
