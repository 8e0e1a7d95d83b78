"""Changes of a grid's axes on the command line: values added to an axis, or replacing its own."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from slotbench.errors import UserError, did_you_mean, lines, listing
from slotbench.grids.expansion import short_keys
from slotbench.grids.grid_file import CONFIG, Alternative, GridFile, check_key
from slotbench.grids.values import as_label, canonical, is_possible, parse

__all__ = ["take_axes", "with_axes"]

_PARTS = ("encoder", "core", "decoder")
_FORM = "--axis KEY+=VALUE to add a value, --axis KEY=VALUE,VALUE in place of those of the file"


def take_axes(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Takes `--axis WORD` and `--axis=WORD` out of the arguments: (the others, the words).

    Raises:
        UserError: a word is missing.
    """
    rest: list[str] = []
    words: list[str] = []
    given = iter(arguments)
    for argument in given:
        if argument == "--axis":
            word = next(given, None)
            if word is None or word.startswith("--"):
                raise UserError(lines("--axis needs a value", expected=_FORM))
            words.append(word)
        elif argument.startswith("--axis="):
            words.append(argument.removeprefix("--axis="))
        else:
            rest.append(argument)
    return rest, words


def with_axes(file: GridFile, words: Sequence[str]) -> GridFile:
    """The grid file with its axes changed.

    A part's name on a grid whose axis is `config` is a value of that axis: `core+=MyCore` lays `model.core: MyCore`
    over the base, in the place of a file.

    Args:
        file: as it is written.
        words: `KEY=VALUE,...`, in place of the values of the file, or `KEY+=VALUE,...`, beside them.

    Raises:
        UserError: a word is no such change, or the grid has no such axis.
    """
    for word in words:
        matched = re.fullmatch(r"([A-Za-z_][\w.]*)(\+?)=(.+)", word, re.DOTALL)
        if matched is None:
            raise UserError(lines(f"--axis {word} is no change of an axis", expected=_FORM))
        name, adds, text = matched.groups()
        key, values = _place(file, name, _values(word, text))
        if key in file.product:
            axes = {**file.product, key: _changed(file.product[key], values, bool(adds))}
            file = replace(file, product=axes)
        else:
            added = tuple(value for value in values if isinstance(value, Alternative))
            file = replace(file, list=(*(file.list if adds else ()), *added))
    return file


def _values(word: str, text: str) -> list[Any]:
    try:
        values = parse(f"[{text}]")
    except yaml.YAMLError as error:
        raise UserError(lines(f"--axis {word} is no list of values", expected=_FORM)) from error
    if not isinstance(values, list) or not values or not all(map(is_possible, values)):
        raise UserError(lines(f"--axis {word} is no list of values", expected=_FORM))
    return values


def _place(file: GridFile, name: str, values: list[Any]) -> tuple[str, list[Any]]:
    """The axis of a change, and its values as the axis holds them."""
    listed = list(dict.fromkeys(key for entry in file.list for key in entry.settings))
    short = {end: key for key, end in short_keys([*file.product, *listed]).items()}
    plain = ".".join(part for part in name.split(".") if part not in ("class_path", "init_args"))
    whole = f"model.{name}" if name in _PARTS else plain
    for key in (short.get(name), whole, name):
        if key == CONFIG and CONFIG in file.product:
            # relative to where we are, as everything that is typed
            return CONFIG, [_file(file, value) for value in values]
        if key in file.product:
            return str(key), values
        if key in listed:
            return str(key), [Alternative({str(key): value}, as_label(value)) for value in values]
    if whole in file.zip or name in file.zip:
        raise UserError(f"--axis {name}: {file.path} varies {whole} together with other settings; add to its file")
    if CONFIG in file.product and whole.removeprefix("model.") in _PARTS:
        return CONFIG, [Alternative({check_key(whole, "--axis"): value}, as_label(value)) for value in values]
    axes = [*file.product, *listed]
    raise UserError(
        lines(f"--axis {name}: {file.path} has no such axis{did_you_mean(name, [*short, *axes])}", axes=listing(axes))
    )


def _file(file: GridFile, value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not os.path.isfile(value):
        raise UserError(lines(f"--axis config: no file {as_label(value)}", expected="a YAML file, relative to here"))
    # relative to the grid file, so that a point is the same from wherever it is typed
    return os.path.relpath(Path(value).resolve(), file.path.parent.resolve())


def _changed(before: Sequence[Any], values: Sequence[Any], adds: bool) -> list[Any]:
    known = {_text(value) for value in before} if adds else set()
    return [*(before if adds else ()), *(value for value in values if _text(value) not in known)]


def _text(value: Any) -> str:
    settings: Mapping[str, Any] | Any = value.settings if isinstance(value, Alternative) else value
    return canonical(settings)
