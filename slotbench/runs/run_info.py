"""What `run.json` and `result.json` hold, by name and type; entries that are not named here stay as they are."""

from __future__ import annotations

from typing import Annotated, Any, Required, TypedDict

import msgspec

from slotbench.records import Amount, Whole

__all__ = ["BestScore", "Headline", "PluginEntry", "RunInfo"]


class Headline(TypedDict, total=False):
    """A score that a run is told by, with what baselines and oracles score; version 0.1 called both floors."""

    metric: Required[str]
    label: str | None
    higher_is_better: bool | None
    needs: str | None
    baselines: dict[str, Any]
    oracles: dict[str, Any]
    floors: dict[str, Any]


class BestScore(TypedDict, total=False):
    """The best value of a metric, and the step of its validation."""

    value: Required[Any]
    step: int


class PluginEntry(TypedDict, total=False):
    """A plugin file that a run or a grid was made with: where it was, its SHA-256, and the components in it."""

    path: Required[Annotated[str, msgspec.Meta(min_length=1)]]
    sha256: str | None
    components: list[str]


class RunInfo(TypedDict, total=False):
    """The record of a run; every entry may be absent."""

    id: str
    name: str
    state: str
    group: str | None
    created: str
    finished: str
    command: str
    host: str | None
    pid: int
    device: str
    accelerator: str
    wandb_id: str | None
    error: str | None
    step: Whole
    total_steps: Whole | None
    epoch: Whole
    metrics_step: int | None
    diverged_at: Whole | None
    seconds: Amount
    seconds_per_step: Amount
    parameters: dict[str, Whole]
    versions: dict[str, Any]
    kernels: dict[str, Any]
    attempt: dict[str, Any]
    metrics: dict[str, Any]
    best: dict[str, BestScore]
    metric_infos: dict[str, Any]
    headlines: list[Headline]
    resumed: list[dict[str, Any]]
    changes: list[dict[str, Any]]
    plugins: list[PluginEntry]
    final_validation: bool
    compile: str
    wandb_mode: str
    wandb_project: str | None
    wandb_entity: str | None
    wandb_tags: list[str]
    wandb_notes: str | None
    wandb_artifacts: bool
    wandb_part: Whole
    begun_in: Any
    held: Any
