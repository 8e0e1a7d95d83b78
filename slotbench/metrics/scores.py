"""Scores of one stage of a task, with baselines, oracles and headlines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn
from torchmetrics import Metric

from slotbench.interfaces import Headline
from slotbench.metric_info import MASKS, MetricInfo, Reference

__all__ = ["Score", "Scores", "Stage"]

Stage = Literal["val", "test"]


@dataclass(frozen=True)
class Score:
    """A score that is a headline.

    Attributes:
        name: of the score, without the stage, such as "colour_accuracy".
        label: what it is, in a few words.
        higher_is_better: the direction.
        references: the name that its baselines and oracles are logged under, if it is not `name`.
        needs: how to get a value where there may be none: an option or a command.
        stage: the only stage that has it, if not both have.
        of_masks: whether it compares masks with the true ones.
    """

    name: str
    label: str
    higher_is_better: bool = True
    references: str | None = None
    needs: str | None = None
    stage: Stage | None = None
    of_masks: bool = False

    @property
    def info(self) -> MetricInfo:
        """The declaration under this name, which ends in its masks."""
        masks = self.name.rpartition("/")[2]
        return MetricInfo(self.name, self.label, self.higher_is_better, masks=masks if masks in MASKS else "")

    def headline(
        self,
        stage: Stage,
        references: Mapping[Reference, float],
        pseudo_masks: bool = False,
        notes: Mapping[str, str] = {},
    ) -> Headline:
        """The headline of a stage; `notes` are those of `Scores`."""
        label = self.label
        if pseudo_masks and self.of_masks:
            label += " (against pseudo masks)"
        known = references if self.stage in (None, stage) else {}
        of = self.references or self.name
        found: dict[str, dict[str, float]] = {"baseline": {}, "oracle": {}}
        for name, value in known.items():
            if name.of == of:
                found[name.kind][name.by] = value
        metric = f"{self.stage or stage}/{self.name}"
        baselines, oracles = found["baseline"], found["oracle"]
        return Headline(metric, label, baselines, self.higher_is_better, self.needs, oracles, notes.get(of, ""))


class Scores(nn.Module, ABC):
    """Scores of a data set over one evaluation, by name.

    What baselines and oracles score is named by a `Reference`, which knows the score that it stands beside. It is the
    same in every evaluation of the same data, and so is computed in the first one only: a subclass asks
    `wants_references` before it scores it.

    Attributes:
        references: baselines and oracles, once they have been scored.
        notes: which samples the latest scores leave out, by the name that their references are logged under.
    """

    def __init__(self) -> None:
        super().__init__()
        self.references: dict[Reference, float] = {}
        self.notes: dict[str, str] = {}
        self._restored = False
        self.metrics = nn.ModuleDict()
        self.lpips: Callable[[Tensor, Tensor], Tensor] | None = None

    @property
    def wants_references(self) -> bool:
        """Whether this evaluation is to score baselines and oracles."""
        return not self.references

    @property
    def declared(self) -> Sequence[MetricInfo]:
        """What the scores are, by the names that theirs begin with (`slotbench.metric_info.describe`)."""
        return ()

    def use_networks(self, lpips: nn.Module | None, i3d: nn.Module | None) -> None:
        """Scores by LPIPS, and where there are videos by FVD; no checkpoint holds the networks, which stay outside."""
        self.lpips = None if lpips is None else lambda predicted, true: lpips.to(true.device)(predicted, true)

    @abstractmethod
    def compute(self) -> dict[str, float]:
        """Every score that has been updated, by name. Gathers over processes, so every process must take part."""

    def reset(self) -> None:
        """Forgets every clip."""
        for module in self.modules():
            if isinstance(module, Metric):
                module.reset()

    def metric(self, name: str, make: type[Metric], like: Tensor, *args: int) -> Metric:
        """The metric of a score, made on first use: which scores there are may be known from the batch alone.

        Args:
            name: of the score.
            make: makes it, with `args`.
            like: on its device.
            *args: of the metric.
        """
        if name not in self.metrics:
            self.metrics[name] = make(*args).to(like.device)
        metric = self.metrics[name]
        assert isinstance(metric, Metric)
        return metric

    def close(self, keep_references: bool = True) -> dict[str, float]:
        """Every score of the evaluation that ends; forgets its clips."""
        values = self.compute()
        self.reset()
        if keep_references and self.wants_references:
            self.references = {name: value for name, value in values.items() if isinstance(name, Reference)}
        elif self._restored:  # they are logged once in each process that trains
            values |= self.references  # type: ignore[arg-type]
            self._restored = False
        return values

    def kept(self) -> dict[str, Any]:
        """What a checkpoint is to hold, of plain values, so that a resumed training need not score references again."""
        return {"references": [[*name.__getnewargs__(), value] for name, value in self.references.items()]}

    def restore(self, kept: dict[str, Any]) -> None:
        """Takes over what `kept` returned."""
        self.references = {Reference(*name): value for *name, value in kept["references"]}
        self._restored = bool(self.references)
