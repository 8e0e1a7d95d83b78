"""Task, the base of every task: trains, evaluates, predicts, logs and reports; `slot_task` has the three parts."""

from __future__ import annotations

import os
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import torch
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor, nn
from torch.optim import AdamW

from slotbench.data.base import SlotDataModule
from slotbench.errors import UserError
from slotbench.interfaces import DataSpec, Headline, Reporter, VideoBatch, to_unit_range
from slotbench.lightning_compat import evaluate_with_ordinary_tensors
from slotbench.metric_info import MetricInfo, describe
from slotbench.metrics.means import Mean
from slotbench.metrics.scores import Score, Scores, Stage
from slotbench.nn.slot_init import drawn_by_clip
from slotbench.pretrained.weights import WeightReport, match_weights
from slotbench.tasks.factories import OptimizerFactory, ScheduleFactory
from slotbench.tasks.optimisation import Decay, WarmupCosine
from slotbench.tasks.optimised_module import OptimisedModule
from slotbench.tasks.part_checks import check_batch
from slotbench.tasks.resumed_training import callback_settings, check_optimizer_state, lay_over_callbacks
from slotbench.tasks.saving.checkpoint_fit import check_checkpoint
from slotbench.tasks.saving.model_folder import write_model
from slotbench.tasks.saving.saved_arguments import RebuiltModule

__all__ = ["Task"]


class Task(OptimisedModule, RebuiltModule, Reporter, ABC):
    """A model of parts, and one question that it is asked.

    A subclass makes its parts, says by `parts` which they are, and writes `forward`, `loss` of what `forward` returns,
    and, for scores beside the loss, hands a `Scores` for each stage to `declare_scores` and names the ones that matter
    in `reported`. Where a step does more than `forward` and `loss`, it overrides `training_loss`, `score` or `predict`.
    A task reads `VideoBatch.pixels`. Several processes train and score as one.

    Args:
        optimizer: makes an optimiser from parameter groups; AdamW without `fused` or `foreach` is fused.
        schedule: makes a learning-rate schedule from the optimiser and the number of steps of the whole training.
        init_from: a run folder or a checkpoint whose weights to start from, where name and shape match.
        data_spec: sizes of the input and of the target; the command line takes it from the data.
        decay: what weight decay is for: "matrices", or "all" parameters in one group.
    """

    data_spec: DataSpec

    def __init__(
        self,
        optimizer: OptimizerFactory = AdamW,
        schedule: ScheduleFactory = WarmupCosine,
        init_from: str | None = None,
        data_spec: DataSpec | None = None,
        decay: Decay = "matrices",
    ):
        super().__init__(optimizer, schedule, decay)
        if data_spec is None:
            raise ValueError(
                f"{type(self).__name__} needs data_spec, the sizes of its input and target: the command line takes it "
                "from the data; in Python pass data_spec=data.spec"
            )
        self.data_spec = data_spec
        self.remember_arguments(data_spec=asdict(data_spec))
        self._init_from = init_from
        self.losses = nn.ModuleDict({stage: Mean() for stage in ("val", "test")})
        self.scores = nn.ModuleDict()
        self._stage: Stage = "val"
        self._seed: int | None = None
        self._quiet_about: set[str] = set()
        self.weight_report: WeightReport | None = None
        # training or evaluation, whose first batch has been checked, and "core", whose laws have been tried
        self._checked: set[bool | str] = set()
        self._unscored: dict[str, dict[str, Any]] = {}
        self._scored_on = _Seen()
        self._callback_settings: dict[str, dict[str, Any]] = {}

    @property
    @abstractmethod
    def parts(self) -> Mapping[str, nn.Module]:
        """What the model is made of, by the names that the configuration has for it, in the order of the data's way."""

    @abstractmethod
    def loss(self, output: Any, batch: VideoBatch) -> Tensor:
        """What is minimised, of what `forward` returned for a batch; the mean over its clips."""

    def training_loss(self, batch: VideoBatch) -> Tensor:
        """The loss of a training batch."""
        return self.loss(self(batch), batch)

    def score(self, batch: VideoBatch, scores: Any) -> Tensor:
        """Adds a batch to the scores of its stage, if the task has declared any, and returns its loss."""
        output = self(batch)
        if scores is not None:
            scores.update(output, batch)
        return self.loss(output, batch)

    def predict(self, batch: VideoBatch) -> dict[str, Tensor]:
        """What `slotbench predict` shows and saves, by name; nothing by default. Begin with `self.as_batch(batch)`."""
        return {}

    def __call__(self, batch: Any, *more: Any, **named: Any) -> Any:
        """`forward` of a batch, or of a video that is none yet (`as_batch`)."""
        return super().__call__(self.as_batch(batch), *more, **named)

    def as_batch(self, video: Any) -> Any:
        """Frames as `VideoBatch.from_numpy` takes them, or a tensor of them, as a batch; a batch as it is."""
        if not isinstance(video, np.ndarray | Tensor):
            return video
        batch = VideoBatch.from_numpy(video) if isinstance(video, np.ndarray) else VideoBatch(video)
        check_batch(batch, self.data_spec.input)
        return batch.to(self.device)

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes what `slotbench.from_pretrained(folder)` reads; `slotbench export` adds a card and the scores."""
        if self.unsaved or not self.hparams:
            given = ", ".join(self.unsaved) or "arguments"
            raise UserError(f"the task's {given} cannot be written down: build it from slotbench.factory(NAME, ...)")
        Path(folder).mkdir(parents=True, exist_ok=True)
        write_model(Path(folder), type(self), self.hparams, self.state_dict())

    def received(self, batch: VideoBatch) -> VideoBatch:
        """A step's batch with pixels in [0, 1]; the first one of a stage, in training and in evaluation, is checked."""
        batch = to_unit_range(batch)
        if self.training not in self._checked:
            check_batch(batch, self.data_spec.input)
            self._checked.add(self.training)
        return batch

    def declare_scores(self, val: Scores, test: Scores) -> None:
        """Has these updated by `score` in validation and test, closed after it, and logged under the stage's name."""
        self.scores = nn.ModuleDict({"val": val, "test": test})
        self._unscored = {stage: deepcopy(self.scores_of(stage).kept()) for stage in self.scores}

    def training_step(self, batch: VideoBatch, batch_idx: int) -> Tensor:
        """One batch's loss, logged as `train/loss`: the mean over processes, which have equally many clips."""
        loss = self.training_loss(self.received(batch))
        self.log("train/loss", loss, prog_bar=True, batch_size=len(batch), sync_dist=True)
        return loss

    def validation_step(self, batch: VideoBatch, batch_idx: int) -> None:
        """Loss and scores on the validation set."""
        self._evaluate("val", batch, batch_idx)

    def test_step(self, batch: VideoBatch, batch_idx: int) -> None:
        """Loss and scores on the test set."""
        self._evaluate("test", batch, batch_idx)

    def predict_step(self, batch: VideoBatch, batch_idx: int) -> dict[str, Tensor]:
        """What `predict` makes of a batch, with the random numbers of its clips."""
        batch = self.received(batch)
        with self.deterministic_sampling(batch, batch_idx):
            return self.predict(batch)

    def on_validation_epoch_end(self) -> None:
        """Logs the scores, the first time with their baselines."""
        self._close("val")

    def on_test_epoch_end(self) -> None:
        """Logs the scores, the first time with their baselines."""
        self._close("test")

    def _evaluate(self, stage: Stage, batch: VideoBatch, batch_idx: int) -> None:
        batch = self.received(batch)
        with self.deterministic_sampling(batch, batch_idx):
            loss = self.score(batch, self.scores_of(stage))
        self._mean_loss(stage).update(loss, len(batch))

    def _close(self, stage: Stage) -> None:
        mean, scores = self._mean_loss(stage), self.scores_of(stage)
        if not mean.update_called:  # a task with a step of its own
            return
        values = {"loss": float(mean.compute())}
        mean.reset()
        if scores is not None:
            values |= scores.close(keep_references=not self.trainer.sanity_checking)
        if not self.trainer.sanity_checking:
            self._stage = stage
            self._log_scores(stage, values)

    def _mean_loss(self, stage: str) -> Mean:
        mean = self.losses[stage]
        assert isinstance(mean, Mean)
        return mean

    def scores_of(self, stage: str) -> Any:
        """The `Scores` of a stage; None where the task has declared none."""
        return dict(self.scores.items()).get(stage)

    def _log_scores(self, stage: Stage, scores: Mapping[str, float]) -> None:
        """Logs what every process has computed alike, from all clips, under the stage's name."""
        named = {f"{stage}/{name}": value for name, value in scores.items()}
        if self.trainer.world_size > 1 and named.keys() - self._quiet_about:
            # to have Lightning average equal numbers would take two messages each, and there may be hundreds
            self._quiet_about |= named.keys()
            known = "|".join(re.escape(name) for name in named)
            warnings.filterwarnings("ignore", message=rf"It is recommended to use `self\.log\('({known})'")
        self.log_dict(named)

    @property
    def reported(self) -> tuple[Score, ...]:
        """The scores that are headlines; a class attribute will do."""
        return (Score("loss", "loss", higher_is_better=False),)

    def headlines(self) -> list[Headline]:
        """The scores that are `reported`, of the stage that was evaluated last, with baselines and oracles."""
        scores = self.scores_of(self._stage)
        references, notes = ({}, {}) if scores is None else (scores.references, scores.notes)
        pseudo = getattr(self._data, "pseudo_masks", False)
        return [score.headline(self._stage, references, pseudo, notes) for score in self.reported]

    def metric_infos(self, names: Iterable[str]) -> dict[str, MetricInfo]:
        """What logged scores are, by their names without the stage: as `Scores` and `reported` declare them."""
        scores = [self.scores_of(stage) for stage in self.scores]
        references = {str(name): name for one in scores for name in one.references}
        declared = [info for one in scores for info in one.declared]
        loss = MetricInfo("loss", "loss", False)
        known = [loss, *declared, *(score.info for score in self.reported)]
        return describe([references.get(name, name) for name in names], known)

    def setup(self, stage: str) -> None:
        """Loads the weights named by `init_from`, once, before training starts."""
        self._forget_clips()
        if self.is_attached:
            evaluate_with_ordinary_tensors(self.trainer)
            # before a checkpoint is laid over them
            self._callback_settings = callback_settings(self.trainer)
        if not self._scored_on.is_of(self._data):
            self.forget_references()
        self._scored_on = _Seen(self._data)
        if stage == "fit" and not self.training:
            # Lightning trains in the mode that it finds, and whoever has looked at a model has left it in evaluation
            self.train()
        self._checked = set()
        # before a checkpoint may put another random state in place
        self._seed = int(os.environ.get("PL_GLOBAL_SEED", torch.initial_seed()))
        if stage == "fit" and self._init_from is not None and self.weight_report is None:
            self.weight_report = match_weights(self, Path(self._init_from))
            if self.trainer.is_global_zero:
                print(self.weight_report)

    @property
    def is_attached(self) -> bool:
        """Whether the task has a trainer."""
        try:
            return self.trainer is not None
        except RuntimeError:
            return False

    @property
    def _data(self) -> SlotDataModule | None:
        """The data module of the trainer, if there is one, and it is one of slotbench."""
        data = getattr(self.trainer, "datamodule", None) if self.is_attached else None
        return data if isinstance(data, SlotDataModule) else None

    def forget_references(self) -> None:
        """Forgets baselines and oracles, which are of one data set; called before each stage with another one."""
        for stage, kept in self._unscored.items():
            self.scores_of(stage).restore(deepcopy(kept))

    def _forget_clips(self) -> None:
        """Leaves nothing in the scores of an evaluation that was broken off, or of a loop of one's own."""
        for stage in self.losses:
            self._mean_loss(stage).reset()
            if (scores := self.scores_of(stage)) is not None:
                scores.reset()

    def on_train_batch_start(self, batch: VideoBatch, batch_idx: int) -> None:
        """With several processes, lets each draw its own random numbers, by seed, process and batch of the training."""
        if self.trainer.world_size > 1:
            batches = self.trainer.fit_loop.total_batch_idx
            drawn = np.random.SeedSequence([self._seed or 0, self.global_rank, batches]).generate_state(1, np.uint64)
            torch.manual_seed(int(drawn[0]))

    @contextmanager
    def deterministic_sampling(self, batch: VideoBatch, seed: int) -> Iterator[None]:
        """Context in which the same weights give the same output; afterwards the run's random state is restored.

        Slots are drawn for each clip by its number in the data set, so that neither the other clips of the batch nor
        the number of processes matter. What else is drawn comes from a generator of this seed, batch by batch.
        """
        with isolate_rng(), drawn_by_clip(range(len(batch)) if batch.index is None else batch.index.tolist()):
            torch.manual_seed(seed)
            yield

    def check_resumed(self, checkpoint: dict[str, Any]) -> None:
        """Refuses settings with which a training cannot be resumed from this checkpoint, which is spent then."""
        check_checkpoint(checkpoint, self)
        check_optimizer_state(checkpoint, self.build_optimizer(), self.hparams)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds baselines and oracles, and settings outside the task that are compared when the training is resumed."""
        checkpoint |= {"total_steps": self._planned, "callback_settings": self._callback_settings}
        checkpoint["references"] = {stage: self.scores_of(stage).kept() for stage in self.scores}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Checks that a checkpoint fits, before its weights are loaded; a resumed training takes over its baselines."""
        check_checkpoint(checkpoint, self)
        if not self.is_attached or self.trainer.state.fn != TrainerFn.FITTING:
            return
        self._resumed = checkpoint
        lay_over_callbacks(checkpoint, self._callback_settings)
        for stage, kept in checkpoint.get("references", {}).items():
            if (scores := self.scores_of(stage)) is not None:
                scores.restore(kept)


class _Seen:
    """A data module that has been seen, which it does not keep alive; copies and other processes have seen none."""

    def __init__(self, data: Any = None) -> None:
        self._data = None if data is None else ref(data)

    def is_of(self, data: Any) -> bool:
        return data is not None and self._data is not None and self._data() is data

    def __reduce__(self) -> tuple[type[_Seen], tuple[()]]:
        return _Seen, ()
