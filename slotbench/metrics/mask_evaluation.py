"""Scores of masks by clip and the contents of their record, gathered over batches and processes."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch.distributed
from jaxtyping import Integer
from torch import Tensor

from slotbench.interfaces import MaskScores
from slotbench.metrics.clip_scores import ClipScores, score_clips
from slotbench.metrics.clip_summary import counted, scores_as_record
from slotbench.metrics.mask_rules import Rules

__all__ = ["MaskEvaluation", "gathered", "truth_digests"]


@dataclass
class MaskEvaluation:
    """Scores of one kind of masks, clip by clip.

    Attributes:
        per_clip: keep every score of every clip, tracking included; otherwise only the means, which are given.
        rules: in force; frames and pixels are already chosen by them.
        slots: of the masks.
        frames: scored frames.
        clips: by number, the digest of the truth and, with `per_clip`, the scores.
        lengths: clips by the frames of a video: of the whole clip, or of a window.
        sizes: clips by height and width.
        views: clips by their cameras, "3 of 5" where the encoder was shown 3 of them; empty for one camera.
    """

    per_clip: bool = True
    rules: Rules = field(default_factory=Rules)
    slots: int = 0
    frames: int = 0
    clips: dict[int, tuple[bytes, ClipScores | None]] = field(default_factory=dict)
    lengths: Counter[int] = field(default_factory=Counter)
    sizes: Counter[tuple[int, int]] = field(default_factory=Counter)
    views: Counter[str] = field(default_factory=Counter)

    @property
    def scores(self) -> list[ClipScores]:
        """Scores of the clips in the order of their numbers."""
        return [scores for number in sorted(self.clips) if (scores := self.clips[number][1]) is not None]

    def add(
        self,
        tables: Integer[Tensor, "batch time *views true predicted"],
        size: tuple[int, int],
        slots: int,
        index: Integer[Tensor, " batch"] | None = None,
        true_ids: Integer[np.ndarray, " true"] | None = None,
        shown: int | None = None,
    ) -> None:
        """Adds clips.

        Args:
            tables: pixels by frame, true id and slot.
            size: height and width of the frames.
            slots: of the masks.
            index: numbers of the clips; None to count on.
            true_ids: ids that the rows stand for; None for 0, 1, 2, ...
            shown: of several cameras, those that the encoder was shown; None where it is not known.
        """
        numbers = range(len(self.clips), len(self.clips) + len(tables)) if index is None else index.tolist()
        digests = truth_digests(tables)
        scores: list[ClipScores | None] = [None] * len(tables)
        if self.per_clip:
            scores = [*score_clips(tables, np.arange(tables.shape[-2]) if true_ids is None else true_ids, self.rules)]
        new = {number: one for number, *one in zip(numbers, digests, scores, strict=True) if number not in self.clips}
        self.clips |= {number: (digest, found) for number, (digest, found) in new.items()}
        self.frames += tables.shape[1:-2].numel() * len(new)
        self.lengths[self.rules.window or tables.shape[1]] += len(new)
        self.sizes[size] += len(new)
        if tables.ndim == 5:
            self.views[f"{tables.shape[2]}" if shown is None else f"{shown} of {tables.shape[2]}"] += len(new)
        self.slots = max(self.slots, slots)

    def merge(self, other: MaskEvaluation) -> None:
        """Adds the clips of another process."""
        self.clips |= other.clips
        self.lengths += other.lengths
        self.sizes += other.sizes
        self.views += other.views
        self.frames += other.frames
        self.slots = max(self.slots, other.slots)

    def result(
        self, source: str, means: Mapping[str, float] = {}, baselines: Mapping[str, Mapping[str, float]] = {}
    ) -> MaskScores:
        """Contents of the record.

        Args:
            source: whose masks they are.
            means: scores by name, for those that were not kept clip by clip.
            baselines: means by the baseline's name.
        """
        numbers = sorted(self.clips)
        found = self.scores
        # of a scope alone, "videos", it is all samples
        special = {what: count for what, count in counted(found).items() if " " in what}
        truth = hashlib.sha256(b"".join(self.clips[number][0] for number in numbers)).hexdigest()
        return MaskScores(
            source=source,
            rules=self.rules.as_record(),
            clips=numbers,
            truth=truth,
            slots=self.slots,
            frames={
                "scored": self.frames,
                "lengths": {str(frames): clips for frames, clips in sorted(self.lengths.items())},
                "sizes": {f"{height}x{width}": clips for (height, width), clips in self.sizes.items()},
                **({"views": dict(self.views)} if self.views else {}),
                "special": special,
            },
            scores=scores_as_record(found) if self.per_clip else _as_record(means),
            baselines={name: _as_record(scores) for name, scores in baselines.items()},
        )


def gathered(own: dict[str, MaskEvaluation]) -> dict[str, MaskEvaluation]:
    """The evaluations of all processes, by the source of the masks; every process must take part."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return own
    parts: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(parts, own)
    together: dict[str, MaskEvaluation] = {}
    for part in parts:
        for source, evaluation in part.items():
            if source in together:
                together[source].merge(evaluation)
            else:
                together[source] = evaluation
    return together


def truth_digests(tables: Integer[Tensor, "batch time *views true predicted"]) -> list[bytes]:
    """SHA-256 of each clip's true objects, of how many pixels they have in each frame: other clips have another one."""
    pixels = tables.sum(-1).cpu().numpy().astype(np.int64)
    digests = []
    for clip in pixels:
        # a batch has rows for the ids of its other clips
        there = np.flatnonzero(clip.any(tuple(range(clip.ndim - 1))))
        clip = clip[..., : there[-1] + 1 if len(there) else 0]
        digests.append(hashlib.sha256(repr(clip.shape).encode() + clip.tobytes()).digest())
    return digests


def _as_record(means: Mapping[str, float]) -> dict[str, Any]:
    return {name: {"mean": mean, "low": None, "high": None} for name, mean in means.items()}
