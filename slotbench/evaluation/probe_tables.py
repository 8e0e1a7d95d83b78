"""What `slotbench probe` found: its table, and its file."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from slotbench.evaluation.probing import ProbeReport, ProbeSettings
from slotbench.files import dump_json, write_atomically
from slotbench.text import one_line

__all__ = ["print_report", "write_report"]

_SAYS = {"accuracy": "accuracy", "r2": "R^2"}


def print_report(report: ProbeReport, settings: ProbeSettings, of: str) -> None:
    """Prints a line per factor, and what was matched with what; `of` says of which run, for the headline."""
    # prior and mean never meet in a line
    guess = {"prior": "guess", "mean": "guess"}
    baselines = list(dict.fromkeys(guess.get(name, name) for score in report.scores for name in score.baselines))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("factor", no_wrap=True)
    table.add_column("score", no_wrap=True)
    for heading in (*settings.heads, *(f"baseline: {name}" for name in baselines), "n"):
        table.add_column(Text(one_line(heading)), justify="right")
    for score in report.scores:
        values = {f"baseline: {guess.get(name, name)}": value for name, value in score.baselines.items()} | score.heads
        cells = [f"{values[name]:.3f}" for name in (*settings.heads, *(f"baseline: {name}" for name in baselines))]
        table.add_row(Text(one_line(score.factor.name)), _SAYS[score.metric], *cells, f"{score.scored:,}")
    print(one_line(f"probe {of}") + "\n")
    Console().print(table)
    print()
    for name, what in (("fit", "fitted to"), ("test", "scored on")):
        print(f"{what} {_described(report.matching[name])}")
    for name, reason in report.left_out.items():
        print(one_line(f"left out: {name} {reason}"))


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


def write_report(path: Path, report: ProbeReport, of: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Writes all numbers and how they came about as JSON, whole or not at all.

    Args:
        path: the file.
        report: what was found.
        of: what was probed, such as its "run" and "checkpoint".
        given: the command's arguments by name; None ones are left out.
    """
    record = {
        **of,
        "created": datetime.now().astimezone().isoformat(timespec="seconds"),
        "slotbench": importlib.metadata.version("slotbench"),
        "arguments": {name: value for name, value in given.items() if value is not None and name != "checkpoint"},
        "matching": report.matching,
        "factors": {
            score.factor.name: {
                "kind": score.factor.kind,
                "metric": score.metric,
                **score.heads,
                "baselines": score.baselines,
                "rows_fitted": score.fitted,
                "rows_scored": score.scored,
            }
            for score in report.scores
        },
        "left_out": report.left_out,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, dump_json(record, indent=2))
