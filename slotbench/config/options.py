"""Options of a run that are not part of its configuration, such as `--name` and `--plugin`."""

# ruff: noqa: RUF009  `_option` makes a field
from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, NoReturn

from slotbench.errors import UserError, did_you_mean, lines
from slotbench.runs.wandb_compat import TAG_LENGTH

__all__ = ["SAVED", "RunOptions", "flags", "split_options", "usage"]


SAVED = ("slots", "masks", "soft_masks", "reconstruction", "depth")
"""What `predict --save` can write; `slotbench.callbacks.prediction_writer` says what each is."""


def _option(*flags: str, help: str, default: Any = None, **more: Any) -> Any:
    """A field of `RunOptions`, with what argparse needs to read it."""
    options = {"flags": flags, "help": help, **more}
    return field(default_factory=list, metadata=options) if default == [] else field(default=default, metadata=options)


def _names(given: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in given.split(",") if name.strip()))
    unknown = [name for name in names if name not in SAVED]
    if unknown or not names:
        near = did_you_mean(unknown[0], SAVED) if unknown else ""
        raise UserError(
            lines(f"--save {given} names nothing that can be saved{near}", expected=f"some of {','.join(SAVED)}")
        )
    return names


def _tags(given: str) -> tuple[str, ...]:
    tags = tuple(dict.fromkeys(tag.strip() for tag in given.split(",") if tag.strip()))
    if long := next((tag for tag in tags if len(tag) > TAG_LENGTH), None):
        raise UserError(f"--wandb_tags has a tag of {len(long)} characters, {long[:20]}...; W&B takes {TAG_LENGTH}")
    return tags


@dataclass
class RunOptions:
    """Options of a run: where it is recorded, what may be imported, how many threads. The help of each describes it.

    None stands for an option that is not given: a resumed run keeps what it had, and a new one takes the default.
    """

    name: str | None = _option("--name", help="name of the run (default: the configuration file's name)")
    runs_dir: Path = _option(
        "--runs_dir", type=Path, default=Path("runs"), metavar="DIR", help="folder of all runs (default: runs)"
    )
    run_dir: Path | None = _option(
        "--run_dir",
        type=Path,
        metavar="DIR",
        help="the run folder itself: a run that is there is resumed, one that is finished is left alone",
    )
    resume: Path | None = _option(
        "--resume", type=Path, metavar="RUN", help="resume this run, in its own configuration"
    )
    allow_changes: bool = _option(
        "--allow-changes",
        action="store_true",
        default=False,
        help="resume though the configuration is not that of the run",
    )
    final_validation: bool | None = _option(
        "--no-final-validation",
        "--no_final_validation",
        action="store_const",
        const=False,
        help="do not validate at the end of a training whose last step is not one that is validated",
    )
    compile: Literal["off", "on", "graphs"] | None = _option(
        "--compile",
        choices=["off", "on", "graphs"],
        help="torch.compile encoder, core and decoder in training steps: fused (on), or as CUDA graphs too (graphs), "
        "for steps of many small operations on a GPU; minutes to begin with (default: off; a resumed run: as before)",
    )
    checkpoint: str | None = _option(
        "--checkpoint",
        metavar="last|best|FILE",
        help="whose weights validate, test, predict and probe take: the newest ones, those with the best validation "
        "score, or a file's (default: last)",
    )
    half: bool = _option(
        "--half",
        action="store_true",
        default=False,
        help="validate, test and predict with the weights rounded to 16 bits, as export --half writes them",
    )
    save: tuple[str, ...] = _option(
        "--save",
        type=_names,
        default=(),
        metavar="NAMES",
        help=f"arrays that predict writes as npz beside the images: {', '.join(SAVED)}, separated by commas",
    )
    group: str | None = _option("--group", help="label shared by several runs")
    wandb: Literal["off", "offline", "online"] | None = _option(
        "--wandb",
        choices=["off", "offline", "online"],
        help="mirror the run in Weights & Biases (default: off; a resumed or tested run: as before)",
    )
    wandb_project: str | None = _option(
        "--wandb_project", metavar="NAME", help="project there (default: WANDB_PROJECT, or slotbench)"
    )
    wandb_entity: str | None = _option(
        "--wandb_entity", metavar="NAME", help="user or team there (default: WANDB_ENTITY, or the account's own)"
    )
    wandb_tags: tuple[str, ...] = _option(
        "--wandb_tags", type=_tags, default=(), metavar="TAGS", help="more tags there, separated by commas"
    )
    wandb_notes: str | None = _option("--wandb_notes", metavar="TEXT", help="description of the run there")
    wandb_artifacts: bool = _option(
        "--wandb_artifacts",
        action="store_true",
        default=False,
        help="at the end, upload the best and the last checkpoint, and the code, as artifacts",
    )
    plugin: list[Path] = _option(
        "--plugin", type=Path, action="append", default=[], metavar="FILE", help="import components from a Python file"
    )
    allow_import: list[str] = _option(
        "--allow-import",
        action="append",
        default=[],
        metavar="PREFIX",
        help="let the configuration name classes below PREFIX",
    )
    threads: int | None = _option("--threads", type=int, metavar="N", help="threads within a torch operation")
    quiet: bool = _option(
        "--quiet",
        action="store_true",
        default=False,
        help="no opening lines, no progress bar and no report at the end: fit prints its run folder and nothing else",
    )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        found = re.fullmatch(
            r"argument (--[\w-]+)\S*: (?:expected one argument|invalid .*?: '(.*?)'.*)", message, re.DOTALL
        )
        if found is None:
            raise UserError(message)
        flag, value = found.groups()
        option = next(one for one in fields(RunOptions) if flag in one.metadata["flags"])
        what = "needs a value" if value is None else f"cannot be {value}"
        raise UserError(lines(f"{flag} {what}", expected=f"{flag} {_value_of(option)}"))


def flags() -> list[str]:
    """The options, without dashes."""
    return [flag.lstrip("-") for one in fields(RunOptions) for flag in one.metadata["flags"]]


def options_parser() -> argparse.ArgumentParser:
    """The parser of the options in `RunOptions`; it leaves every other argument alone."""
    parser = _Parser(prog="slotbench", add_help=False, allow_abbrev=False)
    group = parser.add_argument_group("the run (command line only, not part of the configuration)")
    for name, default in vars(RunOptions()).items():
        options = dict(RunOptions.__dataclass_fields__[name].metadata)
        group.add_argument(*options.pop("flags"), dest=name, default=default, **options)
    return parser


def usage(command: str) -> str:
    """The help of a training command, short; torch and lightning are not imported."""
    first = "FILE | --config FILE | --resume RUN" if command == "fit" else "RUN | --config FILE --checkpoint FILE"
    more = {
        **({"slotbench fit --resume runs/NAME/ID": "resume a run that was interrupted"} if command == "fit" else {}),
        **(
            {f"slotbench {command} RUN --lengths 1,4,16": "on clips so many times as long as those of the training"}
            if command in ("test", "validate")
            else {}
        ),
        f"slotbench {command} --model.help TASK": "the arguments of a task",
        f"slotbench {command} --data.help DATASET": "the arguments of a data set",
        f"slotbench {command} --config FILE --model.core.help NAME": "the arguments of a core",
        f"slotbench {command} --help-all": "every argument, those of the trainer among them",
        "slotbench show FILE|RUN": "the configuration, complete",
        "slotbench plugins": "the components that can be named",
    }
    width = max(map(len, more))
    return "\n".join(
        [
            f"Usage: slotbench {command} {first} [settings] [options]",
            "",
            "Settings are added to the configuration, or replace what it says:",
            "  --model.core NAME                another core; the old one's arguments go where they do not fit",
            "  --model.core.ARGUMENT VALUE      an argument of the core; likewise encoder, decoder, optimizer, ...",
            "  --data.ARGUMENT VALUE            an argument of the data set, such as --data.loader.batch_size 8",
            "  --trainer.ARGUMENT VALUE         an argument of Lightning's trainer, such as --trainer.max_steps 1000",
            "  --seed N                         another seed, short for --seed_everything",
            *_of_a_checkpoint(command),
            "",
            "The run (command line only, not part of the configuration):",
            *_option_rows(),
            "",
            "More:",
            *(f"  {typed:<{width}}  {meaning}" for typed, meaning in more.items()),
        ]
    )


def _option_rows() -> Iterator[str]:
    """The options of the run, as rows of a help text."""
    for field_ in fields(RunOptions):
        option = field_.metadata
        typed = ", ".join(option["flags"])
        value = f" {_value_of(field_)}" if option.get("action") in (None, "append") else ""
        yield f"  {typed}{value}  {option['help']}"


def _value_of(option: Field[Any]) -> str:
    """What follows an option."""
    return option.metadata.get("metavar") or "|".join(option.metadata.get("choices", ())) or option.name.upper()


def _of_a_checkpoint(command: str) -> list[str]:
    if command == "fit":
        return ["  --ckpt_path FILE                 the checkpoint to resume from"]
    return ["  --checkpoint last|best|FILE      whose weights: the newest (default), the best in validation, a file's"]


def split_options(arguments: list[str]) -> tuple[RunOptions, list[str]]:
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
