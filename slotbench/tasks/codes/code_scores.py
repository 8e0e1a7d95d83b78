"""Scores of slots that predict codes, and of a tokenizer alone."""

from __future__ import annotations

from collections.abc import Mapping

from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.metric_info import MetricInfo, Reference
from slotbench.metrics.codes.code_usage import CODE_USE, CodeUsage
from slotbench.metrics.discovery_scores import DiscoveryScores
from slotbench.metrics.frames import frame_infos, frame_metrics, frame_psnr
from slotbench.metrics.means import Mean
from slotbench.metrics.scores import Scores

__all__ = ["CodeScores", "FrameScores"]

Frames = Float[Tensor, "batch time channels height width"]
Logits = Float[Tensor, "batch time codes rows cols"]


class CodeScores(DiscoveryScores):
    """The scores of `DiscoveryScores`, and beside them those of predicting codes.

    Names: `cross_entropy`, nats per code given the true codes before it and the slots; `cross_entropy_other_slots`, the
    same with the slots of another clip; `slot_gap`, how much worse that is: at zero the slots are not used, whatever
    the cross-entropy. Baselines are the entropy of single codes, `baseline/cross_entropy/single_codes`, and with at
    most 256 codes that given the left neighbour, `baseline/cross_entropy/left_neighbour`, both counted on the clips
    that are scored. `psnr/frame`, `mse/frame` and `ssim/frame` are of frames sampled from the slots, and
    `psnr_tokenizer/frame` of the same frames brought back from their true codes, which bounds them; with a mask decoder
    `psnr_mask_decoder/frame` is of all frames as it paints them from the slots; `perplexity` and
    `dead_codes` say how the true codes are used.

    Args:
        num_codes: size of the codebook.
        baseline_clips: clips of the set that baselines of the masks are scored on, the first ones; 0 for none.
    """

    def __init__(self, num_codes: int, baseline_clips: int = 0) -> None:
        super().__init__(baseline_clips)
        self.usage = CodeUsage(num_codes)
        self.code_losses = nn.ModuleDict({name: Mean() for name in ("own", "other", "own_beside_other")})

    @property
    def declared(self) -> list[MetricInfo]:
        """Scores of object discovery, of predicting codes, and of frames painted in other ways."""
        return [
            *super().declared,
            MetricInfo("cross_entropy", "cross-entropy of codes", False, unit="nats"),
            MetricInfo("cross_entropy_other_slots", "cross-entropy with another clip's slots", None, unit="nats"),
            MetricInfo("slot_gap", "cross-entropy lost with another clip's slots", True, unit="nats"),
            *CODE_USE,
            MetricInfo("psnr_tokenizer", "PSNR of frames from true codes", True, unit="dB"),
            MetricInfo("psnr_mask_decoder", "PSNR of the mask decoder's frames", True, unit="dB"),
        ]

    def update_codes(
        self, codes: Integer[Tensor, "batch time rows cols"], own: Logits, other: Logits | None = None
    ) -> None:
        """Adds true codes, their logits, and the logits with another clip's slots, where there is another clip."""
        self.usage.update(codes)
        for name, logits in {"own": own, "own_beside_other": own, "other": other}.items():
            metric = self.code_losses[name]
            assert isinstance(metric, Mean)
            if name != "own" and other is None:
                metric.update(own.new_zeros(0))  # for processes that meet when the mean is computed
            elif logits is not None:
                metric.update(F.cross_entropy(logits.flatten(0, 1).float(), codes.flatten(0, 1), reduction="none"))

    def update_painted(
        self,
        name: str,
        painted: Float[Tensor, "batch time channels height width"],
        true: Float[Tensor, "batch time channels height width"],
    ) -> None:
        """Adds frames that were made in another way than by sampling from the slots; both in [0, 1]."""
        self._add_frames(f"psnr_{name}", frame_psnr(painted, true))

    def compute(self) -> dict[str, float]:
        """Every score that there is, by name; what has no sample is left out."""
        used = {name: float(value) for name, value in self.usage.compute().items()}
        losses = {name: float(metric.compute()) for name, metric in self.code_losses.items()}  # type: ignore[operator]
        values = {
            "cross_entropy": losses["own"],
            "cross_entropy_other_slots": losses["other"],
            "slot_gap": losses["other"] - losses["own_beside_other"],
            "perplexity": used["perplexity"],
            "dead_codes": used["dead_codes"],
            Reference("baseline", "cross_entropy", "single_codes"): used["entropy"],
            Reference("baseline", "cross_entropy", "left_neighbour"): used.get("entropy_given_left", float("nan")),
        }
        return super().compute() | {name: value for name, value in values.items() if value == value}

    def close(self, keep_references: bool = True) -> dict[str, float]:
        """Every score of the evaluation that ends; the baselines of the codes are counted each time."""
        values = super().close(keep_references)
        counted = {
            name: value for name, value in values.items() if isinstance(name, Reference) and name.of == "cross_entropy"
        }
        if keep_references:
            self.references = self.references | counted
        return values


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
            self.metric(f"{name}/frame", Mean, true).update(score(painted, true))
        for name, frames in baselines.items():
            self.metric(Reference("baseline", "psnr/frame", name), Mean, true).update(frame_psnr(frames, true))

    def compute(self) -> dict[str, float]:
        """Every score by name."""
        values = {name: metric.compute() for name, metric in self.metrics.items() if metric.update_called}  # type: ignore[operator]
        return {name: float(value) for name, value in (values | self.usage.compute()).items()}
