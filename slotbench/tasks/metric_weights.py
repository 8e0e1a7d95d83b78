"""The networks that score frames and videos, from files that the user gives: nothing is fetched."""

from __future__ import annotations

from dataclasses import dataclass

from slotbench.interfaces import VideoSpec
from slotbench.metrics.lpips import LPIPS
from slotbench.pretrained.alexnet import MIN_SIDE, AlexNetFeatures
from slotbench.pretrained.i3d import I3D, MIN_FRAMES
from slotbench.pretrained.weights import read_files, select

__all__ = ["MetricWeights"]

_HEADS = {f"lin{layer}.model.1.weight": (1, width, 1, 1) for layer, width in enumerate((64, 192, 384, 256, 256))}


@dataclass(frozen=True)
class MetricWeights:
    """Where the weights of LPIPS and FVD are; what is not given is not computed.

    Attributes:
        lpips: a state dict with the features of AlexNet, in torchvision's naming.
        lpips_heads: one with LPIPS's linear heads, in the lpips package's naming; by default in `lpips` too.
        fvd: one of I3D with the 400 classes of Kinetics, in the naming of its PyTorch port.
    """

    lpips: str | None = None
    lpips_heads: str | None = None
    fvd: str | None = None

    def __post_init__(self) -> None:
        if self.lpips_heads is not None and self.lpips is None:
            raise ValueError(
                "metric_weights.lpips_heads are of no use without metric_weights.lpips, AlexNet's features"
            )

    def check(self, frame: VideoSpec, frames: int = 1) -> None:
        """Refuses weights that are of no use for videos of so many frames."""
        channels, side = frame.channels, min(frame.height, frame.width)
        if self.lpips is not None and (channels not in (1, 3) or side < MIN_SIDE):
            raise ValueError(f"LPIPS takes frames of 1 or 3 channels, and {MIN_SIDE} pixels; got {channels}, {side}")
        if self.fvd is not None and (channels not in (1, 3) or frames < MIN_FRAMES):
            raise ValueError(f"FVD takes videos of 1 or 3 channels, and {MIN_FRAMES} frames; got {channels}, {frames}")

    def load_lpips(self) -> LPIPS | None:
        """LPIPS, or None without weights."""
        if self.lpips is None:
            return None
        files = [path for path in (self.lpips, self.lpips_heads) if path is not None]
        tensors, source = read_files(files, "LPIPS"), " and ".join(files)
        features = AlexNetFeatures.from_tensors(tensors, source)
        heads = select(tensors, _HEADS, "the heads of LPIPS", "the lpips package's", source)
        return LPIPS(features, [heads[name].flatten().float() for name in _HEADS]).eval()

    def load_i3d(self) -> I3D | None:
        """The network of FVD, or None without weights."""
        return None if self.fvd is None else I3D.from_tensors(read_files([self.fvd], "FVD"), self.fvd)
