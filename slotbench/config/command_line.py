"""Command lines of fit, validate, test and predict: expands RUN, --resume and --checkpoint into settings.

What is wrong with a command, an option, a file or the name of a component is said before torch is imported.
"""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from slotbench import registry
from slotbench.config.options import RunOptions, split_options
from slotbench.config.policy import check_run_plugins
from slotbench.config.tree import Given, config_files, read_tree, typed_settings
from slotbench.errors import UserError, lines
from slotbench.io import read_text, read_yaml
from slotbench.pretrained import named_features
from slotbench.runs.checkpoint_choice import DEFAULT, OF_A_RUN, choose_checkpoint
from slotbench.runs.folder import CONFIG, RunFolder, check_run_name, usable_run_name

if TYPE_CHECKING:
    from slotbench.config.parser import Configuration

__all__ = ["read_command_line", "read_with_plugins", "resolve"]

_LIGHTNING = "ckpt_path"


def resolve(arguments: Sequence[str], run: Path | None = None) -> Configuration:
    """The configuration of `fit` with these arguments, parsed and checked; `run` is whose they are."""
    options, rest = split_options(_in_full(arguments))
    given = read_with_plugins("show", options, rest, run)
    from slotbench.config.parser import Configuration, filter_messages

    filter_messages()
    return Configuration("fit", given, options)


def read_command_line(command: str, arguments: Sequence[str]) -> tuple[Given, RunOptions, Path | None]:
    """Settings of fit, validate, test or predict, options of the run, and the run folder that is evaluated, if any.

    Raises:
        UserError: an option, a file, a run or a name is wrong, or the command does not take it.
    """
    arguments, run = _expand_run(command, _in_full(arguments))
    options, arguments = split_options(arguments)
    _check_options(command, options, run)
    if command == "fit":
        arguments = _expand_resume(options, arguments)
        if options.name is not None and options.resume is None:
            check_run_name(options.name)
    else:
        arguments = _expand_checkpoint(command, run, options, arguments)
    folder = run.path if run else options.resume or options.run_dir
    given = read_with_plugins(command, options, arguments, folder)
    if run is not None:
        _set_resolution(run.path, given)
    if options.name is None:
        options.name = _name_of(config_files(arguments))
    return given, options, run.path if run else None


def read_with_plugins(
    command: str | None, options: RunOptions, arguments: Sequence[str], run: Path | None = None
) -> Given:
    """The settings of a command line, once its plugin files are imported, and those that its run needs are there.

    `command` is for messages, None in Python; `run` is whose configuration is among the arguments, if it is a run's.
    """
    for file in options.plugin:
        registry.load_file(file)
    if run is not None and (run / CONFIG).is_file():
        way = "" if command != "fit" else "--resume " if options.resume else "--run_dir "
        text = " ".join([read_text(run / CONFIG), *arguments])
        typed = None if command is None else f"slotbench {command} {way}{shlex.quote(str(run))}"
        check_run_plugins(run, options.plugin, text, typed)
    return read_tree(arguments)


def _in_full(arguments: Sequence[str]) -> list[str]:
    """The arguments with `--seed_everything` for `--seed`, which other tools call it, and `--features` in full."""
    arguments = [re.sub(r"\A--seed(?==|\Z)", "--seed_everything", argument) for argument in arguments]
    return named_features(arguments, "--model.features")


def _check_options(command: str, options: RunOptions, run: RunFolder | None) -> None:
    """Refuses options that the command does not take."""
    if command == "fit" and options.checkpoint is not None:
        ways = {"to resume": "slotbench fit --resume RUN", "to start from weights": "--model.init_from RUN or FILE"}
        raise UserError(lines(f"fit takes no --checkpoint, and {options.checkpoint} is given", **ways))
    if command != "fit" and (options.resume or options.run_dir):
        raise UserError(f"{command} takes neither --resume nor --run_dir: it evaluates the run that it is given")
    if command != "fit" and options.wandb is not None:
        raise UserError(f"{command} takes no --wandb: a training is mirrored there, and scores are in the run's folder")
    if options.save and (command != "predict" or run is None):
        raise UserError("--save is for predict and a run: slotbench predict runs/NAME/ID --save slots,masks")


def _expand_checkpoint(command: str, run: RunFolder | None, options: RunOptions, arguments: list[str]) -> list[str]:
    """Arguments of an evaluation, with the requested checkpoint as Lightning's `--ckpt_path`."""
    settings = list(typed_settings(arguments))
    typed = [one.value for one in settings if one.key == (_LIGHTNING,)]
    rest = [word for one in settings if one.key != (_LIGHTNING,) for word in one.words]
    name = options.checkpoint or (typed[-1] if typed else None)
    if run is not None:
        return [*rest, f"--{_LIGHTNING}", str(choose_checkpoint(run, name or DEFAULT))]
    if name in OF_A_RUN:
        expected = f"slotbench {command} RUN --checkpoint {name}, or --checkpoint FILE"
        raise UserError(lines(f"{name} names a checkpoint of a run, and no run is given", expected=expected))
    return rest if name is None else [*rest, f"--{_LIGHTNING}", name]


def _expand_resume(options: RunOptions, arguments: list[str]) -> list[str]:
    """Expands `--resume RUN` into the run's configuration and name."""
    if options.resume is None:
        return arguments
    folder = RunFolder.open(options.resume)
    config = folder.path / CONFIG
    if not config.is_file():
        raise UserError(f"{folder.path} was killed before it began: start it again with --config")
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
    video = []
    if command == "predict" and arguments[1:] and not arguments[1].startswith("-"):
        if not Path(arguments[1]).exists():
            raise UserError(f"there is nothing at {arguments[1]}; expected slotbench predict RUN VIDEO, or a folder")
        video = ["--data", "VideoFolder", "--data.path", arguments[1]]
    # before the user's own arguments, which override it
    return ["--config", str(folder.path / CONFIG), *video, *arguments[2 if video else 1 :]], folder


def _set_resolution(run: Path, given: Given) -> None:
    """Sets another data set to the training's resolution unless the command line gives one."""
    name = given.typed.get("data")
    if name is None or "data.resolution" in given.typed or name not in registry.names("datasets"):
        return
    own = read_yaml(run / CONFIG)["data"].get("init_args") or {}
    if "resolution" in own and "resolution" in inspect.signature(registry.load("datasets", name)).parameters:
        given.tree["data"].setdefault("init_args", {})["resolution"] = own["resolution"]


def _name_of(files: Sequence[Path]) -> str:
    """The name of a run: that of its configuration file, or that of the run whose configuration it is."""
    if not files:
        return "run"
    file = files[0].resolve()
    return file.parent.parent.name if (file.parent / "run.json").is_file() else usable_run_name(file.stem)
