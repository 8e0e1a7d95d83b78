"""Tables that `slotbench score`, `test --lengths` and `probe` print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from slotbench.evaluation.conventions import CONVENTIONS
from slotbench.metric_info import MetricInfo, arrow
from slotbench.metrics.clip_scores import Summary, summaries
from slotbench.metrics.mask_metrics import mask_metrics, mask_score_infos
from slotbench.metrics.tracking import TRACKING

if TYPE_CHECKING:
    # each command imports what it computes with, which scikit-learn makes slow for probing
    from slotbench.evaluation.file_scores import FileScores
    from slotbench.evaluation.lengths import AtLength
    from slotbench.evaluation.probing import ProbeReport, ProbeSettings

__all__ = ["print_conventions", "print_lengths", "print_probe", "print_scores"]

_SCOPES = ("scene", "step", "video", "frame")
_COSTS = (
    MetricInfo("error", "error: MSE of predicted frames", False),
    MetricInfo("state_numbers", "numbers in the state of a clip", False),
    MetricInfo("milliseconds_per_frame", "ms per frame of a clip", False, unit="ms"),
)


def print_scores(found: FileScores, masks: Path) -> None:
    """Prints the scores of masks and baselines, the clips, the rules, and what is special."""
    own = summaries(found.clips)
    baselines = {name: summaries(clips) for name, clips in found.baselines.items()}
    table = _table(f"score {masks}", "score", "masks", "± 95 %", *baselines)
    segmentation = [info for info in mask_score_infos() if info not in TRACKING]
    headings = {f"{info.name}/{scope}": f"{_heading(info, scope)}" for scope in _SCOPES for info in segmentation}
    headings |= {info.name: _heading(info) for info in TRACKING}
    for name, heading in headings.items():
        columns = [own.get(name), *(scores.get(name) for scores in baselines.values())]
        if any(columns):
            half = "" if columns[0] is None or columns[0].high is None else f"{columns[0].high - columns[0].mean:.3f}"
            cells = [_cell(one) for one in columns]
            table.add_row(heading, cells[0], half, *cells[1:])
    special = [f"{count:,} {what}" for what, count in found.special.items() if count and " " in what]
    after = [_clips_of(found), *([f"special: {', '.join(special)}"] if special else [])]
    scopes = [(few, found.special[f"{scope}s"], scope) for scope in _SCOPES if (few := _few_objects(found, scope))]
    if scopes:
        left_out = ", ".join(f"{few:,} of {samples:,} {scope}s" for few, samples, scope in scopes)
        after.append(f"not in FG-ARI, 2 objects or more: {left_out}")
    if found.uncovered:
        counted = "one segment more" if found.rules.uncovered == "background" else "counted nowhere"
        after.append(f"{found.uncovered:,} pixels are no slot's: {counted} (--uncovered)")
    _print(table, *after, f"rules: {'; '.join(found.rules.in_words())}")


def print_conventions(evaluations: Sequence[FileScores], masks: Path) -> None:
    """Prints what the masks score under each of `CONVENTIONS`, whose evaluations are in the same order."""
    headings = list(dict.fromkeys(name for one in CONVENTIONS for name in one.scores))
    table = _table(f"score {masks} under {len(CONVENTIONS)} conventions", "convention", *headings, "what it is")
    for convention, found in zip(CONVENTIONS, evaluations, strict=True):
        scores = summaries(found.clips)
        cells = [_cell(scores.get(convention.scores.get(heading, ""))) for heading in headings]
        table.add_row(convention.name, *cells, convention.summary)
    sources = [f"{one.name}: {one.source}" + "".join(f"; {k} {v}" for k, v in one.data.items()) for one in CONVENTIONS]
    _print(table, _clips_of(evaluations[0]), *sources)


def print_lengths(found: Sequence[AtLength], context: int, title: str, answers: Mapping[str, str] = {}) -> None:
    """Prints a column for each length, a row for each score, those of `answers` among them, and what a step costs."""
    table = _table(title, "score", *(f"{one.multiple} T = {one.frames}" for one in found))
    headlines = [metric.info for metric in mask_metrics().values() if metric.headline]
    headings = {f"{info.name}/{scope}": (info, scope) for info in headlines for scope in _SCOPES}
    headings |= {info.name: (info, "") for info in TRACKING if info.name not in ("misses", "false_positives")}
    for source in dict.fromkeys(source for one in found for source in one.masks):
        columns = [summaries(one.masks.get(source, [])) for one in found]
        for name, (info, scope) in headings.items():
            if any(name in column for column in columns):
                heading = _heading(info, scope, f", {source}")
                table.add_row(heading, *(_cell(column.get(name)) for column in columns))
    for name, words in answers.items():
        baselines = [key for key in found[-1].answers if key.startswith(f"baseline/{name}/")]
        for key in [name, *baselines] if name in found[-1].answers else []:
            heading = words if key == name else f"  baseline: {key.removeprefix(f'baseline/{name}/')}"
            table.add_row(heading, *(_number(one.answers.get(key)) for one in found))
    costs = [one.costs(context) for one in found]
    for info in _COSTS:
        if any(cost[info.name] is not None for cost in costs):
            table.add_row(_heading(info), *(_number(cost[info.name]) for cost in costs))
    _print(table)


def print_probe(report: ProbeReport, settings: ProbeSettings, of: str) -> None:
    """Prints a line per factor, and how the slots and objects of a run were matched."""
    # prior and mean never meet in a line
    guess = {"prior": "guess", "mean": "guess"}
    baselines = list(dict.fromkeys(guess.get(name, name) for score in report.scores for name in score.baselines))
    columns = [*settings.heads, *(f"baseline: {name}" for name in baselines)]
    table = _table(f"probe {of}", "factor", "score", *columns, "n")
    for score in report.scores:
        values = {f"baseline: {guess.get(name, name)}": value for name, value in score.baselines.items()} | score.heads
        metric = {"accuracy": "accuracy", "r2": "R^2"}[score.metric]
        table.add_row(
            escape(score.factor.name), metric, *(f"{values[name]:.3f}" for name in columns), f"{score.scored:,}"
        )
    matching = [
        f"{what} {_matched(report.matching[name])}" for name, what in (("fit", "fitted to"), ("test", "scored on"))
    ]
    _print(table, *matching, *(f"left out: {name} {reason}" for name, reason in report.left_out.items()))


def _table(title: str, *headings: str) -> Table:
    table = Table(title=escape(title), title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column(headings[0])
    for heading in headings[1:]:
        table.add_column(escape(heading), justify="right", no_wrap=True)
    return table


def _print(table: Table, *after: str) -> None:
    console = Console()
    if not console.is_terminal:  # long lines for a file or a pipe
        console = Console(width=200)
    console.print(table)
    for line in after:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _heading(info: MetricInfo, scope: str = "", of: str = "") -> str:
    return f"{info.label}{f' per {scope}' if scope else ''}{of} {arrow(info)}".rstrip()


def _cell(summary: Summary | None) -> str:
    if summary is None:
        return ""
    return f"> {summary.beyond}" if summary.beyond is not None else f"{summary.mean:.3f}"


def _number(value: int | float | None) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:.5f}" if abs(value) < 0.1 else f"{value:.3f}"


def _clips_of(found: FileScores) -> str:
    sizes = ", ".join(f"{height} x {width}" for height, width in list(found.sizes)[:3])
    slots = f"{min(found.slots)} to {max(found.slots)}"
    return f"{len(found.names):,} clips, {found.frames:,} frames of {sizes} pixels, {slots} slots a clip"


def _few_objects(found: FileScores, scope: str) -> int:
    return found.special[f"{scope}s without objects"] + found.special[f"{scope}s with one object"]


def _matched(counts: Mapping[str, Any]) -> str:
    text = f"{counts['clips']:,} clips of {counts['frames']} frames: {counts['rows']:,} slots of visible objects"
    text += f", matched by {counts['matched_by']}"
    if "frame_iou" in counts:
        text += f" (mean IoU per frame {counts['frame_iou']:.3f})"
    if counts["objects_without_slot"]:
        text += f"; {counts['objects_without_slot']:,} of {counts['objects']:,} objects have no slot"
    return text
