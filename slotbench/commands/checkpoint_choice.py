"""`--checkpoint last|best|FILE`: whose weights validate, test, predict and probe take. Torch comes late."""

from __future__ import annotations

import sys
from pathlib import Path

from slotbench.commands.options import RunOptions
from slotbench.errors import FileError, UserError, did_you_mean, lines, wrapped
from slotbench.runs.folder import RunFolder
from slotbench.text import printable

__all__ = ["DEFAULT", "check_whole", "choose_checkpoint", "expand_checkpoint"]

DEFAULT = "last"
"""What is evaluated unless something else is said."""

_OF_A_RUN = ("last", "best")
_LIGHTNING = "--ckpt_path"


def expand_checkpoint(command: str, run: RunFolder | None, options: RunOptions, arguments: list[str]) -> list[str]:
    """The arguments of an evaluation with the checkpoint that is asked for, as the setting that Lightning reads.

    Lightning's own spelling, `--ckpt_path`, is taken for `--checkpoint` where a run is evaluated.

    Args:
        command: "validate", "test" or "predict".
        run: the run that is evaluated, if it is one.
        options: with `--checkpoint`, if it was given.
        arguments: the others.

    Raises:
        UserError: there is no such checkpoint, or two are given.
    """
    other, rest = _lightnings(arguments)
    if other is not None and options.checkpoint is not None and other != options.checkpoint:
        raise UserError(
            f"--checkpoint {options.checkpoint} and {_LIGHTNING} {other} both name a checkpoint; give one of them"
        )
    if run is None:
        name = options.checkpoint or other
        if name in _OF_A_RUN:
            raise UserError(
                lines(
                    f"{name} names a checkpoint of a run, and no run is given",
                    expected=f"slotbench {command} RUN --checkpoint {name}, or --checkpoint FILE",
                )
            )
        return arguments if name is None else [*rest, _LIGHTNING, name]
    if other is not None and options.checkpoint is None:
        print(wrapped(printable(f"slotbench: {_LIGHTNING} {other} is taken for --checkpoint {other}")), file=sys.stderr)
    path = choose_checkpoint(run, options.checkpoint or other or DEFAULT)
    return [*rest, _LIGHTNING, str(path)]


def choose_checkpoint(run: RunFolder, name: str) -> Path:
    """The file that "last", "best" or a path stands for.

    Raises:
        UserError: it is not there; says what is.
    """
    path = run.checkpoints / f"{name}.ckpt" if name in _OF_A_RUN else Path(name)
    if path.is_file():
        return path
    there = sorted(str(file) for file in run.checkpoints.glob("*.ckpt"))
    if not there:
        raise UserError(f"{run.path} has no checkpoint yet: expected {run.checkpoints / 'last.ckpt'}")
    raise UserError(lines(f"no checkpoint {path}{did_you_mean(str(path), there)}", there=", ".join(there)))


def check_whole(path: Path, command: str, run: Path | None) -> None:
    """Reads a checkpoint through, its checksums included; one that is damaged is refused, with what else there is.

    Args:
        path: the file.
        command: that is to read it, to be typed again with another checkpoint.
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
            type=_typed(command, run, good[0]) if good else None,
        )
    )


def _typed(command: str, run: Path | None, checkpoint: Path) -> str:
    if run is None:
        return f"slotbench {command} ... {_LIGHTNING} {checkpoint}"
    stands_for = checkpoint.stem in _OF_A_RUN and checkpoint.parent == run / "checkpoints"
    return f"slotbench {command} {run} --checkpoint {checkpoint.stem if stands_for else checkpoint}"


def _problem(path: Path) -> str | None:
    """What is wrong with a checkpoint, in a sentence that names it; None if its weights are whole."""
    from slotbench.runs.checkpoints import load_checkpoint

    try:
        held = load_checkpoint(path).get("state_dict")
    except FileError as error:
        return str(error)
    return None if held and isinstance(held, dict) else f"{path} holds no weights: expected them under 'state_dict'"


def _lightnings(arguments: list[str]) -> tuple[str | None, list[str]]:
    """The value of `--ckpt_path` among the arguments, if it is there, and the others."""
    found: str | None = None
    rest: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        option, equals, value = argument.partition("=")
        if option == _LIGHTNING:
            found = value if equals else next(waiting, None)
            if not found:
                raise UserError(lines(f"{_LIGHTNING} has no value", expected="--checkpoint last|best|FILE"))
        else:
            rest.append(argument)
    return found, rest
