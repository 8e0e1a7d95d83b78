"""What the readers share about files: one error for files that are not as they should be, and writing in one step."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["DataFilesError", "cache_home", "write_atomically"]


class DataFilesError(ValueError):
    """The files of a data set are missing, incomplete, or not in the form that was expected."""


def cache_home() -> Path:
    """The user's folder for what can be made again."""
    if named := os.environ.get("SLOTBENCH_CACHE"):
        return Path(named).expanduser()
    general = os.environ.get("XDG_CACHE_HOME")
    return (Path(general) if general else Path.home() / ".cache") / "slotbench"


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file that other processes see either as it was or complete, even if this one is killed."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
