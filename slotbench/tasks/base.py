"""What every task shares: it builds the parts from their sizes, optimises them, and says what there is to report."""

from __future__ import annotations

import math
import os
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.plugins.precision import MixedPrecision, Precision
from lightning.pytorch.utilities import GradClipAlgorithmType
from lightning.pytorch.utilities.seed import isolate_rng
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.hooks import RemovableHandle

from slotbench.errors import lines
from slotbench.interfaces import DataSpec, Decoder, Encoder, SlotSpec, TemporalCore, TokenSpec, VideoBatch, VideoSpec
from slotbench.metrics.means import Mean
from slotbench.nn.parameters import decay_groups, one_group
from slotbench.nn.slot_init import drawn_by_clip
from slotbench.nn.weights import WeightError, WeightReport, match_weights
from slotbench.tasks.checkpoint_fit import misfit, misfit_of_frames
from slotbench.tasks.optimisation import NO_END, TrainingSettingsError, build_optimizer, build_schedule
from slotbench.tasks.part_checks import PartName, check_first_output, spec_of
from slotbench.tasks.schedule import WarmupCosine

__all__ = ["Decay", "Headline", "SlotTask"]

Decay = Literal["matrices", "all"]


@dataclass(frozen=True)
class Headline:
    """A number worth a line in the final report, beside what trivial answers score.

    Attributes:
        metric: its key among the logged metrics, such as "val/colour_accuracy".
        label: what it is, in a few words.
        floors: name of a trivial answer -> its score on the same data.
        oracles: name of a predictor that is given the simulator's own state -> its score; no trivial answer.
        higher_is_better: the direction.
        needs: what there is to do for a value, if there may be none: an option to give, or a command.
    """

    metric: str
    label: str
    floors: dict[str, float] = field(default_factory=dict)
    higher_is_better: bool = True
    needs: str | None = None
    oracles: dict[str, float] = field(default_factory=dict)


class SlotTask(LightningModule, ABC):
    """Encoder, temporal core and decoder, wired together for one question.

    The parts come as factories: the configuration gives every argument but the size, and the task supplies the size.

    Several processes train and score as one: see `add_loss` and `log_scores` for what is logged, `drawn_alike` for
    random numbers in evaluation, and `on_train_batch_start` for those in training.

    Args:
        encoder: makes an encoder from the input's `VideoSpec`.
        core: makes a temporal core from the encoder's `TokenSpec`.
        decoder: makes a decoder from the core's `SlotSpec` and the target's `VideoSpec`.
        optimizer: makes an optimiser from parameter groups; what decays, `decay` says.
        schedule: makes a learning-rate schedule from the optimiser and the number of steps of the whole training.
        init_from: a run folder or a checkpoint whose weights to start from, where name and shape match.
        data_spec: sizes of the input and of the target; the command line takes it from the data.
        decay: what the optimiser's weight decay is for: "matrices", and everything else is left alone, or "all"
            parameters in one group, norms, biases and time constants included.
        parts_spec: sizes that the parts are built from where they are not the data's own; a subclass gives it.

    Raises:
        ValueError: without a `data_spec`, and for a `decay` that there is not.
        PartError: a part does not say what it hands over, or, at its first output, hands over something else.
    """

    monitor: ClassVar[tuple[str, Literal["min", "max"]] | None] = None
    """The logged metric that decides which checkpoint is the best, and its direction."""

    def __init__(
        self,
        encoder: Callable[[VideoSpec], Encoder],
        core: Callable[[TokenSpec], TemporalCore],
        decoder: Callable[[SlotSpec, VideoSpec], Decoder],
        optimizer: Callable[[Iterable], Optimizer] = AdamW,
        schedule: Callable[[Optimizer, int], LRScheduler] = WarmupCosine,
        init_from: str | None = None,
        data_spec: DataSpec | None = None,
        decay: Decay = "matrices",
        parts_spec: DataSpec | None = None,
    ):
        super().__init__()
        if data_spec is None:
            raise ValueError(
                f"{type(self).__name__} needs data_spec, the sizes of its input and target: the command line takes it "
                "from the data; in Python pass data_spec=data.spec"
            )
        if decay not in get_args(Decay):
            raise ValueError(f"no decay named {decay!r}; choose one of {', '.join(get_args(Decay))}")
        self.data_spec = data_spec
        self._remember_configuration()
        sizes = parts_spec or data_spec
        self.encoder = encoder(sizes.input)
        self.core = core(spec_of(self.encoder, "encoder", TokenSpec))
        self.decoder = decoder(spec_of(self.core, "core", SlotSpec), sizes.target)
        self._target_spec = sizes.target
        self._checks: list[RemovableHandle] = []
        self._check_first_outputs()
        self._optimizer = optimizer
        self._schedule = schedule
        self._decay = decay
        self._init_from = init_from
        self.losses = nn.ModuleDict({stage: Mean() for stage in ("val", "test")})
        self._seed: int | None = None
        self._has_new_rate = False
        self._quiet_about: set[str] = set()
        self.weight_report: WeightReport | None = None

    @abstractmethod
    def headlines(self) -> list[Headline]:
        """The numbers of the final report, with the floors known so far."""

    @abstractmethod
    def pictures(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        """Pictures of what the model makes of `batch`, by name: uint8 arrays "height width 3"."""

    def plots(self) -> dict[str, np.ndarray]:
        """Plots of the whole evaluation that has just ended, by name, as `pictures`; none by default."""
        return {}

    def videos(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        """Moving pictures of what the model makes of `batch`, by name: uint8 "time height width 3"; none by default."""
        return {}

    @property
    def piece_frames(self) -> int | None:
        """Frames of a piece, if `predict` hands whole videos over piece by piece; None, the default, if clips.

        A task that says a number has `predict_step` go on from piece to piece (`slotbench.tasks.reading_on`) and a
        method `recording(folder, frames, save)` that gathers what it returns for one video, as `SlotRecording` does.
        """
        return None

    def setup(self, stage: str) -> None:
        """Loads the weights named by `init_from`, once, before training starts; has the parts' outputs looked at."""
        self._check_first_outputs()
        # before a checkpoint may put another random state in place
        self._seed = int(os.environ.get("PL_GLOBAL_SEED", torch.initial_seed()))
        if stage == "fit" and self._init_from is not None and self.weight_report is None:
            self.weight_report = match_weights(self, Path(self._init_from))
            if self.trainer.is_global_zero:
                print(self.weight_report)

    def _check_first_outputs(self) -> None:
        """Has the next output of each part held against its sizes."""
        for check in self._checks:
            check.remove()  # that of an earlier stage, if it did not come to a call
        parts: dict[PartName, nn.Module] = {"encoder": self.encoder, "core": self.core, "decoder": self.decoder}
        self._checks = [check_first_output(part, name, self._target_spec) for name, part in parts.items()]

    def on_train_batch_start(self, batch: VideoBatch, batch_idx: int) -> None:
        """With several processes, lets each draw its own random numbers, by seed, process and batch of the training.

        The seed is the same for all, so that without this all would drop the same units and draw the same slots. A
        resumed training draws what it would have drawn, though a checkpoint holds one process's random state.
        """
        if self.trainer.world_size > 1:
            batches = self.trainer.fit_loop.total_batch_idx
            drawn = np.random.SeedSequence([self._seed or 0, self.global_rank, batches]).generate_state(1, np.uint64)
            torch.manual_seed(int(drawn[0]))

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: int | float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clips as Lightning does, and in bfloat16 with a fused optimiser too.

        Lightning refuses that: such an optimiser takes gradients that a scaler has enlarged, and makes them small again
        only in its step, after the clipping. Bfloat16 has the range of float32, and no scaler.
        """
        plugin = self.trainer.precision_plugin
        if isinstance(plugin, MixedPrecision) and plugin.scaler is None and gradient_clip_val is not None:
            kind = GradClipAlgorithmType(gradient_clip_algorithm or "norm")
            Precision.clip_gradients(plugin, optimizer, gradient_clip_val, kind)
        else:
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)

    @contextmanager
    def drawn_alike(self, batch: VideoBatch, seed: int) -> Iterator[None]:
        """Within it, the same weights give the same output each time; the run's own random state is put back.

        Slots are drawn for each clip by its number in the data set, so that neither the other clips of the batch nor
        the number of processes matter. What else is drawn comes from a generator of this seed, batch by batch.
        """
        with isolate_rng(), drawn_by_clip(range(len(batch)) if batch.index is None else batch.index.tolist()):
            torch.manual_seed(seed)
            yield

    def log_training_loss(self, loss: Tensor, clips: int) -> None:
        """Logs `train/loss`, the mean over processes, which have equally many clips."""
        self.log("train/loss", loss, prog_bar=True, batch_size=clips, sync_dist=True)

    def add_loss(self, stage: str, loss: Tensor, clips: int) -> None:
        """Adds the mean loss of so many clips to the evaluation's."""
        self.losses[stage].update(loss, clips)  # type: ignore[operator]

    def close_loss(self, stage: str) -> dict[str, float]:
        """The mean loss over the clips of all processes since the last call, by its name, and forgets it."""
        mean = self.losses[stage]
        assert isinstance(mean, Mean)
        value = float(mean.compute())
        mean.reset()
        return {"loss": value}

    def log_scores(self, stage: str, scores: Mapping[str, float]) -> None:
        """Logs what every process has computed alike, from all clips, under the stage's name."""
        named = {f"{stage}/{name}": value for name, value in scores.items()}
        if self.trainer.world_size > 1 and named.keys() - self._quiet_about:
            # to have Lightning average equal numbers would take two messages each, and there may be hundreds
            self._quiet_about |= named.keys()
            known = "|".join(re.escape(name) for name in named)
            warnings.filterwarnings("ignore", message=rf"It is recommended to use `self\.log\('({known})'")
        self.log_dict(named)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Looks at a checkpoint before its weights are loaded, to say in a sentence what does not fit.

        Raises:
            WeightError: it has other tensors than the model, as another core's has, or one of another shape.
        """
        held = checkpoint["state_dict"]
        parts = {name: type(getattr(self, name)).__name__ for name in ("encoder", "core", "decoder")}
        saved = checkpoint.get(self.CHECKPOINT_HYPER_PARAMS_KEY) or {}
        other_frames = misfit_of_frames(asdict(self.data_spec), saved.get("data_spec"))
        problem = misfit(self.state_dict(), held, self.hparams, saved, parts)
        if problem is not None and self.strict_loading:
            raise WeightError(other_frames or problem)
        rows = {f"core.{name}": axis for name, axis in (self.core.slot_parameters() or {}).items()}
        for name, ours in self.state_dict().items():
            theirs = held.get(name, ours)
            if theirs.shape == ours.shape:
                continue
            there, here = list(theirs.shape), list(ours.shape)
            if (axis := rows.get(name)) is not None and there[:axis] + there[axis + 1 :] == here[:axis] + here[
                axis + 1 :
            ]:
                raise WeightError(
                    f"num_slots is {here[axis]}, and the checkpoint has {there[axis]} slots, which are learned, one "
                    "vector each: leave num_slots as it was, or train a core that draws its slots (slot_init gaussian)"
                )
            raise WeightError(
                other_frames
                or f"the checkpoint does not fit the model: {name} has the shape {there} there and {here} here; leave "
                "the model and the size of its input as they were in training"
            )

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """The optimiser over its parameter groups, and the schedule stepped after every batch."""
        groups = decay_groups(self.parameters()) if self._decay == "matrices" else one_group(self.parameters())
        optimizer = build_optimizer(self._optimizer, groups)
        schedule = build_schedule(self._schedule, optimizer, self.total_steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    @property
    def learning_rate(self) -> float | None:
        """The optimiser's learning rate before any schedule; None before there is an optimiser.

        Under this name Lightning's LearningRateFinder looks for it, and sets it.
        """
        optimizers = self.trainer.optimizers if self._trainer is not None else []
        group = optimizers[0].param_groups[0] if optimizers else {}
        rate = group.get("initial_lr", group.get("lr"))
        return None if rate is None else float(rate)

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        before = self.learning_rate
        if not before:
            raise ValueError("there is no learning rate to replace before the training has an optimiser")
        factor = float(rate) / before
        for config in self.trainer.lr_scheduler_configs:
            schedule: Any = config.scheduler
            # the schedule is in parts of this rate, and was built with the old one
            schedule.base_lrs = [factor * base for base in schedule.base_lrs]
            schedule._last_lr = [factor * last for last in schedule._last_lr]
        for optimizer in self.trainer.optimizers:
            for group in optimizer.param_groups:
                group["initial_lr"] = factor * group.get("initial_lr", group["lr"])
        self._has_new_rate = True

    def on_fit_start(self) -> None:
        """Lets the schedule, and not a learning rate that was found, say what the first step takes."""
        if self._has_new_rate:
            for config in self.trainer.lr_scheduler_configs:
                for group, rate in zip(config.scheduler.optimizer.param_groups, config.scheduler._last_lr, strict=True):
                    group["lr"] = rate

    def check_training_settings(self, total_steps: int | None, with_schedule: bool = True) -> None:
        """Builds an optimiser and a schedule to see whether they take their arguments; nothing is kept.

        Args:
            total_steps: of the training; None if nothing but the clock ends it.
            with_schedule: whether the number is known.

        Raises:
            TrainingSettingsError: they do not.
        """
        optimizer = build_optimizer(self._optimizer, [nn.Parameter(torch.zeros(1))])
        if with_schedule:
            build_schedule(self._schedule, optimizer, total_steps)

    def __deepcopy__(self, memo: dict[int, Any]) -> SlotTask:
        """A copy that shares the factories, which from the command line hold what cannot be copied.

        Lightning's averages of weights are such copies.
        """
        memo |= {id(factory): factory for factory in (self._optimizer, self._schedule)}
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        copied.__setstate__(deepcopy(self.__getstate__(), memo))
        return copied

    def _remember_configuration(self) -> None:
        """Keeps in checkpoints what rebuilds the task, as far as it is plain values that loading cannot execute.

        From the command line that is the whole configuration. A task built in Python from callables keeps nothing.
        """
        self.save_hyperparameters(logger=False)
        self.hparams["data_spec"] = asdict(self.data_spec)
        self.hparams.pop("parts_spec", None)  # the subclass finds it again
        if not all(_is_plain(value) for value in self.hparams.values()):
            self.hparams.clear()

    @property
    def total_steps(self) -> int | None:
        """Optimiser steps of the whole training, as the trainer plans it; None if nothing but the clock ends it."""
        steps = self.trainer.estimated_stepping_batches
        return int(steps) if math.isfinite(steps) else None

    @property
    def progress(self) -> float:
        """Share of the training that is done, 0 to 1.

        Raises:
            TrainingSettingsError: nothing but the clock ends the training, so nobody can say.
        """
        if self.total_steps is None:
            raise TrainingSettingsError(
                lines(f"{NO_END}, and {type(self).__name__} needs one", expected="--trainer.max_steps N beside it")
            )
        return self.global_step / max(1, self.total_steps)


def _is_plain(value: object) -> bool:
    """Whether `torch.load(weights_only=True)` reads it back: numbers, text and None, in lists and dictionaries."""
    if isinstance(value, dict):
        return all(_is_plain(key) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, str | int | float | bool)
