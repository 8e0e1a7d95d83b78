"""The loggers of a run: its folder, and Weights & Biases as a mirror of it."""

from __future__ import annotations

import os
import re
import secrets
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any

from lightning.pytorch import LightningModule
from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.utilities import rank_zero_only
from torch import nn

from slotbench.interfaces import Reporter
from slotbench.io import plain, read_json_object_or_none
from slotbench.lightning_compat import ClosableWandbLogger
from slotbench.metric_info import is_reference, without_stage
from slotbench.nn.parameters import trainable_parameters
from slotbench.runs.folder import RunFolder
from slotbench.runs.run_info import RunInfo
from slotbench.runs.wandb_compat import TAG_LENGTH, is_set_off, is_set_offline, login_problem, mirror_settings

__all__ = ["MODES", "RunFolderLogger", "RunWandbLogger", "WandbOptions", "wandb_logger"]

MODES = ("off", "offline", "online")
_INTERRUPTED = 143  # exit code that W&B gets for a run stopped from outside; a run that fails has 1
_STEP = "trainer/global_step"


class RunFolderLogger(Logger):
    """Writes every logging call as a line of `metrics.jsonl`: step, epoch, seconds since the start, and the values."""

    def __init__(self, folder: RunFolder) -> None:
        super().__init__()
        self._folder = folder
        rows = folder.history()
        # a resumed run counts on
        self._start = time.monotonic() - (float(rows[-1].get("seconds") or 0) if rows else 0.0)

    @property
    def name(self) -> str:
        return self._folder.path.parent.name

    @property
    def version(self) -> str:
        return self._folder.path.name

    @property
    def save_dir(self) -> str:
        return str(self._folder.path)

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Appends one line; without a step it is that of the folder's record."""
        values: dict[str, Any] = {"epoch": None, "seconds": round(time.monotonic() - self._start, 3), **metrics}
        values["epoch"] = None if values["epoch"] is None else int(values["epoch"])
        self._folder.append(self._folder.info["step"] if step is None else step, values)

    @rank_zero_only
    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing: `config.yaml` has them."""


@dataclass(frozen=True)
class WandbOptions:
    """What a user says of a W&B run; what is absent stays as it was in a resumed run."""

    entity: str | None = None
    tags: tuple[str, ...] = ()
    notes: str | None = None


class RunWandbLogger(ClosableWandbLogger):
    """Lightning's logger, given the configuration once, filed under the trainer's step, and closed with the run.

    The step is W&B's own, so that a resumed run has no two rows of one step.
    """

    def __init__(self, folder: RunFolder, init: Mapping[str, Any]) -> None:
        super().__init__(dict(init))
        self._folder = folder
        self._module: LightningModule | None = None
        self._known: set[str] = set()
        self._is_opened = False

    @rank_zero_only
    def log_graph(self, model: nn.Module, *args: Any, **kwargs: Any) -> None:
        """Keeps the module, which knows its sizes and the directions of its metrics."""
        self._module = model if isinstance(model, LightningModule) else None

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Adds to the row of this step; W&B has the row once the next step comes, or the end."""
        if not self._is_opened:
            self._is_opened = True
            if self._module is not None:
                self.experiment.summary["parameters"] = trainable_parameters(self._module)
        self._declare({name for name in metrics if name.startswith("val/")} - self._known)
        if step is None:
            super().log_metrics(metrics)
        elif step >= self.experiment.starting_step:  # the server has earlier rows already
            self.experiment.log({**metrics, _STEP: step}, step=step)

    @rank_zero_only
    def log_hyperparams(self, params: Any) -> None:
        """Does nothing: the configuration was given at the start."""

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Closes the W&B run, so that its end is on disk before the process exits."""
        failure = _INTERRUPTED if self._folder.info.get("state") == "interrupted" else 1
        self.close(0 if status == "success" else failure)

    def _declare(self, names: set[str]) -> None:
        """Has W&B keep the best value of metrics that are logged for the first time, if they have a direction."""
        self._known |= names
        if not names or not isinstance(self._module, Reporter):
            return
        infos = self._module.metric_infos([without_stage(name) for name in names])
        directions = {name: info.higher_is_better for name in names if (info := infos.get(without_stage(name)))}
        if self._module.monitor is not None and self._module.monitor[0] in names:
            directions[self._module.monitor[0]] = self._module.monitor[1] == "max"
        for name, higher in sorted(directions.items()):
            if higher is not None and not is_reference(name):
                summary = f"{'max' if higher else 'min'},last"
                self.experiment.define_metric(name, step_metric=_STEP, step_sync=True, summary=summary)


def wandb_logger(
    folder: RunFolder,
    mode: str,
    project: str | None,
    config: dict[str, Any],
    options: WandbOptions | None = None,
) -> RunWandbLogger | None:
    """A logger whose W&B run has a name and a group of its own, and an id stored in the folder.

    A resumed run stays the same W&B run; an agent of a W&B sweep has chosen id and project itself. WANDB_MODE and
    `wandb offline` overrule `mode`. Without a login the run is recorded offline, and where W&B is switched off there
    is no logger, each with a note.
    """
    mode = _mode_that_works(mode)
    if mode == "off":
        return None
    info, point = folder.info, (read_json_object_or_none(folder.path / "point.json") or {}).get("id")
    in_sweep = bool(os.environ.get("WANDB_SWEEP_ID"))
    given, named = project or info.get("wandb_project"), os.environ.get("WANDB_PROJECT")
    project = (named or given if in_sweep else given or named) or "slotbench"
    wandb_id = info.get("wandb_id") or (os.environ.get("WANDB_RUN_ID") if in_sweep else None) or _new_id(info["id"])
    before = {one.name: info[f"wandb_{one.name}"] for one in fields(WandbOptions) if f"wandb_{one.name}" in info}
    now = {name: value for name, value in asdict(options or WandbOptions()).items() if value}
    tags = dict.fromkeys((*before.get("tags", ()), *now.get("tags", ())))
    kept = WandbOptions(**before | now | {"tags": tuple(tags)})
    values = {"id": wandb_id, "mode": mode, "project": project, **asdict(kept)}
    folder.update(**{f"wandb_{name}": value for name, value in values.items()})
    words = [*kept.tags, *os.environ.get("WANDB_TAGS", "").split(",")]
    init = {
        **({} if in_sweep else {"entity": kept.entity, "project": project, "id": wandb_id}),
        "name": _name(info, point),
        "group": info.get("group") or (folder.path.resolve().parent.name if point else None),
        "job_type": "train",
        "tags": list(dict.fromkeys(tag.strip()[:TAG_LENGTH] for tag in words if tag.strip())),
        "notes": kept.notes,
        "save_dir": folder.path,
        "mode": mode,
        "config": plain(config),
        "settings": mirror_settings(is_offline=mode == "offline"),
    }
    return RunWandbLogger(folder, init)


def _mode_that_works(mode: str) -> str:
    """The W&B mode that works on this machine: "online", "off", or "offline" without a login."""
    if is_set_off():
        _say("W&B is switched off here (WANDB_MODE=disabled, or `wandb disabled`): no mirror of this run")
        return "off"
    if mode == "offline" or is_set_offline():
        return "offline"
    if (problem := login_problem()) is None:
        return "online"
    _say(f"W&B: {problem}; this run is recorded offline. Type `wandb login`, and `wandb sync` when it has ended.")
    return "offline"


@rank_zero_only
def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)


def _new_id(run_id: str) -> str:
    """The run's own id where that is globally unique; a folder that the user named is not."""
    own = re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{4}", run_id)
    return run_id if own else f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"


def _name(info: RunInfo, point: str | None) -> str:
    """A grid point's settings without their hash, else the experiment and the run's id."""
    name, run_id = str(info["name"]), str(info["id"])
    settings = re.sub(r"-[0-9a-f]{8}$", "", point or "")
    return (settings or (name if run_id == name else f"{name}-{run_id}"))[:128]  # W&B takes no more
