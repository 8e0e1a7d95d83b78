"""Shared parts of the commands: option parser, device, progress bars."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from slotbench import registry
from slotbench.config.options import RunOptions, split_options
from slotbench.errors import UserError, did_you_mean, lines, listing
from slotbench.io import dump_json, write_atomically

if TYPE_CHECKING:
    import torch

__all__ = ["Parser", "Report", "expect", "open_device", "positive", "progress_bars", "split_and_load", "write_record"]

Report = Callable[[str, int, int], None]  # a name, how much of it is done, and the total, 0 if it is not known


class Parser(argparse.ArgumentParser):
    """Refuses arguments in a sentence that names the command's help; `prog` is the command: "slotbench probe"."""

    def __init__(self, prog: str, description: str | None = None, **more: Any) -> None:
        super().__init__(prog, description=description, allow_abbrev=False, **more)

    def error(self, message: str) -> NoReturn:
        """Raises the sentence."""
        unknown = message.partition("unrecognized arguments: ")[2].partition(" ")[0].partition("=")[0]
        near = did_you_mean(unknown, self._option_string_actions) if unknown else ""
        raise UserError(f"{message}{near or ';'} {self.prog} --help lists the arguments")


def positive(text: str) -> int:
    """The type of an option that is 1 or more."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is too small; expected 1 or more")
    return int(text)


def expect(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raises the sentence about the first name that is not known."""
    for name in names:
        if name not in known:
            raise UserError(lines(f"no {kind} named {name}{did_you_mean(name, known)}", available=listing(known)))


def write_record(path: Path, record: object) -> None:
    """Writes a result as JSON, and says where."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, dump_json(record, indent=2))
    print(f"wrote {path}")


def split_and_load(arguments: list[str]) -> tuple[RunOptions, list[str]]:
    """The options of the run and the other arguments; plugin files are imported."""
    options, rest = split_options(arguments)
    for file in options.plugin:
        registry.load_file(file)
    return options, rest


def open_device(name: str | None, threads: int | None) -> torch.device:
    """Sets torch's threads, if a number is given, and returns the device to compute on (default: CUDA if there is)."""
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch finds no CUDA device here; leave it out, or type --device cpu")
    return torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))


@contextmanager
def progress_bars(transient: bool = True) -> Iterator[Report]:
    """A bar on stderr for everything that is reported; transient ones vanish at the end."""
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
