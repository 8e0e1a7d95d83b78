"""Whose weights are evaluated: "last", "best" or a file, found in a run folder and read through. Torch comes late."""

from __future__ import annotations

from pathlib import Path

from slotbench.errors import FileError, UserError, did_you_mean, lines
from slotbench.runs.folder import RunFolder

__all__ = ["DEFAULT", "OF_A_RUN", "check_whole", "choose_checkpoint"]

DEFAULT = "last"
"""Weights that are evaluated by default."""

OF_A_RUN = ("last", "best")
"""The checkpoints of a run that have a name."""


def choose_checkpoint(run: RunFolder, name: str) -> Path:
    """The file that "last", "best" or a path stands for."""
    path = run.checkpoints / f"{name}.ckpt" if name in OF_A_RUN else Path(name)
    if path.is_file():
        return path
    there = sorted(str(file) for file in run.checkpoints.glob("*.ckpt"))
    if not there:
        raise UserError(f"{run.path} has no checkpoint yet: expected {run.checkpoints / 'last.ckpt'}")
    raise UserError(lines(f"no checkpoint {path}{did_you_mean(str(path), there)}", there=", ".join(there)))


def check_whole(path: Path, command: str | None, run: Path | None) -> None:
    """Reads a checkpoint of a run through, for a command; one that is damaged is refused, with what else there is.

    Raises:
        UserError: it is cut or damaged, or cannot be read as plain tensors.
    """
    from slotbench.runs.checkpoints import load_checkpoint

    try:
        if not load_checkpoint(path).get("state_dict"):
            raise FileError(f"{path} holds no weights: expected them under 'state_dict'")
    except FileError as error:
        others = ", ".join(str(other) for other in sorted(path.parent.glob("*.ckpt")) if other != path)
        typed = f"slotbench {command} {run or '...'} --checkpoint FILE" if command and others else None
        raise UserError(lines(str(error), there=others or "no other checkpoint", type=typed)) from error
