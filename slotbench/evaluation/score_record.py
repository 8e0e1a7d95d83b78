"""The evaluation record of masks that were read from files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slotbench.evaluation.file_scores import Evaluation
from slotbench.metrics.clip_summary import counted, scores_as_record
from slotbench.runs.evaluation_record import clip_list_hash, make_record

__all__ = ["record_of"]

_MISSING_NAMES = 1000


def record_of(found: Evaluation, data: Mapping[str, Any], source: str, masks: str) -> dict[str, Any]:
    """The record of an evaluation.

    Args:
        found: the scores.
        data: "name", "version" and "split", as the user has given them.
        source: what the masks are, as the user has given it: "decoder", "attention", ...
        masks: where they were.
    """
    matching = found.matching
    special = {what: count for what, count in counted(found.masks).items() if what not in ("videos", "frames")}
    return make_record(
        data=data,
        masks={"source": source, "path": masks, "kinds": dict(found.kinds), "segments": list(found.segments)},
        rules=found.rules.as_record(),
        clips={
            "scored": len(found.names),
            "there": matching.there,
            "without_masks": matching.without_masks[:_MISSING_NAMES],
            "without_truth": matching.without_truth[:_MISSING_NAMES],
            "hash": clip_list_hash(found.names),
            "names": found.names,
        },
        frames={
            "scored": found.frames,
            "without_truth": found.left_out,
            "lengths": {str(frames): count for frames, count in sorted(found.lengths.items())},
            "sizes": {_by(size): count for size, count in found.sizes.items()},
            "mask_sizes": {_by(size): count for size, count in found.mask_sizes.items()},
            "cut": {f"{_by(part)} of {_by(whole)}": count for (whole, part), count in found.views.items()},
            "tied_pixels": found.ties,
            "uncovered_pixels": found.uncovered,
            "pixels_whose_shares_do_not_sum_to_1": found.unequal,
            "pixels": found.pixels,
            "special": special,
        },
        scores=scores_as_record(found.masks),
        baselines={name: scores_as_record(clips) for name, clips in found.baselines.items()},
    )


def _by(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"
