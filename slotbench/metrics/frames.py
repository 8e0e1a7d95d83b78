"""Squared error, PSNR and SSIM of predicted frames, and their curves over the horizon.

Frames are in [0, 1], or bytes in 0..255, which are divided. SSIM is that of Wang et al., "Image quality assessment",
2004, in the form of scikit-image's `structural_similarity(gaussian_weights=True, sigma=1.5,
use_sample_covariance=False, data_range=1)`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional as F

from slotbench.interfaces import unit_frames
from slotbench.metric_info import MetricInfo
from slotbench.metrics.distinct import DistinctMetric
from slotbench.metrics.registered import RegisteredMetric, registered

__all__ = [
    "LPIPS_INFO",
    "MAX_PSNR",
    "SSIM_WINDOW",
    "FrameMSE",
    "FrameMetric",
    "FramePSNR",
    "FrameSSIM",
    "HorizonCurve",
    "frame_infos",
    "frame_metrics",
    "frame_mse",
    "frame_psnr",
    "frame_ssim",
    "frame_sum_mse",
]

MAX_PSNR = 100.0
"""Decibels given to a frame without error, whose PSNR is infinite."""

SSIM_WINDOW = 11
"""Side in pixels of the Gaussian window of SSIM; smaller frames have no SSIM."""

LPIPS_INFO = MetricInfo("lpips", "LPIPS (AlexNet)", False)
"""Of the metric whose network the user gives."""

_SIGMA, _C1, _C2 = 1.5, 0.01**2, 0.03**2

Frames = Float[Tensor, "*batch channels height width"] | UInt8[Tensor, "*batch channels height width"]


def frame_mse(predicted: Frames, true: Frames) -> Float[Tensor, "*batch"]:
    """Squared error of each frame, mean over channels and pixels.

    Example:
        >>> frame_mse(torch.zeros(1, 2, 2), torch.full((1, 2, 2), 0.5))
        tensor(0.2500)
    """
    return (unit_frames(predicted) - unit_frames(true)).square().mean(dim=(-3, -2, -1))


def frame_sum_mse(predicted: Frames, true: Frames) -> Float[Tensor, "*batch"]:
    """Squared error of each frame, summed over pixels and averaged over channels: the "MSE" of Moving MNIST papers.

    Example:
        >>> frame_sum_mse(torch.zeros(3, 64, 64), torch.ones(3, 64, 64))
        tensor(4096.)
    """
    return frame_mse(predicted, true) * (predicted.shape[-2] * predicted.shape[-1])


def frame_psnr(predicted: Frames, true: Frames) -> Float[Tensor, "*batch"]:
    """Peak signal-to-noise ratio of each frame in decibels, for a peak of 1, at most `MAX_PSNR`.

    Mean it over frames: the PSNR of a mean error is another, smaller number.

    Example:
        >>> frame_psnr(torch.zeros(1, 2, 2), torch.full((1, 2, 2), 0.1))
        tensor(20.)
    """
    return (-10 * frame_mse(predicted, true).clamp(min=1e-30).log10()).clamp(max=MAX_PSNR)


def frame_ssim(predicted: Frames, true: Frames) -> Float[Tensor, "*batch"]:
    """Structural similarity of each frame, mean over channels and over the pixels whose whole window is in the frame.

    Gaussian window of 11 x 11 pixels with a standard deviation of 1.5, population covariance, data range 1. Computed
    without autocast.
    """
    height, width = predicted.shape[-2:]
    if min(height, width) < SSIM_WINDOW:
        raise ValueError(
            f"SSIM looks through a window of {SSIM_WINDOW} x {SSIM_WINDOW} pixels and the frames are {height} x "
            f"{width}: use frames of at least {SSIM_WINDOW} x {SSIM_WINDOW}"
        )
    # one plane per frame and channel; the differences of second moments below lose too much in half precision
    x, y = (unit_frames(frames).reshape(-1, 1, height, width) for frames in (predicted, true))
    if x.dtype not in (torch.float32, torch.float64):
        x, y = x.float(), y.float()
    offsets = torch.arange(SSIM_WINDOW, dtype=x.dtype, device=x.device) - SSIM_WINDOW // 2
    taps = torch.softmax(-offsets.square() / (2 * _SIGMA**2), dim=0)

    def blur(planes: Tensor) -> Tensor:
        return F.conv2d(F.conv2d(planes, taps.view(1, 1, -1, 1)), taps.view(1, 1, 1, -1))

    with torch.autocast(x.device.type, enabled=False):
        mean_x, mean_y, xx, yy, xy = blur(torch.cat([x, y, x * x, y * y, x * y])).chunk(5)
    variance_x, variance_y, covariance = xx - mean_x**2, yy - mean_y**2, xy - mean_x * mean_y
    similarity = ((2 * mean_x * mean_y + _C1) * (2 * covariance + _C2)) / (
        (mean_x**2 + mean_y**2 + _C1) * (variance_x + variance_y + _C2)
    )
    return similarity.mean(dim=(-3, -2, -1)).view(*predicted.shape[:-3], predicted.shape[-3]).mean(-1)


class FrameMetric(RegisteredMetric):
    """Base of metrics of predicted frames: runs log `rollout_<name>` and its curve, or `<name>/frame`, with baselines.

    Attributes:
        smallest: height and width that a frame must have at least, pixels.
    """

    smallest: ClassVar[int] = 1

    @staticmethod
    @abstractmethod
    def score(predicted: Frames, true: Frames) -> Float[Tensor, "*batch"]:
        """The score of each frame; frames are in [0, 1]."""


class FrameMSE(FrameMetric):
    """Squared error per pixel (`frame_mse`)."""

    info = MetricInfo("mse", "squared error per pixel", False)
    rank = 0
    score = staticmethod(frame_mse)


class FramePSNR(FrameMetric):
    """Peak signal-to-noise ratio (`frame_psnr`)."""

    info = MetricInfo("psnr", "PSNR", True, unit="dB")
    rank = 1
    score = staticmethod(frame_psnr)


class FrameSSIM(FrameMetric):
    """Structural similarity (`frame_ssim`)."""

    info = MetricInfo("ssim", "SSIM", True)
    rank = 2
    smallest = SSIM_WINDOW
    score = staticmethod(frame_ssim)


def frame_metrics(height: int, width: int) -> dict[str, Callable[[Frames, Frames], Tensor]]:
    """The registered metrics of frames of a size, by name."""
    fitting = registered(FrameMetric).items()  # type: ignore[type-abstract]
    return {name: one.score for name, one in fitting if one.logged and min(height, width) >= one.smallest}


def frame_infos() -> list[MetricInfo]:
    """What the scores of frames are, LPIPS among them."""
    return [*(one.info for one in registered(FrameMetric).values()), LPIPS_INFO]  # type: ignore[type-abstract]


class HorizonCurve(DistinctMetric):
    """Mean over clips of a value per predicted frame: one number for each step of the horizon.

    Example:
        >>> curve = HorizonCurve(2)
        >>> curve.update(torch.tensor([[0.0, 1.0], [1.0, 3.0]]))
        >>> curve.compute()
        tensor([0.5000, 2.0000], dtype=torch.float64)
    """

    higher_is_better = None
    is_differentiable = False
    full_state_update = False
    total: Tensor
    count: Tensor

    def __init__(self, horizon: int) -> None:
        super().__init__()
        self.add_state("total", torch.zeros(horizon, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, values: Float[Tensor, "batch horizon"]) -> None:
        """Adds the values of some clips."""
        self.total += values.double().sum(0)
        self.count += len(values)

    def compute(self) -> Float[Tensor, " horizon"]:
        """The curve; nan before any clip."""
        return self.total / self.count
