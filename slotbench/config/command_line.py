"""Command lines of fit, validate, test and predict: expands RUN, --resume and --checkpoint into settings.

Everything here answers before torch is imported.
"""

from __future__ import annotations

import inspect
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from slotbench import registry
from slotbench.config.options import RunOptions, split_options
from slotbench.config.policy import check_run_plugins
from slotbench.config.refusals import refuse_early, refuse_grids
from slotbench.config.settings import (
    Setting,
    command_line_settings,
    config_files,
    load_named,
    read_settings,
    without_replaced,
)
from slotbench.errors import UserError, lines, wrapped
from slotbench.runs.checkpoint_choice import DEFAULT, OF_A_RUN, choose_checkpoint
from slotbench.runs.folder import CONFIG, RunFolder, check_run_name, usable_run_name
from slotbench.text import printable
from slotbench.yaml_files import read_yaml

if TYPE_CHECKING:
    from slotbench.config.parser import Configuration

__all__ = ["CommandLine", "read_command_line", "resolve"]

_LIGHTNING = "--ckpt_path"
_SEED = re.compile(r"\A--seed(?==|\Z)")


@dataclass(frozen=True)
class CommandLine:
    """A command line, ready for the parser.

    Attributes:
        arguments: for the parser.
        settings: the same one by one, those of the files included.
        options: of the run.
        run: the run folder that is evaluated, if it is one.
    """

    arguments: list[str]
    settings: list[Setting]
    options: RunOptions
    run: Path | None


def resolve(arguments: list[str]) -> Configuration:
    """The configuration of `fit` with these arguments, parsed and checked; names are refused before torch is imported.

    Raises:
        UserError: an option, a file, a name or a setting is wrong.
    """
    options, rest = split_options(_with_seed(arguments))
    settings = _read("fit", options, rest)
    from slotbench.config.parser import filter_messages, parse

    filter_messages()
    return parse("fit", rest, settings, options)


def read_command_line(command: str, arguments: list[str]) -> CommandLine:
    """Makes the arguments of a command complete, and imports the components that are named.

    Args:
        command: fit, validate, test or predict.
        arguments: as typed; at least one.

    Raises:
        UserError: an option, a file, a run or a name is wrong, or the command does not take it.
    """
    arguments, run = _expand_run(command, _with_seed(arguments))
    options, arguments = split_options(arguments)
    _check_options(command, options, run)
    if command == "fit":
        arguments = _expand_resume(options, arguments)
        _check_place(options)
    else:
        arguments = _expand_checkpoint(command, run, options, arguments)
    settings = _read(command, options, arguments, run.path if run else options.resume or options.run_dir)
    if run is not None:
        resolution = _resolution_of(run.path, settings)
        arguments, settings = [*arguments, *resolution], [*settings, *command_line_settings(resolution)]
    arguments, replaced = without_replaced(arguments)
    if replaced:
        print(_replaced(replaced, config_files(arguments)[0]), file=sys.stderr)
    if options.name is None:
        options.name = _name_of(config_files(arguments))
    return CommandLine(arguments, settings, options, run.path if run else None)


def _with_seed(arguments: list[str]) -> list[str]:
    """The arguments with `--seed_everything` for `--seed`, which other tools call it."""
    return [_SEED.sub("--seed_everything", argument) for argument in arguments]


def _check_options(command: str, options: RunOptions, run: RunFolder | None) -> None:
    """Refuses options that the command does not take."""
    if command == "fit" and options.checkpoint is not None:
        raise UserError(
            lines(
                f"fit takes no --checkpoint, and {options.checkpoint} is given",
                **{
                    "to resume": "slotbench fit --resume RUN, from its newest good checkpoint",
                    "to start from weights": "--model.init_from RUN or FILE",
                },
            )
        )
    if command != "fit" and (options.resume or options.run_dir):
        raise UserError(f"{command} takes neither --resume nor --run_dir: it evaluates the run that it is given")
    if options.save and (command != "predict" or run is None):
        what = "a run" if command == "predict" else f"predict, and this is {command}"
        raise UserError(lines(f"--save is for {what}", example="slotbench predict runs/NAME/ID --save slots,masks"))


def _check_place(options: RunOptions) -> None:
    """Checks before anything is imported that the run folder can be written."""
    from slotbench.files import check_writable

    if options.name is not None and options.resume is None:
        check_run_name(options.name)
    if options.resume is not None:
        check_writable(options.resume, "make room, or resume a copy of the run elsewhere")
    elif options.run_dir is not None:
        check_writable(options.run_dir, "give another place with --run_dir DIR")
    else:
        check_writable(options.runs_dir, "give another place with --runs_dir DIR")


def _read(command: str, options: RunOptions, arguments: list[str], run: Path | None = None) -> list[Setting]:
    settings = read_settings(arguments)
    refuse_grids(arguments, settings)
    typed = f"slotbench {command} {'' if command != 'fit' else '--resume ' if options.resume else '--run_dir '}"
    if run is not None and not options.plugin:
        # before a name that only the plugin has is refused as unknown
        check_run_plugins(run, [], settings, f"{typed}{shlex.quote(str(run))}")
    refuse_early(command, settings, options)
    for file in options.plugin:
        registry.load_file(file)
    if run is not None and options.plugin:
        check_run_plugins(run, options.plugin, settings, f"{typed}{shlex.quote(str(run))}")
    load_named(settings)
    return settings


def _expand_checkpoint(command: str, run: RunFolder | None, options: RunOptions, arguments: list[str]) -> list[str]:
    """Arguments of an evaluation, with the requested checkpoint as Lightning's `--ckpt_path`.

    Lightning's own spelling, `--ckpt_path`, is taken for `--checkpoint` where a run is evaluated.

    Args:
        command: "validate", "test" or "predict".
        run: the run that is evaluated, if it is one.
        options: with `--checkpoint`, if it was given.
        arguments: the others.

    Raises:
        UserError: there is no such checkpoint, or two are given.
    """
    other, rest = _lightnings(arguments)
    if other is not None and options.checkpoint is not None and other != options.checkpoint:
        raise UserError(
            f"--checkpoint {options.checkpoint} and {_LIGHTNING} {other} both name a checkpoint; give one of them"
        )
    if run is None:
        name = options.checkpoint or other
        if name in OF_A_RUN:
            raise UserError(
                lines(
                    f"{name} names a checkpoint of a run, and no run is given",
                    expected=f"slotbench {command} RUN --checkpoint {name}, or --checkpoint FILE",
                )
            )
        return arguments if name is None else [*rest, _LIGHTNING, name]
    if other is not None and options.checkpoint is None:
        print(wrapped(printable(f"slotbench: {_LIGHTNING} {other} is taken for --checkpoint {other}")), file=sys.stderr)
    path = choose_checkpoint(run, options.checkpoint or other or DEFAULT)
    return [*rest, _LIGHTNING, str(path)]


def _lightnings(arguments: list[str]) -> tuple[str | None, list[str]]:
    """The value of `--ckpt_path` among the arguments, if it is there, and the others."""
    found: str | None = None
    rest: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        option, equals, value = argument.partition("=")
        if option == _LIGHTNING:
            found = value if equals else next(waiting, None)
            if not found:
                raise UserError(lines(f"{_LIGHTNING} has no value", expected="--checkpoint last|best|FILE"))
        else:
            rest.append(argument)
    return found, rest


def _expand_resume(options: RunOptions, arguments: list[str]) -> list[str]:
    """Expands `--resume RUN` into the run's configuration and name."""
    if options.resume is None:
        return arguments
    folder = RunFolder.open(options.resume)
    folder.check_own()
    config = folder.path / CONFIG
    if not config.is_file():
        raise UserError(
            f"{folder.path} has no config.yaml: it was killed before it began; start it again with --config"
        )
    options.name = options.name or folder.info.get("name")
    # before the user's own settings, which override it
    return ["--config", str(config), *arguments]


def _expand_run(command: str, arguments: list[str]) -> tuple[list[str], RunFolder | None]:
    """Expands the words before the first option: FILE of a fit; RUN otherwise, and a video that is to be predicted."""
    if arguments[0].startswith("-"):
        return arguments, None
    if command == "fit":
        return ["--config", *arguments], None
    folder = RunFolder.open(arguments[0])
    folder.check_own()
    # before the user's own arguments, which override it
    return ["--config", str(folder.path / CONFIG), *_expand_video(command, arguments[1:])], folder


def _expand_video(command: str, arguments: list[str]) -> list[str]:
    """Expands a video, or a folder of videos, into the data set that reads it."""
    if not arguments or arguments[0].startswith("-") or arguments[0].endswith((".yaml", ".yml")):
        return arguments
    video, *rest = arguments
    if command != "predict":
        raise UserError(
            f"{command} takes no {video}: it scores the run's own data; slotbench predict RUN {video} draws it"
        )
    if not Path(video).exists():
        raise UserError(f"there is nothing at {video}; expected slotbench predict RUN VIDEO, or a folder of videos")
    if rest and not rest[0].startswith("-"):
        raise UserError(
            f"predict takes one video, and {video} and {rest[0]} are given; put them in a folder, and name it"
        )
    return ["--data", "VideoFolder", "--data.path", video, *rest]


def _resolution_of(run: Path, settings: list[Setting]) -> list[str]:
    """Sets another data set to the training's resolution unless the command line gives one."""
    typed = {setting.key: setting.value for setting in settings if setting.on_command_line}
    name = typed.get(("data",))
    if ("data", "resolution") in typed or name not in registry.names("datasets"):
        return []
    own = read_yaml(run / CONFIG)["data"].get("init_args") or {}
    takes_one = "resolution" in inspect.signature(registry.load("datasets", name)).parameters
    return ["--data.resolution", str(own["resolution"])] if takes_one and "resolution" in own else []


def _replaced(files: list[Path], by: Path) -> str:
    names = " and ".join(map(str, files))
    return wrapped(
        f"slotbench: {by} is a whole experiment, with a task and a data set: nothing of {names} before it is used. "
        "A file that is to change some settings of another one names only these."
    )


def _name_of(files: list[Path]) -> str:
    """The name of a run: that of its configuration file, or that of the run whose configuration it is."""
    if not files:
        return "run"
    file = files[0].resolve()
    return file.parent.parent.name if (file.parent / "run.json").is_file() else usable_run_name(file.stem)
