"""Scores at several lengths as numbers by name, and as records in the run folder."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from slotbench.evaluation.lengths import AtLength
from slotbench.files import dump_json, write_atomically
from slotbench.metrics.clip_summary import summaries
from slotbench.runs.evaluation_record import mask_record, record_file, write_record

__all__ = ["metrics_of", "write_lengths"]


def metrics_of(found: Sequence[AtLength], context: int) -> dict[str, float]:
    """Every number by name, "lengths/4T/fg_ari/video/decoder" or "lengths/4T/state_numbers".

    Args:
        found: what was measured.
        context: true frames before a prediction; 0 where nothing is predicted.
    """
    metrics: dict[str, float] = {}
    for one in found:
        for source, evaluation in one.masks.items():
            for name, summary in summaries(evaluation.scores).items():
                if summary.beyond is None:
                    metrics[f"lengths/{one.multiple}T/{name}/{source}"] = summary.mean
        numbers = one.costs(context) | one.answers
        metrics |= {f"lengths/{one.multiple}T/{name}": value for name, value in numbers.items() if value is not None}
    return metrics


def write_lengths(
    run: Path,
    found: Sequence[AtLength],
    context: int,
    data: Mapping[str, Any],
    more: Mapping[str, Any],
) -> list[Path]:
    """Writes `RUN/lengths-DATE.json`, and an evaluation record for each length and kind of masks; returns the files.

    Args:
        run: the folder.
        found: what was measured.
        context: true frames before a prediction; 0 where nothing is predicted.
        data: "name", "version" and "split" of the clips.
        more: further entries, such as the checkpoint.
    """
    stem = f"lengths-{datetime.now():%Y%m%d-%H%M%S}"
    written = [run / f"{stem}.json"]
    record = {
        **more,
        "created": datetime.now().astimezone().isoformat(timespec="seconds"),
        "slotbench": importlib.metadata.version("slotbench"),
        "data": dict(data),
        "clips": found[-1].clips,
        "context": context,
        "lengths": [{"multiple": one.multiple, "frames": one.frames, **one.costs(context)} for one in found],
        "metrics": metrics_of(found, context),
    }
    write_atomically(written[0], dump_json(record, indent=2))
    for one in found:
        for source, evaluation in one.masks.items():
            path = record_file(run, f"{stem}-{one.multiple}T", source)
            names = [f"clip{number:04d}" for number in evaluation.clips]
            write_record(path, mask_record(evaluation.result(source), names, data, more=more))
            written.append(path)
    return written
