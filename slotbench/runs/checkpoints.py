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
from slotbench.io import open_atomically

__all__ = ["BEST", "LAST", "PREVIOUS", "GoodCheckpoint", "find_good", "link", "load_checkpoint"]

LAST, PREVIOUS, BEST = "last.ckpt", "previous.ckpt", "best.ckpt"

_NEEDED = ("state_dict", "loops", "optimizer_states", "lr_schedulers", "callbacks", "global_step")


@dataclass(frozen=True)
class GoodCheckpoint:
    """A checkpoint that a training can be resumed from; steps done by then, at its best and at its last validation."""

    path: Path
    step: int
    best_step: int | None = None
    validated_step: int | None = None


def load_checkpoint(path: Path) -> dict[str, Any]:
    """What a checkpoint holds, as plain tensors and numbers on the CPU. Nothing in it can run code."""
    import torch

    if not path.is_file():
        raise FileError(f"there is no file {path}")
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()  # torch looks at no checksum
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError, LookupError) as error:
        raise FileError(f"{path} is damaged or cut off: {error}") from error
    if damaged is not None:
        raise FileError(f"{path} is damaged: the checksum of {damaged} in it is wrong")
    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (
        pickle.UnpicklingError,
        RuntimeError,
        LookupError,
        ValueError,
        TypeError,
        AttributeError,
        EOFError,
    ) as error:
        # the first line of torch's answer, which is a page long
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise FileError(f"{path} cannot be read as plain tensors ({reason})") from error
    if not isinstance(content, dict):
        raise FileError(f"{path} is no checkpoint: it holds no table of names")
    return content


def find_good(folder: Path) -> tuple[GoodCheckpoint | None, dict[Path, str]]:
    """The newest checkpoint of a folder that is whole, and what is wrong with those that had to be passed over.

    `last.ckpt` of `RUN/checkpoints` if it is good; else the later of `previous.ckpt` and `best.ckpt`.
    """
    problems: dict[Path, str] = {}
    good: list[GoodCheckpoint] = []
    for path in (folder / name for name in (LAST, PREVIOUS, BEST) if (folder / name).is_file()):
        try:
            good.append(_good(path))
        except FileError as error:
            problems[path] = str(error)
        if path.name == LAST and good:
            break
    return max(good, key=lambda checkpoint: checkpoint.step, default=None), problems


def link(source: Path, target: Path) -> None:
    """Makes `target` the same file as `source` in one step; a copy where the file system has no hard links."""
    partial = target.with_name(f".{target.name}.partial")
    partial.unlink(missing_ok=True)
    try:
        os.link(source, partial)
    except OSError:
        with open(source, "rb") as content, open_atomically(target) as copy:
            shutil.copyfileobj(content, copy)
        return
    os.replace(partial, target)
    partial.unlink(missing_ok=True)  # of two names of one file none is replaced


def _good(path: Path) -> GoodCheckpoint:
    """What is known of a checkpoint, once all of it has been read."""
    content = load_checkpoint(path)
    if absent := [key for key in _NEEDED if key not in content]:
        raise FileError(f"{path} lacks {', '.join(absent)}")
    steps = content["callbacks"]
    best, validated = steps.get("RunCheckpoint", {}), steps.get("RunRecord", {})
    return GoodCheckpoint(path, int(content["global_step"]), best.get("best_step"), validated.get("metrics_step"))
