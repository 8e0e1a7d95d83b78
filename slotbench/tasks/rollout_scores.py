"""The scores of roll-outs over one evaluation, by step of the horizon."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.metrics.frames import MAX_PSNR, SSIM_WINDOW, HorizonCurve, frame_mse, frame_psnr, frame_ssim
from slotbench.tasks.frame_losses import truncate_to_bytes

__all__ = ["Curves", "RolloutScores", "simple_answers", "summarise"]

Curves = dict[str, list[float]]
"""A score per step of the horizon, by the score's name."""

Frames = Float[Tensor, "batch time channels height width"]

_MAX_STEPS = 100
"""How many steps of a curve are logged one by one."""

_FUNCTIONS = {"mse": frame_mse, "psnr": frame_psnr, "ssim": frame_ssim}


class RolloutScores(nn.Module):
    """Squared error, PSNR and SSIM of every predicted frame, averaged over clips, for the model and for other answers.

    Frames come in pieces of the horizon, so that no more than a piece is ever held. Frames too small for the window of
    SSIM have none.

    Args:
        horizon: predicted frames per clip.
        size: height and width of a frame, pixels.
        quantise: truncate all frames to bytes before they are scored, as the evaluation of ConvS5 does.
    """

    def __init__(self, horizon: int, size: tuple[int, int], quantise: bool = False) -> None:
        super().__init__()
        self.horizon = horizon
        self.quantise = quantise
        self.names = ("mse", "psnr", "ssim") if min(size) >= SSIM_WINDOW else ("mse", "psnr")
        self.curves = nn.ModuleDict()

    def update(self, pieces: Iterable[tuple[Mapping[str, Frames], Frames]]) -> None:
        """Adds a batch of clips.

        Args:
            pieces: in order of time, the frames of every answer by its name ("" for the model) and the true ones, which
                together are `horizon` frames.
        """
        values: dict[str, list[Tensor]] = {}
        for answers, true in pieces:
            true = truncate_to_bytes(true) if self.quantise else true
            for answer, frames in answers.items():
                frames = truncate_to_bytes(frames) if self.quantise else frames
                for name in self.names:
                    value = _FUNCTIONS[name](frames, true)
                    values.setdefault(f"{answer}|{name}", []).append(value)
                    if name == "psnr" and not answer:
                        values.setdefault("|capped", []).append((value >= MAX_PSNR).float())
        for key, parts in values.items():
            if key not in self.curves:  # made on first use: which answers there are, the data tells
                self.curves[key] = HorizonCurve(self.horizon).to(parts[0].device)
            self.curves[key].update(torch.cat(parts, dim=1))  # type: ignore[operator]

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
