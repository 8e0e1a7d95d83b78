"""What `slotbench score` prints: a table of scores beside their baselines, and all that decides what they mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from slotbench.errors import listing
from slotbench.evaluation.conventions import CONVENTIONS
from slotbench.evaluation.file_scores import Evaluation
from slotbench.metric_info import arrow
from slotbench.metrics.clip_summary import Summary, counted, summaries
from slotbench.metrics.mask_metrics import TRACKING, mask_score_infos
from slotbench.text import one_line

__all__ = ["print_conventions", "print_evaluation"]


def print_evaluation(
    found: Evaluation,
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
    console = console or _console()
    columns: dict[str, Mapping[str, Summary]] = {"masks": summaries(found.masks), **(earlier or {})}
    columns |= {name: summaries(clips) for name, clips in found.baselines.items()}
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("score", no_wrap=True)
    for column in ("masks", "± 95 %", *list(columns)[1:]):
        table.add_column(Text(one_line(column, 40)), justify="right", min_width=6)
    for name, heading in _headings():
        if any(name in scores for scores in columns.values()):
            own = columns["masks"].get(name)
            cells = [
                _cell(own),
                _half_interval(own),
                *(_cell(scores.get(name)) for scores in list(columns.values())[1:]),
            ]
            table.add_row(heading, *cells)
    console.print(Text(one_line(f"score {masks}")), soft_wrap=True)
    console.print()
    console.print(table)
    console.print()
    for line in [*said_of_clips(found), *_special(found), f"rules: {'; '.join(found.rules.in_words())}"]:
        console.print(Text(one_line(line)))


def said_of_clips(found: Evaluation) -> list[str]:
    """How many clips were scored of those there, and which are missing; then what they are."""
    matching = found.matching
    sizes = ", ".join(f"{height} x {width}" for height, width in list(found.sizes)[:3])
    fewest, most = found.segments
    segments = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    lines = [
        f"{len(found.names):,} clips scored of {matching.there:,} there, {found.frames:,} frames of {sizes} pixels; "
        f"masks: {' and '.join(found.kinds)}, {segments} slots a clip"
    ]
    others = [size for size in found.mask_sizes if size not in found.sizes]
    if others:
        lines.append(f"masks are of {', '.join(f'{height} x {width}' for height, width in others[:3])} pixels")
    for (whole, part), count in list(found.views.items())[:3]:
        lines.append(
            f"cut: of {count:,} clips, {part[0]} x {part[1]} pixels of the truth's {whole[0]} x {whole[1]} are scored"
        )
    if found.left_out:
        lines.append(f"not scored, without truth: {found.left_out:,} frames of the masks")
    for side, names in (("masks", matching.without_masks), ("truth", matching.without_truth)):
        if names:
            lines.append(f"not scored, without {side}: {len(names):,} clips ({listing(names, 3)})")
    return lines


def print_conventions(evaluations: Sequence[Evaluation], masks: Path, console: Console | None = None) -> None:
    """Prints what the masks score under each convention.

    Args:
        evaluations: in the order of `CONVENTIONS`.
        masks: where the masks were.
        console: where to; standard output if absent.
    """
    console = console or _console()
    headings = list(dict.fromkeys(name for one in CONVENTIONS for name in one.scores))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("convention", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("what it is")
    for convention, found in zip(CONVENTIONS, evaluations, strict=True):
        scores = summaries(found.masks)
        cells = [_cell(scores.get(convention.scores.get(heading, ""))) for heading in headings]
        table.add_row(convention.name, *cells, convention.says)
    console.print(Text(one_line(f"score {masks}: the same masks under six conventions")), soft_wrap=True)
    console.print()
    console.print(table)
    console.print()
    for line in [*said_of_clips(evaluations[0]), *(f"{one.name}: {one.source}" for one in CONVENTIONS)]:
        console.print(Text(one_line(line)))


def _console() -> Console:
    """Standard output; what reads it in the place of a person gets lines as long as they are."""
    console = Console()
    return console if console.is_terminal else Console(width=160)


def _headings() -> list[tuple[str, str]]:
    """Every score by name with its heading: those per video, those per frame, tracking."""
    infos, tracked = mask_score_infos(), {info.name for info in TRACKING}
    scoped = [(info, scope) for scope in ("video", "frame") for info in infos if info.name not in tracked]
    named = [(f"{info.name}/{scope}", f"{info.label} per {scope}", info) for info, scope in scoped]
    named += [(info.name, info.label, info) for info in TRACKING]
    return [(name, f"{label} {arrow(info)}".rstrip()) for name, label, info in named]


def _cell(summary: Summary | None) -> str:
    if summary is None:
        return ""
    return f"> {summary.beyond}" if summary.beyond is not None else f"{summary.mean:.3f}"


def _half_interval(summary: Summary | None) -> str:
    return "" if summary is None or summary.high is None else f"{summary.high - summary.mean:.3f}"


def _special(found: Evaluation) -> list[str]:
    counts = counted(found.masks)
    special = [f"{count:,} {what}" for what, count in counts.items() if count and what not in ("videos", "frames")]
    lines = [f"of {counts['videos']:,} videos and {counts['frames']:,} frames: {', '.join(special)}"] if special else []
    if found.ties:
        share = found.ties / found.pixels
        lines.append(
            f"ties: {found.ties:,} pixels ({share:.2%}) have two slots of the same share; the lower one counts"
        )
    if found.uncovered:
        counted_as = {
            "background": "they are one segment more, beside the slots; --uncovered void leaves them out",
            "void": "they count nowhere (--uncovered void)",
        }[found.rules.uncovered]
        lines.append(
            f"uncovered: {found.uncovered:,} pixels ({found.uncovered / found.pixels:.2%}) are no slot's; {counted_as}"
        )
    if found.unequal:
        share = found.unequal / found.pixels
        lines.append(
            f"shares of {found.unequal:,} pixels ({share:.2%}) do not sum to 1; the largest counts all the same"
        )
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
