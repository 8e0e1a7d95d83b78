"""The table of `slotbench match`, the flags of each match, and the files of the matched cores."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import yaml
from rich.console import Console
from rich.table import Table

from slotbench.grids.match_width import Budget, Match
from slotbench.text import rich_text

__all__ = ["print_matches", "write_matches"]


def print_matches(matches: list[Match], budget: Budget) -> None:
    """Prints the budget, one line per core or two where nothing fits, and the flags that make each match."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("core", no_wrap=True)
    table.add_column("width", no_wrap=True)
    for heading in ("encoder", "core", "decoder", "total", "difference"):
        table.add_column(heading, justify="right", no_wrap=True)
    for match in matches:
        for index, size in enumerate(match.sizes):
            counts, difference = size.counts, budget.difference(size.counts)
            numbers = [f"{number:,}" for number in (counts.encoder, counts.core, counts.decoder, counts.total)]
            shown = f"{100 * difference:+.1f} %"
            cells = [match.core if index == 0 else "", f"{match.argument} {size.value}", *numbers, shown]
            table.add_row(*map(rich_text, cells), style=None if match.flags else "red")
    of = "the core" if budget.part == "core" else "encoder, core and decoder"
    print(f"budget: {budget.parameters:,} trainable parameters of {of}{budget.origin}\n")
    Console().print(table)
    for match in matches:
        if match.problem:
            print(f"\n{match.problem}" if match.core in match.problem else f"\n{match.core}: {match.problem}")
        elif not match.flags:
            print(
                f"\n{match.core}: no {match.argument} comes within {100 * budget.tolerance:g} %; the nearest are above"
            )
    if any(match.flags for match in matches):
        print("\nto type:")
    for match in matches:
        if match.flags:
            print(f"  {match.flags}")


def write_matches(
    folder: Path, matches: list[Match], budget: Budget, files: Sequence[str], arguments: Sequence[str]
) -> None:
    """Writes FOLDER/CORE.yaml for each match.

    Args:
        folder: made if absent.
        matches: those that were found are written.
        budget: what they were matched to.
        files: the experiment's configuration files.
        arguments: the command line that has found them, for the header.
    """
    folder.mkdir(parents=True, exist_ok=True)
    print()
    for match in matches:
        if not match.flags:
            continue
        counts = match.sizes[0].counts
        path = folder / f"{match.core}.yaml"
        experiment = " ".join(f"--config {shlex.quote(file)}" for file in files)
        header = [
            f"# {match.core} with about {budget.parameters:,} trainable parameters of the {budget.part}:",
            f"#   {counts.terms} = {counts.total:,} ({100 * budget.difference(counts):+.1f} %)",
            f"#   slotbench fit {experiment} --config {shlex.quote(str(path))}",
            f"# Made by: slotbench match {shlex.join(arguments)}",
        ]
        content = {"model": {"init_args": {"core": match.config}}}
        path.write_text("\n".join([*header, yaml.safe_dump(content, sort_keys=False)]), encoding="utf-8")
        print(f"wrote {path}")
