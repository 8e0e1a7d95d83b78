"""Annotations of videos in JSON files, one sentence for each way in which they are not what a reader expects."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from slotbench.errors import DataFilesError
from slotbench.files import RECORD_LIMIT, read_json_object

__all__ = ["read_annotations"]

Annotation = TypeVar("Annotation")


def read_annotations(
    path: Path,
    parse: Callable[[dict[str, Any]], Annotation],
    what: str,
    option: str,
    layout: str,
    limit: int = RECORD_LIMIT,
) -> Annotation:
    """The annotations that `parse` finds in a JSON file.

    Args:
        path: the file.
        parse: makes the annotations of the file's object, and may fail with any error of Python's on unknown content.
        what: the file in words, such as "scene of CATER".
        option: the argument of the data set that, if false, does without the file.
        layout: what the file is expected to hold, in words.
        limit: bytes that the file may have.

    Raises:
        DataFilesError: the file is missing, damaged, or not what is expected.
    """
    if not path.is_file():
        raise DataFilesError(f"there is no {what} {path}; give {option}: false to do without")
    content = read_json_object(path, limit)
    try:
        return parse(content)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError) as error:
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise DataFilesError(f"{path} is no {what} ({reason}); {layout}") from error
