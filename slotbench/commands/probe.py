"""`slotbench probe RUN`: what a run's slots know about the objects."""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from slotbench.commands.arguments import Parser, open_device, positive, progress_bars, split_and_load, write_record
from slotbench.config.tree import material_settings
from slotbench.errors import UserError, did_you_mean
from slotbench.runs.checkpoint_choice import DEFAULT

if TYPE_CHECKING:
    import torch

    from slotbench.config.run_loading import LoadedRun

__all__ = ["main"]


def main(command: str, arguments: list[str]) -> int:
    """Probes the run that is named first."""
    options, rest = split_and_load(arguments)
    given, settings = (parser := _parser()).parse_known_args(rest)
    for word in settings:
        if word.startswith("--") and not word.startswith("--data."):
            parser.error(f"probe has no argument {word}{did_you_mean(word, parser._option_string_actions)}")
    if min(given.object, default=0) < 0:
        parser.error(f"--object {min(given.object)}: rows are counted from 0")
    if given.fit_split == given.split:
        raise UserError(f"--fit-split and --split are both {given.split}; heads are scored on clips not fitted to")
    from slotbench.config.run_loading import load_with_settings
    from slotbench.evaluation.probe_factors import ProbeError

    device = open_device(given.device, options.threads)
    loaded = load_with_settings(given.run, options.checkpoint or DEFAULT, settings, options, "probe")
    typed = material_settings(rest) | ({"checkpoint": options.checkpoint} if options.checkpoint else {})
    try:
        return _probe(loaded, given, device, typed)
    except ProbeError as error:
        raise UserError(f"{loaded.folder.path} cannot be probed: {error}") from error


def _parser() -> argparse.ArgumentParser:
    description = "Reads attributes of objects off a run's frozen slots. --data.ARGUMENT VALUE changes its data set."
    parser = Parser("slotbench probe", description)
    add = parser.add_argument
    add("run", metavar="RUN")
    add("--match", choices=["masks", "position"], default="masks", help="what tells the slot of an object")
    add("--masks", choices=["decoder", "attention"], default="decoder", help="whose masks say what a slot covers")
    add("--scope", choices=["video", "frame"], default="video", help="whether an object keeps its slot (default: yes)")
    add("--head", choices=["linear", "mlp", "both"], default="both", help="what is fitted (default: both)")
    add("--fit-split", choices=["train", "val"], default="train", help="clips to fit to (default: train)")
    add("--fit-clips", type=positive, default=500, help="how many at most (default: 500)")
    add("--split", choices=["val", "test"], default="test", help="clips to score on, other ones (default: test)")
    add("--clips", type=positive, default=500, help="how many at most (default: 500)")
    add("--categorical", action="append", default=[], help="an entry of the data's objects to read as a class")
    add("--continuous", action="append", default=[], help="an entry of the data's objects to read as numbers")
    add("--object", type=int, action="append", default=[], help="this object alone, by its row in the annotations")
    add("--min-pixels", type=positive, default=1, help="an object with fewer visible pixels is left out (default: 1)")
    add("--restarts", type=positive, default=5, help="random starts of the matching by position (default: 5)")
    add("--seed", type=int, default=0, help="of these starts and of the two-layer head (default: 0)")
    add("--device", choices=["cpu", "cuda"], help="where to compute (default: cuda where there is one)")
    add("--out", type=Path, help="where to write the results (default: RUN/probe.json)")
    return parser


def _probe(loaded: LoadedRun, given: argparse.Namespace, device: torch.device, typed: dict[str, str | None]) -> int:
    from slotbench.evaluation.probing import ClipChoice, HeadName, ProbeSettings, as_record, probe_task
    from slotbench.evaluation.tables import print_probe

    heads: tuple[HeadName, ...] = ("linear", "mlp") if given.head == "both" else (given.head,)
    settings = ProbeSettings(given.match, given.scope, heads, given.restarts, given.seed)
    choice = ClipChoice(
        fit_split=given.fit_split,
        fit_clips=given.fit_clips,
        split=given.split,
        clips=given.clips,
        masks=given.masks,
        min_pixels=given.min_pixels,
        categorical=tuple(given.categorical),
        continuous=tuple(given.continuous),
        same_length="data.num_frames" not in typed,
        same_views="data.num_shown" not in typed,
        rows=tuple(given.object),
    )
    with progress_bars() as bars:
        report = probe_task(loaded.task.to(device), loaded.data, choice, settings, bars)
    print_probe(report, settings, f"{loaded.folder.path}, {loaded.checkpoint.name}, step {loaded.step:,}")
    record = {
        "run": loaded.folder.info["id"],
        "checkpoint": str(loaded.checkpoint),
        "step": loaded.step,
        "data": type(loaded.data).__name__,
        "created": datetime.now().astimezone().isoformat(timespec="seconds"),
        "settings": typed,
        "arguments": {name: value for name, value in vars(given).items() if value is not None and name != "out"},
        **as_record(report),
    }
    write_record(given.out or loaded.folder.path / "probe.json", record)
    return 0
