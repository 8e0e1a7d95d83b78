"""The scores of roll-outs over one evaluation, by step of the horizon and, where asked, by group of clips."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from slotbench.metrics.frames import MAX_PSNR, SSIM_WINDOW, HorizonCurve, frame_mse, frame_psnr, frame_ssim
from slotbench.metrics.lpips import LPIPS
from slotbench.tasks.frame_losses import truncate_to_bytes
from slotbench.tasks.rollout_groups import RolloutGroups

__all__ = ["Curves", "RolloutScores", "simple_answers", "summarise"]

Curves = dict[str, list[float]]
"""A score per step of the horizon, by the score's name."""

Frames = Float[Tensor, "batch time channels height width"]

_MAX_STEPS = 100
"""How many steps of a curve are logged one by one."""

_FUNCTIONS = {"mse": frame_mse, "psnr": frame_psnr, "ssim": frame_ssim}


class RolloutScores(nn.Module):
    """Squared error, PSNR and SSIM of every predicted frame, averaged over clips, for the model and for other answers.

    Frames come in pieces of the horizon, so that no more than a piece is ever held; the model's whole videos are, a
    batch of them, where there are groups that need them for FVD. Frames too small for the window of SSIM have none.

    Args:
        horizon: predicted frames per clip.
        size: height and width of a frame, pixels.
        quantise: truncate all frames to bytes before they are scored, as the evaluation of ConvS5 does.
        groups: also takes the model's scores and videos.
    """

    def __init__(
        self, horizon: int, size: tuple[int, int], quantise: bool = False, groups: RolloutGroups | None = None
    ) -> None:
        super().__init__()
        self.horizon = horizon
        self.quantise = quantise
        self.groups = groups
        self.curves = nn.ModuleDict()
        self._functions = dict(_FUNCTIONS)
        if min(size) < SSIM_WINDOW:
            del self._functions["ssim"]

    @property
    def names(self) -> tuple[str, ...]:
        """The scores that every frame gets."""
        return tuple(self._functions)

    def add_lpips(self, lpips: LPIPS) -> None:
        """Scores frames by LPIPS too; its network becomes no part of this module, so that no checkpoint holds it."""
        self._functions["lpips"] = lambda predicted, true: lpips.to(true.device)(predicted, true)

    def update(
        self,
        pieces: Iterable[tuple[Mapping[str, Frames], Frames]],
        context: Frames | None = None,
        index: Integer[Tensor, " batch"] | None = None,
    ) -> None:
        """Adds a batch of clips.

        Args:
            pieces: in order of time, the frames of every answer by its name ("" for the model) and the true ones, which
                together are `horizon` frames.
            context: the true frames before; without them the clips are in no group.
            index: which clips of the data set they are, to put them in groups in its order.
        """
        values: dict[str, list[Tensor]] = {}
        groups = None if context is None else self.groups
        videos: list[tuple[Tensor, Tensor]] = []
        for answers, true in pieces:
            true = self._as_scored(true)
            for answer, frames in answers.items():
                frames = self._as_scored(frames)
                if groups is not None and groups.needs_videos and not answer:
                    videos.append((frames, true))
                for name, function in self._functions.items():
                    value = function(frames, true)
                    values.setdefault(f"{answer}|{name}", []).append(value)
                    if name == "psnr" and not answer:
                        values.setdefault("|capped", []).append((value >= MAX_PSNR).float())
        for key, parts in values.items():
            if key not in self.curves:  # made on first use: which answers there are, the data tells
                self.curves[key] = HorizonCurve(self.horizon).to(parts[0].device)
            self.curves[key].update(torch.cat(parts, dim=1))  # type: ignore[operator]
        if groups is not None and context is not None:
            groups.update_scores({name: torch.cat(values[f"|{name}"], dim=1) for name in self.names}, index)
            if groups.needs_videos:
                seen = self._as_scored(context)
                predicted, followed = (torch.cat([seen, *parts], dim=1) for parts in zip(*videos, strict=True))
                groups.update_videos(predicted, followed, context.shape[1], index)

    def close(self) -> dict[str, Curves]:
        """The curves of every answer since the last call, and forgets them.

        Gathers over processes, so every process must take part.
        """
        found: dict[str, Curves] = {}
        for key, curve in self.curves.items():
            assert isinstance(curve, HorizonCurve)
            if curve.update_called:
                answer, name = key.rsplit("|", 1)
                found.setdefault(answer, {})[name] = curve.compute().tolist()
            curve.reset()
        return found

    def _as_scored(self, frames: Tensor) -> Tensor:
        return truncate_to_bytes(frames) if self.quantise else frames


def simple_answers(context: Frames, horizon: int) -> dict[str, Float[Tensor, "batch horizon channels height width"]]:
    """What one would say without a model, by name: the last frame seen, black, and the mean grey of what was seen.

    Args:
        context: the frames seen.
        horizon: frames to predict.
    """
    answers = {
        "copy the last frame": context[:, -1:],
        "black": torch.zeros_like(context[:, -1:]),
        # of all answers that say nothing about where, this grey has the least squared error
        "grey, mean of the context": context.mean(dim=(1, 3, 4), keepdim=True).expand_as(context[:, -1:]),
    }
    return {name: frame.expand(-1, horizon, -1, -1, -1) for name, frame in answers.items()}


def summarise(
    curves: Curves, prefix: str, suffix: str = "", means_until: Sequence[int] = ()
) -> Iterator[tuple[str, float]]:
    """What is logged of an answer's curves: the means, those of the first frames, and single steps.

    Of a curve of up to 100 steps all are logged, of a longer one about 100, the first and the last among them.

    Args:
        curves: of one answer.
        prefix: what the names start with.
        suffix: what follows the name of the score.
        means_until: also log the mean over so many first frames, where the horizon has as many.

    Yields:
        (name, value) pairs.
    """
    for name, curve in curves.items():
        key, length = f"{prefix}{name}{suffix}", len(curve)
        yield key, float(np.mean(curve))
        for frames in means_until:
            if frames <= length:
                yield f"{key}/first_{frames}", float(np.mean(curve[:frames]))
        stride, digits = math.ceil(length / _MAX_STEPS), max(2, len(str(length)))
        for step in sorted({1, length, *range(stride, length, stride)}):
            yield f"{key}/step_{step:0{digits}d}", curve[step - 1]
