"""Registered metrics: what every run logs of its masks and of its predicted frames, found by entry point.

A metric is one file: a subclass of `SegmentationMetric` or `FrameMetric` that declares its name, label, direction and
unit in `info`, and an entry in the group `slotbench.metrics` (or `@slotbench.registry.register("metrics")` in a file
that `--plugin` names). Runs log it beside its baselines, and tables, `slotbench score` and `--lengths` show it.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

from slotbench import registry
from slotbench.metric_info import MetricInfo

__all__ = ["RegisteredMetric", "registered"]


class RegisteredMetric:
    """Base of registered metrics.

    Attributes:
        info: name (letters, digits and underscores), label, direction and unit.
        rank: order in reports.
        logged: whether runs log it; otherwise `slotbench score` and `--lengths` alone have it.
    """

    info: ClassVar[MetricInfo]
    rank: ClassVar[int] = 9
    logged: ClassVar[bool] = True


Kind = TypeVar("Kind", bound=RegisteredMetric)


def registered(kind: type[Kind]) -> dict[str, type[Kind]]:
    """The registered metrics of a kind by the names of their scores, in the order of reports."""
    found = [registry.load("metrics", name) for name in registry.names("metrics")]
    if not found:
        raise registry.RegistryError("slotbench's own metrics are no entry points: install it again (pip install -e .)")
    own = sorted((one for one in found if issubclass(one, kind)), key=lambda one: one.rank)
    return {one.info.name: one for one in own}
