"""AutoencodingTask, the base of tasks that decode every frame from slots and score what each slot has taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.figures.painting import slots_of_clusters
from slotbench.figures.slot_panels import slot_panel, slot_video
from slotbench.figures.slot_recording import SlotRecording
from slotbench.interfaces import (
    CoreOutput,
    Decoded,
    Segmentation,
    Segmenter,
    State,
    TemporalCore,
    VideoBatch,
    WindowedCore,
)
from slotbench.metrics.contingency import masks_to_labels, resized_masks
from slotbench.metrics.discovery_scores import DiscoveryScores
from slotbench.metrics.segmentation_baselines import (
    POSITION_WEIGHT,
    cells_to_pixels,
    cluster_features,
    kmeans_labels,
)
from slotbench.pretrained.feature_extractor import FeatureExtractor
from slotbench.tasks.slot_task import SlotTask, frame_by_frame, may_be_cut

__all__ = ["Autoencoded", "AutoencodingTask", "features_as_frames", "frame_size"]


PIECE = 16
"""Frames of a piece."""

WHOLE = 1 << 40
"""More frames than any video has."""


@dataclass
class Autoencoded(Segmentation):
    """What a clip was taken apart into: the decoder's output, what the encoder read, and the core's output.

    `masks` are those of `decoded` at the size of the frames; in training at the decoder's own.
    """

    decoded: Decoded = field(kw_only=True)
    read: VideoBatch = field(kw_only=True)
    core: CoreOutput = field(kw_only=True)


def frame_size(batch: VideoBatch) -> tuple[int, int]:
    """Height and width of the frames."""
    height, width = batch.frames.shape[-2:]
    return height, width


class AutoencodingTask(SlotTask, Segmenter):
    """Encodes every frame, and decodes an image from its slots; a subclass defines its loss and its scores.

    A subclass overrides `read` to give the encoder something else than frames, `image` where the decoder's output is
    not in [0, 1] or no image, and `painted` and `painted_truth` where something else than the reconstruction is shown.

    Attributes:
        eval_window: in evaluation, each step is computed from so many last frames alone; None for all.
        learns_features: whether the encoder reads features in the place of frames.
    """

    eval_window: int | None = None
    learns_features: bool = False
    _position: tuple[tuple[int, int], State] | None = None
    """Number of a video and of its next step, and the core's state (or the window's tokens) before that step."""

    @frame_by_frame
    def forward(self, batch: VideoBatch) -> Autoencoded:
        """Slots of every frame, and what the decoder makes of them."""
        read = self.read(batch)
        return self._decode(batch, read, self.tracked(self.encoded(read), self.core.first_state(batch)))

    def evaluate(self, batch: VideoBatch) -> Autoencoded:
        """The same as in validation and test: through windows, if `eval_window` is set."""
        if self.eval_window is None:
            return self(batch)
        read = self.read(batch)
        state = self.core.first_state(batch)
        return self._decode(batch, read, continue_stream(self.core, self.encoder(read), state, self.eval_window)[0])

    def merged(self, out: Autoencoded) -> Autoencoded:
        """What is scored and shown of a clip that is read whole; as it is by default."""
        return out

    def stream(self, batch: VideoBatch, state: State | None) -> tuple[Autoencoded, State]:
        """The next frames, as if the clips had been read whole."""
        read = self.read(batch)
        state = self.core.first_state(batch) if state is None else state
        out, state = continue_stream(self.core, self.encoder(read), state, self.eval_window)
        return self._decode(batch, read, out), state

    def read(self, batch: VideoBatch) -> VideoBatch:
        """The batch that the encoder reads."""
        return batch

    def image(
        self, painted: Float[Tensor, "*batch channels height width"]
    ) -> Float[Tensor, "*batch channels height width"] | None:
        """The decoder's output as images in [0, 1]; None if it is none."""
        return painted.clamp(0, 1)

    def frames(self, decoded: Decoded) -> Float[Tensor, "batch time channels height width"]:
        """The decoder's output as frames in [0, 1]."""
        painted = self.image(decoded.reconstruction)
        if painted is None:
            raise ValueError("this task reconstructs features, which are no frames")
        return painted

    def painted(self, out: Autoencoded) -> Float[Tensor, "batch time channels height width"] | None:
        """The frames in [0, 1] that are shown and saved of a clip; None if there are none."""
        return self.image(out.decoded.reconstruction)

    def painted_truth(self, batch: VideoBatch) -> Float[Tensor, "batch time channels height width"] | None:
        """What is to be painted, in [0, 1], where that is something else than the frames; None by default."""
        return None

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
        batch = self.as_batch(batch)
        if may_be_cut(self.forward):
            video = -1 if batch.index is None else int(batch.index[0])
            first, last = int(batch.time[0, 0]), int(batch.time[0, -1])
            place, before = self._position or (None, None)
            out, state = self.stream(batch, before if len(batch) == 1 and place == (video, first) else None)
            self._position = ((video, last + 1), state) if len(batch) == 1 else None
            out = self.merged(out)
        else:
            out = self.evaluate(batch)
        found = {"slots": out.slots}
        if out.masks is not None:
            found |= {"masks": out.masks, "labels": masks_to_labels(out.masks, frame_size(batch))}
        if (attention := self._attention(out, batch)) is not None:
            found["attention"] = attention
        return found | self._found(out, batch)

    @property
    def piece_frames(self) -> int:
        """Predictions read videos piece by piece, or whole for a core that sees later steps."""
        return PIECE if self.core.causal and may_be_cut(self.forward) else WHOLE

    def recording(self, folder: Path, frames: int, save: Sequence[str] = ()) -> SlotRecording:
        """Gathers what `predict_step` makes of the pieces of one video."""
        return SlotRecording(folder, frames, self._components, keep_soft_masks="soft_masks" in save)

    def pictures(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        """A panel per clip: frames, reconstruction, slots over the frames, and each slot's own image."""
        with self.deterministic_sampling(batch, 0):
            out = self.evaluate(batch)
        alone = out.decoded.components
        components = None if alone is None else self.image(alone)
        shown = self._shown(out, batch, components=components, attention_masks=self._attention(out, batch))
        return {name: slot_panel(**clip) for name, clip in shown.items()}

    def videos(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        """Of each clip, side by side: frames, reconstruction, slots over them (on features, attention too), truth."""
        with self.deterministic_sampling(batch, 0):
            out = self.evaluate(batch)
        attention = self._attention(out, batch) if self.learns_features else None
        attended = None if attention is None else masks_to_labels(attention)
        return {name: slot_video(**clip) for name, clip in self._shown(out, batch, attended=attended).items()}

    def _shown(self, out: Autoencoded, batch: VideoBatch, **more: Tensor | None) -> dict[str, dict[str, Any]]:
        """The arguments of a figure of each clip, by its name, if there are masks to draw."""
        if out.masks is None:
            return {}
        painted = self.painted(out)
        truth = None if painted is None else self.painted_truth(batch)
        shown = {"frames": batch.pixels, "masks": out.masks, "true_masks": batch.masks}
        shown |= {"reconstruction": painted, "target": truth, "clusters": self._clusters(out, batch)} | more
        return {
            f"clip_{i}": {name: None if values is None else values[i] for name, values in shown.items()}
            for i in range(len(batch))
        }

    def _clusters(self, out: Autoencoded, batch: VideoBatch) -> Tensor | None:
        """k-means of each clip, on what is read, by the numbers of the slots that its clusters are most like."""
        if out.masks is None:
            return None
        slots, size = out.masks.shape[2], frame_size(batch)
        if self.learns_features:
            clusters = cells_to_pixels(cluster_features(out.read.frames, slots).cpu(), size).long()
        else:
            clusters = kmeans_labels(batch.pixels, slots, POSITION_WEIGHT).cpu()
        pairs = zip(clusters, masks_to_labels(out.masks, size).cpu(), strict=True)
        return torch.stack([slots_of_clusters(clip, labels, slots)[clip] for clip, labels in pairs])

    def _decode(self, batch: VideoBatch, read: VideoBatch, out: CoreOutput) -> Autoencoded:
        decoded = self.decoded(out.slots, read)
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
                scores.update_masks(name, labels, masks.shape[2], batch.masks)
        if batch.masks is not None:
            scores.update_baselines(batch, out.slots.shape[2], out.read.frames if self.learns_features else None)

    def _found(self, out: Autoencoded, batch: VideoBatch) -> dict[str, Tensor]:
        """What `predict` returns beside slots and masks: the frames that are shown, and the features that were read."""
        painted = self.painted(out)
        read = {"features": out.read.frames} if self.learns_features else {}
        return read if painted is None else {"frames": painted} | read

    def _attention(self, out: Autoencoded, batch: VideoBatch) -> Tensor | None:
        return None if out.attention is None else self.attention_masks(out.attention, frame_size(batch))

    def _components(self, batch: VideoBatch, slots: Tensor) -> Tensor | None:
        components = self.decoder(slots, self.read(batch)).components
        return None if components is None else self.image(components)


def continue_stream(
    core: TemporalCore, tokens: Float[Tensor, "batch time tokens dim"], state: State | None, window: int | None
) -> tuple[CoreOutput, State]:
    """Reads the next steps of a video as if it were read at once; returns the output and the state for the next call.

    Args:
        core: the core.
        tokens: of the next steps.
        state: returned by the last call; None at the start of a video.
        window: each step is computed from so many frames; None for all.
    """
    if window is None:
        out = core(tokens, state)
        return out, out.state
    assert isinstance(core, WindowedCore)
    seen = tokens if state is None else torch.cat([state, tokens], dim=1)
    out = core.sliding_window(seen, window)
    steps = tokens.shape[1]
    attention = None if out.attention is None else out.attention[:, -steps:]
    kept = seen[:, seen.shape[1] - min(window - 1, seen.shape[1]) :]
    details = {name: value[:, -steps:] for name, value in out.details.items()}
    return CoreOutput(out.slots[:, -steps:], attention, None, out.attention_kind, details), kept


def features_as_frames(batch: VideoBatch, encoder: nn.Module, extractor: FeatureExtractor | None = None) -> VideoBatch:
    """The batch with features in the place of its frames."""
    if extractor is not None:
        found = extractor(batch.pixels)
    else:
        found = batch.require("features").to(next(encoder.parameters()).dtype)
    # masks and rays are of the frames' pixels
    return replace(batch, frames=found, features=None, masks=None, rays=None)
