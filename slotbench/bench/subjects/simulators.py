"""Clips of the embedded simulators at the settings of their experiments, and whether they are enough for a GPU."""

from __future__ import annotations

import tempfile
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import torch

from slotbench.bench.contests import Contest, Way
from slotbench.data.base import LoaderOptions, collate
from slotbench.data.movi_like.kept import KeptVideos
from slotbench.errors import FileError
from slotbench.registry import load
from slotbench.yaml_files import read_yaml

__all__ = ["EXPERIMENTS", "LAUNCH", "TFLOPS", "WORKERS", "Experiment", "feeding", "simulators"]

WORKERS = 8
"""Processes of a loader, each on a core of its own."""
TFLOPS = 27.0
"""10^12 operations per second that a GPU keeps up: 40 % of the 67 that an H100 has in float32 without tensor cores."""
LAUNCH = 2e-6
"""Seconds from one kernel to the next at the least, in a CUDA graph too; launched one by one it takes longer."""

_KEPT = 8  # videos, of sets that are simulated once and then read


class Experiment(NamedTuple):
    """An experiment that draws from a simulator.

    Attributes:
        file: its YAML file.
        gflop: 10^9 operations of a training step of one clip (`StepFlops.products` of `experiment_flops`); of long
            clips from two shorter ones, as they grow with the frames.
        launches: operations that a step executes one after the other, views not counted, gradients added to others.
        stand_in: the simulator that stands in for data that would have to be downloaded, at their size; "" for the
            experiment's own.
    """

    file: str
    gflop: float
    launches: int
    stand_in: str = ""


EXPERIMENTS = {
    "papers": (
        Experiment("experiments/paper/blinking_balls_earliest_t6_p4.yaml", 1.898, 1040),
        Experiment("experiments/paper/blinking_balls_earliest_t6_p16.yaml", 17.64, 1007),
        Experiment("experiments/paper/blinking_balls_most_frequent_t11_p16.yaml", 34.82, 1007),
        Experiment("experiments/paper/bouncing_balls.yaml", 8.367, 1036),
        Experiment("experiments/paper/rim_moving_sprites.yaml", 37.1, 2050),
        Experiment("experiments/paper/rim_moving_mnist.yaml", 18.85, 2048),
        Experiment("experiments/paper/moving_mnist_300_convs5.yaml", 12250, 895),
        Experiment("experiments/paper/moving_mnist_300_cwvae.yaml", 76.5, 50_850),
        Experiment("experiments/paper/movi_a_savi.yaml", 485.5, 1341, "MovingSprites"),
        Experiment("experiments/paper/clevr6_weighted_mean.yaml", 126.9, 448, "MovingSprites"),
        Experiment("experiments/paper/simple3d_psb_slotmixer.yaml", 2805, 1235),
        Experiment("experiments/paper/cater_slotssm.yaml", 3573, 903, "CATERLike"),
    ),
    "laptop": (
        Experiment("experiments/blinking_balls.yaml", 0.5322, 923),
        Experiment("experiments/moving_mnist.yaml", 3.694, 364),
        Experiment("experiments/moving_mnist_long.yaml", 11.47, 362),
        Experiment("experiments/maze.yaml", 1.388, 197),
        Experiment("experiments/cater_like.yaml", 0.249, 446),
        Experiment("experiments/cater_like_memory.yaml", 0.6134, 495),
        Experiment("experiments/cater_like_sight.yaml", 0.0183, 347),
        Experiment("experiments/movi_like.yaml", 0.288, 741),
        Experiment("experiments/movi_like_images.yaml", 0.0953, 404),
        Experiment("experiments/multi_camera.yaml", 1.399, 856),
        Experiment("experiments/multi_camera_nerf.yaml", 0.8048, 945),
        Experiment("experiments/moving_sprites.yaml", 0.6537, 2156),
        Experiment("experiments/bouncing_balls.yaml", 0.2717, 623),
    ),
}
"""By the heading of their table; the last two need nothing beside slotbench."""


def simulators(quick: bool, tflops: str = str(TFLOPS)) -> list[Contest]:
    """One contest per experiment: its training batch, on one core.

    Args:
        quick: two experiments, batches of two clips.
        tflops: 10^12 operations per second that the GPU keeps up.

    Raises:
        FileError: the working directory has not the experiments.
    """
    named = [(group, one) for group, several in EXPERIMENTS.items() for one in several]
    return [_contest(group, one, quick, float(tflops)) for group, one in (named[-2:] if quick else named)]


def feeding(seconds: float, batch: int, gflop: float, launches: int, tflops: float = TFLOPS) -> dict[str, float | str]:
    """Steps per second that `WORKERS` workers feed, beside the most that a GPU can take.

    A step takes the GPU at least the time of its operations, and that of its launches; what memory takes, the
    optimiser and the transfer come on top. So this is more than it will take.

    Args:
        seconds: of a worker for a batch.
        batch: its clips.
        gflop: 10^9 operations of a step for each clip.
        launches: of a step.
        tflops: 10^12 operations per second that the GPU keeps up.
    """
    fed = WORKERS / seconds
    taken = 1.0 / max(1e-3 * batch * gflop / tflops, LAUNCH * launches)
    return {
        f"{WORKERS} workers, steps/s": fed,
        "GPU at most": taken,
        "ratio": fed / taken,
        "twice": "yes" if fed >= 2.0 * taken else "no",
    }


def _contest(group: str, experiment: Experiment, quick: bool, tflops: float) -> Contest:
    file = experiment.file
    try:
        config = read_yaml(file)["data"]
        given = dict(config.get("init_args", {}))
        loader = given.pop("loader", {})
        batch = min(int(loader["batch_size"]), 2 if quick else 1 << 20)
    except (KeyError, TypeError) as error:
        raise FileError(f"{file} is no experiment: expected data with loader.batch_size") from error
    name, label = config["class_path"], file.removeprefix("experiments/").removesuffix(".yaml")
    if experiment.stand_in:
        label += f", {experiment.stand_in} for {name}"
        name = experiment.stand_in
        given = {"num_frames": 1} | {key: given[key] for key in ("resolution", "num_frames") if key in given}
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    arguments = (batch, experiment.gflop, experiment.launches, tflops)
    return Contest(
        label,
        partial(_ways, name, given, batch, int(loader.get("seed", 0))),
        "made",
        amount=float(batch),
        unit="clips",
        group=group,
        derived=lambda seconds: feeding(seconds, *arguments),
    )


def _ways(name: str, given: dict[str, Any], batch: int, seed: int) -> dict[str, Way]:
    """The next batch of the training split, and the same in shared memory, where a worker puts it for the training."""
    component, options = load("datasets", name), LoaderOptions(batch_size=batch, seed=seed)
    folder = None
    if issubclass(component, KeptVideos):
        # clips are cut out of videos that have been made before
        folder = tempfile.TemporaryDirectory()
        given = given | {"path": folder.name, "train_videos": _KEPT}
        component(**given)._write("train", Path(folder.name) / "train", lambda *_: None)
    dataset: Any = component(**given, loader=options).dataset("train")
    turns = count()

    def next_batch(_folder: Any) -> Any:
        start = batch * next(turns)
        return collate(dataset.__getitems__(list(range(start, start + batch))))

    # the way keeps the folder alive
    make = partial(next_batch, folder)
    return {"made": make, "made, in shared memory": lambda: make().map(torch.Tensor.share_memory_)}
