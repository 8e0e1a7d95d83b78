"""Options of a run that are not part of its configuration, such as `--name` and `--plugin`."""

# ruff: noqa: RUF009  `_option` makes a field
from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, NoReturn

from slotbench.errors import UserError, did_you_mean

__all__ = ["SAVED", "RunOptions", "flags", "options_parser", "split_options"]

SAVED = ("slots", "masks", "attention", "soft_masks", "reconstruction", "depth")
"""What `predict --save` can write; `slotbench.callbacks.prediction_writer` says what each is."""


def _option(*flags: str, help: str, default: Any = None, **more: Any) -> Any:
    """A field of `RunOptions`, with what argparse needs to read it."""
    options = {"flags": flags, "help": help, **more}
    return field(default_factory=list, metadata=options) if default == [] else field(default=default, metadata=options)


def _switch(flag: str, help: str) -> Any:
    return _option(flag, action="store_true", default=False, help=help)


def _names(given: str) -> tuple[str, ...]:
    names = _separated(given)
    if unknown := next((name for name in names if name not in SAVED), None):
        raise UserError(f"--save cannot be {unknown}{did_you_mean(unknown, SAVED)}; expected some of {','.join(SAVED)}")
    return names


def _separated(given: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.strip() for word in given.split(",") if word.strip()))


@dataclass
class RunOptions:
    """Options of a run: where it is recorded, what may be imported, how many threads. The help of each describes it.

    None stands for an option that is not given: a resumed run keeps what it had, and a new one takes the default.
    """

    name: str | None = _option("--name", help="name of the run (default: the configuration file's name)")
    runs_dir: Path = _option("--runs_dir", type=Path, default=Path("runs"), help="folder of all runs (default: runs)")
    run_dir: Path | None = _option("--run_dir", type=Path, help="the run folder: a run that is there is resumed")
    resume: Path | None = _option("--resume", type=Path, metavar="RUN", help="resume this run, in its configuration")
    allow_changes: bool = _switch("--allow-changes", help="resume though the configuration is not that of the run")
    final_validation: bool | None = _option(
        "--no-final-validation",
        "--no_final_validation",
        action="store_const",
        const=False,
        help="do not validate at the end of a training",
    )
    compile: Literal["off", "on", "graphs"] | None = _option(
        "--compile",
        choices=["off", "on", "graphs"],
        help="torch.compile the parts in training steps, with graphs as CUDA graphs (default: off; resumed: as before)",
    )
    checkpoint: str | None = _option(
        "--checkpoint",
        metavar="last|best|FILE",
        help="whose weights are evaluated: the newest, those with the best validation score, a file's (default: last)",
    )
    half: bool = _switch("--half", help="evaluate with the weights rounded to 16 bits, as export --half writes them")
    save: tuple[str, ...] = _option(
        "--save", type=_names, default=(), metavar="A,B", help=f"arrays that predict writes as npz: {', '.join(SAVED)}"
    )
    group: str | None = _option("--group", help="label shared by several runs")
    wandb: Literal["off", "offline", "online"] | None = _option(
        "--wandb",
        choices=["off", "offline", "online"],
        help="mirror the run in Weights & Biases (default: off; a resumed run: as before)",
    )
    wandb_project: str | None = _option("--wandb_project", help="project there (default: WANDB_PROJECT, or slotbench)")
    wandb_entity: str | None = _option("--wandb_entity", help="user or team there (default: WANDB_ENTITY)")
    wandb_tags: tuple[str, ...] = _option(
        "--wandb_tags", type=_separated, default=(), metavar="A,B", help="more tags there, separated by commas"
    )
    wandb_notes: str | None = _option("--wandb_notes", help="description of the run there")
    plugin: list[Path] = _option(
        "--plugin", type=Path, action="append", default=[], metavar="FILE", help="import components from a Python file"
    )
    allow_import: list[str] = _option(
        "--allow-import", action="append", default=[], metavar="PREFIX", help="let the configuration name what is below"
    )
    threads: int | None = _option("--threads", type=int, metavar="N", help="threads within a torch operation")
    quiet: bool = _switch("--quiet", help="no opening lines, bar and report: fit prints its run folder alone")


_SETTINGS = """\
settings are added to the configuration, or replace what it says:
  --model.core NAME              another core; the old one's arguments go where they do not fit
  --model.core.ARGUMENT VALUE    an argument of the core; likewise encoder, decoder, optimizer, ...
  --data.ARGUMENT VALUE          an argument of the data set, such as --data.loader.batch_size 8
  --trainer.ARGUMENT VALUE       an argument of Lightning's trainer, such as --trainer.max_steps 1000
  --seed N                       another seed, short for --seed_everything"""
_MORE = """\
more:
  slotbench {command} --model.help TASK, --data.help DATASET, --config FILE --model.core.help NAME: arguments
  slotbench {command} --help-all: every argument, those of the trainer among them
  slotbench show FILE|RUN: the configuration, complete; slotbench plugins: the components that can be named"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(message.removeprefix("argument "))


def flags() -> list[str]:
    """The options, without dashes."""
    return [flag.lstrip("-") for one in fields(RunOptions) for flag in one.metadata["flags"]]


def options_parser(command: str = "fit") -> argparse.ArgumentParser:
    """The parser of the options in `RunOptions`, and the help of a training command; it leaves other arguments."""
    first = "FILE | --config FILE | --resume RUN" if command == "fit" else "RUN | --config FILE --checkpoint FILE"
    usage = f"slotbench {command} {first} [settings] [options]"
    lengths = f"\n  slotbench {command} RUN --lengths 1,4,16: on clips so many times as long as those of the training"
    more = _MORE.format(command=command) + (lengths if command in ("test", "validate") else "")
    shape = argparse.RawDescriptionHelpFormatter
    parser = _Parser(None, usage, _SETTINGS, more, formatter_class=shape, add_help=False, allow_abbrev=False)
    group = parser.add_argument_group("the run (command line only, not part of the configuration)")
    for one in fields(RunOptions):
        options = {"default": getattr(RunOptions(), one.name), **one.metadata}
        group.add_argument(*options.pop("flags"), dest=one.name, **options)
    return parser


def split_options(arguments: Sequence[str]) -> tuple[RunOptions, list[str]]:
    """Takes the options of the run out of a command's arguments and returns both.

    Raises:
        UserError: an option has a value that it cannot have.
    """
    known, rest = options_parser().parse_known_args(arguments)
    options = RunOptions(**vars(known))
    if options.threads is not None and options.threads < 1:
        raise UserError(f"--threads is {options.threads}; expected 1 or more")
    if options.resume is not None and options.run_dir is not None:
        raise UserError("--resume and --run_dir both name the run folder; give one of them")
    return options, rest
