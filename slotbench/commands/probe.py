"""`slotbench probe RUN`: what the frozen slots of a run know about the objects that they are matched to."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from slotbench import registry
from slotbench.commands.checkpoint_choice import DEFAULT
from slotbench.commands.options import split_options
from slotbench.commands.settings import command_line_settings
from slotbench.errors import UserError, did_you_mean, lines

if TYPE_CHECKING:
    import torch

    from slotbench.commands.run_loading import LoadedRun
    from slotbench.data.base import Split
    from slotbench.interfaces import VideoBatch
    from slotbench.probing.collect import Clips

__all__ = ["main"]

_USAGE = """Usage: slotbench probe RUN [--match masks|position] [--head linear|mlp|both] [--data.ARGUMENT VALUE ...]

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
  --fit-split train|val        clips to fit to, as long as those that are scored if the data set has `num_frames`
                               (default: train)
  --fit-clips N                how many at most (default: 500)
  --split test|val             clips to score on, other ones (default: test)
  --clips N                    how many at most (default: 500)
  --categorical NAME           an entry of the data's `objects` to read as a class; may be repeated
  --continuous NAME            an entry of the data's `objects` to read as numbers; may be repeated
  --min-pixels N               an object with fewer visible pixels in a frame is left out of it (default: 1)
  --restarts N                 random starts of the matching by position (default: 5)
  --seed N                     of these starts and of the two-layer head (default: 0)
  --device cpu|cuda            where the run's task computes (default: cuda where there is one)
  --out FILE                   where to write the results (default: RUN/probe.json)

--data.ARGUMENT VALUE changes the run's data set, --plugin, --allow-import and --threads are as for fit.

Examples:
  slotbench probe runs/movi_like/ID
  slotbench probe runs/movi_like/ID --match position --head linear --clips 200
  slotbench probe runs/movi_a/ID --data.path elsewhere/movi_a --data.eval_frames 6"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; slotbench probe --help lists the arguments")


def main(command: str, arguments: list[str]) -> int:
    """Probes the run that is named first."""
    if "--help" in arguments or "-h" in arguments:
        print(_USAGE)
        return 0
    if not arguments or arguments[0].startswith("-"):
        raise UserError(lines("probe needs a run", example="slotbench probe runs/NAME/ID"))
    run, *rest = arguments
    options, rest = split_options(rest)
    given, settings = _parser().parse_known_args(rest)
    _check(given, settings)
    for file in options.plugin:
        registry.load_file(file)
    # everything above answers before torch is imported
    import torch

    from slotbench.commands.run_loading import load_run
    from slotbench.data.files import DataFilesError
    from slotbench.probing.factors import ProbeError

    if options.threads is not None:
        torch.set_num_threads(options.threads)
    if given.device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch finds no CUDA device here; leave it out, or type --device cpu")
    loaded = load_run(run, options.checkpoint or DEFAULT, settings, options)
    try:
        return _probe(loaded, given)
    except ProbeError as error:
        raise UserError(f"{loaded.folder.path} cannot be probed: {error}") from error
    except DataFilesError as error:
        raise UserError(str(error)) from error


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="slotbench probe", add_help=False, allow_abbrev=False)
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
    if given.seed < 0:
        raise UserError(f"--seed is {given.seed}; expected 0 or more")
    if given.fit_split == given.split:
        raise UserError(
            f"--fit-split and --split are both {given.split}; heads are scored on clips that they were not fitted to"
        )
    known = [option for action in _parser()._actions for option in action.option_strings]
    for setting in command_line_settings(settings):
        if setting.key[:1] != ("data",):
            near = did_you_mean(setting.text.partition(" ")[0], known)
            raise UserError(lines(f"probe has no argument {setting.text}{near}", see="slotbench probe --help"))


def _probe(loaded: LoadedRun, given: argparse.Namespace) -> int:
    import torch

    from slotbench.commands.probe_report import print_report, write_report
    from slotbench.probing.factors import choose_factors
    from slotbench.probing.probe import HeadName, ProbeSettings, probe

    device = torch.device(given.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    loaded.task.to(device)
    heads: tuple[HeadName, ...] = ("linear", "mlp") if given.head == "both" else (given.head,)
    settings = ProbeSettings(given.match, given.scope, heads, given.restarts, given.seed)
    with _progress() as say:
        test = _collect(loaded, given, given.split, given.clips, device, say)
        data: Any = loaded.data
        if "num_frames" not in loaded.given and isinstance(getattr(data, "num_frames", None), int):
            # slots late in a clip are not those of its beginning, and training clips are often shorter
            data.num_frames = test.slots.shape[1]
        fit = _collect(loaded, given, given.fit_split, given.fit_clips, device, say)
        _check_disjoint(fit, test, given)
        factors = choose_factors(fit.labels, given.categorical, given.continuous)
        report = probe(fit, test, factors, settings, lambda what: say(f"probing: {what}", 0, 0))
    print_report(report, settings, loaded)
    out = given.out or loaded.folder.path / "probe.json"
    write_report(out, report, loaded, vars(given) | {"device": str(device), "out": None})
    print(f"wrote {out}")
    return 0


def _collect(
    loaded: LoadedRun,
    given: argparse.Namespace,
    split: Split,
    num_clips: int,
    device: torch.device,
    say: Callable[[str, int, int], None],
) -> Clips:
    from slotbench.probing.collect import collect

    data = loaded.data
    loader = {"train": data.train_dataloader, "val": data.val_dataloader, "test": data.test_dataloader}[split]()

    def batches() -> Iterator[VideoBatch]:
        for batch in loader:
            yield data.on_after_batch_transfer(batch.to(device), 0)

    return collect(
        loaded.task,
        batches(),
        num_clips,
        # a decoder without masks can still be matched by position
        masks=given.masks if given.match == "masks" else None,
        min_pixels=given.min_pixels,
        names=[*given.categorical, *given.continuous],
        report=lambda done: say(f"slots of {split} clips", done, num_clips),
    )


def _check_disjoint(fit: Clips, test: Clips, given: argparse.Namespace) -> None:
    both = len(set(fit.fingerprints) & set(test.fingerprints))
    if both:
        raise UserError(
            f"{both} of the {len(test)} {given.split} clips are also among the {given.fit_split} clips that the heads "
            "are fitted to (a set without a test split may test on its validation split): choose another --fit-split"
        )


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bars: dict[str, int] = {}

        def say(what: str, done: int, total: int) -> None:
            if what not in bars:
                bars[what] = progress.add_task(what, total=total or None)  # type: ignore[assignment]
            progress.update(bars[what], completed=done)  # type: ignore[arg-type]

        yield say
