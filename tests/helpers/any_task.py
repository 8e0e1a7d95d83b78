"""Every registered task in small, with data that it takes: found by trying, so that a new task has nothing to add."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import product
from typing import Any

import torch
from depth_tasks import with_depth
from prediction_tasks import quiet_trainer
from view_tasks import PosedSpheres, RayShares, RowsOfViews

from slotbench import registry
from slotbench.data.balls.blinking_balls import BlinkingBalls
from slotbench.data.balls.bouncing_balls import BouncingBalls
from slotbench.data.base import ClipDataset, LoaderOptions, SlotDataModule, Split, collate
from slotbench.data.cater_like.cater_like import CATERLike
from slotbench.interfaces import VideoBatch
from slotbench.tasks.rollouts.conditions import RolloutOptions
from slotbench.tasks.task import Task

TASKS = registry.names("tasks")


class DeepBalls(BouncingBalls):
    """Two balls, with depth."""

    def dataset(self, split: Split) -> ClipDataset:
        return _Deep(super().dataset(split))


class _Deep(ClipDataset):
    def __init__(self, clips: ClipDataset) -> None:
        super().__init__(len(clips))
        self._clips = clips

    def clips(self, indices: Sequence[int]) -> VideoBatch:
        return with_depth(self._clips.clips(indices))


def _loader() -> LoaderOptions:
    return LoaderOptions(batch_size=2, val_batch_size=2, train_size=8, val_size=2, test_size=2)


def _balls() -> SlotDataModule:
    return DeepBalls(num_balls=2, num_frames=3, eval_frames=3, resolution=16, loader=_loader())


def _blinking() -> SlotDataModule:
    return BlinkingBalls(num_frames=3, patches_per_side=1, num_balls=2, resolution=16, loader=_loader())


def _cater() -> SlotDataModule:
    small = {"num_objects": (3, 3), "grid": 3, "resolution": 16, "samples_per_side": 1, "video_frames": 40}
    return CATERLike("objects", num_frames=5, loader=_loader(), **small)  # type: ignore[arg-type]


def _posed() -> SlotDataModule:
    return PosedSpheres(loader=_loader())


class FittedPatches(registry.load("tokenizers", "PatchKMeans")):  # type: ignore[misc]
    """Patches of one brightness each, which no data set has to be there for."""

    fit_frames = 0


DATA: tuple[Callable[[], SlotDataModule], ...] = (_balls, _blinking, _cater, _posed)
DECODERS = (
    partial(registry.load("decoders", "SpatialBroadcastDecoder"), channels=4, initial_rgb=0.5),
    partial(registry.load("decoders", "AutoregressiveTransformer"), dim=16, num_layers=1),
    partial(registry.load("decoders", "ClassTokenDecoder"), num_layers=1),
    partial(registry.load("decoders", "TransformerDecoder"), dim=16, num_layers=1, num_heads=2),
    RayShares,
)
ENCODERS = (
    partial(registry.load("encoders", "PatchEncoder"), dim=16, patch_size=4),
    partial(registry.load("encoders", "MLPEncoder"), dim=16, norm="none"),
    RowsOfViews,
)
CORES = (
    partial(registry.load("cores", "SAVi"), num_slots=3, dim=16, mlp_ratio=1),
    partial(registry.load("cores", "CWVAE"), num_levels=2, factor=2, dim=16, latent_dim=4, feature_dim=16),
    partial(registry.load("cores", "ConvS5"), dim=16, state_dim=8, num_layers=1),
)
TOKENIZERS = (
    partial(registry.load("tokenizers", "DVAE"), num_codes=6, channels=4, anneal_steps=4),
    partial(FittedPatches, num_codes=6),
)
PARTS: dict[str, Any] = {
    "mask_decoder": DECODERS[0],
    "optimizer": partial(torch.optim.Adam, lr=1e-3),
    "rollout": RolloutOptions(context=1, horizon=2),
}


def small_data(name: str) -> SlotDataModule:
    """Data that the task takes."""
    return _recipe(name)[0]()


def small_task(name: str, task: type[Task] | None = None, **arguments: Any) -> Task:
    """The task in small, or a subclass of it, for `small_data`; the same weights each time."""
    make_data, given = _recipe(name)
    torch.manual_seed(0)
    return (task or registry.load("tasks", name))(**given | {"data_spec": make_data().spec} | arguments)


def first_batch(data: SlotDataModule, split: Split = "train") -> VideoBatch:
    """The first two clips, with frames in [0, 1]."""
    return data.on_after_batch_transfer(collate([data.dataset(split)[i] for i in range(2)]), 0)


@cache
def _recipe(name: str) -> tuple[Callable[[], SlotDataModule], dict[str, Any]]:
    """The first data and parts that the task can be built of and has a loss for."""
    task_class, said = registry.load("tasks", name), []
    for make_data, parts in product(DATA, _parts(task_class)):
        try:
            data = make_data()
            task = task_class(**parts, data_spec=data.spec)
            batch = first_batch(data)
            task.loss(task(batch), batch)
            quiet_trainer().validate(task, datamodule=data, verbose=False)
        except Exception as error:
            said.append(f"{type(error).__name__}: {error}")
        else:
            return make_data, parts
    raise AssertionError(f"no data and parts of tests/helpers/any_task.py fit {name}: {set(said)}")


def _parts(task_class: type[Task]) -> Iterator[dict[str, Any]]:
    asked = inspect.signature(task_class).parameters
    known = {name: part for name, part in PARTS.items() if name in asked}
    tried = {"core": CORES, "tokenizer": TOKENIZERS, "encoder": ENCODERS, "decoder": DECODERS}
    chosen = {name: parts for name, parts in tried.items() if name in asked}
    for combination in product(*chosen.values()):
        yield known | dict(zip(chosen, combination, strict=True))
