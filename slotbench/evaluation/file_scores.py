"""Masks of files scored clip by clip beside baselines, and the record of it."""

from __future__ import annotations

import importlib.metadata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from slotbench.evaluation.alignment import Aligned, align
from slotbench.evaluation.mask_files import read_clip
from slotbench.metrics.clip_scores import ClipScores, score_clip, summaries
from slotbench.metrics.mask_rules import Rules
from slotbench.metrics.segmentation_baselines import grid_labels, nearest_grid

__all__ = ["FileScores", "record_of", "score_files"]


@dataclass
class FileScores:
    """The scores of a set of masks.

    Attributes:
        rules: in force.
        names: of the clips.
        clips: their scores, in the same order.
        baselines: scores of each clip by each baseline, by its name.
        frames: scored frames of all clips.
        slots: of each clip.
        uncovered: pixels that no slot has.
        sizes: clips by the height and width at which they are scored.
    """

    rules: Rules
    names: list[str] = field(default_factory=list)
    clips: list[ClipScores] = field(default_factory=list)
    baselines: dict[str, list[ClipScores]] = field(default_factory=dict)
    frames: int = 0
    slots: list[int] = field(default_factory=list)
    uncovered: int = 0
    sizes: Counter[tuple[int, int]] = field(default_factory=Counter)

    @property
    def special(self) -> Counter[str]:
        """Samples by what is special about them, such as "frames without objects"."""
        total: Counter[str] = Counter()
        for clip in self.clips:
            total.update(clip.counts)
        return total


def score_files(
    pairs: Mapping[str, tuple[Path, Path]],
    rules: Sequence[Rules],
    with_baselines: bool = False,
    say: Callable[[int, int], None] = lambda done, total: None,
) -> list[FileScores]:
    """Scores every clip, masks and truth by name, under each set of rules; a clip is read once, and forgotten."""
    found = [FileScores(one) for one in rules]
    for number, (name, (masks, truth)) in enumerate(pairs.items()):
        predicted, true = read_clip(masks), read_clip(truth)
        for one in found:
            clip = align(predicted, true, one.rules)
            one.names.append(name)
            one.clips.append(score_clip(clip.tables(clip.labels), clip.true_ids, one.rules))
            one.frames += clip.true.shape[:-2].numel()
            one.slots.append(clip.slots)
            one.uncovered += int((clip.labels < 0).sum())
            one.sizes[clip.true.shape[-2], clip.true.shape[-1]] += 1
            for baseline, labels in _baselines(clip).items() if with_baselines else ():
                scores = score_clip(clip.tables(labels), clip.true_ids, one.rules)
                one.baselines.setdefault(baseline, []).append(scores)
        say(number + 1, len(pairs))
    return found


def _baselines(clip: Aligned) -> dict[str, Tensor]:
    """Segmentations that look at no frame, with as many segments as the masks have slots at most."""
    height, width = clip.true.shape[-2:]
    blank, slots = torch.zeros(1, 1, 1, height, width), min(max(1, clip.slots), 255)
    grids = {"one slot": (1, 1), "stripes": (1, slots), "grid": nearest_grid(slots)}
    return {name: grid_labels(blank, *grid)[0, 0].expand(clip.true.shape) for name, grid in grids.items()} | {
        "first masks kept": clip.labels[:1].expand(clip.true.shape)
    }


def record_of(found: FileScores, masks: Path) -> dict[str, Any]:
    """Everything about an evaluation, as plain values."""
    return {
        "record": "slotbench score",
        "slotbench": importlib.metadata.version("slotbench"),
        "date": datetime.now().astimezone().isoformat(timespec="seconds"),
        "masks": {"path": str(masks), "slots": found.slots, "uncovered_pixels": found.uncovered},
        "rules": found.rules.as_record(),
        "clips": found.names,
        "frames": {
            "scored": found.frames,
            "sizes": {f"{height}x{width}": count for (height, width), count in found.sizes.items()},
            "special": {what: count for what, count in found.special.items() if " " in what},
        },
        "scores": _scores(found.clips),
        "baselines": {name: _scores(clips) for name, clips in found.baselines.items()},
    }


def _scores(clips: Sequence[ClipScores]) -> dict[str, Any]:
    """Mean and interval of each score, and the values of the clips with how many samples they are of."""
    record: dict[str, Any] = {}
    for name, one in summaries(clips).items():
        record[name] = {"mean": one.mean, "low": one.low, "high": one.high}
        if name == "half_life":
            record[name] |= {"mean": None if one.beyond is not None else one.mean, "longer_than": one.beyond}
        else:
            record[name] |= {"values": list(one.values), "weights": list(one.weights)}
    return record
