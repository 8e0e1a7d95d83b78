"""Masks of files scored clip by clip, with the baselines of each clip; only numbers are kept of a clip."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slotbench.data.folders.video_files import VideoFile
from slotbench.errors import UserError, lines, listing
from slotbench.evaluation.alignment import Aligned, MaskFacts, align, tables_of
from slotbench.evaluation.baselines import baselines_of, read_frames
from slotbench.evaluation.clip_files import Clip, Found, read_clip
from slotbench.evaluation.frame_numbers import FrameNumbers, matching_frames
from slotbench.metrics.clip_scores import ClipScores, score_clip
from slotbench.metrics.mask_evaluation import MaskEvaluation
from slotbench.metrics.mask_rules import Rules

__all__ = ["FileScores", "Matching", "evaluate", "match_clips"]


@dataclass(frozen=True)
class Matching:
    """Pairs of masks and truth.

    Attributes:
        pairs: masks and truth, by name.
        there: clips on either side.
        without_masks: names of the truth without masks.
        without_truth: names of masks without truth.
        allow_missing: whether frames that the truth does not have are left out too.
        views: whether the clips have an axis of views.
    """

    pairs: dict[str, tuple[Clip, Clip]]
    there: int
    without_masks: list[str]
    without_truth: list[str]
    allow_missing: bool = False
    views: bool = False

    def videos(self) -> dict[str, str]:
        """The name of the video of each clip, which is that of its truth."""
        return {name: truth.name for name, (_, truth) in self.pairs.items()}


@dataclass
class FileScores:
    """The scores of a set of masks.

    Attributes:
        matching: the clips.
        masks: their scores, by the rules in force.
        baselines: scores of each clip by each baseline, by its name.
        names: of the clips, in the order of the scores.
        facts: about the masks of each clip, in the same order.
        left_out: frames of the masks that the truth does not have.
        ids_of_255: clips of whose truth the id 255 is an object among others, and not the next one.
        new_ids: clips whose masks, or whose truth, have other ids in every frame.
    """

    matching: Matching
    masks: MaskEvaluation
    baselines: dict[str, list[ClipScores]] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    facts: list[MaskFacts] = field(default_factory=list)
    left_out: int = 0
    ids_of_255: int = 0
    new_ids: Counter[str] = field(default_factory=Counter)

    @property
    def rules(self) -> Rules:
        """The rules in force."""
        return self.masks.rules

    @property
    def segments(self) -> tuple[int, int]:
        """The fewest and the most slots, or ids, of a clip."""
        found = [one.segments for one in self.facts]
        return min(found), max(found)

    def clips_by(self, fact: str) -> Counter[Any]:
        """Clips by a fact about their masks, such as "kind"."""
        return Counter(getattr(one, fact) for one in self.facts)

    def total(self, fact: str) -> int:
        """The sum of a fact about the masks, such as "ties"."""
        return sum(getattr(one, fact) for one in self.facts)

    def cut(self) -> Counter[tuple[tuple[int, int], tuple[int, int]]]:
        """Clips of which a part of the truth was scored, by the height and width of the truth and of the part."""
        views = [one.view for one in self.facts]
        return Counter((view.frame, view.box[2:]) for view in views if view.box[2:] != view.frame)


def match_clips(masks: Found, truth: Found, allow_missing: bool = False, views: bool = False) -> Matching:
    """Pairs clips by name, or by the video that masks name; one clip on each side is a pair whatever its name.

    Args:
        masks: what there is of masks.
        truth: what there is of the truth.
        allow_missing: score what both have, though one side has more clips, or masks more frames with numbers.
        views: whether several cameras see the clips.

    Raises:
        UserError: a clip is on one side only, or no clip on both.
    """
    if len(masks.clips) == len(truth.clips) == 1:
        (one,), ((name, other),) = masks.clips.values(), truth.clips.items()
        return Matching({name: (one, other)}, 1, [], [], allow_missing, views)
    by_truth: dict[str, list[Clip]] = {}
    without_truth = []
    for name, clip in masks.clips.items():
        video = name if name in truth.clips else clip.about().video
        if video in truth.clips:
            by_truth.setdefault(video, []).append(clip)
        else:
            without_truth.append(name)
    without_masks = [name for name in truth.clips if name not in by_truth]
    common = {
        # several clips of one video have names of their own
        name if len(by_truth[name]) == 1 else clip.name: (clip, truth.clips[name])
        for name in truth.clips
        for clip in by_truth.get(name, [])
    }
    there = len(common) + len(without_masks) + len(without_truth)
    details = {"without masks": without_masks, "without truth": without_truth}
    named = {label: f"{len(names):,}: {listing(names, 3)}" for label, names in details.items() if names}
    if not common:
        raise UserError(lines("masks and truth have no clip in common: clips are matched by their names", **named))
    if (without_masks or without_truth) and not allow_missing:
        headline = f"{len(common):,} of {there:,} clips have masks and truth; give --allow-missing to score these alone"
        raise UserError(lines(headline, **named))
    return Matching(common, there, without_masks, without_truth, allow_missing, views)


def evaluate(
    matching: Matching,
    rules: Sequence[Rules],
    videos: Mapping[str, VideoFile] | None = None,
    with_baselines: bool = False,
    say: Callable[[int, int], None] = lambda done, total: None,
    in_order: bool = False,
) -> list[FileScores]:
    """Scores every clip under each set of rules; a clip is read once, and forgotten.

    Args:
        matching: the clips.
        rules: one evaluation is returned for each.
        videos: frames of the clips, for the baselines that see them.
        with_baselines: score baselines as well.
        say: called with the number of clips that are done, and of all.
        in_order: frames of both sides belong together as they come, whatever numbers the files say.

    Raises:
        UserError: a clip cannot be scored as the rules say.
        FileError: a file is damaged.
    """
    found = [FileScores(matching, MaskEvaluation(rules=one)) for one in rules]
    for number, (name, (masks, truth)) in enumerate(matching.pairs.items()):
        values, true, places, left_out = _read(masks, truth, in_order, matching)
        view = masks.about().view
        for one in found:
            aligned = align(values, true, one.rules, (masks.path, truth.path), view, matching.views)
            _add(one, name, aligned)
            one.left_out += left_out
            if with_baselines:
                frames = None if videos is None else read_frames(videos[name], places, aligned, one.rules)
                for baseline, labels in baselines_of(aligned, frames):
                    scores = score_clip(tables_of(labels, aligned), aligned.true_ids, one.rules)
                    one.baselines.setdefault(baseline, []).append(scores)
        say(number + 1, len(matching.pairs))
    return found


def _read(
    masks: Clip, truth: Clip, in_order: bool, matching: Matching
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Masks and truth of the same frames, their places in the video, and how many frames of masks have no truth."""
    values, true = read_clip(masks, matching.views), read_clip(truth, matching.views)
    own, others = _frame_numbers(masks, values), _frame_numbers(truth, true)
    found = matching_frames(own, others, in_order, (masks.path, truth.path), matching.allow_missing)
    numbers = own.numbers if own.from_zero and not in_order else None
    if found is None:
        return values, true, np.arange(len(values)) if numbers is None else numbers, 0
    kept, in_truth = found
    places = in_truth if numbers is None else numbers[kept]
    left_out = len(values) - len(kept)
    return values[kept] if left_out else values, true[in_truth], places, left_out


def _frame_numbers(clip: Clip, values: np.ndarray) -> FrameNumbers:
    found = clip.about().frames
    if found is None:
        return FrameNumbers(len(values))
    if found.length != len(values):
        raise UserError(
            f"{clip.path} has {len(values)} masks, and its array frame {found.length} numbers; expected one each"
        )
    return found


def _add(found: FileScores, name: str, aligned: Aligned) -> None:
    tables = tables_of(aligned.labels, aligned)
    size = (aligned.true.shape[-2], aligned.true.shape[-1])
    found.masks.add(tables[None], size, aligned.facts.segments, true_ids=aligned.true_ids)
    found.names.append(name)
    found.facts.append(aligned.facts)
    # ids that look like something else than they say
    counts = (tables.sum(1) if aligned.views else tables).numpy()
    objects = aligned.true_ids[counts.sum((0, 2)) > 0]
    found.ids_of_255 += int(255 in objects and 254 not in objects and len(objects[objects > 0]) > 1)
    for side, there in (("truth", counts[:, 1:].sum(2) > 0), ("masks", counts.sum(1) > 0)):
        both = there[1:].any(1) & there[:-1].any(1)
        if both.sum() > 1 and not (there[1:] & there[:-1]).any():
            found.new_ids[side] += 1
