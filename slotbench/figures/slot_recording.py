"""The figures and arrays of a whole video, gathered from what a task predicts of its pieces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slotbench.figures.painting import evenly_spaced, match_slots, slots_of_clusters
from slotbench.figures.slot_panels import slot_panel, slot_strips
from slotbench.interfaces import Recording, VideoBatch, rounded_shares
from slotbench.metrics.contingency import masks_to_labels
from slotbench.metrics.segmentation_baselines import cells_to_pixels, cluster_features

__all__ = ["SlotRecording"]

_CHUNK, _MATCHED_FRAMES = 32, 200
_IMAGES = ("frames", "reconstruction", "target")


class SlotRecording(Recording):
    """Gathers what `predict_step` returns for the pieces of one video, frame by frame, in files of its folder."""

    def __init__(
        self,
        folder: Path,
        frames: int,
        components: Callable[[VideoBatch, Tensor], Tensor | None] | None = None,
        keep_soft_masks: bool = False,
    ) -> None:
        self._keep_soft_masks = keep_soft_masks
        self._folder, self._frames, self._components = folder, frames, components
        self._maps: dict[str, np.ndarray] = {}
        self._done = 0
        self._times = evenly_spaced(0, frames - 1)
        self._shown: list[dict[str, Tensor]] = []
        self._slots = 0

    def add(self, batch: VideoBatch, found: Mapping[str, Tensor]) -> None:
        """The next piece, and what the model made of it."""
        self._slots = found["slots"].shape[2]
        images = {"frames": batch.pixels, "reconstruction": found.get("frames"), "target": found.get("target")}
        kept = {name: _bytes(values[0]) for name, values in images.items() if values is not None}
        kept |= {name: found[name][0].float() for name in ("slots", "depth") if name in found}
        if "features" in found:
            kept["features"] = found["features"][0].half()
        if "masks" in found:
            kept["labels"] = masks_to_labels(found["masks"][0])
            if self._keep_soft_masks:
                kept["soft_masks"] = rounded_shares(found["masks"][0])
        if "attention" in found:
            kept["attended"] = masks_to_labels(found["attention"][0])
        if batch.masks is not None:
            kept["true_masks"] = batch.masks[0].to(torch.int32)
        for name, values in kept.items():
            self._map(name, values)[self._done : self._done + len(values)] = values.cpu().numpy()
        for step in range(batch.num_steps):
            if self._done + step in self._times and "masks" in found:
                self._shown.append(self._of_one_frame(batch, found, step))
        self._done += batch.num_steps

    def pictures(self) -> dict[str, np.ndarray]:
        """The panel: at most eight frames, evenly spaced, with the share of the whole video that each slot wins."""
        if not self._shown:
            return {}
        shown: dict[str, Any] = {name: torch.cat([frame[name] for frame in self._shown]) for name in self._shown[0]}
        # the last one is of pixels that no slot has
        parts = [np.bincount(part.ravel(), minlength=self._slots + 1) for part in _chunks(self._maps["labels"])]
        shares = torch.as_tensor(np.sum(parts, axis=0)[: self._slots] / self._maps["labels"].size)
        shown = {"reconstruction": None} | shown
        if self._clusters is not None:
            shown["clusters"] = cells_to_pixels(self._clusters[self._times], shown["frames"].shape[-2:])
        return {"panel": slot_panel(**shown, times=self._times, shares=shares, partners=self._partners())}

    def videos(self) -> dict[str, Iterator[np.ndarray]]:
        """Side by side: frame, reconstruction, slots, attention and clusters over the frame, and the true objects."""
        return {"video": self._strips()} if "labels" in self._maps else {}

    def arrays(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Those of the arrays of `predict --save` that were kept, mapped into memory."""
        own = {"masks": "labels", "attention": "attended"}
        found = {name: self._maps[own.get(name, name)] for name in names}
        return {name: array.view(np.uint16) if array.dtype == np.int16 else array for name, array in found.items()}

    def close(self) -> None:
        """Removes the files."""
        for name in list(self._maps):
            del self._maps[name]
            (self._folder / f"{name}.npy").unlink(missing_ok=True)
        if self._folder.is_dir():
            self._folder.rmdir()

    def _map(self, name: str, values: Tensor) -> np.ndarray:
        if name not in self._maps:
            self._folder.mkdir(parents=True, exist_ok=True)
            array = values.cpu().numpy()
            shape = (self._frames, *array.shape[1:])
            file = self._folder / f"{name}.npy"
            self._maps[name] = np.lib.format.open_memmap(file, "w+", dtype=array.dtype, shape=shape)
        return self._maps[name]

    def _of_one_frame(self, batch: VideoBatch, found: Mapping[str, Tensor], step: int) -> dict[str, Tensor]:
        one, at = batch.slice_time(step, step + 1), slice(step, step + 1)
        sources = {"masks": "masks", "reconstruction": "frames", "attention_masks": "attention", "target": "target"}
        shown = {name: found[source][0, at] for name, source in sources.items() if source in found}
        shown["frames"] = one.pixels[0]
        if one.masks is not None:
            shown["true_masks"] = one.masks[0]
        if self._components is not None and (alone := self._components(one, found["slots"][:, at])) is not None:
            shown["components"] = alone[0]
        return {name: value.detach().cpu() for name, value in shown.items()}

    @cached_property
    def _clusters(self) -> Tensor | None:
        """k-means on the features of the whole video, each cluster in the colour of the slot that it is most like."""
        if "features" not in self._maps:
            return None
        cells = cluster_features(torch.from_numpy(self._maps["features"])[None], self._slots)[0]
        labels = torch.from_numpy(self._maps["labels"][:: self._every].copy())
        pixels = cells_to_pixels(cells[:: self._every], (labels.shape[-2], labels.shape[-1]))
        return slots_of_clusters(pixels, labels, self._slots)[cells]

    @property
    def _every(self) -> int:
        """Objects and clusters of a long video are matched with slots by some of its frames, one in so many."""
        return -(-self._frames // _MATCHED_FRAMES)

    def _partners(self) -> dict[int, int] | None:
        if "true_masks" not in self._maps:
            return None
        labels, truth = (torch.from_numpy(self._maps[name][:: self._every].copy()) for name in ("labels", "true_masks"))
        return match_slots(labels, truth, self._slots)

    def _strips(self) -> Iterator[np.ndarray]:
        partners = self._partners()
        for start in range(0, self._frames, _CHUNK):
            part: dict[str, Any] = {
                name: torch.from_numpy(self._maps[name][start : start + _CHUNK].copy())
                for name in (*_IMAGES, "labels", "true_masks", *(("attended",) if "features" in self._maps else ()))
                if name in self._maps
            }
            part |= {name: part[name] / 255 for name in _IMAGES if name in part}
            if self._clusters is not None:
                part["clusters"] = cells_to_pixels(self._clusters[start : start + _CHUNK], part["frames"].shape[-2:])
            yield from slot_strips(**{"reconstruction": None} | part, partners=partners)


def _bytes(frames: Tensor) -> Tensor:
    return (frames.float().clamp(0, 1) * 255).round().to(torch.uint8)


def _chunks(values: np.ndarray) -> Iterator[np.ndarray]:
    return (values[start : start + _CHUNK] for start in range(0, len(values), _CHUNK))
