"""Shared parts of the commands: option parser, device, progress bars."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from slotbench import registry
from slotbench.config.options import RunOptions, split_options
from slotbench.errors import UserError

if TYPE_CHECKING:
    import torch

__all__ = ["Parser", "Report", "open_device", "progress_bars", "split_and_load"]

Report = Callable[[str, int, int], None]
"""Takes a name, how much of it is done, and the total, 0 if it is not known."""


class Parser(argparse.ArgumentParser):
    """Refuses arguments in a sentence that names the command's help.

    Args:
        prog: the command, such as "slotbench probe".
        description: for `--help`.
        epilog: the end of the help.
    """

    def __init__(self, prog: str, description: str | None = None, epilog: str | None = None) -> None:
        super().__init__(
            prog, description=description, epilog=epilog, add_help=description is not None, allow_abbrev=False
        )

    def error(self, message: str) -> NoReturn:
        """Raises the sentence."""
        raise UserError(f"{message}; {self.prog} --help lists the arguments")


def split_and_load(arguments: list[str]) -> tuple[RunOptions, list[str]]:
    """The options of the run and the other arguments; plugin files are imported."""
    options, rest = split_options(arguments)
    for file in options.plugin:
        registry.load_file(file)
    return options, rest


def open_device(name: str | None, threads: int | None) -> torch.device:
    """Sets torch's threads and returns the device to compute on.

    Args:
        name: "cpu" or "cuda"; CUDA where there is one if absent.
        threads: None leaves torch's choice.

    Raises:
        UserError: there is no CUDA device.
    """
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch finds no CUDA device here; leave it out, or type --device cpu")
    return torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))


@contextmanager
def progress_bars(transient: bool = True) -> Iterator[Report]:
    """A bar on stderr for everything that is reported.

    Args:
        transient: whether the bars vanish at the end.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bars: dict[str, TaskID] = {}
    with Progress(*columns, console=Console(stderr=True), transient=transient) as progress:

        def report(name: str, done: int, total: int) -> None:
            if name not in bars:
                bars[name] = progress.add_task(name, total=None)
            progress.update(bars[name], completed=done, total=total or None)

        yield report
