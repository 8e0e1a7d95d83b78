"""What was measured at several lengths, as a table, as numbers by name, and as evaluation records in the run folder."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from slotbench.evaluation.lengths import AtLength
from slotbench.files import dump_json, write_atomically
from slotbench.metric_info import MetricInfo, arrow
from slotbench.metrics.clip_summary import Summary, counted, scores_as_record, summaries
from slotbench.metrics.mask_metrics import MASK_METRICS, TRACKING
from slotbench.metrics.mask_rules import Rules
from slotbench.runs.evaluation_record import clip_list_hash, make_record, record_file, write_record
from slotbench.text import one_line

__all__ = ["metrics_of", "print_lengths", "write_lengths"]

_SCOPES = ("video", "frame")
_LEFT_OUT = frozenset({"misses", "false_positives"})
_COSTS = (
    MetricInfo("error", "error: MSE of predicted frames", False),
    MetricInfo("state_numbers", "numbers in the state of a clip", False),
    MetricInfo("milliseconds_per_frame", "ms per frame of a clip", False, unit="ms"),
    MetricInfo("core_milliseconds_per_frame", "of them in the core", False, unit="ms"),
)


def metrics_of(found: Sequence[AtLength], context: int) -> dict[str, float]:
    """Every number by name, "lengths/4T/fg_ari/video/decoder" or "lengths/4T/state_numbers".

    Args:
        found: what was measured.
        context: true frames before a prediction; 0 where nothing is predicted.
    """
    metrics: dict[str, float] = {}
    for one in found:
        for source, clips in one.scores.items():
            for name, summary in summaries(clips).items():
                if summary.beyond is None:
                    metrics[f"lengths/{one.multiple}T/{name}/{source}"] = summary.mean
        numbers = _costs(one, context) | one.answers
        metrics |= {f"lengths/{one.multiple}T/{name}": value for name, value in numbers.items() if value is not None}
    return metrics


def print_lengths(
    found: Sequence[AtLength],
    context: int,
    title: str,
    answers: Mapping[str, str] = {},
    console: Console | None = None,
) -> None:
    """Prints a column for each length, a row for each score, and what a step costs.

    Args:
        found: what was measured.
        context: true frames before a prediction; 0 where nothing is predicted.
        title: heading.
        answers: scores of answers that are printed, with their baselines: what each is in a few words, by name.
        console: where to; standard output if absent.
    """
    console = console or Console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("score")  # the one that gives way where the terminal is narrow
    for one in found:
        table.add_column(f"{one.multiple} T = {one.frames}", justify="right", no_wrap=True)
    for source in dict.fromkeys(source for one in found for source in one.scores):
        columns = [summaries(one.scores.get(source, ())) for one in found]
        for name, words in _headings(source):
            if any(name in column for column in columns):
                table.add_row(words, *(_cell(column.get(name)) for column in columns))
    for name, words in answers.items():
        if name in found[-1].answers:
            table.add_row(words, *(_number(name, one.answers.get(name)) for one in found))
        prefix = f"baseline/{name}/"
        for key in [key for key in found[-1].answers if key.startswith(prefix)]:
            words = f"  baseline: {key.removeprefix(prefix)}"
            table.add_row(words, *(_number(name, one.answers.get(key)) for one in found))
    costs = [_costs(one, context) for one in found]
    for info in _COSTS:
        if any(cost[info.name] is not None for cost in costs):
            table.add_row(f"{info.label} {arrow(info)}", *(_number(info.name, cost[info.name]) for cost in costs))
    console.print(Text(one_line(title)), soft_wrap=True)
    console.print()
    console.print(table)


def _headings(source: str) -> list[tuple[str, str]]:
    """The scores that are printed, by name with their headings: headlines per video and per frame, then tracking."""
    metrics = sorted((one for one in MASK_METRICS.values() if one.headline), key=lambda one: one.rank)
    named = [(f"{one.name}/{scope}", f"{one.label} per {scope}", one.info) for one in metrics for scope in _SCOPES]
    named += [(info.name, info.label, info) for info in TRACKING if info.name not in _LEFT_OUT]
    return [(name, f"{label}, {source} {arrow(info)}") for name, label, info in named]


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
        "lengths": [{"multiple": one.multiple, "frames": one.frames, **_costs(one, context)} for one in found],
        "metrics": metrics_of(found, context),
    }
    write_atomically(written[0], dump_json(record, indent=2))
    for one in found:
        for source in one.scores:
            path = record_file(run, f"{stem}-{one.multiple}T", source)
            write_record(path, _record(one, source, context, data, more))
            written.append(path)
    return written


def _record(
    one: AtLength, source: str, context: int, data: Mapping[str, Any], more: Mapping[str, Any]
) -> dict[str, Any]:
    clips, frames = one.scores[source], one.frames - context
    names = [f"clip{number:04d}" for number in range(len(clips))]
    height, width = one.size
    return make_record(
        data=data,
        masks={"source": source, "kinds": {"soft masks": len(clips)}, "segments": [one.slots[source]] * 2},
        rules=Rules(skip=context).as_record(),
        clips={
            "scored": len(clips),
            "there": len(clips),
            "hash": clip_list_hash(names),
            "truth": hashlib.sha256(b"".join(one.truth)).hexdigest(),
            "names": names,
        },
        frames={
            "scored": frames * len(clips),
            "lengths": {str(frames): len(clips)},
            "sizes": {f"{height}x{width}": len(clips)},
            "special": {what: count for what, count in counted(clips).items() if what not in ("videos", "frames")},
        },
        scores=scores_as_record(clips),
        baselines={},
        more=more,
    )


def _costs(one: AtLength, context: int) -> dict[str, int | float | None]:
    def milliseconds(seconds: float) -> float | None:
        return 1000 * seconds / one.steps if seconds and one.steps else None

    return {
        "error": one.error / one.clips if context and one.clips else None,
        "state_numbers": one.state_numbers,
        "milliseconds_per_frame": milliseconds(one.seconds),
        "core_milliseconds_per_frame": milliseconds(one.core_seconds),
    }


def _cell(summary: Summary | None) -> str:
    if summary is None:
        return ""
    return f"> {summary.beyond}" if summary.beyond is not None else f"{summary.mean:.3f}"


def _number(name: str, value: int | float | None) -> str:
    if value is None:
        return ""
    if name == "error":
        return f"{value:.5f}"
    return f"{value:,.0f}" if name == "state_numbers" else f"{value:.3f}"
