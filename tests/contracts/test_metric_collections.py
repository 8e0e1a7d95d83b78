"""Law of metrics: in a `torchmetrics.MetricCollection` each has the value that it has alone."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import get_args

import pytest
import torch
from torchmetrics import Metric, MetricCollection

from slotbench import metrics, registry
from slotbench.metrics.distinct import DistinctMetric
from slotbench.metrics.segmentation import MatchedIoU, Scope, SegmentationMetric
from slotbench.metrics.tracking import TrackingRule

Makers = dict[str, Callable[[], Metric]]


class Threshold(MatchedIoU):
    """What a third party writes: a setting that the base knows nothing of."""

    def __init__(self, threshold: float) -> None:
        super().__init__("frame")
        self.threshold = threshold

    def score(self, table):
        value, defined = super().score(table)
        return (value > self.threshold).double(), defined


def of_masks() -> Makers:
    """Every registered metric of masks in every scope, with every setting."""
    registered = [registry.load("metrics", name) for name in registry.names("metrics")]
    pairs = product((one for one in registered if issubclass(one, SegmentationMetric)), get_args(Scope))
    made: Makers = {f"{one.__name__} {scope}": partial(one, scope) for one, scope in pairs}
    assert len(made) >= 6 * 4
    made |= {f"all {scope}": partial(MatchedIoU, scope, ignore_background=False) for scope in get_args(Scope)}
    return made | {f"above {threshold:.0%}": partial(Threshold, threshold) for threshold in (0.1, 0.15, 0.2)}


def ids(seed: int, *views: int) -> torch.Tensor:
    return torch.randint(0, 4, (3, 4, *views, 8, 8), generator=torch.Generator().manual_seed(seed))


SEEN, TRUE = ids(0, 2), ids(1, 2)
STUDIES: dict[str, tuple[Makers, list[tuple]]] = {
    "perfect masks first": (of_masks(), [(TRUE, TRUE), (SEEN, TRUE)]),
    "a frame of one camera first": (of_masks(), [(SEEN[:, :1, :1], TRUE[:, :1, :1]), (SEEN, TRUE)]),
    "no object first": (of_masks(), [(SEEN, 0 * TRUE), (SEEN, TRUE)]),
    "one slot first": (of_masks(), [(0 * TRUE, TRUE), (SEEN, TRUE)]),
    "tracking": (
        {f"{iou:.0%}": partial(metrics.ClearMOT, TrackingRule(iou)) for iou in (0.1, 0.2, 0.3)},
        [(TRUE[:, :, 0], TRUE[:, :, 0]), (SEEN[:, :, 0], TRUE[:, :, 0])],
    ),
    "occupancy": (
        {
            f"{live:.0%} {most:.0%}": partial(metrics.SlotOccupancy, live, most)
            for live, most in [(0.1, 0.9), (0.25, 0.25)]
        },
        [(0 * SEEN, 4), (SEEN, 4)],
    ),
    "groups": (
        {f"{size}": partial(metrics.GroupMeans, size) for size in (2, 3)},
        [(torch.ones(6, 2),), (torch.arange(12.0).view(6, 2),)],
    ),
}


@pytest.mark.parametrize("study", STUDIES)
def test_a_metric_in_a_collection_has_the_value_that_it_has_alone(study):
    makers, updates = STUDIES[study]
    together, alone = MetricCollection({name: make() for name, make in makers.items()}), {}
    for given in updates:
        together.update(*given)
    for name, make in makers.items():
        alone[name] = make()
        for given in updates:
            alone[name].update(*given)
    found = {name: metric.compute() for name, metric in together.items()}
    torch.testing.assert_close(found, {name: metric.compute() for name, metric in alone.items()}, equal_nan=True)
    values = [str(value) for value in found.values()]
    assert len(set(values)) > 1, "settings that differ in nothing show nothing"


def test_no_metric_can_be_taken_for_another():
    for module in pkgutil.walk_packages(metrics.__path__, "slotbench.metrics."):
        for one in vars(importlib.import_module(module.name)).values():
            if isinstance(one, type) and issubclass(one, Metric) and one.__module__.startswith("slotbench."):
                assert issubclass(one, DistinctMetric), one
    assert not MatchedIoU("frame").state_dict(), "what tells metrics apart is in no checkpoint"
