"""SlotTask, the task of encoder, temporal core and decoder: builds them from their sizes and checks their outputs."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterable, Mapping

from lightning.pytorch.trainer.states import TrainerFn
from torch import nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.hooks import RemovableHandle

from slotbench.interfaces import (
    DataSpec,
    Decoder,
    Encoder,
    SlotSpec,
    TemporalCore,
    TokenSpec,
    VideoSpec,
)
from slotbench.metrics.discovery_scores import DiscoveryScores
from slotbench.tasks.optimisation import WarmupCosine
from slotbench.tasks.optimised_module import Decay
from slotbench.tasks.part_checks import PartName, check_first_output, check_views, data_spec_of, part_of, spec_of
from slotbench.tasks.task import Task

__all__ = ["SlotTask"]


class SlotTask(Task, ABC):
    """Encoder, temporal core and decoder, wired together for one question.

    A subclass writes `forward`, `loss` of what `forward` returns, and its scores, as for every `Task`. The parts come
    as factories: the configuration gives every argument but the size, and the task supplies the size. In Python they
    may also come built; a checkpoint does not say then what they were built from, and `load_from_checkpoint` is given
    them again.

    Arguments that are not explained here are those of `Task`.

    Args:
        encoder: makes an encoder from the input's `VideoSpec`.
        core: makes a temporal core from the encoder's `TokenSpec`.
        decoder: makes a decoder from the core's `SlotSpec` and the target's `VideoSpec`.
        data_spec: sizes of the data; by default those that a built encoder and decoder are for.
        parts_spec: sizes that the parts are built from where they are not the data's own; a subclass gives it.

    Raises:
        ValueError: without a `data_spec`, and for a `decay` that there is not.
        PartError: a part announces no size, was built from other sizes, takes fewer views than there are, or its first
            output has another shape than announced.
    """

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
        given = {"encoder": encoder, "core": core, "decoder": decoder}
        built = [name for name, part in given.items() if isinstance(part, nn.Module)]
        self.unsaved = [*self.unsaved, *built]
        super().__init__(optimizer, schedule, init_from, data_spec or data_spec_of(encoder, decoder), decay)
        sizes = parts_spec or self.data_spec
        self.encoder = part_of(encoder, "encoder", sizes.input)
        self.core = part_of(core, "core", spec_of(self.encoder, "encoder", TokenSpec))
        self.decoder = part_of(decoder, "decoder", spec_of(self.core, "core", SlotSpec), sizes.target)
        check_views(self.encoder, sizes.input, self.decoder, sizes.target)
        self._sizes = sizes
        self._checks: list[RemovableHandle] = []
        self._check_first_outputs()

    @property
    def parts(self) -> Mapping[str, nn.Module]:
        """Encoder, core and decoder."""
        return {"encoder": self.encoder, "core": self.core, "decoder": self.decoder}

    def setup(self, stage: str) -> None:
        """Loads the weights named by `init_from`, once, before training starts; has the parts' outputs checked."""
        self._check_first_outputs()
        super().setup(stage)

    def on_validation_start(self) -> None:
        """Has the last validation of a training, and any other evaluation, keep the scores of every clip's masks."""
        trainer = self.trainer
        goes_on = trainer.state.fn == TrainerFn.FITTING and trainer.global_step < trainer.estimated_stepping_batches
        self._score_per_clip("val", not goes_on)

    def on_test_start(self) -> None:
        """Has the test keep the scores of every clip's masks."""
        self._score_per_clip("test", True)

    def _score_per_clip(self, stage: str, per_clip: bool) -> None:
        scores = self.scores_of(stage)
        if isinstance(scores, DiscoveryScores):
            scores.per_clip = per_clip

    def _check_first_outputs(self) -> None:
        """Has the next output of each part held against its sizes."""
        for check in self._checks:
            check.remove()  # that of an earlier stage, if it did not come to a call
        parts: dict[PartName, nn.Module] = {"encoder": self.encoder, "core": self.core, "decoder": self.decoder}
        self._checks = [check_first_output(part, name, self._sizes) for name, part in parts.items()]
