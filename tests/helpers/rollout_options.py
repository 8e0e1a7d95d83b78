"""Options of roll-outs as tests give them: one by one, whichever group they belong to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from slotbench.tasks.metric_weights import MetricWeights
from slotbench.tasks.rollouts.conditions import Conditions, RolloutOptions

GROUPS = {"rollout": RolloutOptions, "conditions": Conditions, "metric_weights": MetricWeights}


def grouped(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a task, those of its options in groups."""
    found = dict(arguments)
    for name, kind in GROUPS.items():
        own = {field.name: found.pop(field.name) for field in fields(kind) if field.name in found}
        if own:
            found[name] = kind(**own)
    return found
