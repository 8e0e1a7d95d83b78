"""The checkpoints of a run, and which of them is good to go on from."""

from __future__ import annotations

import pickle
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["BEST", "LAST", "PREVIOUS", "GoodCheckpoint", "find_good", "remove_partial"]

LAST, PREVIOUS, BEST = "last.ckpt", "previous.ckpt", "best.ckpt"

_NEEDED = ("state_dict", "loops", "optimizer_states", "lr_schedulers", "callbacks", "global_step")


@dataclass(frozen=True)
class GoodCheckpoint:
    """A checkpoint that training can go on from.

    Attributes:
        path: the file.
        step: optimiser steps done by then.
    """

    path: Path
    step: int


def find_good(folder: Path) -> tuple[GoodCheckpoint | None, list[str]]:
    """The newest checkpoint of a folder that is whole, and what is wrong with those that had to be passed over.

    `last.ckpt` if it is good; else the later of `previous.ckpt` and `best.ckpt`. A file is good if its checksums are
    right and if it reads as plain tensors and numbers, so that one from a stranger cannot run code.

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
            good.append(GoodCheckpoint(path, _step(path)))
        except (ValueError, OSError) as error:
            problems.append(f"{path} is no good: {error}")
            continue
        if name == LAST:
            break
    return max(good, key=lambda checkpoint: checkpoint.step, default=None), problems


def remove_partial(folder: Path) -> None:
    """Removes what a process that was killed while it saved has left."""
    for path in folder.glob(".*.partial"):
        path.unlink(missing_ok=True)


def _step(path: Path) -> int:
    """The step that a checkpoint was saved at, once all of it has been read.

    Raises:
        ValueError: it is not whole, or not what training can go on from.
    """
    import torch

    try:
        with zipfile.ZipFile(path) as archive:
            # torch does not look at the checksums
            broken = archive.testzip()
    except (zipfile.BadZipFile, EOFError, RuntimeError) as error:
        raise ValueError(f"it is cut off or overwritten ({error})") from error
    if broken is not None:
        raise ValueError(f"the checksum of {broken} in it is wrong")
    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError(f"it cannot be read as plain tensors ({str(error).strip().partition(chr(10))[0]})") from error
    absent = [key for key in _NEEDED if key not in content] if isinstance(content, dict) else list(_NEEDED)
    if absent:
        raise ValueError(f"it lacks {', '.join(absent)}")
    return int(content["global_step"])
