"""`slotbench score MASKS --truth TRUTH`: scores masks of any program beside baselines, without a model."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from slotbench.commands.arguments import Parser, progress_bars, write_record

__all__ = ["main"]


def main(command: str, arguments: list[str]) -> int:
    """Scores the masks that are named first."""
    given = _parser().parse_args(arguments)
    from slotbench.evaluation.conventions import CONVENTIONS, under
    from slotbench.evaluation.file_scores import record_of, score_files
    from slotbench.evaluation.mask_files import find_clips, matched, read_clip
    from slotbench.evaluation.tables import print_conventions, print_scores
    from slotbench.metrics.mask_rules import Rules

    masks, truth = find_clips(given.masks, "MASKS"), find_clips(given.truth, "--truth")
    pairs = matched(masks, truth, given.allow_missing)
    rules = Rules(**{one.name: getattr(given, one.name) for one in fields(Rules) if one.name != "resolution"})
    if given.resolution is None and read_clip(next(iter(masks.values()))).view is not None:
        given.resolution = "masks"  # as the run's own test scores them
    rules = replace(rules, void=tuple(sorted({*given.void})), resolution=given.resolution or "truth")
    with progress_bars() as bars:
        score = partial(score_files, pairs, say=partial(bars, "clips"))
        if given.conventions:
            evaluations = score([under(rules, one) for one in CONVENTIONS])
        else:
            (found,) = score([rules], with_baselines=not given.no_baselines)
    if given.conventions:
        print_conventions(evaluations, given.masks)
        return 0
    print_scores(found, given.masks)
    if given.out is not None:
        write_record(given.out, record_of(found, given.masks))
    return 0


def _parser() -> argparse.ArgumentParser:
    description = (
        "Scores masks that any program has written against the truth: FG-ARI, ARI, mIoU and mBO per video and per "
        "frame, tracking and identity, beside segmentations that learn nothing. MASKS and TRUTH are folders with an "
        "npz file (array masks), an npy file or a folder of PNG frames for every clip, or one of these; clips are "
        "matched by name. Ids are integers (time, height, width), soft masks (time, slots, height, width)."
    )
    parser = Parser("slotbench score", description)
    add = parser.add_argument
    add("masks", type=Path, metavar="MASKS", help="what is scored")
    add("--truth", type=Path, required=True, help="the true ids")
    add("--out", type=Path, help="write rules, scores and the values of every clip (JSON)")
    add("--no-baselines", action="store_true", help="masks alone")
    add("--allow-missing", action="store_true", help="score the clips that both sides have, though one has more")
    add("--conventions", action="store_true", help="the same masks under the rules of published projects")
    rules = parser.add_argument_group("rules", "two scores compare only if all of them are the same")
    add = rules.add_argument
    add("--first", type=int, help="the first so many frames of every clip (default: all)")
    add("--skip", type=int, default=0, help="without so many first frames")
    add("--window", type=int, help="a video is a piece of so many frames (default: the whole clip)")
    add("--background", type=_or_none(int), default=0, help="the true id that is no object, or none (default: 0)")
    add("--void", type=int, action="append", default=[], help="a true id that counts nowhere; may be repeated")
    add("--resolution", choices=["truth", "masks"], help="the size at which is scored (default: truth)")
    add("--resize", choices=["bilinear", "nearest"], default="bilinear", help="how masks come to the size of the truth")
    add("--uncovered", choices=["background", "void"], default="background", help="what a pixel of no slot is")
    add("--empty", choices=["one", "skip"], default="one", help="FG-ARI of a sample without objects")
    add("--absent", choices=["out", "zero"], default="out", help="IoUs of absent ids below the highest one")
    add("--match-iou", type=float, default=0.5, help="tracking: IoU from which a slot has an object")
    add("--min-pixels", type=int, default=5, help="tracking: what is no larger is not there")
    add("--background-iou", type=_or_none(float), default=0.2, help="tracking: a slot with more of it is no track")
    return parser


def _or_none(kind: type) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        return None if text.lower() == "none" else kind(text)

    # what the parser calls it where it refuses a value
    read.__name__ = f"{kind.__name__} or none"
    return read
