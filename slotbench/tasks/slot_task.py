"""SlotTask, the task of encoder, temporal core and decoder: builds them from their sizes and checks their outputs."""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from torch import Tensor, nn
from torch.optim import AdamW

from slotbench.interfaces import (
    CoreOutput,
    DataSpec,
    Decoded,
    Objective,
    PartError,
    SlotSpec,
    State,
    TokenSpec,
    VideoBatch,
)
from slotbench.metrics.discovery_scores import DiscoveryScores
from slotbench.tasks.core_check import check_laws
from slotbench.tasks.factories import (
    CoreFactory,
    DecoderFactory,
    EncoderFactory,
    ObjectiveFactory,
    OptimizerFactory,
    ScheduleFactory,
)
from slotbench.tasks.metric_weights import MetricWeights
from slotbench.tasks.optimisation import Decay, WarmupCosine
from slotbench.tasks.part_checks import check_core_output, check_decoded, check_tokens, check_views, part_of, spec_of
from slotbench.tasks.task import Task

__all__ = ["SlotTask", "frame_by_frame", "may_be_cut"]

Method = TypeVar("Method", bound=Callable[..., Any])


class SlotTask(Task, ABC):
    """Encoder, temporal core and decoder, wired together for one question.

    A subclass calls the parts by `encoded`, `tracked` and `decoded`, which hold their outputs against the sizes that
    they announce. The parts come as factories, and the task supplies the sizes; in Python they may also come built, and
    are then given to `load_from_checkpoint` again. Arguments of its bases are not explained again by a subclass.

    Args:
        encoder: makes an encoder from the input's `VideoSpec`.
        core: makes a temporal core from the encoder's `TokenSpec`.
        decoder: makes a decoder from the core's `SlotSpec` and the target's `VideoSpec`.
        parts_spec: sizes that the parts are built from where they are not the data's own; a subclass gives it.
        terms: objectives whose channels the decoder paints in place of the target's; a subclass that adds them up
            gives them.

    Attributes:
        metric_weights: files of the networks that score frames and videos, for subclasses that take them.
        objectives: the terms of the loss by the names that they are logged under; empty for a loss of the task's own.
    """

    metric_weights: MetricWeights = MetricWeights()

    def __init__(
        self,
        encoder: EncoderFactory,
        core: CoreFactory,
        decoder: DecoderFactory,
        optimizer: OptimizerFactory = AdamW,
        schedule: ScheduleFactory = WarmupCosine,
        init_from: str | None = None,
        data_spec: DataSpec | None = None,
        decay: Decay = "matrices",
        parts_spec: DataSpec | None = None,
        terms: Sequence[ObjectiveFactory] | None = None,
    ):
        given = {"encoder": encoder, "core": core, "decoder": decoder}
        built = [name for name, part in given.items() if isinstance(part, nn.Module)]
        self.unsaved = [*self.unsaved, *built]
        super().__init__(optimizer, schedule, init_from, data_spec, decay)
        sizes = parts_spec or self.data_spec
        self.encoder = part_of(encoder, "encoder", sizes.input)
        self.core = part_of(core, "core", spec_of(self.encoder, "encoder", TokenSpec))
        slots = spec_of(self.core, "core", SlotSpec)
        made = [part_of(term, "objective", slots, sizes.target) for term in terms or ()]
        self.objectives = nn.ModuleDict(_by_name(made))
        if self.objectives:
            channels = sum(term.paints for term in made)
            sizes = replace(sizes, target=replace(sizes.target, channels=channels))
        self.decoder = part_of(decoder, "decoder", slots, sizes.target)
        check_views(self.encoder, sizes.input, self.decoder, sizes.target)
        self._sizes = sizes

    @property
    def parts(self) -> Mapping[str, nn.Module]:
        """Encoder, core and decoder."""
        return {"encoder": self.encoder, "core": self.core, "decoder": self.decoder}

    def encoded(self, batch: VideoBatch) -> Tensor:
        """The encoder's tokens "batch time tokens dim"; a `PartError` if they are not what it announces."""
        tokens = self.encoder(batch)
        check_tokens(self.encoder, tokens, batch, self._sizes.input)
        return tokens

    def tracked(self, tokens: Tensor, state: State | None = None) -> CoreOutput:
        """The core's output; a `PartError` if it is not what the core announces. A fit's first also tries its laws."""
        if self.is_attached and self.trainer.state.fn == "fit" and "core" not in self._checked:
            self._checked.add("core")
            check_laws(self.core, tokens, state)
        output = self.core(tokens, state)
        check_core_output(self.core, output, tokens)
        return output

    def decoded(self, slots: Tensor, batch: VideoBatch | None = None) -> Decoded:
        """What the decoder makes of slots; a `PartError` if it has another size than the target."""
        decoded = self.decoder(slots, batch)
        check_decoded(self.decoder, decoded, slots, self._sizes.target, batch)
        return decoded

    def setup(self, stage: str) -> None:
        """Reads the networks of scores: for a test to use them, before a training to see that they are there."""
        super().setup(stage)
        if stage in ("fit", "test"):
            networks = self.metric_weights.load_lpips(), self.metric_weights.load_i3d()
            if stage == "test" and any(network is not None for network in networks):
                self.scores_of("test").use_networks(*networks)

    def on_test_start(self) -> None:
        """Has a test score how masks follow objects."""
        scores = self.scores_of("test")
        if isinstance(scores, DiscoveryScores):
            scores.tracks = True


def _by_name(terms: Sequence[nn.Module]) -> dict[str, nn.Module]:
    """Objectives by the names of their classes in small letters; the second of a class has a 2 behind it."""
    found: dict[str, nn.Module] = {}
    for term in terms:
        if not isinstance(term, Objective):
            raise PartError(f"objectives has a {type(term).__name__}; expected one of: slotbench plugins objectives")
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(term).__name__).lower()
        before = sum(type(other) is type(term) for other in found.values())
        found[f"{name}_{before + 1}" if before else name] = term
    if found and not any(term.paints for term in found.values()):
        raise PartError(f"objectives are {', '.join(found)}, of which none trains the decoder: add Reconstruction")
    return found


def frame_by_frame(method: Method) -> Method:
    """Marks a `forward` or `loss` that treats every frame alike, so that a long clip may be read piece by piece.

    One that overrides it bears no mark, and is given clips whole, since it may join frames that are far apart.
    """
    method.__dict__["frame_by_frame"] = True
    return method


def may_be_cut(method: Callable[..., Any]) -> bool:
    """Whether a method is marked by `frame_by_frame`."""
    return getattr(method, "frame_by_frame", False)
