"""Records: JSON files of known entries, checked against a type; what does not fit is named in one sentence.

The type is a `TypedDict` where entries that it does not name must stay (those of other versions, of plugins, of third
parties), or a dataclass of which only the named entries are of use. msgspec does the checking: beside what slotbench
imports anyway it takes 7 ms to import, and 0.6 MB on disk (pydantic: 52 ms and 9.2 MB).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Required, TypeVar, cast, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

from slotbench.errors import FileError
from slotbench.files import RECORD_LIMIT, read_json

__all__ = ["Amount", "Whole", "as_record", "numbers", "read_record", "real", "valid_part"]

_MOST = 2**53
"""Every smaller whole number is exact as a double."""

Whole = Annotated[int, msgspec.Meta(ge=0, lt=_MOST)]
"""A count, such as of steps or parameters."""

Amount = Annotated[float, msgspec.Meta(ge=0, lt=_MOST)]
"""A duration in seconds."""

_MOST_NUMBERS = 20_000
_LONGEST = 40
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}

T = TypeVar("T")


def read_record(
    path: str | Path,
    kind: type[T],
    *,
    advice: str = "",
    raising: type[FileError] = FileError,
    limit: int = RECORD_LIMIT,
) -> T:
    """The record in a JSON file.

    Args:
        path: the file.
        kind: what it holds, a `TypedDict` or a dataclass.
        advice: what to do about a file that is not as it should be, as the end of the sentence.
        raising: the error to raise.
        limit: bytes that the file may have.

    Raises:
        FileError: or `raising`: it is missing, larger than the limit, no JSON, nested too deeply, or an entry is not of
            its type.
    """
    try:
        return as_record(read_json(path, limit), kind, path)
    except FileError as error:
        raise raising(f"{error}; {advice}" if advice else str(error)) from error


def as_record(value: Any, kind: type[T], where: str | Path) -> T:
    """JSON's values as a record.

    Args:
        value: what was read.
        kind: what it should be.
        where: it was read from, for messages.

    Raises:
        FileError: an entry is missing or not of its type.
    """
    try:
        return cast(T, _checked(value, kind))
    except msgspec.ValidationError as error:
        raise FileError(f"{where} {_problem(value, kind)}") from error


def valid_part(value: Any, kind: type[T], where: str | Path = "the record") -> T:
    """JSON's values as a record without what is not of its type: entries, and members of lists and of mappings.

    Args:
        value: what was read.
        kind: what it should be.
        where: it was read from, for messages.

    Raises:
        FileError: it is no object, or an entry without which it is none of its kind is missing or not of its type.
    """
    try:
        return cast(T, _valid_part(value, kind))
    except msgspec.ValidationError as error:
        raise FileError(f"{where} {_problem(value, kind)}") from error


def real(value: Any) -> float | None:
    """A logged value as a float, non-finite ones from their words; None for what is no number."""
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and value not in ("NaN", "Infinity", "-Infinity"):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer beyond every float
        return None


def numbers(values: Any) -> dict[str, float]:
    """The numbers of a mapping, by name; the first 20,000."""
    if not isinstance(values, Mapping):
        return {}
    read = {str(name): real(value) for name, value in list(values.items())[:_MOST_NUMBERS]}
    return {name: value for name, value in read.items() if value is not None}


def _checked(value: Any, kind: Any) -> Any:
    converted = msgspec.convert(value, kind)
    # a TypedDict would lose the entries that it does not name
    return converted if dataclasses.is_dataclass(kind) else value


def _valid_part(value: Any, kind: Any) -> Any:
    try:
        return _checked(value, kind)
    except msgspec.ValidationError:
        members = _members(value, kind)
        if members is None:
            raise
        kept = {name: part for name, item, member in members for part in _kept(item, member)}
        return _checked(list(kept.values()) if isinstance(value, list) else kept, kind)


def _kept(value: Any, kind: Any) -> list[Any]:
    """What is valid of a value, in a list; empty if nothing is."""
    with contextlib.suppress(msgspec.ValidationError):
        return [_valid_part(value, kind)]
    return []


def _members(value: Any, kind: Any) -> list[tuple[Any, Any, Any]] | None:
    """Name or index, value and type of each member of a record, a list or a mapping; None of anything else."""
    kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    member = get_args(kind)[-1:]
    if get_origin(kind) is list and isinstance(value, list):
        return [(index, item, member[0]) for index, item in enumerate(value)]
    if get_origin(kind) is dict and isinstance(value, dict):
        return [(name, item, member[0]) for name, item in value.items()]
    if (is_typeddict(kind) or dataclasses.is_dataclass(kind)) and isinstance(value, dict):
        entries = _entries(cast(Any, kind))
        return [(name, item, entries.get(name, Any)) for name, item in value.items()]
    return None


@functools.cache
def _entries(kind: type) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {name: get_args(hint)[0] if get_origin(hint) is Required else hint for name, hint in hints.items()}


def _problem(value: Any, kind: Any, place: str = "") -> str:
    """What is wrong with a value, as the end of a sentence that begins with where it was read from."""
    for name, item, member in _members(value, kind) or ():
        try:
            msgspec.convert(item, member)
        except msgspec.ValidationError:
            inner = f"{place}[{name}]" if isinstance(name, int) else f"{place}.{name}".lstrip(".")
            return _problem(item, member, inner)
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return _sentence(str(error), value, place[-2 * _LONGEST :])
    return "is damaged"


def _sentence(message: str, value: Any, place: str) -> str:
    """A message of msgspec's about the value at a place, in words."""
    its = f"its {place!r}" if place else "it"
    words = re.sub(r"`([\w| ]+)`", lambda match: " or ".join(_WORDS.get(w, w) for w in match[1].split(" | ")), message)
    expected, _, got = words.removeprefix("Expected ").partition(", got ")
    found = "" if isinstance(value, dict | list) else repr(value[:_LONGEST] if isinstance(value, str) else value)[:60]
    if lacks := re.fullmatch(r"Object missing required field `(\w+)`", message):
        return f"is damaged: {its} has no {lacks[1]!r}"
    if " - at `key`" in message:
        return f"is damaged: a name in {its} is none that there can be"
    if message.startswith("Invalid enum value"):
        return f"is not of this version: {its} is {found}, which it does not know"
    if message.startswith("Expected ") and place:
        return f"is damaged: {its} is {found or got or 'of another length'}; expected {expected}"
    if message.startswith("Expected "):
        return f"holds {got or 'something else'}; expected {expected.replace('an object', 'a JSON object')}"
    return f"is damaged: {f'{its}: ' if place else ''}{words[:200]}"
