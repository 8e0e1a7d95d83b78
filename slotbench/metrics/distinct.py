"""Base of the metrics here, each of which stays itself in a `torchmetrics.MetricCollection`."""

from __future__ import annotations

from uuid import uuid4

import torch
from torchmetrics import Metric

__all__ = ["DistinctMetric"]


class DistinctMetric(Metric):
    """A metric whose state is never taken for another's.

    A `MetricCollection` updates only one of those metrics whose states have the same names and, after the first update,
    the same values, though another scope or threshold makes them differ later. So each has one state more, whose value
    no other has.
    """

    def __init__(self) -> None:
        super().__init__()
        # bytes, since torchmetrics compares with a tolerance; not drawn from a generator that training draws from
        self.add_state("identity", torch.tensor(list(uuid4().bytes)), dist_reduce_fx="max")
