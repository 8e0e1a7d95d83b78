"""`slotbench prepare NAME --out DIR`: writes a data set to a cache of decoded clips."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from slotbench import registry
from slotbench.errors import UserError, did_you_mean, lines, listing

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

    from slotbench.data.clip_cache import Report

__all__ = ["main", "prepare_parser", "preparing"]

_USAGE = """Usage: slotbench prepare NAME --path PATH --out DIR [--ARGUMENT VALUE ...] [--jobs N] [--plugin FILE]
       slotbench prepare NAME --out DIR --verify

Reads a data set once and writes its decoded clips to DIR, a cache that training reads as fast as memory is copied; name
it as the data set's path. Interrupted, even killed, the same command goes on where it was. --jobs says how many
processes work on it; the files are the same bytes whatever their number. SHA256SUMS beside the files has their check
sums, and --verify compares them (exit code 1 if a file is damaged), as `sha256sum -c SHA256SUMS` does.

With --features it writes what a frozen network makes of every frame instead, for the data set FeatureFile.

  slotbench prepare MOVi --path DIR --out CACHE --resolution 64
  slotbench prepare CLEVR --path FILE --out CACHE --jobs 8
  slotbench prepare MOViLike --out CACHE --level tex      simulated here: has no --path
  slotbench prepare CLEVR --out CACHE --verify
  slotbench prepare MOVi --path DIR --out FEATURES --resolution 256 --features DINOFeatures --features.path WEIGHTS
  slotbench prepare NAME --help          what can be set"""


def main(command: str, arguments: list[str]) -> int:
    """Prepares the data set that is named first."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE)
        return 0
    from slotbench.commands.options import split_options

    options, given = split_options(arguments)
    if not given or given[0].startswith("-"):
        raise UserError(lines("no data set is named", expected="slotbench prepare NAME --path PATH --out DIR"))
    name, *rest = given
    for file in options.plugin:
        registry.load_file(file)
    known = registry.names("datasets")
    if name not in known:
        raise UserError(lines(f"no data set named {name}{did_you_mean(name, known)}", available=listing(known)))
    if "--verify" in rest:
        from slotbench.commands.verify import verify

        return verify(name, [argument for argument in rest if argument != "--verify"])
    if any(given.partition("=")[0] == "--features" for given in rest):
        from slotbench.commands.prepare_features import prepare_features

        return prepare_features(name, rest)
    return _prepare(name, rest)


def _prepare(name: str, arguments: list[str]) -> int:
    from slotbench.data.clip_cache import Preparable

    kind = registry.load("datasets", name)
    if not issubclass(kind, Preparable):
        raise UserError(lines(f"{name} has nothing to prepare: it is used as it is", available=listing(_preparable())))
    parser = prepare_parser(name, f"Writes {name} to a cache.")
    others = set(inspect.signature(kind).parameters) - set(kind.prepare_arguments)
    parser.add_class_arguments(kind, skip=others)
    given = parser.parse_args(arguments)
    out, jobs = given.pop("out"), given.pop("jobs")
    with preparing(name, out) as report:
        kind(**given.as_dict()).prepare(out, report, jobs)
    print(f"wrote {out}; use it with --data.path {out}")
    return 0


def prepare_parser(name: str, description: str) -> ArgumentParser:
    """A parser of what follows the name of a data set, with the option for the folder."""
    import jsonargparse

    class Parser(jsonargparse.ArgumentParser):
        def error(self, message: str, ex: Exception | None = None) -> NoReturn:
            raise UserError(f"{message}; slotbench prepare {name} --help lists the arguments")

    parser = Parser(prog=f"slotbench prepare {name}", description=description, exit_on_error=False)
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--jobs", type=int | None, default=None, help="processes; null for what the machine has")
    return parser


@contextlib.contextmanager
def preparing(name: str, out: Path) -> Iterator[Report]:
    """Shows bars for what is reported, and turns refusals and interruptions into messages."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

    from slotbench.data.files import DataFilesError

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    bars: dict[str, TaskID] = {}
    try:
        with Progress(*columns, console=Console(stderr=True)) as progress:

            def report(what: str, done: int, total: int) -> None:
                if what not in bars:
                    bars[what] = progress.add_task(what, total=total)
                progress.update(bars[what], completed=done)

            yield report
    except DataFilesError as error:
        raise UserError(str(error)) from error
    except ValueError as error:
        raise UserError(f"{name}: {error}") from error
    except KeyboardInterrupt:
        print(f"interrupted; the same command goes on from what {out} holds")
        raise


def _preparable() -> list[str]:
    """The data sets that can be prepared, those left out that cannot be imported."""
    from slotbench.data.clip_cache import Preparable

    found = []
    for name in registry.names("datasets"):
        with contextlib.suppress(registry.RegistryError):
            if issubclass(registry.load("datasets", name), Preparable):
                found.append(name)
    return found
