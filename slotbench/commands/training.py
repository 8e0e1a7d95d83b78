"""`slotbench fit | validate | test | predict`: LightningCLI over the registry, recorded in a run folder."""

from __future__ import annotations

import inspect
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from slotbench import registry
from slotbench.commands.checkpoint_choice import expand_checkpoint
from slotbench.commands.early import refuse_early
from slotbench.commands.options import RunOptions, split_options, usage
from slotbench.commands.recorded_plugins import check_run_plugins
from slotbench.commands.settings import (
    Setting,
    command_line_settings,
    config_files,
    load_named,
    read_settings,
    without_replaced,
)
from slotbench.errors import UserError, lines, wrapped

if TYPE_CHECKING:
    from slotbench.runs.folder import RunFolder

__all__ = ["main", "prepare"]


def main(command: str, arguments: list[str]) -> int:
    """Runs one of the four commands."""
    if arguments in (["-h"], ["--help"]):
        print(usage(command))
        return 0
    if not arguments:
        raise UserError(lines(f"{command} needs an experiment", example=_example(command)))
    if "--help-all" in arguments:
        arguments = ["--help"]
    arguments, run = _expand_run(command, arguments)
    options, arguments = split_options(arguments)
    if command == "fit":
        if options.checkpoint is not None:
            raise UserError(_no_checkpoint_to_fit(options.checkpoint))
        arguments = _expand_resume(options, arguments)
    elif options.resume or options.run_dir:
        raise UserError(f"{command} takes neither --resume nor --run_dir: it evaluates the run that it is given")
    else:
        arguments = expand_checkpoint(command, run, options, arguments)
    if options.save and (command != "predict" or run is None):
        what = "a run" if command == "predict" else f"predict, and this is {command}"
        raise UserError(lines(f"--save is for {what}", example="slotbench predict runs/NAME/ID --save slots,masks"))
    if command == "fit":
        _check_place(options)
    settings = _read(command, options, arguments, run.path if run else options.resume or options.run_dir)
    if run is not None:
        resolution = _resolution_of(run.path, settings)
        arguments, settings = [*arguments, *resolution], [*settings, *command_line_settings(resolution)]
    arguments, replaced = without_replaced(arguments)
    if replaced:
        print(_replaced(replaced, config_files(arguments)[0]), file=sys.stderr)
    if options.name is None:
        options.name = _name_of(config_files(arguments))
    if command == "fit":
        _check_wandb(options.wandb)
    # everything above answers before torch is imported
    from slotbench.commands import lightning_cli

    return lightning_cli.train(command, arguments, settings, options, run.path if run is not None else None)


def _no_checkpoint_to_fit(given: str) -> str:
    return lines(
        f"fit takes no --checkpoint, and {given} is given",
        **{
            "to go on": "slotbench fit --resume RUN, from its newest good checkpoint",
            "to start from weights": "--model.init_from RUN or FILE",
        },
    )


def _check_place(options: RunOptions) -> None:
    """Finds out before anything is imported whether there can be a run folder where it is to be."""
    from slotbench.runs.folder import check_run_name
    from slotbench.writable import check_writable

    if options.name is not None and options.resume is None:
        check_run_name(options.name)
    if options.resume is not None:
        check_writable(options.resume, "make room, or go on with a copy of the run elsewhere")
    elif options.run_dir is not None:
        check_writable(options.run_dir, "give another place with --run_dir DIR")
    else:
        check_writable(options.runs_dir, "give another place with --runs_dir DIR")


def _check_wandb(mode: str | None) -> None:
    """Finds out before anything is trained whether W&B can be reached as asked."""
    if mode != "online":
        return
    from slotbench.runs.wandb_login import WandbLoginError, check_wandb_login

    try:
        check_wandb_login(mode)
    except WandbLoginError as error:
        raise UserError(str(error)) from error


def prepare(arguments: list[str]) -> tuple[RunOptions, list[str], list[Setting]]:
    """Takes the run's options out of the arguments, imports the components named, and returns what is left to parse."""
    options, arguments = split_options(arguments)
    return options, arguments, _read("fit", options, arguments)


def _read(command: str, options: RunOptions, arguments: list[str], run: Path | None = None) -> list[Setting]:
    settings = read_settings(arguments)
    _refuse_grid(arguments, settings)
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


def _refuse_grid(arguments: list[str], settings: list[Setting]) -> None:
    """A grid file has keys of its own, which the parser would refuse one by one."""
    from slotbench.grids.grid_file import is_grid

    if not any(setting.key[:1] == ("base",) for setting in settings):
        return
    for path in config_files(arguments):
        if is_grid(path):
            raise UserError(
                lines(
                    f"{path} is a grid, not an experiment",
                    **{"to run its points": f"slotbench grid run {path}", "to see them": f"slotbench grid show {path}"},
                )
            )


def _expand_resume(options: RunOptions, arguments: list[str]) -> list[str]:
    """`--resume RUN` stands for the run's configuration, and for what else it was started with."""
    if options.resume is None:
        return arguments
    from slotbench.runs.folder import RunFolder, RunFolderError

    try:
        folder = RunFolder.open(options.resume)
    except RunFolderError as error:
        raise UserError(str(error)) from error
    config = folder.path / "config.yaml"
    if not config.is_file():
        raise UserError(
            f"{folder.path} has no config.yaml: it was killed before it began; start it again with --config"
        )
    options.name = options.name or folder.info.get("name")
    # before the user's own settings, which may say otherwise
    return ["--config", str(config), *arguments]


def _expand_run(command: str, arguments: list[str]) -> tuple[list[str], RunFolder | None]:
    """`RUN ...` stands for the run's configuration."""
    if command == "fit" or arguments[0].startswith("-"):
        return arguments, None
    from slotbench.runs.folder import RunFolder, RunFolderError

    try:
        folder = RunFolder.open(arguments[0])
    except RunFolderError as error:
        raise UserError(str(error)) from error
    # before the user's own arguments, which may say otherwise
    return ["--config", str(folder.path / "config.yaml"), *arguments[1:]], folder


def _resolution_of(run: Path, settings: list[Setting]) -> list[str]:
    """Another data set shows a run its frames at the resolution of the training, unless the user says otherwise."""
    said = {setting.key: setting.value for setting in settings if setting.on_command_line}
    name = said.get(("data",))
    if ("data", "resolution") in said or name not in registry.names("datasets"):
        return []
    own = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))["data"].get("init_args") or {}
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
    from slotbench.runs.folder import usable_run_name

    file = files[0].resolve()
    return file.parent.parent.name if (file.parent / "run.json").is_file() else usable_run_name(file.stem)


def _example(command: str) -> str:
    if command == "fit":
        return "slotbench fit --config experiments/blinking_balls.yaml"
    return f"slotbench {command} runs/NAME/ID"
