"""Opening of a grid for the actions of `slotbench grid`: its file, folder, points and options."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from slotbench.config.options import RunOptions, split_options
from slotbench.config.policy import check_plugins, plugin_records
from slotbench.config.settings import command_line_settings
from slotbench.config.written_paths import check_untyped_settings
from slotbench.errors import UserError, did_you_mean, lines, listing
from slotbench.grids.axes import take_axes, with_axes
from slotbench.grids.expansion import Grid, expand
from slotbench.grids.grid_file import Alternative, GridFile, check_key, read_grid_file
from slotbench.grids.grid_folder import GridFolder
from slotbench.grids.protocol import choices, protocol_record, staged
from slotbench.grids.values import is_possible, parse
from slotbench.runs.grid_record import GridRecord
from slotbench.runs.run_info import PluginEntry

__all__ = ["OpenGrid", "open_grid", "text"]


@dataclass(frozen=True)
class OpenGrid:
    """A grid and where it is run.

    Attributes:
        grid: expanded.
        folder: its folder, there already or not.
        options: of `fit`, for every point, that are no settings.
        threads: of every point; None for the default.
        remembered: settings taken over from the last `grid run`, as typed; empty if there are none.
        plugins: the plugin files among the options, by path and hash.
    """

    grid: Grid
    folder: GridFolder
    options: tuple[str, ...]
    threads: int | None
    remembered: str
    plugins: tuple[PluginEntry, ...] = ()

    @property
    def changes(self) -> tuple[str, ...]:
        """Settings for all points, and changes of the axes, as typed."""
        return (*self.grid.extra, *_axis_words(self.grid.axes))

    @property
    def typed_each_time(self) -> tuple[str, ...]:
        """Options that have to be typed each time: plugin files and allowed imports."""
        pairs = zip(self.options[::2], self.options[1::2], strict=True)
        return tuple(word for pair in pairs if pair[0] in ("--plugin", "--allow-import") for word in pair)

    def restaged(self) -> OpenGrid:
        """The grid with the points that follow from finished ones."""
        return replace(self, grid=staged(self.grid, self.folder))

    def write(self) -> None:
        """Writes the grid's description, and the choices of its protocol, to its folder."""
        record = protocol_record(self.grid, choices(self.grid, self.folder))
        self.folder.write(self.grid, self.options, self.plugins, record)


def open_grid(action: str, arguments: Sequence[str], *, remember: bool = True) -> OpenGrid:
    """The grid that the arguments name: a grid file, or the folder of a grid.

    Args:
        action: of `slotbench grid`, for messages.
        arguments: FILE or DIR, options of `fit`, settings for all points, and changes of the axes.
        remember: without settings or options, take those that the grid was last run with.

    Raises:
        UserError: there is no such grid, or it cannot be expanded.
    """
    if not arguments or arguments[0].startswith("-"):
        example = f"slotbench grid {action} experiments/grids/bouncing_balls_slots.yaml"
        raise UserError(lines(f"grid {action} needs a grid file", example=example))
    arguments, axes = take_axes(arguments)
    options, settings = split_options(list(arguments[1:]))
    for name in ("run_dir", "resume", "allow_changes"):
        if getattr(options, name):
            option = name.replace("allow_", "allow-")
            raise UserError(f"grid {action} takes no --{option}: each point has a folder of its own")
    given = Path(arguments[0])
    record: GridRecord = {}
    if given.is_dir():
        folder = GridFolder(given)
        record = folder.record()
        if not record:
            raise UserError(
                lines(f"{given} is not the folder of a grid: it has no grid.json", expected="a grid file, or RUNS/NAME")
            )
        file = Path(record.get("file", ""))
        if not os.path.isfile(file):
            raise UserError(lines(f"the grid file of {given} is not there any more", expected=str(file)))
        content = read_grid_file(file)
    else:
        file = given
        _check_suffix(file)
        content = read_grid_file(file)
        folder = GridFolder(options.runs_dir / (options.name or content.folder))
        record = folder.record() if remember else {}
    flags = tuple(_fit_options(options))
    remembered = ""
    _check_untyped(content, file)
    if remember and not settings and not axes and (record.get("extra") or record.get("axes")):
        settings, axes = list(record.get("extra", ())), list(record.get("axes", ()))
        remembered = text([*settings, *_axis_words(axes)])
        check_untyped_settings(_settings(settings), folder.path / "grid.json")
        _check_untyped(with_axes(content, axes), folder.path / "grid.json")
    if remember:
        before = split_options(list(record.get("options", ())))[0]
        if action != "status":
            _check_typed_again(before, options, folder, f"slotbench grid {action} {text(arguments[:1])}")
        flags = flags or tuple(_fit_options(replace(before, plugin=[], allow_import=[])))
    grid = replace(expand(with_axes(content, axes), folder.name, _settings(settings)), axes=tuple(axes))
    plugins = tuple(plugin_records(options.plugin))
    return OpenGrid(staged(grid, folder), folder, flags, options.threads, remembered, plugins)


def _check_untyped(content: GridFile, file: Path) -> None:
    """Refuses settings of a file that only a command line may give, for all points."""
    for settings in (content.settings, *(entry.settings for entry in content.list)):
        check_untyped_settings(settings, file)
    chosen = {content.protocol.key: content.protocol.values} if content.protocol else {}
    for axes in (content.product, content.zip, chosen):
        for key, values in axes.items():
            for value in values:
                check_untyped_settings(value.settings if isinstance(value, Alternative) else {key: value}, file)


def _axis_words(axes: Sequence[str]) -> list[str]:
    return [word for axis in axes for word in ("--axis", axis)]


def _check_typed_again(before: RunOptions, options: RunOptions, folder: GridFolder, command: str) -> None:
    """Refuses to take over options that run code from a folder, which may be a third party's.

    Raises:
        UserError: the grid was run with a plugin file, or an import path, that is not typed this time.
    """
    recorded = folder.record().get("plugins") or [PluginEntry(path=str(file)) for file in before.plugin]
    check_plugins(recorded, options.plugin, folder.path, command)
    for prefix in before.allow_import:
        if prefix not in options.allow_import:
            raise UserError(
                lines(
                    f"{folder.path} was last run with --allow-import {prefix}, and that is not taken from a folder",
                    expected=f"{command} --allow-import {prefix}  (only if you trust what it runs)",
                )
            )


def text(arguments: Sequence[str]) -> str:
    """Arguments as one types them."""
    return shlex.join(arguments)


def _check_suffix(file: Path) -> None:
    if not file.exists():
        there = [str(path) for path in file.parent.glob("*.y*ml")] if file.parent.is_dir() else []
        raise UserError(
            lines(
                f"no grid file {file}{did_you_mean(str(file), there)}",
                there=listing(sorted(there), 8) if there else None,
            )
        )


def _settings(arguments: Sequence[str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for setting in command_line_settings(list(arguments)):
        if not setting.key:
            raise UserError(
                lines(f"{setting.text} stands alone", expected="settings for all points, such as --trainer.max_steps 2")
            )
        key = ".".join(setting.key)
        check_key(key, "the command line")
        if setting.value is None:
            raise UserError(lines(f"{setting.text} needs a value", example=f"{setting.text} VALUE"))
        if key == "config" and not Path(setting.value).is_file():
            raise UserError(f"no file {setting.value} (given as {setting.text})")
        try:
            value = parse(setting.value)
        except yaml.YAMLError:
            value = setting.value
        as_typed = isinstance(value, str) or not setting.value or not is_possible(value)
        out[key] = setting.value if as_typed else value
    return out


def _fit_options(options: RunOptions) -> list[str]:
    """The options of `fit` that hold for every point, as typed."""
    out: list[str] = []
    if options.group is not None:
        out += ["--group", options.group]
    if options.compile is not None:
        out += ["--compile", options.compile]
    if options.wandb is not None:
        out += ["--wandb", options.wandb]
    if options.wandb_project is not None:
        out += ["--wandb_project", options.wandb_project]
    if options.wandb_entity is not None:
        out += ["--wandb_entity", options.wandb_entity]
    if options.wandb_tags:
        out += ["--wandb_tags", ",".join(options.wandb_tags)]
    if options.wandb_notes is not None:
        out += ["--wandb_notes", options.wandb_notes]
    if options.wandb_artifacts:
        out += ["--wandb_artifacts"]
    for file in options.plugin:
        out += ["--plugin", str(file)]
    for prefix in options.allow_import:
        out += ["--allow-import", prefix]
    return out
