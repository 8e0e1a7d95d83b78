"""The scores of roll-outs over one evaluation, by step of the horizon and, where asked, by group of clips."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn

from slotbench.interfaces import VideoSpec
from slotbench.metric_info import MetricInfo, Reference
from slotbench.metrics.codes.next_codes import NEXT_CODES, NextCodes
from slotbench.metrics.frames import MAX_PSNR, HorizonCurve, frame_infos, frame_metrics
from slotbench.metrics.means import Mean
from slotbench.metrics.scores import Scores
from slotbench.metrics.usage import ChoiceUsage
from slotbench.nn.distributed import sum_over_processes
from slotbench.tasks.frame_losses import truncate_to_bytes
from slotbench.tasks.rollouts.groups import RolloutGroups, summarise_groups
from slotbench.tasks.rollouts.objects import OBJECT_INFOS, ObjectScores

__all__ = ["Curves", "RolloutScores", "curve_values", "frames_ahead", "parts_of_curve"]

Curves = dict[str, list[float]]
"""A score per step of the horizon, by the score's name."""

Frames = Float[Tensor, "batch time channels height width"]

_VARIANTS = ("thresholded", "short_context")
"""Roll-outs of the model that are scored beside the plain one."""

_MAX_STEPS = 100
"""How many steps of a curve are logged one by one."""

_SINCE_SEEN = re.compile(r"rollout_mse(?P<variant>\w*)/(?:unseen_(?P<first>\d+)(?:-\d+|\+)|never_seen)")
"""The error of pixels by the frames since what they show was in view."""


class _Whose(NamedTuple):
    """Whose frames are scored: a "baseline" or an "oracle" by name, or a variant of the model; empty for the model."""

    reference: Literal["", "baseline", "oracle"]
    name: str

    @classmethod
    def of(cls, key: str) -> _Whose:
        """Reads "" for the model, "baseline|NAME", "oracle|NAME", or the name of a variant of the model."""
        kind, bar, name = key.partition("|")
        return cls(kind, name) if bar else cls("", key)  # type: ignore[arg-type]

    def logged(self, score: str, part: str = "") -> str:
        """Name of its score, of all or of a part such as "/step_07"."""
        if self.reference:
            of, name = f"rollout_{score}{part}", f"{self.reference}/rollout_{score}/{self.name}{part}"
            return Reference(self.reference, of, self.name, name)
        return f"rollout_{score}{f'_{self.name}' if self.name else ''}{part}"


class RolloutScores(Scores):
    """Squared error, PSNR and SSIM of every predicted frame, averaged over clips, for the model and what is beside it.

    Names: `rollout_<score>`, the mean over the horizon, with `/step_07` and `/first_400` of parts of it, and
    `_<variant>` of a variant of the model; `rollout_capped`, the share of frames without any error; with groups, what
    `summarise_groups` says; `rollout_mse/<group>` and `rollout_psnr/<group>` of the groups of pixels that the data
    names (`SlotDataModule.pixel_groups`). See `declared` for the others.

    Frames come in pieces of the horizon; the model's whole videos are held where groups need them for FVD.

    Args:
        horizon: predicted frames per clip.
        frame: size of a frame.
        quantise: truncate all frames to bytes before they are scored, as the evaluation of ConvS5 does.
        means_until: also report the mean over so many first frames, where the horizon has as many.
        groups: also takes the model's scores and videos.
        objects: also scores what becomes of the objects; its scores are among those of `compute`.
        num_codes: size of the codebook, to score codes too.
    """

    def __init__(
        self,
        horizon: int,
        frame: VideoSpec,
        quantise: bool = False,
        means_until: Sequence[int] = (),
        groups: RolloutGroups | None = None,
        objects: ObjectScores | None = None,
        num_codes: int | None = None,
    ) -> None:
        super().__init__()
        self.horizon = horizon
        self.frame = frame
        self.quantise = quantise
        self.means_until = means_until
        self.groups = groups
        self.objects = objects
        self.codes = None if num_codes is None else NextCodes(num_codes)
        self.curves = nn.ModuleDict()
        self.schemata = ChoiceUsage()
        self.latest: dict[str, Curves] = {}
        self._last: dict[str, float] = {}
        self._functions = frame_metrics(frame.height, frame.width)
        self._sampled_frames, self._sampling_seconds = 0, 0.0
        self._device = torch.device("cpu")

    @property
    def declared(self) -> list[MetricInfo]:
        """Quality of predicted frames, those ahead of baselines, groups, and objects where they are scored."""
        frames = [replace(one, name=f"rollout_{one.name}") for one in frame_infos()]
        return [
            *frames,
            *(replace(one, name=f"{one.name}_{variant}") for one in frames for variant in _VARIANTS),
            MetricInfo("rollout_mse_per_frame", "squared error of a frame, summed over pixels", False),
            MetricInfo("rollout_frames_ahead", "frames ahead of every baseline", True, unit="frames"),
            MetricInfo("rollout_fvd", "FVD", False),
            MetricInfo("rollout_capped", "share of frames without error"),
            MetricInfo("rollout_groups", "groups of clips"),
            MetricInfo("rollout_group_clips", "clips of a group"),
            MetricInfo("sampling_fps", "frames predicted per second", True),
            MetricInfo("schemata_entropy", "entropy of the schemata in use", unit="nats"),
            *(OBJECT_INFOS if self.objects is not None else ()),
            *(NEXT_CODES if self.codes is not None else ()),
        ]

    @property
    def names(self) -> tuple[str, ...]:
        """The scores that every frame gets."""
        return tuple(self._functions)

    def use_networks(self, lpips: nn.Module | None, i3d: nn.Module | None) -> None:
        """Scores by LPIPS and FVD too."""
        super().use_networks(lpips, i3d)
        if self.lpips is not None:
            self._functions["lpips"] = self.lpips
        if self.groups is not None:
            self.groups.embed_with(i3d)

    def update(
        self,
        pieces: Iterable[tuple[Mapping[str, Frames], Frames]],
        context: Frames | None = None,
        index: Integer[Tensor, " batch"] | None = None,
        pixels: Mapping[str, Bool[Tensor, "batch horizon height width"]] = MappingProxyType({}),
    ) -> None:
        """Adds a batch of clips.

        Args:
            pieces: in order of time, frames by whose they are (see `_Whose.of`) and the true ones.
            context: the true frames before; without them the clips are in no group.
            index: which clips of the data set they are.
            pixels: groups of pixels of the horizon, by name.
        """
        values: dict[str, list[Tensor]] = {}
        first = 0
        groups = None if context is None else self.groups
        videos: list[tuple[Tensor, Tensor]] = []
        for shown, true in pieces:
            true = self._as_scored(true)
            for whose, frames in shown.items():
                frames = self._as_scored(frames)
                if groups is not None and groups.needs_videos and not whose:
                    videos.append((frames, true))
                if pixels:
                    error = (frames - true).square().mean(2)
                for group, chosen in pixels.items():
                    own = error[chosen[:, first : first + true.shape[1]]]
                    self.metric(f"{whose}|{group}", Mean, own).update(own)
                for name, function in self._functions.items():
                    value = function(frames, true)
                    values.setdefault(f"{whose}|{name}", []).append(value)
                    if name == "psnr" and not whose:
                        values.setdefault("|capped", []).append((value >= MAX_PSNR).float())
            first += true.shape[1]
        for key, parts in values.items():
            if key not in self.curves:  # made on first use: which oracles there are, the data says
                self.curves[key] = HorizonCurve(self.horizon).to(parts[0].device)
            self.curves[key].update(torch.cat(parts, dim=1))  # type: ignore[operator]
            self._device = parts[0].device
        if groups is not None and context is not None:
            groups.update_scores({name: torch.cat(values[f"|{name}"], dim=1) for name in self.names}, index)
            if groups.needs_videos:
                seen = self._as_scored(context)
                predicted, followed = (torch.cat([seen, *parts], dim=1) for parts in zip(*videos, strict=True))
                groups.update_videos(predicted, followed, context.shape[1], index)

    def add_sampling(self, frames: int, seconds: float) -> None:
        """Adds the time that a number of frames took to predict."""
        self._sampled_frames += frames
        self._sampling_seconds += seconds

    def add_details(self, details: Mapping[str, Tensor]) -> None:
        """Adds what a core has told of true frames (`CoreOutput.details`): which slot took which schema."""
        if "schemata" in details:
            self.schemata.update(details["schemata"])

    def compute(self) -> dict[str, float]:
        """Every score, by name."""
        curves = self._curves()
        values = curve_values(curves, self.means_until)
        values |= frames_ahead(self.latest | curves, curves)
        pixels = self.frame.channels * self.frame.height * self.frame.width
        values["rollout_mse_per_frame"] = values["rollout_mse"] * pixels
        values |= self._pixel_values()
        if self.groups is not None:
            found = self.groups.compute()
            values |= summarise_groups(found, "rollout_")
            values |= {"rollout_groups": len(found["mse"]), "rollout_group_clips": self.groups.clips}
            speed = torch.tensor(self._sampled_frames / max(self._sampling_seconds, 1e-9), device=self._device)
            values["sampling_fps"] = float(sum_over_processes(speed))
        if self.objects is not None:
            values |= self.objects.compute()
        if self.codes is not None and self.codes.update_called:
            found_codes = self.codes.compute()
            values |= {
                name: float(value)
                for name, value in found_codes.items()
                if self.wants_references or not isinstance(name, Reference)
            }
        if self.schemata.update_called:
            values["schemata_entropy"] = float(self.schemata.compute())
        self._last = {name: float(value) for name, value in values.items()}
        return dict(self._last)

    def over_absence(self) -> dict[str, dict[float, float]]:
        """Squared error of the last evaluation by the frames since what a pixel shows was in view in the context."""
        found: dict[str, dict[float, float]] = {"model": {}}
        for logged, value in (self.references | self._last).items():
            oracle = logged if isinstance(logged, Reference) and logged.kind == "oracle" else None
            if match := _SINCE_SEEN.fullmatch(oracle.of if oracle is not None else logged):
                variant = match["variant"].strip("_").replace("_", " ")
                whose = variant or "model" if oracle is None else f"oracle: {oracle.by}"
                found.setdefault(whose, {})[float(match["first"] or math.inf)] = value
        return found

    def reset(self) -> None:
        """Forgets every clip."""
        super().reset()
        self._sampled_frames, self._sampling_seconds = 0, 0.0

    def close(self, keep_references: bool = True) -> dict[str, float]:
        """Every score of the evaluation that ends, by name; keeps its curves as the latest."""
        curves = self._curves()
        if keep_references:
            self.latest = self._references() | curves
        return super().close(keep_references)

    def panels(self) -> dict[str, dict[str, list[float]]]:
        """Each score by step of the horizon, of the evaluation that ended last: a panel per score, the model first."""
        if "" not in self.latest:
            return {}
        named: dict[str, Curves] = {}
        for key, curves in self._references().items():
            whose = _Whose.of(key)
            named[f"oracle: {whose.name}" if whose.reference == "oracle" else whose.name] = curves
        labels = {one.name: f"{one.label}, {one.unit}" if one.unit else one.label for one in frame_infos()}
        return {
            labels[score]: {"this run": self.latest[""][score]}
            | {name: curves[score] for name, curves in named.items() if score in curves}
            for score in self.names
        }

    def kept(self) -> dict[str, Any]:
        """What a checkpoint is to hold: the references, and their curves."""
        return super().kept() | {"curves": self._references()}

    def restore(self, kept: dict[str, Any]) -> None:
        """Takes over what `kept` returned."""
        super().restore(kept)
        self.latest = dict(kept["curves"])

    def _references(self) -> dict[str, Curves]:
        """The latest curves of baselines and oracles."""
        return {key: curves for key, curves in self.latest.items() if _Whose.of(key).reference}

    def _curves(self) -> dict[str, Curves]:
        """The curves that have been updated, by whose they are and the score's name."""
        found: dict[str, Curves] = {}
        for key, curve in self.curves.items():
            assert isinstance(curve, HorizonCurve)
            if curve.update_called:
                whose, name = key.rsplit("|", 1)
                found.setdefault(whose, {})[name] = curve.compute().tolist()
        return found

    @property
    def pixel_groups(self) -> tuple[str, ...]:
        """The groups of pixels that have been scored, without those that are points of `over_absence`."""
        groups = dict.fromkeys(key.rpartition("|")[2] for key in self.metrics)
        return tuple(group for group in groups if not _SINCE_SEEN.fullmatch(f"rollout_mse/{group}"))

    def _pixel_values(self) -> dict[str, float]:
        """The pooled error of groups of pixels, and its PSNR."""
        found: dict[str, float] = {}
        for key, mean in self.metrics.items():
            assert isinstance(mean, Mean)
            if not mean.update_called or not torch.isfinite(error := mean.compute()):
                continue
            whose, _, group = key.rpartition("|")
            reference, name = _Whose.of(whose)
            psnr = MAX_PSNR if error == 0 else min(MAX_PSNR, -10 * math.log10(float(error)))
            for score, value in {"mse": float(error), "psnr": psnr}.items():
                known = Reference(reference, f"rollout_{score}/{group}", name) if reference else None
                found[known or _Whose.of(whose).logged(score, f"/{group}")] = value
        return found

    def _as_scored(self, frames: Tensor) -> Tensor:
        return truncate_to_bytes(frames) if self.quantise else frames


def curve_values(curves: Mapping[str, Curves], means_until: Sequence[int] = ()) -> dict[str, float]:
    """What is logged of all curves, by name without the stage; `means_until` as in `parts_of_curve`."""
    found: dict[str, float] = {}
    for whose, found_curves in curves.items():
        scores = dict(found_curves)
        if "capped" in scores:
            found["rollout_capped"] = float(np.mean(scores.pop("capped")))
        for name, curve in scores.items():
            found |= {_Whose.of(whose).logged(name, part): value for part, value in parts_of_curve(curve, means_until)}
    return found


def frames_ahead(known: Mapping[str, Curves], of: Iterable[str] = ("",)) -> dict[str, float]:
    """How many frames, from the first on, have less squared error than every baseline has at that step.

    The mean error over the data set is compared, step by step. A model that has lost what it predicts can be ahead
    again later by painting less; such frames are not counted. With no baseline nothing is reported.

    Example:
        >>> curves = {"": {"mse": [0.1, 0.2, 0.4, 0.1]}, "baseline|black": {"mse": [0.3, 0.3, 0.3, 0.3]}}
        >>> frames_ahead(curves)
        {'rollout_frames_ahead': 2.0}
    """
    baselines = [curves["mse"] for key, curves in known.items() if _Whose.of(key).reference == "baseline"]
    if not baselines:
        return {}
    lowest = [min(step) for step in zip(*baselines, strict=True)]
    found = {}
    for whose in of:
        behind = [not error < best for error, best in zip(known[whose]["mse"], lowest, strict=True)]
        found[_Whose.of(whose).logged("frames_ahead")] = float([*behind, True].index(True))
    return found


def parts_of_curve(curve: Sequence[float], means_until: Sequence[int] = ()) -> Iterator[tuple[str, float]]:
    """What is logged of a curve: the mean, those of the first frames, and single steps."""
    yield "", float(np.mean(curve))
    for frames in means_until:
        if frames <= len(curve):
            yield f"/first_{frames}", float(np.mean(curve[:frames]))
    stride, digits = math.ceil(len(curve) / _MAX_STEPS), max(2, len(str(len(curve))))
    for step in sorted({1, len(curve), *range(stride, len(curve), stride)}):
        yield f"/step_{step:0{digits}d}", curve[step - 1]
