"""`slotbench prepare NAME --features NETWORK`: writes what a frozen network makes of every frame of a data set."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

from slotbench import registry
from slotbench.commands.policy import apply_policy
from slotbench.commands.prepare import prepare_parser, preparing
from slotbench.data.base import SlotDataModule, Split
from slotbench.data.clip_cache import Preparable
from slotbench.data.feature_writing import write_features
from slotbench.errors import UserError
from slotbench.interfaces import VideoSpec
from slotbench.nn.feature_extractor import FeatureExtractor
from slotbench.nn.weights import WeightError

__all__ = ["prepare_features"]


def prepare_features(name: str, arguments: list[str]) -> int:
    """Writes the features of the data set `name`, on a GPU if there is one."""
    apply_policy()
    kind = registry.load("datasets", name)
    parser = prepare_parser(name, f"Writes features of the frames of {name} to HDF5, for the data set FeatureFile.")
    every = inspect.signature(kind).parameters
    loader = set(inspect.signature(SlotDataModule).parameters)
    others = set(every) - set(kind.prepare_arguments) if issubclass(kind, Preparable) else loader & set(every)
    parser.add_class_arguments(kind, skip=others)
    parser.add_argument(
        "--features", type=Callable[[VideoSpec], FeatureExtractor], required=True, help="what makes the features"
    )
    parser.add_argument("--split", type=Literal["all", *get_args(Split)], default="all", help="the split to write")
    given = parser.parse_args(arguments)
    jobs = given.pop("jobs")
    description = {"data": name} | json.loads(parser.dump(given, format="json", skip_none=False))
    built = parser.instantiate(given)
    out, features, split = (built.pop(key) for key in ("out", "features", "split"))
    del description["out"], description["split"]
    with preparing(name, out) as report:
        data = kind(**built.as_dict())
        try:
            extractor = features(data.spec.input)
        except WeightError as error:
            raise UserError(str(error)) from error
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        extractor.to(device)

        def extract(frames: Tensor) -> Tensor:
            return extractor(frames[None].to(device))[0].cpu()

        splits = get_args(Split) if split == "all" else (split,)
        write_features(data, extract, extractor.spec, extractor.resolution, out, description, splits, report, jobs)
    print(f"wrote {out}; use it with --data FeatureFile --data.path {out}")
    return 0
