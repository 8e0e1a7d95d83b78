"""Annotations of videos in JSON files, one sentence for whatever makes them other than a reader expects."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from slotbench.errors import DataFilesError
from slotbench.io import read_json_object

__all__ = ["read_annotations"]

Annotation = TypeVar("Annotation")


def read_annotations(path: Path, parse: Callable[[dict[str, Any]], Annotation], option: str, layout: str) -> Annotation:
    """The annotations that `parse` finds in a JSON file."""
    if not path.is_file():
        raise DataFilesError(f"there is no file {path}; give {option}: false to do without")
    try:
        return parse(read_json_object(path))
    except (KeyError, TypeError, ValueError, IndexError, ArithmeticError, AttributeError) as error:
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise DataFilesError(f"{path} is no such annotation ({reason}); {layout}") from error
