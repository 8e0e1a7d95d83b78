"""The lines of `metrics.jsonl`, read back; a damaged one is left out."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slotbench.errors import FileError
from slotbench.files import number, open_regular, parse_json
from slotbench.text import printable

__all__ = ["is_validation", "read_rows"]

_LONGEST_LINE = 16 << 20

_warned: set[str] = set()


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Every line of a `metrics.jsonl`, non-finite values as floats again; a torn last line is left out.

    A line that is damaged is left out too, with a warning on stderr that names it, once per process.

    Raises:
        FileError: the file is there and cannot be read.
    """
    if not path.exists():
        return []
    rows = []
    with open_regular(path) as file:
        try:
            for count, line in enumerate(iter(lambda: file.readline(_LONGEST_LINE), b""), 1):
                if not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
                    break  # torn
                if not line.strip():
                    continue
                try:
                    rows.append(_row(line, f"{path}, line {count},"))
                except FileError as error:
                    _warn_once(f"{error}; the line is left out")
        except OSError as error:
            raise FileError(f"{path} cannot be read: {error.strerror or error}") from error
    return rows


def is_validation(row: Mapping[str, Any]) -> bool:
    """Whether a line holds scores of a validation and nothing else."""
    named = [key for key in row if key not in ("step", "epoch", "seconds")]
    return bool(named) and all(key.startswith("val/") for key in named)


def _row(line: bytes, where: str) -> dict[str, Any]:
    """One line of the metrics.

    Raises:
        FileError: it is not an object with a step.
    """
    found = parse_json(line, where)
    if not isinstance(found, dict):
        raise FileError(f"{where} is not an object of values")
    if not isinstance(found.get("step"), int):
        raise FileError(f"{where} has no step")
    return {key: number(value) for key, value in found.items()}


def _warn_once(message: str) -> None:
    if message not in _warned:
        _warned.add(message)
        print(printable(f"warning: {message}"), file=sys.stderr)
