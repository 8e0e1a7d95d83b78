"""Scores of a tokenizer alone: how well its codes bring frames back, and how many of them it uses."""

from __future__ import annotations

from collections.abc import Mapping

from jaxtyping import Float, Integer
from torch import Tensor, nn
from torchmetrics import Metric

from slotbench.metric_info import MetricInfo, Reference
from slotbench.metrics.codes.code_usage import CODE_USE, CodeUsage
from slotbench.metrics.frames import frame_infos, frame_metrics, frame_psnr
from slotbench.metrics.means import Mean
from slotbench.metrics.scores import Scores

__all__ = ["FrameScores"]

Frames = Float[Tensor, "batch time channels height width"]


class FrameScores(Scores):
    """Quality of frames decoded from codes, and use of the codes.

    Names: `psnr/frame`, `mse/frame` and `ssim/frame` (of at least 11 x 11 pixels), means over frames; `perplexity` and
    `entropy` (nats) of single codes, `dead_codes`, the number that no cell of the set has, and `entropy_given_left`
    (see `CodeUsage`); for baselines `baseline/psnr/frame/<name>`.

    Args:
        num_codes: size of the codebook.
    """

    def __init__(self, num_codes: int) -> None:
        super().__init__()
        self.frames = nn.ModuleDict()
        self.usage = CodeUsage(num_codes)

    @property
    def declared(self) -> list[MetricInfo]:
        """Quality of frames, and use of codes."""
        return [*frame_infos(), *CODE_USE]

    def update(
        self,
        painted: Frames,
        true: Frames,
        codes: Integer[Tensor, "batch time rows cols"],
        baselines: Mapping[str, Frames],
    ) -> None:
        """Adds frames in [0, 1], their codes, and what baselines make of the same frames."""
        self.usage.update(codes)
        for name, score in frame_metrics(true.shape[-2], true.shape[-1]).items():
            self._add(f"{name}/frame", score(painted, true))
        for name, frames in baselines.items():
            self._add(Reference("baseline", "psnr/frame", name), frame_psnr(frames, true))

    def compute(self) -> dict[str, float]:
        """Every score by name."""
        # a module's name has no dots, and keys have slashes: both are fine
        values = {name: float(metric.compute()) for name, metric in self.frames.items()}  # type: ignore[operator]
        return values | {name: float(value) for name, value in self.usage.compute().items()}

    def reset(self) -> None:
        """Forgets every frame."""
        for module in self.modules():
            if isinstance(module, Metric):
                module.reset()
        self.frames.clear()

    def _add(self, name: str, values: Tensor) -> None:
        if name not in self.frames:
            self.frames[name] = Mean().to(values.device)
        metric = self.frames[name]
        assert isinstance(metric, Mean)
        metric.update(values)
