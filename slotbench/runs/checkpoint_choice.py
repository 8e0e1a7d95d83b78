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
    """The file that "last", "best" or a path stands for.

    Raises:
        UserError: it is not there; says what is.
    """
    path = run.checkpoints / f"{name}.ckpt" if name in OF_A_RUN else Path(name)
    if path.is_file():
        return path
    there = sorted(str(file) for file in run.checkpoints.glob("*.ckpt"))
    if not there:
        raise UserError(f"{run.path} has no checkpoint yet: expected {run.checkpoints / 'last.ckpt'}")
    raise UserError(lines(f"no checkpoint {path}{did_you_mean(str(path), there)}", there=", ".join(there)))


def check_whole(path: Path, command: str | None, run: Path | None) -> None:
    """Reads a checkpoint through, its checksums included; one that is damaged is refused, with what else there is.

    Args:
        path: the file.
        command: that is to read it, to be typed again with another checkpoint; None in Python.
        run: whose checkpoint it is, if it is one.

    Raises:
        UserError: it is cut, overwritten or flipped, or cannot be read as plain tensors.
    """
    problem = _problem(path)
    if problem is None:
        return
    others = sorted(path.parent.glob("*.ckpt")) if path.parent.is_dir() else []
    good = [other for other in others if other != path and _problem(other) is None]
    raise UserError(
        lines(
            problem,
            there=", ".join(f"{other} (whole)" for other in good) or "no other checkpoint that is whole",
            type=_typed(command, run, good[0]) if good and command else None,
        )
    )


def _typed(command: str, run: Path | None, checkpoint: Path) -> str:
    if run is None:
        return f"slotbench {command} ... --ckpt_path {checkpoint}"
    stands_for = checkpoint.stem in OF_A_RUN and checkpoint.parent == run / "checkpoints"
    return f"slotbench {command} {run} --checkpoint {checkpoint.stem if stands_for else checkpoint}"


def _problem(path: Path) -> str | None:
    """What is wrong with a checkpoint, in a sentence that names it; None if its weights are whole."""
    from slotbench.runs.checkpoints import load_checkpoint

    try:
        held = load_checkpoint(path).get("state_dict")
    except FileError as error:
        return str(error)
    return None if held and isinstance(held, dict) else f"{path} holds no weights: expected them under 'state_dict'"
