"""What the readers of data sets share about files: one error for those that are not as they should be."""

from __future__ import annotations

from slotbench.errors import FileError
from slotbench.files import cache_home, write_atomically

__all__ = ["DataFilesError", "cache_home", "write_atomically"]


class DataFilesError(FileError):
    """The files of a data set are missing, incomplete, or not in the form that was expected."""
