"""The resources that a point asks SLURM for: `--slurm.KEY VALUE` of `slotbench grid run --engine slurm`."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from slotbench.grids.engines.base import EngineError

__all__ = ["SlurmOptions"]

_WAIT_SECONDS = 300
_REPEATED = ("setup", "sbatch")


@dataclass(frozen=True)
class SlurmOptions:
    """Resources of one point; None leaves one to the cluster's default.

    Attributes:
        partition: where to queue.
        time: minutes until SLURM ends the job; a point that needs longer saves, is requeued and resumes.
        nodes: machines for one point.
        tasks_per_node: processes on each of them; more than one is for `trainer.devices` of the same number.
        gpus_per_node: GPUs on each machine.
        gres: the same in the words of clusters that count them otherwise, "gpu:a100:1".
        cpus_per_task: cores of each process, and its threads.
        mem_gb: memory of a machine, in GiB.
        account: who pays.
        qos: quality of service.
        constraint: features that a node must have.
        exclude: nodes not to use.
        setup: shell lines to run on the node first, "module load cuda"; may be given several times.
        sbatch: any other option of sbatch, "reservation=lab"; may be given several times.
        save_seconds: how long before the time limit a point is told to save.
        requeues: how many times a point may run into the time limit; preemptions are not counted.
        ask_seconds: how long to wait between two questions to squeue.
    """

    partition: str | None = None
    time: int = 60
    nodes: int = 1
    tasks_per_node: int = 1
    gpus_per_node: int | None = None
    gres: str | None = None
    cpus_per_task: int | None = None
    mem_gb: float | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    exclude: str | None = None
    setup: tuple[str, ...] = ()
    sbatch: tuple[str, ...] = ()
    save_seconds: int = 90
    requeues: int = 100
    ask_seconds: float = 10.0

    def __post_init__(self) -> None:
        for key in ("time", "nodes", "tasks_per_node", "save_seconds"):
            if getattr(self, key) < 1:
                raise EngineError(f"--slurm.{key} is {getattr(self, key)}; expected at least 1")
        if self.save_seconds >= 60 * self.time:
            raise EngineError(
                f"--slurm.save_seconds {self.save_seconds} is not less than the limit of {60 * self.time} seconds; "
                f"give more --slurm.time, in minutes, or e.g. --slurm.save_seconds {max(1, 15 * self.time)}"
            )

    @classmethod
    def from_settings(cls, settings: Iterable[tuple[str, str]]) -> SlurmOptions:
        """The options of pairs of KEY and VALUE on the command line; the last of equal keys counts.

        Raises:
            EngineError: a key is unknown, or a value is not what its key takes.
        """
        keys = [field.name for field in dataclasses.fields(cls)]
        values: dict[str, Any] = {}
        for key, text in settings:
            key = key.replace("-", "_")
            if key not in keys:
                raise EngineError(_unknown(key, keys))
            if key in _REPEATED:
                values[key] = (*values.get(key, ()), *(line for line in text.splitlines() if line.strip()))
            else:
                values[key] = _parsed(key, text)
        return cls(**values)

    def for_submitit(self) -> dict[str, Any]:
        """The same as parameters of submitit's SlurmExecutor."""
        direct = ("partition", "time", "nodes", "gpus_per_node", "gres", "cpus_per_task", "account", "qos")
        values: dict[str, Any] = {key: getattr(self, key) for key in (*direct, "constraint", "exclude")}
        values["ntasks_per_node"] = self.tasks_per_node
        values["signal_delay_s"] = self.save_seconds
        values["setup"] = list(self.setup) or None
        values["mem"] = None if self.mem_gb is None else f"{round(self.mem_gb * 1024)}M"
        # once one process of a point has ended, the others may finish what they write, but not wait forever for it
        values["srun_args"] = ["--kill-on-bad-exit=0", f"--wait={_WAIT_SECONDS}"]
        if self.cpus_per_task is not None:  # srun no longer takes it from sbatch by itself
            values["srun_args"].append(f"--cpus-per-task={self.cpus_per_task}")
        values["additional_parameters"] = {"requeue": True, **dict(map(_flag, self.sbatch))}
        return {key: value for key, value in values.items() if value is not None}

    @property
    def num_tasks(self) -> int:
        """Processes of one point."""
        return self.nodes * self.tasks_per_node


# what sbatch and other tools call them
_OTHER_NAMES: Mapping[str, str] = {
    "timeout_min": "time",
    "ntasks_per_node": "tasks_per_node",
    "mem": "mem_gb",
    "gpus": "gpus_per_node",
    "cpus": "cpus_per_task",
    "signal_delay_s": "save_seconds",
}


def _unknown(key: str, keys: list[str]) -> str:
    near = _OTHER_NAMES.get(key) or next(iter(difflib.get_close_matches(key, keys, n=1)), None)
    hint = f"; did you mean --slurm.{near}?" if near else ""
    return (
        f"no option --slurm.{key}{hint}\n  options: {', '.join(keys)}\n"
        f'  any other option of sbatch: --slurm.sbatch "{key.replace("_", "-")}=VALUE"'
    )


def _parsed(key: str, text: str) -> Any:
    try:
        if key == "time":
            return _minutes(text)
        if key in ("nodes", "tasks_per_node", "gpus_per_node", "cpus_per_task", "save_seconds", "requeues"):
            return int(text)
        if key in ("mem_gb", "ask_seconds"):
            return float(text)
    except ValueError:
        expected = "minutes, H:MM:SS or D-HH:MM:SS" if key == "time" else "a number"
        raise EngineError(f"--slurm.{key} {text}: expected {expected}") from None
    return text


def _minutes(text: str) -> int:
    """A time limit as SLURM writes it, in minutes, seconds rounded up."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text.strip())
    if match is None:
        raise ValueError(text)
    days, first, second, third = (None if group is None else int(group) for group in match.groups())
    if days is not None:  # D-HH[:MM[:SS]]
        seconds = ((days * 24 + (first or 0)) * 60 + (second or 0)) * 60 + (third or 0)
    elif third is not None:  # HH:MM:SS
        seconds = ((first or 0) * 60 + (second or 0)) * 60 + third
    else:  # MM[:SS]
        seconds = (first or 0) * 60 + (second or 0)
    return -(-seconds // 60)


def _flag(text: str) -> tuple[str, str | bool]:
    """ "--reservation=lab", "reservation lab" or "exclusive" as what submitit writes into the script."""
    name, separator, value = text.strip().removeprefix("--").partition("=")
    if not separator:
        name, separator, value = name.partition(" ")
    return name.strip(), value.strip() if separator else True
