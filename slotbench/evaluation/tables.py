"""Tables that `slotbench score`, `test --lengths` and `probe` print: scores beside baselines, and their conditions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from slotbench.errors import listing
from slotbench.evaluation.conventions import CONVENTIONS
from slotbench.metric_info import MetricInfo, arrow
from slotbench.metrics.clip_summary import Summary, counted, summaries
from slotbench.metrics.mask_metrics import MASK_METRICS, TRACKING, mask_score_infos
from slotbench.text import one_line

if TYPE_CHECKING:
    # each command imports what it computes with, which scikit-learn makes slow for probing
    from slotbench.evaluation.file_scores import FileScores
    from slotbench.evaluation.lengths import AtLength
    from slotbench.evaluation.probing import ProbeReport, ProbeSettings

__all__ = ["print_conventions", "print_lengths", "print_probe", "print_scores"]

_SCOPES = ("scene", "step", "video", "frame")
_NOT_BY_LENGTH = frozenset({"misses", "false_positives"})
_COSTS = (
    MetricInfo("error", "error: MSE of predicted frames", False),
    MetricInfo("state_numbers", "numbers in the state of a clip", False),
    MetricInfo("milliseconds_per_frame", "ms per frame of a clip", False, unit="ms"),
    MetricInfo("core_milliseconds_per_frame", "of them in the core", False, unit="ms"),
)
_PROBE_METRICS = {"accuracy": "accuracy", "r2": "R^2"}


def print_scores(
    found: FileScores,
    masks: Path,
    earlier: Mapping[str, Mapping[str, Summary]] | None = None,
    console: Console | None = None,
) -> None:
    """Prints the scores of masks and baselines, the clips, the rules, and what is special.

    Args:
        found: the scores.
        masks: where the masks were.
        earlier: scores of earlier records, by their name.
        console: where to; standard output if absent.
    """
    own = summaries(found.masks.scores)
    others = [*(earlier or {}).values(), *(summaries(clips) for clips in found.baselines.values())]
    table = _table("score")
    for column in ("masks", "± 95 %", *(earlier or {}), *found.baselines):
        table.add_column(Text(one_line(column, 40)), justify="right", min_width=6)
    infos = [info for info in mask_score_infos() if info not in TRACKING]
    for name, heading in _headings(((info, scope) for scope, info in product(_SCOPES, infos)), TRACKING):
        if any(name in scores for scores in (own, *others)):
            half = _half_interval(own.get(name))
            table.add_row(heading, _cell(own.get(name)), half, *(_cell(scores.get(name)) for scores in others))
    after = [*_clip_lines(found), *_special(found), f"rules: {'; '.join(found.rules.in_words())}"]
    _print(console or _console(), f"score {masks}", table, after)


def print_conventions(evaluations: Sequence[FileScores], masks: Path, console: Console | None = None) -> None:
    """Prints what the masks score under each convention.

    Args:
        evaluations: in the order of `CONVENTIONS`.
        masks: where the masks were.
        console: where to; standard output if absent.
    """
    headings = list(dict.fromkeys(name for one in CONVENTIONS for name in one.scores))
    table = _table("convention")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("what it is")
    for convention, found in zip(CONVENTIONS, evaluations, strict=True):
        scores = summaries(found.masks.scores)
        cells = [_cell(scores.get(convention.scores.get(heading, ""))) for heading in headings]
        table.add_row(convention.name, *cells, convention.summary)
    after = [*_clip_lines(evaluations[0]), *(f"{one.name}: {one.source}" for one in CONVENTIONS)]
    _print(console or _console(), f"score {masks}: the same masks under six conventions", table, after)


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
    table = _table("score", no_wrap=False)  # the column that gives way where the terminal is narrow
    for one in found:
        table.add_column(f"{one.multiple} T = {one.frames}", justify="right", no_wrap=True)
    metrics = sorted((one for one in MASK_METRICS.values() if one.headline), key=lambda one: one.rank)
    scoped = list(product((one.info for one in metrics), _SCOPES))
    tracking = [info for info in TRACKING if info.name not in _NOT_BY_LENGTH]
    for source in dict.fromkeys(source for one in found for source in one.masks):
        columns = [summaries(one.masks[source].scores) if source in one.masks else {} for one in found]
        for name, heading in _headings(scoped, tracking, f", {source}"):
            if any(name in column for column in columns):
                table.add_row(heading, *(_cell(column.get(name)) for column in columns))
    for name, words in answers.items():
        if name in found[-1].answers:
            table.add_row(words, *(_number(name, one.answers.get(name)) for one in found))
        prefix = f"baseline/{name}/"
        for key in [key for key in found[-1].answers if key.startswith(prefix)]:
            words = f"  baseline: {key.removeprefix(prefix)}"
            table.add_row(words, *(_number(name, one.answers.get(key)) for one in found))
    costs = [one.costs(context) for one in found]
    for info in _COSTS:
        if any(cost[info.name] is not None for cost in costs):
            table.add_row(f"{info.label} {arrow(info)}", *(_number(info.name, cost[info.name]) for cost in costs))
    _print(console or Console(), title, table)


def print_probe(report: ProbeReport, settings: ProbeSettings, of: str) -> None:
    """Prints a line per factor, and how slots and objects were matched.

    Args:
        report: the scores.
        settings: how they were computed.
        of: the run, for the headline.
    """
    # prior and mean never meet in a line
    guess = {"prior": "guess", "mean": "guess"}
    baselines = list(dict.fromkeys(guess.get(name, name) for score in report.scores for name in score.baselines))
    columns = [*settings.heads, *(f"baseline: {name}" for name in baselines)]
    table = _table("factor")
    table.add_column("score", no_wrap=True)
    for heading in (*columns, "n"):
        table.add_column(Text(one_line(heading)), justify="right")
    for score in report.scores:
        values = {f"baseline: {guess.get(name, name)}": value for name, value in score.baselines.items()} | score.heads
        cells = [f"{values[name]:.3f}" for name in columns]
        factor = Text(one_line(score.factor.name))
        table.add_row(factor, _PROBE_METRICS[score.metric], *cells, f"{score.scored:,}")
    print(one_line(f"probe {of}") + "\n")
    Console().print(table)
    print()
    for name, what in (("fit", "fitted to"), ("test", "scored on")):
        print(f"{what} {_described(report.matching[name])}")
    for name, reason in report.left_out.items():
        print(one_line(f"left out: {name} {reason}"))


def _table(first: str, no_wrap: bool = True) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, no_wrap=no_wrap)
    return table


def _print(console: Console, title: str, table: Table, after: Iterable[str] = ()) -> None:
    console.print(Text(one_line(title)), soft_wrap=True)
    console.print()
    console.print(table)
    for number, line in enumerate(after):
        if number == 0:
            console.print()
        console.print(Text(one_line(line)))


def _console() -> Console:
    """Standard output, with long lines where it is not a terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=160)


def _headings(
    scoped: Iterable[tuple[MetricInfo, str]], tracking: Iterable[MetricInfo], of: str = ""
) -> list[tuple[str, str]]:
    """Scores by name with their headings: of segmentation with their scope, then of tracking."""
    named = [(f"{info.name}/{scope}", f"{info.label} per {scope}", info) for info, scope in scoped]
    named += [(info.name, info.label, info) for info in tracking]
    return [(name, f"{label}{of} {arrow(info)}".rstrip()) for name, label, info in named]


def _cell(summary: Summary | None) -> str:
    if summary is None:
        return ""
    return f"> {summary.beyond}" if summary.beyond is not None else f"{summary.mean:.3f}"


def _half_interval(summary: Summary | None) -> str:
    return "" if summary is None or summary.high is None else f"{summary.high - summary.mean:.3f}"


def _number(name: str, value: int | float | None) -> str:
    if value is None:
        return ""
    if name == "error":
        return f"{value:.5f}"
    return f"{value:,.0f}" if name == "state_numbers" else f"{value:.3f}"


def _clip_lines(found: FileScores) -> list[str]:
    """How many clips were scored, of which sizes, and which are missing."""
    matching = found.matching
    sizes = ", ".join(f"{height} x {width}" for height, width in list(found.masks.sizes)[:3])
    fewest, most = found.segments
    segments = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    lines = [
        f"{len(found.names):,} clips scored of {matching.there:,} there, {found.masks.frames:,} frames of {sizes} "
        f"pixels; masks: {' and '.join(found.clips_by('kind'))}, {segments} slots a clip"
    ]
    if found.masks.views:
        views = ", ".join(found.masks.views)
        lines.append(f"{views} cameras a clip; videos and frames are of one camera, and tracks too")
    others = [size for size in found.clips_by("mask_size") if size not in found.masks.sizes]
    if others:
        lines.append(f"masks are of {', '.join(f'{height} x {width}' for height, width in others[:3])} pixels")
    for (whole, part), count in list(found.cut().items())[:3]:
        lines.append(
            f"cut: of {count:,} clips, {part[0]} x {part[1]} pixels of the truth's {whole[0]} x {whole[1]} are scored"
        )
    if found.left_out:
        lines.append(f"not scored, without truth: {found.left_out:,} frames of the masks")
    for side, names in (("masks", matching.without_masks), ("truth", matching.without_truth)):
        if names:
            lines.append(f"not scored, without {side}: {len(names):,} clips ({listing(names, 3)})")
    return lines


def _special(found: FileScores) -> list[str]:
    counts = counted(found.masks.scores)
    special = [f"{count:,} {what}" for what, count in counts.items() if count and " " in what]
    lines = [f"of {counts['videos']:,} videos and {counts['frames']:,} frames: {', '.join(special)}"] if special else []
    shares = {}
    for fact in ("ties", "uncovered", "unequal"):
        if pixels := found.total(fact):
            shares[fact] = f"{pixels:,} pixels ({pixels / found.total('pixels'):.2%})"
    if "ties" in shares:
        lines.append(f"ties: {shares['ties']} have two slots of the same share; the lower one counts")
    if "uncovered" in shares:
        counted_as = {
            "background": "they are one segment more, beside the slots; --uncovered void leaves them out",
            "void": "they count nowhere (--uncovered void)",
        }[found.rules.uncovered]
        lines.append(f"uncovered: {shares['uncovered']} are no slot's; {counted_as}")
    if "unequal" in shares:
        lines.append(f"shares of {shares['unequal']} do not sum to 1; the largest counts all the same")
    if found.ids_of_255:
        lines.append(
            f"id 255 is an object in the truth of {found.ids_of_255:,} clips; give --void 255 if its pixels are to "
            "count nowhere"
        )
    for side, count in found.new_ids.items():
        lines.append(
            f"{side}: no id is in two frames running in {count:,} clips; scores per video and of tracking need ids "
            "that stay"
        )
    return lines


def _described(counts: Mapping[str, Any]) -> str:
    text = (
        f"{counts['clips']:,} clips of {counts['frames']} frames: {counts['rows']:,} slots of visible objects, matched "
        f"by {counts['matched_by']}"
    )
    if "frame_iou" in counts:
        text += f" (mean IoU per frame {counts['frame_iou']:.3f})"
    if counts["objects_without_slot"]:
        text += f"; {counts['objects_without_slot']:,} of {counts['objects']:,} objects have no slot"
    return text
