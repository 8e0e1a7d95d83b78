"""The checkpoints of a run: which of them a run can be resumed from, and reading one that may be damaged."""

from __future__ import annotations

import os
import pickle
import shutil
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slotbench.errors import FileError
from slotbench.io import open_file

__all__ = [
    "BEST",
    "LAST",
    "PREVIOUS",
    "GoodCheckpoint",
    "find_good",
    "link",
    "load_checkpoint",
    "remove_partial",
    "verify_checkpoint",
]

LAST, PREVIOUS, BEST = "last.ckpt", "previous.ckpt", "best.ckpt"

_NEEDED = ("state_dict", "loops", "optimizer_states", "lr_schedulers", "callbacks", "global_step")


@dataclass(frozen=True)
class GoodCheckpoint:
    """A checkpoint that a training can be resumed from.

    Attributes:
        path: the file.
        step: optimiser steps done by then.
        best_step: that of the checkpoint that had scored best by then, if one was scored.
        validated_step: that of the last validation by then, if there was one.
    """

    path: Path
    step: int
    best_step: int | None = None
    validated_step: int | None = None


def verify_checkpoint(path: Path) -> None:
    """Compares a checkpoint with the checksums inside the file, which torch does not look at.

    Raises:
        FileError: it is not there, cut off, or damaged.
    """
    with open_file(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                broken = archive.testzip()
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError) as error:
            raise FileError(f"{path} is no checkpoint, or cut off: {error}") from error
    if broken is not None:
        raise FileError(f"{path} is damaged: the checksum of {broken} in it is wrong")


def load_checkpoint(path: Path) -> dict[str, Any]:
    """What a checkpoint holds, as plain tensors and numbers on the CPU, once it has been verified.

    Nothing in it can run code.

    Raises:
        FileError: see `verify_checkpoint`; or it holds something else than plain values.
    """
    import torch

    verify_checkpoint(path)
    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError, ValueError, TypeError, AttributeError) as error:
        # the first line of torch's answer, which is a page long
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        way = "; only --weights_only false on the command line would read it, and run what is in it"
        code = isinstance(error, pickle.UnpicklingError) and "GLOBAL" in str(error)
        raise FileError(f"{path} cannot be read as plain tensors ({reason}){way * code}") from error
    if not isinstance(content, dict):
        raise FileError(f"{path} is no checkpoint: it holds no table of names")
    return content


def find_good(folder: Path) -> tuple[GoodCheckpoint | None, list[str]]:
    """The newest checkpoint of a folder that is whole, and what is wrong with those that had to be passed over.

    `last.ckpt` if it is good; else the later of `previous.ckpt` and `best.ckpt`. A file is good if its checksums are
    right and if it reads as plain tensors and numbers, so that one from a third party cannot run code.

    Args:
        folder: `RUN/checkpoints`.

    Returns:
        The checkpoint, or None if there is none that is good; a sentence for each that is not.
    """
    problems: list[str] = []
    good: list[GoodCheckpoint] = []
    for name in (LAST, PREVIOUS, BEST):
        path = folder / name
        if not path.is_file():
            continue
        try:
            good.append(_good(path))
        except FileError as error:
            problems.append(f"{path} is no good: {str(error).replace(str(path), 'it', 1)}")
            continue
        if name == LAST:
            break
    return max(good, key=lambda checkpoint: checkpoint.step, default=None), problems


def link(source: Path, target: Path) -> None:
    """Makes `target` the same file as `source` in one step; a copy where the file system has no hard links."""
    partial = target.with_name(f".{target.name}.partial")
    partial.unlink(missing_ok=True)
    try:
        os.link(source, partial)
    except OSError:
        shutil.copyfile(source, partial)
    os.replace(partial, target)
    partial.unlink(missing_ok=True)  # of two names of one file none is replaced


def remove_partial(folder: Path) -> None:
    """Removes what a process that was killed while it saved has left; the caller holds the run's lock."""
    for partial in folder.glob(".*.partial"):
        partial.unlink(missing_ok=True)


def _good(path: Path) -> GoodCheckpoint:
    """What is known of a checkpoint, once all of it has been read.

    Raises:
        FileError: it is not whole, or not what a training can be resumed from.
    """
    content = load_checkpoint(path)
    absent = [key for key in _NEEDED if key not in content]
    if absent:
        raise FileError(f"{path} lacks {', '.join(absent)}")
    callbacks = content["callbacks"] if isinstance(content["callbacks"], dict) else {}
    return GoodCheckpoint(
        path,
        int(content["global_step"]),
        _step_in(callbacks.get("RunCheckpoint"), "best_step"),
        _step_in(callbacks.get("RunRecord"), "metrics_step"),
    )


def _step_in(state: Any, name: str) -> int | None:
    step = state.get(name) if isinstance(state, dict) else None
    return step if isinstance(step, int) else None
