"""Masks scored clip by clip, with the baselines of each clip: what is kept of a clip is some numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from slotbench.data.folders.video_files import VideoFile
from slotbench.errors import UserError, lines, listing
from slotbench.metrics.clip_scores import ClipScores, score_clip
from slotbench.metrics.mask_rules import Rules
from slotbench.scoring.alignment import align, tables_of
from slotbench.scoring.baselines import baselines_of, read_frames
from slotbench.scoring.clip_files import Clip, Found, read_clip

__all__ = ["Evaluation", "Matching", "evaluate", "match_clips"]


@dataclass(frozen=True)
class Matching:
    """Which clips of both sides are scored together.

    Attributes:
        pairs: masks and truth, by name.
        there: clips on either side.
        without_masks: names of the truth without masks.
        without_truth: names of masks without truth.
    """

    pairs: dict[str, tuple[Clip, Clip]]
    there: int
    without_masks: list[str]
    without_truth: list[str]


@dataclass
class Evaluation:
    """The scores of a set of masks.

    Attributes:
        matching: the clips.
        rules: in force.
        names: of the clips, in the order of the scores.
        masks: scores of each clip.
        baselines: the same of each baseline, by its name.
        kinds: clips of "ids" and of "soft masks".
        lengths: clips by the frames that were scored, with windows by those of a window.
        sizes: clips by the height and width at which they were scored.
        frames: that were scored.
        pixels: of these frames.
        ties: of them, those whose largest share two slots have.
        segments: the fewest and the most slots, or ids, of a clip.
    """

    matching: Matching
    rules: Rules
    names: list[str] = field(default_factory=list)
    masks: list[ClipScores] = field(default_factory=list)
    baselines: dict[str, list[ClipScores]] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    lengths: Counter[int] = field(default_factory=Counter)
    sizes: Counter[tuple[int, int]] = field(default_factory=Counter)
    frames: int = 0
    pixels: int = 0
    ties: int = 0
    segments: tuple[int, int] = (0, 0)


def match_clips(masks: Found, truth: Found, allow_missing: bool = False) -> Matching:
    """Pairs by name; a single clip on both sides is a pair whatever the names.

    Args:
        masks: what there is of masks.
        truth: what there is of the truth.
        allow_missing: score what both have, though one side has more.

    Raises:
        UserError: a clip is on one side only, or no clip on both.
    """
    if len(masks.clips) == len(truth.clips) == 1:
        (one,), ((name, other),) = masks.clips.values(), truth.clips.items()
        return Matching({name: (one, other)}, 1, [], [])
    common = [name for name in truth.clips if name in masks.clips]
    without_masks = [name for name in truth.clips if name not in masks.clips]
    without_truth = [name for name in masks.clips if name not in truth.clips]
    there = len(common) + len(without_masks) + len(without_truth)
    details = {"without masks": without_masks, "without truth": without_truth}
    named = {label: f"{len(names):,}: {listing(names, 3)}" for label, names in details.items() if names}
    if not common:
        raise UserError(lines("masks and truth have no clip in common: clips are matched by their names", **named))
    if (without_masks or without_truth) and not allow_missing:
        headline = f"{len(common):,} of {there:,} clips have masks and truth; give --allow-missing to score these alone"
        raise UserError(lines(headline, **named))
    return Matching(
        {name: (masks.clips[name], truth.clips[name]) for name in common}, there, without_masks, without_truth
    )


def evaluate(
    matching: Matching,
    rules: Sequence[Rules],
    videos: Mapping[str, VideoFile] | None = None,
    with_baselines: bool = False,
    say: Callable[[int, int], None] = lambda done, total: None,
) -> list[Evaluation]:
    """Scores every clip under each set of rules; a clip is read once, and forgotten.

    Args:
        matching: the clips.
        rules: one evaluation is returned for each.
        videos: frames of the clips, for the baselines that see them.
        with_baselines: score baselines as well.
        say: is told how many clips are done, of how many.

    Raises:
        UserError: a clip cannot be scored as the rules say.
        FileError: a file is damaged.
    """
    found = [Evaluation(matching, one) for one in rules]
    for number, (name, (masks, truth)) in enumerate(matching.pairs.items()):
        values, true = read_clip(masks), read_clip(truth)
        for one in found:
            _add_clip(one, name, values, true, None if videos is None else videos[name], with_baselines)
        say(number + 1, len(matching.pairs))
    return found


def _add_clip(
    found: Evaluation, name: str, values: np.ndarray, true: np.ndarray, video: VideoFile | None, with_baselines: bool
) -> None:
    masks, truth = found.matching.pairs[name]
    aligned = align(values, true, found.rules, (masks.path, truth.path))
    found.names.append(name)
    found.masks.append(score_clip(tables_of(aligned.labels, aligned), aligned.true_ids, found.rules))
    height, width = aligned.true.shape[1:]
    if with_baselines:
        frames = None if video is None else read_frames(video, len(values), (height, width), found.rules)
        for baseline, labels in baselines_of(aligned, frames):
            scores = score_clip(tables_of(labels, aligned), aligned.true_ids, found.rules)
            found.baselines.setdefault(baseline, []).append(scores)
    found.kinds["soft masks" if values.ndim == 4 else "ids"] += 1
    found.lengths[found.rules.window or len(aligned.true)] += 1
    found.sizes[height, width] += 1
    found.frames += len(aligned.true)
    found.pixels += aligned.true.numel()
    found.ties += aligned.ties
    fewest, most = found.segments
    found.segments = min(fewest or aligned.segments, aligned.segments), max(most, aligned.segments)
