"""`slotbench prepare NAME --out DIR`: writes a data set to a cache of decoded clips."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn, get_args

from slotbench import registry
from slotbench.commands.arguments import Report, expect, progress_bars, split_and_load
from slotbench.errors import FileError, UserError, lines
from slotbench.pretrained import named_features

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

    from slotbench.data.preparing import Coder
    from slotbench.interfaces import VideoSpec

__all__ = ["main"]

_USAGE = """Usage: slotbench prepare NAME --path PATH --out DIR [--ARGUMENT VALUE ...] [--jobs N] [--plugin FILE]

Reads a data set once and writes its decoded clips to DIR, a cache that is quick to read: name it as the data set's
path. The same command resumes after an interruption. With --codes RUN it also computes the codes of every frame by that
run's tokenizer; with --features it writes a frozen network's features instead, for the data set FeatureFile: WEIGHTS
is a folder of a vision transformer or its name on the Hugging Face Hub.

  slotbench prepare MOVi --path DIR --out CACHE --resolution 64
  slotbench prepare MOVi --path DIR --out FEATURES --resolution 256 --features WEIGHTS --features.resolution 224
  slotbench prepare NAME --help          what can be set"""


def main(command: str, arguments: list[str]) -> int:
    """Prepares the data set that is named first."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE)
        return 0
    _, given = split_and_load(arguments)
    if not given or given[0].startswith("-"):
        raise UserError(lines("no data set is named", expected="slotbench prepare NAME --path PATH --out DIR"))
    name, *rest = given
    expect("data set", [name], registry.names("datasets"))
    rest = named_features(rest, "--features")
    return (_prepare_features if "--features" in rest else _prepare)(name, rest)


def _prepare(name: str, arguments: list[str]) -> int:
    from slotbench.data.preparing import Preparable, PreparableVideos

    kind = registry.load("datasets", name)
    if not issubclass(kind, Preparable):
        raise UserError(f"{name} has nothing to prepare: it is used as it is")
    parser = _parser(name, f"Writes {name} to a cache.")
    others = set(inspect.signature(kind).parameters) - set(kind.prepare_arguments)
    parser.add_class_arguments(kind, skip=others)
    if issubclass(kind, PreparableVideos):
        parser.add_argument("--codes", type=str | None, default=None, help="run of the tokenizer whose codes are kept")
    given = parser.parse_args(arguments)
    out, jobs, run = given.pop("out"), given.pop("jobs"), given.pop("codes", None)
    with _preparing(name, out) as report:
        data = kind(**given.as_dict())
        if isinstance(data, PreparableVideos):
            data.prepare(out, report, jobs, None if run is None else _coder(run, data.spec.input))
        else:
            data.prepare(out, report, jobs)
    print(f"wrote {out}; use it with --data.path {out}")
    return 0


def _coder(run: str, frame: VideoSpec) -> Coder:
    """The tokenizer of a run, on a GPU if there is one, a few frames at a time."""
    import torch

    from slotbench.data.preparing import Coder
    from slotbench.interfaces import unit_frames
    from slotbench.pretrained.weights import find_checkpoint
    from slotbench.tasks.codes.chosen_tokenizer import trained_tokenizer

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = trained_tokenizer(run, frame).to(device)

    @torch.no_grad()
    def encode(frames: torch.Tensor) -> torch.Tensor:
        parts = [tokenizer.encode(unit_frames(part.to(device))[None])[0] for part in frames.flatten(0, 1).split(64)]
        return torch.cat(parts).int().cpu().unflatten(0, frames.shape[:2])

    description = {
        "tokenizer": type(tokenizer).__name__,
        "num_codes": tokenizer.code_spec.channels,
        "checkpoint": hashlib.sha256(find_checkpoint(Path(run).expanduser()).read_bytes()).hexdigest(),
    }
    return Coder(encode, description)


def _prepare_features(name: str, arguments: list[str]) -> int:
    """Writes a frozen network's features of every frame of a data set, on a GPU if there is one."""
    import torch

    from slotbench.config.policy import apply_policy
    from slotbench.data.base import SlotDataModule, Split
    from slotbench.data.features import write_features
    from slotbench.data.preparing import Preparable
    from slotbench.interfaces import VideoSpec
    from slotbench.pretrained import onnx_features, random_vit, vit_features  # noqa: F401  (named as --features)
    from slotbench.pretrained.feature_extractor import FeatureExtractor

    apply_policy()
    kind = registry.load("datasets", name)
    parser = _parser(name, f"Writes features of the frames of {name}, for the data set FeatureFile.")
    every = inspect.signature(kind).parameters
    loader = set(inspect.signature(SlotDataModule).parameters)
    others = set(every) - set(kind.prepare_arguments) if issubclass(kind, Preparable) else loader & set(every)
    parser.add_class_arguments(kind, skip=others)
    made = Callable[[VideoSpec], FeatureExtractor]
    parser.add_argument("--features", type=made, required=True, help="what makes the features")
    parser.add_argument("--split", type=Literal["all", *get_args(Split)], default="all", help="the split to write")
    told = "keep frames and masks at their own size, and not at that of the network"
    parser.add_argument("--own_size", type=bool, default=False, help=told)
    given = parser.parse_args(arguments)
    jobs = given.pop("jobs")
    description = {"data": name} | json.loads(parser.dump(given, format="json", skip_none=False))
    built = parser.instantiate(given)
    out, features, split, own_size = (built.pop(key) for key in ("out", "features", "split", "own_size"))
    del description["out"], description["split"]
    with _preparing(name, out) as report:
        data = kind(**built.as_dict())
        extractor = features(data.spec.input)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        extractor.to(device)
        splits = get_args(Split) if split == "all" else (split,)

        def encode(frames: torch.Tensor) -> torch.Tensor:
            return extractor(frames[None].to(device))[0].cpu()

        if extractor.weights_sha256:  # so that weights that have moved are the same ones
            made_by = description["features"].setdefault("init_args", {})
            made_by.pop("path", None)
            made_by |= {"weights": Path(extractor.weights).name, "weights_sha256": extractor.weights_sha256}
        size = None if own_size else extractor.resolution
        write_features(data, encode, size, out, description, splits, report, jobs)
    print(f"wrote {out}; use it with --data FeatureFile --data.path {out}")
    return 0


def _parser(name: str, description: str) -> ArgumentParser:
    """A parser of what follows the name of a data set, with the option for the folder."""
    import jsonargparse

    class Parser(jsonargparse.ArgumentParser):
        def error(self, message: str, ex: Exception | None = None) -> NoReturn:
            raise UserError(f"{message}; slotbench prepare {name} --help lists the arguments")

    parser = Parser(prog=f"slotbench prepare {name}", description=description, exit_on_error=False)
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--jobs", type=int | None, default=None, help="processes; null for one per core")
    return parser


@contextlib.contextmanager
def _preparing(name: str, out: Path) -> Iterator[Report]:
    """Shows bars for what is reported, and turns refusals and interruptions into messages."""
    try:
        with progress_bars(transient=False) as bars:
            yield bars
    except FileError:  # a sentence already
        raise
    except ValueError as error:
        raise UserError(f"{name}: {error}") from error
    except KeyboardInterrupt:
        print(f"interrupted; the same command resumes from what {out} holds")
        raise
