"""`slotbench score MASKS --truth TRUTH`: scores masks of any program beside baselines, without a model."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from slotbench.commands.arguments import Parser, progress_bars
from slotbench.errors import UserError, lines

if TYPE_CHECKING:
    from slotbench.evaluation.clip_files import Found
    from slotbench.evaluation.file_scores import FileScores, Matching
    from slotbench.metrics.mask_rules import Rules

__all__ = ["USAGE", "main"]

USAGE = """Usage: slotbench score MASKS --truth TRUTH [--frames FRAMES] [--out FILE] [RULES]

Scores masks that any program has written, against the truth: FG-ARI, ARI, mIoU and mBO per video and per frame, MOTA
and identity, beside segmentations that learn nothing. No model is needed.

MASKS and TRUTH are folders with an npz file, an npy file or a folder of PNG frames for every clip, or one such file.
Clips are matched by name. Ids are integers (time, height, width); soft masks (time, slots, height, width) are turned
into ids by the largest share. Files of slotbench predict --save masks are matched by their video, frame by frame, and
scored as the run's own test scores them: --fit file --resolution masks, unless you say otherwise.

  --truth TRUTH            the true ids
  --frames FRAMES          the videos: adds k-means on colour and a colour tracker to the baselines
  --no-baselines           masks alone
  --allow-missing          score the clips that both sides have, and the frames of them, though one has more
  --array NAME             the array of npz files that has the masks (default: masks, soft_masks, or the only one)
  --views                  masks and truth are of several cameras: (time, views, height, width), soft masks (time,
                           views, slots, height, width), or a file for each camera in a folder of the clip
  --frames-in-order        frames belong together as they come, whatever numbers the files say
  --out FILE               write the evaluation record: rules, scores, values of every clip (JSON)
  --beside FILE            scores of an earlier record as a column; refused if a rule or the clips differ, which are
                           named; may be repeated
  --conventions            the same masks under the rules of six published projects, as one table

What goes into the record, if it is known:
  --data NAME, --data-version VERSION, --split SPLIT
                           the clips
  --source TEXT            where the masks come from: decoder, attention, ...

Rules (two scores compare only if all of them are the same):
  --first N                the first N frames of every clip (default: all)
  --skip N                 without the first N frames (default: 0)
  --window N               a video is a piece of N frames (default: the whole clip)
  --background ID|none     the true id that is no object (default: 0)
  --void ID                a true id whose pixels count nowhere; may be repeated
  --resolution truth|masks  the size at which is scored (default: truth)
  --fit crop|stretch|file  masks of another proportion than the truth: one side is the middle of the other, or was
                           squeezed, or the files say what they show (default: refused)
  --uncovered background|void  a pixel that no slot has (shares below 0.001, or an id below 0): one segment more, or
                           it counts nowhere (default: background)
  --resize bilinear|nearest    how masks come to the size of the truth: soft masks before the largest share is taken,
                           or slots and ids after it (default: bilinear, for soft masks alone)
  --empty one|skip         FG-ARI of a frame or video without objects: 1, or left out (default: one)
  --absent out|zero        IoUs of ids that are absent below the highest id: left out, or 0 (default: out)
  --match-iou X            tracking: IoU from which a slot has an object (default: 0.5)
  --min-pixels N           tracking: what is no larger is not there (default: 5)
  --background-iou X|none  tracking: a slot with more IoU with the background is no track (default: 0.2)

Examples:
  slotbench score their_masks --truth movi_a/masks
  slotbench score their_masks --truth movi_a/masks --first 6 --frames movi_a/videos --out theirs.json
  slotbench score their_masks --truth movi_a/masks --conventions"""


def main(command: str, arguments: list[str]) -> int:
    """Scores the masks that are named first."""
    given = _parser().parse_args(arguments)
    if given.masks is None or given.truth is None:
        missing = "masks" if given.masks is None else "the truth"
        raise UserError(lines(f"score needs {missing}", example="slotbench score MASKS --truth TRUTH"))
    if given.out is not None and given.out.is_dir():
        raise UserError(f"--out {given.out} is a folder; expected a file, such as {given.out / 'scores.json'}")
    if given.views and given.frames is not None:
        raise UserError("--frames has videos of one camera, and --views masks of several; leave --frames out")
    # everything above answers before torch is imported
    from slotbench.evaluation.clip_files import find_clips
    from slotbench.evaluation.file_scores import match_clips

    masks = find_clips(given.masks, "MASKS", given.array, given.views)
    truth = find_clips(given.truth, "--truth", views=given.views)
    rules = _rules(given, masks)
    matching = match_clips(masks, truth, given.allow_missing, given.views)
    if given.conventions:
        return _conventions(given, matching, rules)
    from slotbench.evaluation.score_record import read_earlier
    from slotbench.evaluation.tables import print_scores

    earlier = read_earlier(given.beside, rules, list(matching.pairs))
    found = _evaluate(given, matching, [rules])[0]
    print_scores(found, given.masks, earlier)
    others = {"MASKS": masks.others, "--truth": truth.others}
    for side, names in others.items():
        if names:
            print(f"{side} has {len(names):,} files and folders that hold no masks, which are not looked at")
    if given.out is not None:
        _write(given, found)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser("slotbench score")
    parser.add_argument("masks", nargs="?", type=Path)
    for path in ("--truth", "--frames", "--out"):
        parser.add_argument(path, type=Path)
    parser.add_argument("--beside", type=Path, action="append", default=[])
    parser.add_argument("--array")
    for switch in ("--no-baselines", "--allow-missing", "--conventions", "--frames-in-order", "--views"):
        parser.add_argument(switch, action="store_true")
    for text in ("--data", "--data-version", "--split", "--source"):
        parser.add_argument(text, default="unknown")
    for number in ("--first", "--window"):
        parser.add_argument(number, type=int)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--background", type=_or_none(int), default=0)
    parser.add_argument("--void", type=int, action="append", default=[])
    parser.add_argument("--resolution", choices=["truth", "masks"])
    parser.add_argument("--fit", choices=["crop", "stretch", "file"])
    parser.add_argument("--uncovered", choices=["background", "void"], default="background")
    parser.add_argument("--resize", choices=["bilinear", "nearest"], default="bilinear")
    parser.add_argument("--empty", choices=["one", "skip"], default="one")
    parser.add_argument("--absent", choices=["out", "zero"], default="out")
    parser.add_argument("--match-iou", type=float, default=0.5)
    parser.add_argument("--min-pixels", type=int, default=5)
    parser.add_argument("--background-iou", type=_or_none(float), default=0.2)
    return parser


def _or_none(kind: type) -> Callable[[str], object]:
    def read(text: str) -> object:
        return None if text.lower() == "none" else kind(text)

    # what the parser calls it where it refuses a value
    read.__name__ = f"{kind.__name__} or none"
    return read


def _rules(given: argparse.Namespace, masks: Found) -> Rules:
    from dataclasses import fields

    from slotbench.metrics.mask_rules import Rules

    values = {one.name: getattr(given, one.name) for one in fields(Rules)}
    # masks that say what they show are those of a run
    says = next(iter(masks.clips.values())).about().view is not None
    unsaid = {"fit": "file", "resolution": "masks"} if says else {"fit": "refuse", "resolution": "truth"}
    values |= {name: rule for name, rule in unsaid.items() if values[name] is None}
    return Rules(**(values | {"void": tuple(sorted(set(given.void)))}))


def _evaluate(given: argparse.Namespace, matching: Matching, rules: list[Rules]) -> list[FileScores]:
    from slotbench.evaluation.baselines import find_videos
    from slotbench.evaluation.file_scores import evaluate

    with_baselines = not (given.no_baselines or given.conventions)
    sees_frames = with_baselines and given.frames is not None
    videos = find_videos(given.frames, matching.videos()) if sees_frames else None
    with progress_bars() as bars:
        return evaluate(matching, rules, videos, with_baselines, partial(bars, "clips"), given.frames_in_order)


def _conventions(given: argparse.Namespace, matching: Matching, rules: Rules) -> int:
    from slotbench.evaluation.conventions import CONVENTIONS, under
    from slotbench.evaluation.tables import print_conventions

    found = _evaluate(given, matching, [under(rules, one) for one in CONVENTIONS])
    print_conventions(found, given.masks)
    return 0


def _write(given: argparse.Namespace, found: FileScores) -> None:
    from slotbench.evaluation.score_record import record_of
    from slotbench.runs.evaluation_record import write_record
    from slotbench.text import one_line

    data = {"name": given.data, "version": given.data_version, "split": given.split}
    try:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        write_record(given.out, record_of(found, data, given.source, str(given.masks)))
    except OSError as error:
        raise UserError(f"--out {given.out} cannot be written: {error.strerror or error}") from error
    print(one_line(f"wrote {given.out}"))
