"""Small trainings that run in one process or in two, and what each of two processes writes down about them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lightning
import torch
from torch import Tensor, distributed

from slotbench.data.balls.blinking_balls import BlinkingBalls
from slotbench.data.balls.bouncing_balls import BouncingBalls
from slotbench.data.base import LoaderOptions, SlotDataModule
from slotbench.registry import load
from slotbench.tasks.long_context_reasoning import LongContextReasoning
from slotbench.tasks.rollouts.conditions import RolloutOptions
from slotbench.tasks.slot_autoencoding import SlotAutoencoding
from slotbench.tasks.slot_task import SlotTask
from slotbench.tasks.video_prediction import VideoPrediction

PROCESSES = 2
STEPS = 6

# neither a multiple of a batch nor of the processes: the last batch has 2 clips and 1, and no group is full at the end
_SIZES = {"train_size": 22, "val_size": 7, "test_size": 7}
_BALLS: dict[str, int] = {"resolution": 16, "num_balls": 2}


def blinking_balls(clips: int) -> SlotDataModule:
    """Balls that blink; `clips` per batch."""
    return BlinkingBalls(
        num_frames=4,
        patches_per_side=2,
        **_BALLS,
        loader=LoaderOptions(batch_size=clips, val_batch_size=clips, **_SIZES),
    )


def bouncing_balls(clips: int, frames: int = 5, workers: int = 0) -> SlotDataModule:
    """Balls that bounce; `clips` per batch."""
    return BouncingBalls(
        num_frames=frames,
        eval_frames=frames + 3,
        **_BALLS,
        loader=LoaderOptions(batch_size=clips, val_batch_size=clips, num_workers=workers, **_SIZES),
    )


def _parts(core: str = "SlotSSM", **arguments: Any) -> dict[str, Any]:
    small = {"num_slots": 3, "dim": 16, "num_layers": 1, "num_heads": 2, "encoder_layers": 1, "state_dim": 4}
    return {
        "encoder": partial(load("encoders", "PatchEncoder"), dim=16),
        "core": partial(load("cores", core), **(small if core == "SlotSSM" else arguments)),
        "decoder": partial(load("decoders", "TransformerDecoder"), dim=16, num_layers=1, num_heads=2),
        # not Adam: it makes steps of one size of gradients that are nothing but rounding errors
        "optimizer": partial(torch.optim.SGD, lr=0.05, momentum=0.9),
    }


def _perturbed(task: SlotTask) -> SlotTask:
    # the head starts at zero, which would hide every difference
    torch.nn.init.normal_(task.decoder.head.weight)  # type: ignore[arg-type, union-attr]
    return task


def long_context(data: SlotDataModule, core: str = "SlotSSM", **arguments: Any) -> SlotTask:
    """Reads and paints, with classes that weigh differently."""
    torch.manual_seed(0)
    weights = [0.2] + [1.0 + index for index in range(data.spec.target.channels - 1)]
    return _perturbed(
        LongContextReasoning(
            **_parts(core, **arguments), data_spec=data.spec, class_weights=weights, dense_targets=True
        )
    )


def prediction(data: SlotDataModule, core: str = "SlotSSM", **arguments: Any) -> SlotTask:
    """Predicts four frames, scored in groups of three clips in the test."""
    torch.manual_seed(0)
    settings = {"rollout": RolloutOptions(context=4, horizon=4, group_size=3, report_horizons=(2,))}
    return _perturbed(VideoPrediction(**_parts(core, **arguments), data_spec=data.spec, **settings))


def autoencoding(data: SlotDataModule, core: str = "SlotAttention", **arguments: Any) -> SlotTask:
    """Takes clips apart into slots that are drawn; baselines are scored on the first two, which one process has."""
    torch.manual_seed(0)
    return SlotAutoencoding(
        partial(load("encoders", "CNNEncoder"), dim=16, channels=(8,), kernel_sizes=(3,), strides=(2,)),
        partial(load("cores", core), **(arguments or {"num_slots": 3, "dim": 16, "slot_init": "gaussian"})),
        partial(load("decoders", "SpatialBroadcastDecoder"), channels=4, initial_rgb=0.5),
        optimizer=partial(torch.optim.Adam, lr=1e-3),
        data_spec=data.spec,
        baseline_clips=2,
    )


class Seen(lightning.Callback):
    """Which clips this process was given, batch by batch, and the losses of the training."""

    def __init__(self) -> None:
        self.clips: dict[str, list[list[int]]] = {"train": [], "validate": [], "test": []}
        self.draws: list[Tensor] = []

    def _add(self, stage: str, batch: Any) -> None:
        self.clips[stage].append(batch.index.tolist())

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.draws.append(torch.rand(2))
        self._add("train", batch)

    def on_validation_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, *rest: Any) -> None:
        self._add("validate", batch)

    def on_test_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, *rest: Any) -> None:
        self._add("test", batch)


class Stop(lightning.Callback):
    """Ends the training after so many steps, of which its schedule knows nothing."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def on_train_batch_end(self, trainer: Any, *rest: Any) -> None:
        trainer.should_stop = trainer.global_step >= self.steps


def trainer_for(processes: int, *callbacks: lightning.Callback, **settings: Any) -> lightning.Trainer:
    """A trainer that writes nothing."""
    together: dict[str, Any] = {"strategy": "ddp"} if processes > 1 else {}
    quiet: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    return lightning.Trainer(
        accelerator="cpu",
        devices=processes,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        callbacks=[*callbacks],
        **(together | quiet | {"max_steps": STEPS} | settings),
    )


def numbers(trainer: lightning.Trainer) -> dict[str, float]:
    """What was logged last, without what is a time."""
    return {name: float(value) for name, value in trainer.callback_metrics.items() if "sampling_fps" not in name}


def weights(task: SlotTask) -> dict[str, Tensor]:
    """A copy of the parameters."""
    return {name: value.detach().clone() for name, value in task.named_parameters()}


def train_and_test(
    processes: int, make: Callable[[SlotDataModule], SlotTask], make_data: Callable[[int], SlotDataModule]
) -> dict[str, Any]:
    """Trains for more than an epoch, then validates and tests: weights, scores, and which clips were read."""
    data, seen = make_data(4 // processes), Seen()
    task = make(data)
    trainer = trainer_for(processes, seen, limit_val_batches=0)
    trainer.fit(task, datamodule=data)
    found: dict[str, Any] = {"weights": weights(task), "train": numbers(trainer)}
    found |= evaluate(processes, task, make_data)
    return found | {"clips": seen.clips | {key: found["clips"][key] for key in ("validate", "test")}}


def evaluate(processes: int, task: SlotTask, make_data: Callable[[int], SlotDataModule]) -> dict[str, Any]:
    """Scores of validation and test, and which clips were read."""
    seen, found = Seen(), {}
    for stage in ("validate", "test"):
        trainer = trainer_for(processes, seen)
        getattr(trainer, stage)(task, datamodule=make_data(4 // processes), verbose=False)
        found[stage] = numbers(trainer)
    found["headlines"] = [(headline.metric, headline.baselines) for headline in task.headlines()]
    return found | {"clips": seen.clips}


def stop_and_resume(processes: int, folder: Path) -> dict[str, Any]:
    """A training whose slots are drawn and whose clips come from worker processes, in one go and in two."""
    found: dict[str, Any] = {}
    for name, stops in {"at once": [STEPS], "in two": [3, STEPS]}.items():
        seen, checkpoint = Seen(), None
        for stop in stops:
            data = bouncing_balls(2, frames=2, workers=1)
            task = autoencoding(data)
            trainer = trainer_for(processes, seen, Stop(stop), limit_val_batches=0)
            trainer.fit(task, datamodule=data, ckpt_path=checkpoint)
            checkpoint = str(folder / f"{name}.ckpt")
            trainer.save_checkpoint(checkpoint)
        found[name] = {"weights": weights(task), "clips": seen.clips["train"], "draws": torch.stack(seen.draws)}
    return found


def every_parameter(processes: int) -> dict[str, bool]:
    """Trains two steps of other cores: the second one fails if a parameter had no gradient in the first."""
    found = {}
    pairs = {
        "RIM": (long_context, blinking_balls),
        "SlotTransformer": (prediction, bouncing_balls),
        "PSB": (autoencoding, partial(bouncing_balls, frames=2)),
    }
    for core, (make, make_data) in pairs.items():
        data = make_data(2)
        trainer = trainer_for(processes, max_steps=2, limit_val_batches=0)
        trainer.fit(make(data, core, num_slots=3, dim=16), datamodule=data)
        found[core] = trainer.global_step == 2
    return found


def too_few_clips(processes: int) -> str:
    """What is said when there is no clip for a process."""
    data = BouncingBalls(resolution=16, loader=LoaderOptions(val_size=1))
    try:
        trainer_for(processes).validate(prediction(data), datamodule=data, verbose=False)
    except ValueError as error:
        return str(error)
    return ""


def work(rank: int, folder: str) -> None:
    """All of it, in one of two processes that know one another; what it found goes to a file."""
    meet(rank, folder)
    drawn = bouncing_balls(2, frames=2)
    found = {
        "long_context": train_and_test(PROCESSES, long_context, blinking_balls),
        "prediction": train_and_test(PROCESSES, prediction, bouncing_balls),
        "autoencoding": evaluate(PROCESSES, autoencoding(drawn), partial(bouncing_balls, frames=2)),
        "resume": stop_and_resume(PROCESSES, Path(folder)),
        "every parameter": every_parameter(PROCESSES),
        "too few": too_few_clips(PROCESSES),
    }
    part(rank, folder, found)


def meet(rank: int, folder: str) -> None:
    """Makes this process one of two that know one another."""
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    torch.set_num_threads(1)
    os.environ |= {"LOCAL_RANK": str(rank), "NODE_RANK": "0", "WORLD_SIZE": str(PROCESSES), "PL_GLOBAL_SEED": "5"}
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=PROCESSES)


def part(rank: int, folder: str, found: dict[str, Any]) -> None:
    """Writes down what this process has found."""
    torch.save(found, Path(folder) / f"{rank}.pt")
    distributed.destroy_process_group()
