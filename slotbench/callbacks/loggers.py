"""The loggers of a run: its folder, and Weights & Biases as a mirror of it."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from lightning.pytorch import LightningModule
from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.utilities import rank_zero_only
from torch import nn

from slotbench.files import own_file, plain, read_json_object_or_none
from slotbench.interfaces import Reporter
from slotbench.lightning_compat import ClosableWandbLogger
from slotbench.metric_info import is_reference, without_stage
from slotbench.nn.parameters import trainable_parameters
from slotbench.records import real, valid_part
from slotbench.runs.folder import RunFolder, RunFolderError
from slotbench.runs.grid_record import PointRecord
from slotbench.runs.run_info import RunInfo
from slotbench.runs.wandb_compat import PART, TAG_LENGTH, is_set_off, is_set_offline, login_problem, mirror_settings

__all__ = ["MODES", "RunFolderLogger", "RunWandbLogger", "WandbOptions", "exit_code", "say", "wandb_logger"]


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

_PROJECT = "slotbench"
_STEP = "trainer/global_step"
_LIBRARIES = frozenset({"torch", "lightning", "torchmetrics", "numpy", "builtins"})
_OWN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")
_NAME_LENGTH = 128


@dataclass(frozen=True)
class WandbOptions:
    """What a user says of a W&B run beside its mode and project; what is absent stays as it was in a resumed run.

    Attributes:
        entity: user or team; None for WANDB_ENTITY, or the account's own.
        tags: beside experiment, core, data set, task and grid.
        notes: description of the run; None for WANDB_NOTES.
        artifacts: whether the best and the last checkpoint and the code are uploaded when a training has finished.
    """

    entity: str | None = None
    tags: tuple[str, ...] = ()
    notes: str | None = None
    artifacts: bool = False

    def as_record(self) -> dict[str, Any]:
        """As entries of `run.json`."""
        return {f"wandb_{name}": value for name, value in asdict(self).items()}


class RunWandbLogger(ClosableWandbLogger):
    """Lightning's logger, given the configuration once, filed under the trainer's step, and closed with the run.

    Lightning lets W&B count the logging calls and keeps the step as one more value. A resumed run would then
    have two rows of the same step. Here the step is W&B's own, so that folders of one run fit together in whatever
    order they are read, and rows that the server already has are not sent again.

    The summary of the W&B run has the parameters of each part, and of a validation metric whose direction the task
    declares the best value beside the last: `val/score.max`, `val/score.last`.

    Args:
        folder: the run, with the state in which it ended.
        init: the arguments of `wandb.init`.
        part: how many processes have trained the run with this one, from 1; 0 for one that does not train.
        artifacts: whether a training that finishes uploads its checkpoints and code.
    """

    def __init__(self, folder: RunFolder, init: Mapping[str, Any], part: int = 1, artifacts: bool = False) -> None:
        super().__init__(dict(init))
        self._folder = folder
        self._part, self._artifacts = part, artifacts
        self._is_opened = False
        self._module: LightningModule | None = None
        self._better: dict[str, str] = {}
        self._known: set[str] = set()

    @rank_zero_only
    def log_graph(self, model: nn.Module, *args: Any, **kwargs: Any) -> None:
        """Keeps the module, which knows its sizes and the directions of its metrics."""
        self._module = model if isinstance(model, LightningModule) else None

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Adds to the row of this step; W&B has the row once the next step comes, or the end."""
        if not self._is_opened:
            self._is_opened = True
            if self._part:
                self.experiment.config.update({"_wandb": {PART: self._part}}, allow_val_change=True)
            if self._module is not None:
                self.experiment.summary["parameters"] = trainable_parameters(self._module)
        self._declare({name for name in metrics if name.startswith("val/")} - self._known)
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
        if self.is_open:
            if self._part > 1:
                self._count_earlier_parts()
            if self._artifacts and status == "success":
                try:
                    self._upload()
                except (OSError, ValueError) as error:  # the training is done, and has its files
                    say(f"W&B: the artifacts are not uploaded: {error}")
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
            if higher is None or is_reference(name):
                continue
            self._better[name] = "max" if higher else "min"
            summary = f"{self._better[name]},last"
            # a definition of its own takes the place of Lightning's for all metrics
            self.experiment.define_metric(name, step_metric=_STEP, step_sync=True, summary=summary)

    def _count_earlier_parts(self) -> None:
        """Sets the best values of a resumed run to those of all its rows: W&B counts those of this process."""
        with contextlib.suppress(RunFolderError):
            rows, best = self._folder.history(), {}
            for name, better in self._better.items():
                values = [value for row in rows if (value := real(row.get(name))) is not None and value == value]
                if values:
                    best[name] = {better: max(values) if better == "max" else min(values), "last": values[-1]}
            if best:
                # first the row that waits for its end: W&B would count it after what is set here
                self.experiment.log({}, commit=True)
                self.experiment.summary.update(best)

    def _upload(self) -> None:
        """Logs the checkpoints as versions of the artifact "model-ID", and the code as "code-ID"."""
        import wandb

        run = self.experiment
        # offline, the files may have changed before they are sent: W&B then keeps a copy
        policy: Literal["mutable", "immutable"] = "mutable" if run.offline else "immutable"
        for alias in ("best", "last"):
            file = self._folder.checkpoints / f"{alias}.ckpt"
            if file.is_file():
                model = wandb.Artifact(f"model-{run.id}", "model", metadata={"step": self._folder.info.get("step")})
                model.add_file(str(file), name="model.ckpt", policy=policy)
                run.log_artifact(model, aliases=[alias, *(["latest"] if alias == "last" else [])])
        code = wandb.Artifact(f"code-{run.id}", "code")
        code.add_file(str(own_file(self._folder.path, "config.yaml")), policy=policy)
        for name, file in _loaded_code(self._module).items():
            code.add_file(str(file), name=name, policy=policy)
        run.log_artifact(code)


def exit_code(state: str) -> int:
    """What W&B gets for a run in this state."""
    return {"finished": 0, "interrupted": _INTERRUPTED}.get(state, 1)


def _loaded_code(module: nn.Module | None) -> dict[str, Path]:
    """Python files by name in the artifact: what is imported of slotbench and of the packages of the parts."""
    parts = [] if module is None else module.modules()
    packages = {"slotbench", *(type(part).__module__.partition(".")[0] for part in parts)} - _LIBRARIES
    found = {}
    for name, loaded in list(sys.modules.items()):
        file = getattr(loaded, "__file__", None)
        if name.partition(".")[0] in packages and file and file.endswith(".py") and Path(file).is_file():
            inside = name.replace(".", "/")
            found[f"{inside}/__init__.py" if Path(file).name == "__init__.py" else f"{inside}.py"] = Path(file)
    return found


def wandb_logger(
    folder: RunFolder,
    mode: str,
    project: str | None,
    config: dict[str, Any],
    options: WandbOptions | None = None,
    trains: bool = True,
) -> RunWandbLogger | None:
    """A logger whose W&B run has a name, group and tags of its own, and an id stored in the folder.

    Its files go to `RUN/wandb`. A resumed run has its id already and stays the same W&B run; offline that is another
    folder with the same id. An agent of a W&B sweep has chosen id and project itself. Where there is no login, the run
    is recorded offline, with a note: nothing waits for a key on the terminal. Where W&B is switched off
    (WANDB_MODE=disabled, `wandb disabled`) there is no logger, with a note.

    Args:
        folder: the run; its record gets "wandb_id", "wandb_mode", "wandb_project", and the options.
        mode: "offline" (no account, no network) or "online"; WANDB_MODE=offline and `wandb offline` overrule it.
        project: W&B project; None for that of a resumed run, or WANDB_PROJECT, or "slotbench".
        config: the resolved configuration, nested.
        options: entity, tags, notes and artifacts; a resumed run keeps those that are not given.
        trains: whether this process trains the run; one that tests it leaves the run's record as it is.

    Raises:
        ValueError: another mode.
    """
    if mode not in MODES[1:]:
        raise ValueError(f"wandb mode is {mode!r}; expected one of {', '.join(MODES[1:])}")
    if mode == "online" or is_set_off():
        mode = _mode_that_works()
    if mode == "off":
        return None
    info, point = folder.info, _point(folder)
    in_sweep = bool(os.environ.get("WANDB_SWEEP_ID"))
    wandb_id = info.get("wandb_id") or (os.environ.get("WANDB_RUN_ID") if in_sweep else None) or _new_id(info["id"])
    project = _project(project or info.get("wandb_project"), in_sweep)
    kept = _kept(options or WandbOptions(), info)
    part = info.get("wandb_part", 0) + 1 if trains else 0
    if trains:
        folder.update(wandb_id=wandb_id, wandb_mode=mode, wandb_project=project, wandb_part=part, **kept.as_record())
    group = info.get("group") or (folder.path.resolve().parent.name if point else None)
    return RunWandbLogger(
        folder,
        {
            "entity": None if in_sweep else kept.entity,
            "project": None if in_sweep else project,
            "id": None if in_sweep else wandb_id,
            "name": _name(info, point),
            "group": group,
            "job_type": "train",
            "tags": _tags(info["name"] if point is None else None, group, config, kept.tags),
            "notes": kept.notes,
            "save_dir": folder.path,
            "mode": mode,
            "config": plain(config),
            "settings": mirror_settings(is_offline=mode == "offline"),
        },
        part,
        artifacts=trains and kept.artifacts,
    )


def _project(given: str | None, in_sweep: bool) -> str:
    named = os.environ.get("WANDB_PROJECT")
    return (named or given if in_sweep else given or named) or _PROJECT


def _kept(options: WandbOptions, info: RunInfo) -> WandbOptions:
    """What is given, beside what the run has already."""
    return WandbOptions(
        options.entity or info.get("wandb_entity"),
        tuple(dict.fromkeys([*info.get("wandb_tags", ()), *options.tags])),
        options.notes or info.get("wandb_notes"),
        options.artifacts or info.get("wandb_artifacts", False),
    )


def _mode_that_works() -> str:
    """The W&B mode that works on this machine: "online", "off", or "offline" without a login."""
    if is_set_off():
        say("W&B is switched off here (WANDB_MODE=disabled, `wandb disabled` or WANDB_DISABLED): no mirror of this run")
        return "off"
    if is_set_offline():
        return "offline"
    if (problem := login_problem()) is None:
        return "online"
    say(f"W&B: {problem}; this run is recorded offline. Type `wandb login`, and `wandb sync` when it has ended.")
    return "offline"


@rank_zero_only
def say(sentence: str) -> None:
    """Prints a note on stderr."""
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


def _tags(name: str | None, group: str | None, config: Mapping[str, Any], more: tuple[str, ...]) -> list[str]:
    """Experiment, core, data set, task and grid, and those of the user and of WANDB_TAGS, each once."""
    model, data = config.get("model"), config.get("data")
    core = (model.get("init_args") or {}).get("core") if isinstance(model, Mapping) else None
    words = [name, _class_name(core), _class_name(data), _class_name(model), group, *more]
    words += [tag.strip() for tag in os.environ.get("WANDB_TAGS", "").split(",")]
    return list(dict.fromkeys(word[:TAG_LENGTH] for word in words if word))


def _class_name(component: Any) -> str:
    path = component.get("class_path") if isinstance(component, Mapping) else component
    return path.rpartition(".")[2] if isinstance(path, str) else ""
