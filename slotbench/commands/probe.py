"""`slotbench probe RUN`: attributes of objects read off the frozen slots of a run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from slotbench.commands.arguments import Parser, open_device, progress_bars, split_and_load
from slotbench.config.tree import typed_settings
from slotbench.errors import UserError, did_you_mean, lines
from slotbench.runs.checkpoint_choice import DEFAULT

if TYPE_CHECKING:
    import torch

    from slotbench.config.run_loading import LoadedRun

__all__ = ["USAGE", "main"]

USAGE = """Usage: slotbench probe RUN [--match masks|position] [--head linear|mlp|both] [--data.ARGUMENT VALUE ...]

Freezes a run's slots, finds the slot of every object, reads the objects' attributes off their slots with a linear head
and a two-layer one, and scores that on other clips: accuracy for classes, R^2 for numbers, beside what is right without
looking. Prints a table and writes it to RUN/probe.json.

  --checkpoint last|best|FILE  whose weights (default: last)
  --match masks|position       the slot of an object: the one that covers it, or the one that positions can be read off
                               best, which needs no masks of slots (default: masks)
  --masks decoder|attention    which masks say what a slot covers (default: decoder)
  --scope video|frame          an object keeps its slot through the clip, or may have another in every frame
                               (default: video)
  --head linear|mlp|both       what is fitted (default: both)
  --fit-split train|val        clips to fit to, as long as those that are scored if the data set has `num_frames`, and
                               with as many cameras shown (default: train)
  --fit-clips N                how many at most (default: 500)
  --split test|val             clips to score on, other ones (default: test)
  --clips N                    how many at most (default: 500)
  --categorical NAME           an entry of the data's `objects` to read as a class; may be repeated
  --continuous NAME            an entry of the data's `objects` to read as numbers; may be repeated
  --object N                   looks at this object alone, by its row in the annotations (CATER's snitch is 0); may be
                               repeated
  --min-pixels N               an object with fewer visible pixels in a frame is left out of it (default: 1)
  --restarts N                 random starts of the matching by position (default: 5)
  --seed N                     of these starts and of the two-layer head (default: 0)
  --device cpu|cuda            where the run's task computes (default: cuda where there is one)
  --out FILE                   where to write the results (default: RUN/probe.json)

--data.ARGUMENT VALUE changes the run's data set, --plugin, --allow-import and --threads are as for fit.

Examples:
  slotbench probe runs/movi_like/ID
  slotbench probe runs/movi_like/ID --match position --head linear --clips 200
  slotbench probe runs/cater_like/ID --match position --object 0
  slotbench probe runs/movi_a/ID --data.path elsewhere/movi_a --data.eval_frames 6"""


def main(command: str, arguments: list[str]) -> int:
    """Probes the run that is named first."""
    if not arguments or arguments[0].startswith("-"):
        raise UserError(lines("probe needs a run", example="slotbench probe runs/NAME/ID"))
    run, *rest = arguments
    options, rest = split_and_load(rest)
    given, settings = _parser().parse_known_args(rest)
    _check(given, settings)
    # everything above answers before torch is imported
    from slotbench.config.run_loading import load_with_settings
    from slotbench.evaluation.probe_factors import ProbeError

    device = open_device(given.device, options.threads)
    loaded = load_with_settings(run, options.checkpoint or DEFAULT, settings, options, "probe")
    try:
        return _probe(loaded, given, device, {setting.key[-1] for setting in typed_settings(settings)})
    except ProbeError as error:
        raise UserError(f"{loaded.folder.path} cannot be probed: {error}") from error


def _parser() -> argparse.ArgumentParser:
    parser = Parser("slotbench probe")
    parser.add_argument("--match", choices=["masks", "position"], default="masks")
    parser.add_argument("--masks", choices=["decoder", "attention"], default="decoder")
    parser.add_argument("--scope", choices=["video", "frame"], default="video")
    parser.add_argument("--head", choices=["linear", "mlp", "both"], default="both")
    parser.add_argument("--fit-split", choices=["train", "val"], default="train")
    parser.add_argument("--fit-clips", type=int, default=500)
    parser.add_argument("--split", choices=["val", "test"], default="test")
    parser.add_argument("--clips", type=int, default=500)
    parser.add_argument("--categorical", action="append", default=[])
    parser.add_argument("--continuous", action="append", default=[])
    parser.add_argument("--object", type=int, action="append", default=[])
    parser.add_argument("--min-pixels", type=int, default=1)
    parser.add_argument("--restarts", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", choices=["cpu", "cuda"])
    parser.add_argument("--out", type=Path)
    return parser


def _check(given: argparse.Namespace, settings: list[str]) -> None:
    for name in ("fit_clips", "clips", "min_pixels", "restarts"):
        if getattr(given, name) < 1:
            raise UserError(f"--{name.replace('_', '-')} is {getattr(given, name)}; expected 1 or more")
    if any(row < 0 for row in given.object):
        raise UserError(f"--object is {min(given.object)}; expected the row of an object, from 0 on")
    if given.seed < 0:
        raise UserError(f"--seed is {given.seed}; expected 0 or more")
    if given.fit_split == given.split:
        raise UserError(
            f"--fit-split and --split are both {given.split}; heads are scored on clips that they were not fitted to"
        )
    known = [option for action in _parser()._actions for option in action.option_strings]
    for setting in typed_settings(settings):
        if setting.key[:1] != ("data",):
            near = did_you_mean(setting.words[0], known)
            raise UserError(
                lines(f"probe has no argument {' '.join(setting.words)}{near}", see="slotbench probe --help")
            )


def _probe(loaded: LoadedRun, given: argparse.Namespace, device: torch.device, data_arguments: set[str]) -> int:
    from slotbench.evaluation.probing import ClipChoice, HeadName, ProbeSettings, probe_task, write_probe
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
        same_length="num_frames" not in data_arguments,
        same_views="num_shown" not in data_arguments,
        rows=tuple(given.object),
    )
    with progress_bars() as bars:
        report = probe_task(loaded.task.to(device), loaded.data, choice, settings, bars)
    print_probe(report, settings, f"{loaded.folder.path}, {loaded.checkpoint.name}, step {loaded.step:,}")
    out = given.out or loaded.folder.path / "probe.json"
    of = {
        "run": loaded.folder.info["id"],
        "checkpoint": str(loaded.checkpoint),
        "step": loaded.step,
        "data": type(loaded.data).__name__,
    }
    write_probe(out, report, of, vars(given) | {"device": str(device), "out": None})
    print(f"wrote {out}")
    return 0
