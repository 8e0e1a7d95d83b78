"""Rows of Weights & Biases as metrics over the trainer's steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from slotbench.comparison.records import Curve, thinned, whole
from slotbench.metric_info import is_reference
from slotbench.records import real

__all__ = ["MetricRows", "best_of", "metrics_of", "step_of"]

_STEP = "trainer/global_step"
_NO_METRICS = frozenset({_STEP, "epoch", "seconds"})


def metrics_of(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row or a summary that were logged as metrics: none of W&B's own, and no sizes of images.

    Of a metric whose best value W&B keeps beside the last it is the last.
    """
    # offline, an image is a group of keys, one of which says that it is one
    images = tuple(name.removesuffix("_type") for name in row if name.endswith("._type"))
    found = {}
    for name, given in row.items():
        if name.startswith("_") or name in _NO_METRICS or (images and name.startswith(images)):
            continue
        if (value := real(given.get("last") if isinstance(given, Mapping) else given)) is not None:
            found[name] = value
    return found


def best_of(summary: Mapping[str, Any]) -> dict[str, float]:
    """The best values that W&B keeps in a summary, of metrics with a direction."""
    kept = {
        name: real(given["max"] if "max" in given else given.get("min"))
        for name, given in summary.items()
        if isinstance(given, Mapping) and not name.startswith("_")
    }
    return {name: value for name, value in kept.items() if value is not None}


def step_of(row: Mapping[str, Any]) -> int | None:
    """The trainer's step that a row is of, or else W&B's; None if it says none."""
    return whole(row.get(_STEP, row.get("_step")))


class MetricRows:
    """The rows of one run, put together from as many logs as it has.

    A run that was killed has logged beyond the checkpoint that it resumes from. So what a log says from its first step
    on replaces the rows of earlier logs for these steps.
    """

    def __init__(self) -> None:
        self._values: dict[str, dict[int, float]] = {}
        self._step = 0
        self._begins = False

    def start_log(self) -> None:
        """The rows that follow are those of the next log, in order of time."""
        self._begins = True

    def add(self, row: Mapping[str, Any]) -> None:
        """Takes a row; one without metrics or without a step is passed over.

        Args:
            row: values by name; the trainer's step among them, or else W&B's.
        """
        metrics = metrics_of(row)
        step = step_of(row)
        if not metrics or step is None:
            return
        if self._begins:
            self._begins = False
            self._step = step
            for values in self._values.values():
                for beyond in [old for old in values if old >= step]:
                    del values[beyond]
        self._step = max(self._step, step)
        for name, value in metrics.items():
            self._values.setdefault(name, {})[step] = value

    @property
    def names(self) -> set[str]:
        """Every metric that a row has had, also one that a later log has taken back."""
        return set(self._values)

    @property
    def step(self) -> int:
        """The last one."""
        return self._step

    def last(self) -> dict[str, float]:
        """The newest value of every metric."""
        return {name: values[max(values)] for name, values in self._values.items() if values}

    def curves(self, limit: int) -> dict[str, Curve]:
        """Every metric over the steps, baselines and oracles left out.

        Args:
            limit: points of a curve, at least 2.
        """
        return {
            name: thinned(_curve(values), limit)
            for name, values in self._values.items()
            if values and not is_reference(name)
        }


def _curve(values: Mapping[int, float]) -> Curve:
    steps = sorted(values)
    return np.asarray(steps, dtype=np.int64), np.asarray([values[step] for step in steps], dtype=np.float64)
