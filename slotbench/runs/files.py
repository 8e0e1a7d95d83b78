"""Files that are whole at any moment, and strict JSON."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slotbench.files import fsync_folder, write_atomically

__all__ = ["append_whole_line", "cut_torn_line", "dump_json", "fsync_folder", "number", "plain", "write_atomically"]


def dump_json(value: Any, indent: int | None = None) -> str:
    """Strict JSON: non-finite floats become strings that `float` reads back, other objects become their text."""
    return json.dumps(plain(value), indent=indent, allow_nan=False)


def plain(value: Any) -> Any:
    """`value` as what strict JSON can hold."""
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, float) or hasattr(value, "__float__"):
        real = float(value)
        if math.isfinite(real):
            return real
        return "NaN" if math.isnan(real) else ("Infinity" if real > 0 else "-Infinity")
    return str(value)


def number(value: Any) -> Any:
    """What `plain` made of a number, as the number again."""
    return float(value) if value in ("NaN", "Infinity", "-Infinity") else value


def cut_torn_line(path: Path) -> None:
    """Removes what a killed writer left after the last newline, so that the next line starts on its own."""
    if not path.exists():
        return
    with open(path, "rb+") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)


def append_whole_line(path: Path, line: str) -> None:
    """Adds a line and hands it to the operating system at once.

    Raises:
        OSError: it could not be written whole; what was written of it is taken back.
    """
    data = (line + "\n").encode()
    # unbuffered and in append mode: one line is one write
    with open(path, "ab", buffering=0) as file:
        before = file.tell()
        written = file.write(data)
        if written != len(data):
            # a disk that fills up takes a part and says so only at the next write
            file.truncate(before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
