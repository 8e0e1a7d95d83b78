"""Masks scored clip by clip, with the baselines of each clip: what is kept of a clip is some numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from slotbench.data.folders.video_files import VideoFile
from slotbench.errors import UserError, lines, listing
from slotbench.evaluation.alignment import Aligned, align, tables_of
from slotbench.evaluation.baselines import baselines_of, read_frames
from slotbench.evaluation.clip_files import Clip, Found, read_clip
from slotbench.evaluation.frame_numbers import Side, positions
from slotbench.interfaces import View
from slotbench.metrics.clip_scores import ClipScores, score_clip
from slotbench.metrics.mask_rules import Rules

__all__ = ["Evaluation", "Matching", "evaluate", "match_clips"]


@dataclass(frozen=True)
class Matching:
    """Which clips of both sides are scored together.

    Attributes:
        pairs: masks and truth, by name.
        there: clips on either side.
        without_masks: names of the truth without masks.
        without_truth: names of masks without truth.
        allow_missing: whether frames that the truth does not have are left out too.
    """

    pairs: dict[str, tuple[Clip, Clip]]
    there: int
    without_masks: list[str]
    without_truth: list[str]
    allow_missing: bool = False

    def videos(self) -> dict[str, str]:
        """What the video of each clip is called, as its truth is."""
        return {name: truth.name for name, (_, truth) in self.pairs.items()}


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
        mask_sizes: clips by the height and width of the masks, as they are in their files.
        views: clips of which a part of the truth was scored, by the height and width of the truth and of the part.
        frames: that were scored.
        left_out: frames of the masks that the truth does not have.
        pixels: of the frames that were scored.
        ties: of them, those whose largest share two slots have.
        unequal: of them, those whose shares do not sum to 1.
        uncovered: of them, those that no slot has.
        ids_of_255: clips of whose truth the id 255 is an object among others, and not the next one.
        new_ids: clips whose masks, or whose truth, have other ids in every frame.
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
    mask_sizes: Counter[tuple[int, int]] = field(default_factory=Counter)
    views: Counter[tuple[tuple[int, int], tuple[int, int]]] = field(default_factory=Counter)
    frames: int = 0
    left_out: int = 0
    pixels: int = 0
    ties: int = 0
    unequal: int = 0
    uncovered: int = 0
    ids_of_255: int = 0
    new_ids: Counter[str] = field(default_factory=Counter)
    segments: tuple[int, int] = (0, 0)


def match_clips(masks: Found, truth: Found, allow_missing: bool = False) -> Matching:
    """Pairs by name, or by the video that masks say they are of; one clip on each side is a pair whatever its name.

    Args:
        masks: what there is of masks.
        truth: what there is of the truth.
        allow_missing: score what both have, though one side has more clips, or masks more frames with numbers.

    Raises:
        UserError: a clip is on one side only, or no clip on both.
    """
    if len(masks.clips) == len(truth.clips) == 1:
        (one,), ((name, other),) = masks.clips.values(), truth.clips.items()
        return Matching({name: (one, other)}, 1, [], [], allow_missing)
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
    return Matching(common, there, without_masks, without_truth, allow_missing)


def evaluate(
    matching: Matching,
    rules: Sequence[Rules],
    videos: Mapping[str, VideoFile] | None = None,
    with_baselines: bool = False,
    say: Callable[[int, int], None] = lambda done, total: None,
    in_order: bool = False,
) -> list[Evaluation]:
    """Scores every clip under each set of rules; a clip is read once, and forgotten.

    Args:
        matching: the clips.
        rules: one evaluation is returned for each.
        videos: frames of the clips, for the baselines that see them.
        with_baselines: score baselines as well.
        say: is told how many clips are done, of how many.
        in_order: frames of both sides belong together as they come, whatever numbers the files say.

    Raises:
        UserError: a clip cannot be scored as the rules say.
        FileError: a file is damaged.
    """
    found = [Evaluation(matching, one) for one in rules]
    for number, (name, (masks, truth)) in enumerate(matching.pairs.items()):
        pair = _read(masks, truth, in_order, matching.allow_missing)
        for one in found:
            _add_clip(one, name, pair, None if videos is None else videos[name], with_baselines)
        say(number + 1, len(matching.pairs))
    return found


class _Pair(NamedTuple):
    """Masks and truth of the same frames, as they are in their files.

    Attributes:
        masks: ids or soft masks.
        truth: ids.
        places: of the frames in the video.
        view: what the masks' file says that they show.
        left_out: frames of the masks that the truth does not have.
    """

    masks: np.ndarray
    truth: np.ndarray
    places: np.ndarray
    view: View | None
    left_out: int


def _read(masks: Clip, truth: Clip, in_order: bool, allow_missing: bool) -> _Pair:
    values, true = read_clip(masks), read_clip(truth)
    about = masks.about()
    sides = [
        _side(clip, one, said)
        for clip, one, said in ((masks, values, about.frames), (truth, true, truth.about().frames))
    ]
    found = positions(sides[0], sides[1], in_order, (masks.path, truth.path), allow_missing)
    numbers = sides[0].numbers if sides[0].from_zero and not in_order else None
    if found is None:
        return _Pair(values, true, np.arange(len(values)) if numbers is None else numbers, about.view, 0)
    left_out = len(values) - len(found.masks)
    places = found.truth if numbers is None else numbers[found.masks]
    return _Pair(values[found.masks] if left_out else values, true[found.truth], places, about.view, left_out)


def _side(clip: Clip, values: np.ndarray, said: Side | None) -> Side:
    if said is None:
        return Side(len(values))
    if said.length != len(values):
        raise UserError(
            f"{clip.path} has {len(values)} masks, and its array frame {said.length} numbers; expected one each"
        )
    return said


def _add_clip(found: Evaluation, name: str, pair: _Pair, video: VideoFile | None, with_baselines: bool) -> None:
    masks, truth = found.matching.pairs[name]
    aligned = align(pair.masks, pair.truth, found.rules, (masks.path, truth.path), pair.view)
    tables = tables_of(aligned.labels, aligned)
    found.names.append(name)
    found.masks.append(score_clip(tables, aligned.true_ids, found.rules))
    if with_baselines:
        frames = None if video is None else read_frames(video, pair.places, aligned, found.rules)
        for baseline, labels in baselines_of(aligned, frames):
            scores = score_clip(tables_of(labels, aligned), aligned.true_ids, found.rules)
            found.baselines.setdefault(baseline, []).append(scores)
    found.left_out += pair.left_out
    found.kinds["soft masks" if pair.masks.ndim == 4 else "ids"] += 1
    _add_sizes(found, aligned)
    _add_ids(found, aligned, tables.numpy())


def _add_sizes(found: Evaluation, aligned: Aligned) -> None:
    height, width = aligned.true.shape[1:]
    found.lengths[found.rules.window or len(aligned.true)] += 1
    found.sizes[height, width] += 1
    found.mask_sizes[aligned.mask_size] += 1
    if aligned.view.box[2:] != aligned.view.frame:
        found.views[aligned.view.frame, aligned.view.box[2:]] += 1
    found.frames += len(aligned.true)
    found.pixels += aligned.true.numel()
    found.ties += aligned.ties
    found.unequal += aligned.unequal
    found.uncovered += aligned.uncovered
    fewest, most = found.segments
    found.segments = min(fewest or aligned.segments, aligned.segments), max(most, aligned.segments)


def _add_ids(found: Evaluation, aligned: Aligned, tables: np.ndarray) -> None:
    """What ids look like that mean something else than they say."""
    objects = aligned.true_ids[tables.sum((0, 2)) > 0]
    found.ids_of_255 += int(255 in objects and 254 not in objects and len(objects[objects > 0]) > 1)
    for side, there in (("truth", tables[:, 1:].sum(2) > 0), ("masks", tables.sum(1) > 0)):
        both = there[1:].any(1) & there[:-1].any(1)
        if both.sum() > 1 and not (there[1:] & there[:-1]).any():
            found.new_ids[side] += 1
