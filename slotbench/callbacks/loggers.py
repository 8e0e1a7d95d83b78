"""The loggers of a run: its folder, and Weights & Biases as a mirror of it."""

from __future__ import annotations

import os
import re
import secrets
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.utilities import rank_zero_only

from slotbench.files import plain, read_json_object_or_none
from slotbench.lightning_compat import ClosableWandbLogger
from slotbench.records import valid_part
from slotbench.runs.folder import RunFolder
from slotbench.runs.grid_record import PointRecord
from slotbench.runs.wandb_compat import PART, is_set_off, is_set_offline, login_problem, mirror_settings

__all__ = ["MODES", "RunFolderLogger", "RunWandbLogger", "wandb_logger"]


class RunFolderLogger(Logger):
    """Writes every logging call as one line of `metrics.jsonl`: step, epoch, seconds since the start, and the values.

    Lightning's own CSVLogger rewrites its file when a new column turns up and erases it when a run is taken up again;
    here a line that was written stays. Hyper-parameters are not logged: `config.yaml` has all of them.

    Args:
        folder: the run to write into.
    """

    def __init__(self, folder: RunFolder) -> None:
        super().__init__()
        self._folder = folder
        rows = folder.history()
        # a resumed run counts on
        before = float(rows[-1].get("seconds") or 0) if rows else 0.0
        self._start = time.monotonic() - before

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return self._folder.path.parent.name

    @property
    def version(self) -> str:
        """Id of the run."""
        return self._folder.path.name

    @property
    def save_dir(self) -> str:
        """The run folder."""
        return str(self._folder.path)

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Appends one line; without a step it is that of the folder's record."""
        values: dict[str, Any] = {"epoch": None, "seconds": round(time.monotonic() - self._start, 3), **metrics}
        values["epoch"] = None if values["epoch"] is None else int(values["epoch"])
        self._folder.append(self._folder.info["step"] if step is None else step, values)

    @rank_zero_only
    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing: the complete configuration is in `config.yaml`."""


MODES = ("off", "offline", "online")

_INTERRUPTED = 143
"""Exit code that W&B gets for a run stopped from outside; a run that fails has 1."""

_OWN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")
_TAG_LENGTH = 64
_NAME_LENGTH = 128


class RunWandbLogger(ClosableWandbLogger):
    """Lightning's logger, given the configuration once, filed under the trainer's step, and closed with the run.

    Lightning lets W&B count the logging calls and keeps the step as one more value. A resumed run would then
    have two rows of the same step. Here the step is W&B's own, so that folders of one run fit together in whatever
    order they are read, and rows that the server already has are not sent again.

    Args:
        folder: the run, with the state in which it ended.
        init: the arguments of `wandb.init`.
        part: how many processes have trained the run with this one, from 1.
    """

    def __init__(self, folder: RunFolder, init: Mapping[str, Any], part: int = 1) -> None:
        super().__init__(dict(init))
        self._folder = folder
        self._part: int | None = part

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Adds to the row of this step; W&B has the row once the next step comes, or the end."""
        if self._part is not None:
            self.experiment.summary[PART] = self._part
            self._part = None
        if step is None:
            super().log_metrics(metrics)
        elif step >= self.experiment.starting_step:
            self.experiment.log({**metrics, "trainer/global_step": step}, step=step)

    @rank_zero_only
    def log_hyperparams(self, params: Any) -> None:
        """Does nothing: the configuration was given at the start, and Lightning would add it a second time."""

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Closes the W&B run, so that its end is on disk before the process exits."""
        failure = _INTERRUPTED if self._folder.info.get("state") == "interrupted" else 1
        self.close(0 if status == "success" else failure)


def wandb_logger(folder: RunFolder, mode: str, project: str, config: dict[str, Any]) -> RunWandbLogger | None:
    """A logger whose W&B run has a name, group and tags of its own, and an id stored in the folder.

    Its files go to `RUN/wandb`. A resumed run has its id already and stays the same W&B run; offline that is another
    folder with the same id. An agent of a W&B sweep has chosen id and project itself. Where there is no login, the run
    is recorded offline, with a note: nothing waits for a key on the terminal. Where W&B is switched off
    (WANDB_MODE=disabled, `wandb disabled`) there is no logger, with a note.

    Args:
        folder: the run; its record gets "wandb_id", "wandb_mode" and "wandb_project".
        mode: "offline" (no account, no network) or "online"; WANDB_MODE=offline and `wandb offline` overrule it.
        project: W&B project.
        config: the resolved configuration, nested.

    Raises:
        ValueError: another mode.
    """
    if mode not in MODES[1:]:
        raise ValueError(f"wandb mode is {mode!r}; expected one of {', '.join(MODES[1:])}")
    if mode == "online" or is_set_off():
        mode = _mode_that_works()
    if mode == "off":
        _say(
            "W&B is switched off here (WANDB_MODE=disabled, `wandb disabled` or WANDB_DISABLED): no mirror of this run"
        )
        return None
    info, point = folder.info, _point(folder)
    in_sweep = bool(os.environ.get("WANDB_SWEEP_ID"))
    wandb_id = info.get("wandb_id") or (os.environ.get("WANDB_RUN_ID") if in_sweep else None) or _new_id(info["id"])
    if in_sweep:
        project = os.environ.get("WANDB_PROJECT") or project
    part = info.get("wandb_part", 0) + 1
    folder.update(wandb_id=wandb_id, wandb_mode=mode, wandb_project=project, wandb_part=part)
    group = info.get("group") or (folder.path.resolve().parent.name if point else None)
    return RunWandbLogger(
        folder,
        {
            "project": None if in_sweep else project,
            "id": None if in_sweep else wandb_id,
            "name": _name(info, point),
            "group": group,
            "job_type": "train",
            "tags": _tags(info["name"] if point is None else None, group, config),
            "save_dir": folder.path,
            "mode": mode,
            "config": plain(config),
            "settings": mirror_settings(is_offline=mode == "offline"),
        },
        part,
    )


def _mode_that_works() -> str:
    """The W&B mode that works on this machine: "online", "off", or "offline" without a login."""
    if is_set_off():
        return "off"
    if is_set_offline():
        return "offline"
    if (problem := login_problem()) is None:
        return "online"
    _say(f"W&B: {problem}; this run is recorded offline. Type `wandb login`, and `wandb sync` when it has ended.")
    return "offline"


@rank_zero_only
def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)


def _point(folder: RunFolder) -> str | None:
    """The id of the run's point in a grid, if it has one."""
    return valid_part(read_json_object_or_none(folder.path / "point.json") or {}, PointRecord).get("id")


def _new_id(run_id: str) -> str:
    """The run's own id where that is globally unique; a folder that the user named is not."""
    if _OWN_ID.fullmatch(run_id):
        return run_id
    return f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def _name(info: Mapping[str, Any], point: str | None) -> str:
    """The name of the W&B run: a grid point's settings without their hash, else the experiment and the run's id."""
    if point is not None:
        return re.sub(r"-[0-9a-f]{8}$", "", point)[:_NAME_LENGTH]
    name, run_id = str(info["name"]), str(info["id"])
    return (name if run_id == name else f"{name}-{run_id}")[:_NAME_LENGTH]


def _tags(name: str | None, group: str | None, config: Mapping[str, Any]) -> list[str]:
    """Experiment, core, data set, task and grid, each once."""
    model, data = config.get("model"), config.get("data")
    core = (model.get("init_args") or {}).get("core") if isinstance(model, Mapping) else None
    words = [name, _class_name(core), _class_name(data), _class_name(model), group]
    return list(dict.fromkeys(word[:_TAG_LENGTH] for word in words if word))


def _class_name(component: Any) -> str:
    path = component.get("class_path") if isinstance(component, Mapping) else component
    return path.rpartition(".")[2] if isinstance(path, str) else ""
