"""Videos that are read piece by piece: the state between pieces, and the figures and arrays of the whole video."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from slotbench.files import make_folder, remove_file
from slotbench.interfaces import (
    CoreOutput,
    Recording,
    State,
    TemporalCore,
    VideoBatch,
    WindowedCore,
    rounded_shares,
    to_unit_range,
)
from slotbench.metrics.contingency import masks_to_labels
from slotbench.tasks.slot_pictures import match_slots, shown_times, slot_panel, slot_strips

__all__ = [
    "PIECE",
    "WHOLE",
    "SlotRecording",
    "StreamPosition",
    "continue_stream",
    "frame_by_frame",
    "may_be_cut",
    "piece_frames",
]

Method = TypeVar("Method", bound=Callable[..., Any])

PIECE = 16
"""Frames of a piece."""

WHOLE = 1 << 40
"""More frames than any video has."""

_CHUNK, _MATCHED_FRAMES = 32, 200


@dataclass
class StreamPosition:
    """Position in a video after its last piece, and the state from which the next piece continues.

    Attributes:
        video: number of the video.
        step: number of the next step.
        state: of the core after the step before; with a window, the tokens that the next steps look back to.
    """

    video: int
    step: int
    state: State

    def state_for(self, batch: VideoBatch) -> State | None:
        """The state that `batch` continues from; None if it does not continue this video."""
        fits = len(batch) == 1 and int(batch.time[0, 0]) == self.step and _video(batch) == self.video
        return self.state if fits and self.step else None

    @classmethod
    def after(cls, batch: VideoBatch, state: State) -> StreamPosition:
        """Where `batch` ends."""
        return cls(_video(batch), int(batch.time[0, -1]) + 1, state)


def frame_by_frame(method: Method) -> Method:
    """Marks a `forward` or `loss` that treats every frame alike, so that a long clip may be read piece by piece.

    One that overrides it bears no mark, and is given clips whole, since it may join frames that are far apart.
    """
    method.__dict__["frame_by_frame"] = True
    return method


def may_be_cut(method: Callable[..., Any]) -> bool:
    """Whether a method is marked by `frame_by_frame`."""
    return getattr(method, "frame_by_frame", False)


def piece_frames(core: TemporalCore) -> int:
    """Frames of a piece for this core: one that sees later steps must be given a video whole."""
    return PIECE if core.causal else WHOLE


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
    frame_slots = None if out.frame_slots is None else out.frame_slots[:, -steps:]
    return CoreOutput(out.slots[:, -steps:], attention, None, out.attention_kind, details, frame_slots), kept


class SlotRecording(Recording):
    """Gathers what `predict_step` returns for the pieces of one video, frame by frame, in files of its folder.

    Args:
        folder: where to keep what is large until the end; removed by `close`.
        frames: of the whole video.
        components: makes each slot's own image, in [0, 1], out of the batch of one frame and its slots; None where
            slots have none.
        keep_soft_masks: whether `arrays` is to have them, which take the most room.
    """

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
        self._times = shown_times(frames)
        self._shown: list[dict[str, Tensor]] = []
        self._slots = 0

    def add(self, batch: VideoBatch, found: Mapping[str, Tensor]) -> None:
        """The next piece, and what the model made of it."""
        batch = to_unit_range(batch)
        self._slots = found["slots"].shape[2]
        kept = {"shown": _bytes(batch.frames[0]), "slots": found["slots"][0].float()}
        for name, source in (("reconstruction", "frames"), ("target", "target")):
            if source in found:
                kept[name] = _bytes(found[source][0])
        if "depth" in found:
            kept["depth"] = found["depth"][0].float()
        if "masks" in found:
            kept["labels"] = masks_to_labels(found["masks"][0])
            if self._keep_soft_masks:
                kept["soft_masks"] = rounded_shares(found["masks"][0])
        if batch.masks is not None:
            kept["truth"] = batch.masks[0].to(torch.int32)
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
        shown = {name: torch.cat([frame[name] for frame in self._shown]) for name in self._shown[0]}
        # the last one is of pixels that no slot has
        parts = [np.bincount(part.ravel(), minlength=self._slots + 1) for part in _chunks(self._maps["labels"])]
        counts = np.sum(parts, axis=0)
        return {
            "panel": slot_panel(
                shown["frames"],
                shown.get("reconstruction"),
                shown["masks"],
                shown.get("components"),
                shown.get("truth"),
                shown.get("attention"),
                times=self._times,
                shares=torch.as_tensor(counts[: self._slots] / self._maps["labels"].size),
                partners=self._partners(),
                target=shown.get("target"),
            )
        }

    def videos(self) -> dict[str, Iterator[np.ndarray]]:
        """Frame by frame and side by side: the frame, its reconstruction, the slots over it, and the true objects."""
        return {"video": self._strips()} if "labels" in self._maps else {}

    def arrays(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Those of the arrays of `predict --save` that were kept, mapped into memory."""
        found = {name: self._maps["labels" if name == "masks" else name] for name in names}
        if "masks" in found and found["masks"].dtype != np.uint8:
            found["masks"] = found["masks"].view(np.uint16)
        return found

    def close(self) -> None:
        """Removes the files."""
        for name in list(self._maps):
            del self._maps[name]
            remove_file(self._folder / f"{name}.npy")
        if self._folder.is_dir():
            self._folder.rmdir()

    def _map(self, name: str, values: Tensor) -> np.ndarray:
        if name not in self._maps:
            make_folder(self._folder)
            array = values.cpu().numpy()
            shape = (self._frames, *array.shape[1:])
            file = self._folder / f"{name}.npy"
            self._maps[name] = np.lib.format.open_memmap(file, "w+", dtype=array.dtype, shape=shape)
        return self._maps[name]

    def _of_one_frame(self, batch: VideoBatch, found: Mapping[str, Tensor], step: int) -> dict[str, Tensor]:
        one = batch.slice_time(step, step + 1)
        shown = {"frames": one.frames[0], "masks": found["masks"][0, step : step + 1]}
        for name, source in (("reconstruction", "frames"), ("attention", "attention"), ("target", "target")):
            if source in found:
                shown[name] = found[source][0, step : step + 1]
        if one.masks is not None:
            shown["truth"] = one.masks[0]
        if self._components is not None:
            components = self._components(one, found["slots"][:, step : step + 1])
            if components is not None:
                shown["components"] = components[0]
        return {name: value.detach().cpu() for name, value in shown.items()}

    def _partners(self) -> dict[int, int] | None:
        if "truth" not in self._maps:
            return None
        # objects of a long video are matched by some of its frames
        every = -(-self._frames // _MATCHED_FRAMES)
        labels, truth = (torch.from_numpy(self._maps[name][::every].copy()) for name in ("labels", "truth"))
        return match_slots(labels, truth, self._slots)

    def _strips(self) -> Iterator[np.ndarray]:
        partners = self._partners()
        for start in range(0, self._frames, _CHUNK):
            part = {
                name: torch.from_numpy(self._maps[name][start : start + _CHUNK].copy())
                for name in ("shown", "reconstruction", "target", "labels", "truth")
                if name in self._maps
            }
            painted, wanted = part.get("reconstruction"), part.get("target")
            yield from slot_strips(
                part["shown"] / 255,
                None if painted is None else painted / 255,
                part["labels"],
                part.get("truth"),
                partners,
                None if wanted is None else wanted / 255,
            )


def _video(batch: VideoBatch) -> int:
    return -1 if batch.index is None else int(batch.index[0])


def _bytes(frames: Tensor) -> Tensor:
    return (frames.float().clamp(0, 1) * 255).round().to(torch.uint8)


def _chunks(values: np.ndarray) -> Iterator[np.ndarray]:
    return (values[start : start + _CHUNK] for start in range(0, len(values), _CHUNK))
