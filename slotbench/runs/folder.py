"""The run folder: all files of a run, readable at any moment.

    RUN/config.yaml      the complete resolved configuration
    RUN/run.json         identity, versions, state; replaced by atomic rename, never edited in place
    RUN/metrics.jsonl    one JSON object per logging call; appended to, and cut back when a run is resumed
    RUN/checkpoints/     last.ckpt, the one before it as previous.ckpt, best.ckpt
    RUN/media/           pictures
    RUN/result.json      the last scores; written when a run finishes or diverges
    RUN/.lock            held by the process that trains

Nothing here imports torch at the top: comparing runs must not need it.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from slotbench.errors import FileError
from slotbench.io import (
    append_line,
    cut_torn_line,
    dump_json,
    is_locked,
    parse_json,
    read_json_object,
    read_json_object_or_none,
    real,
    write_atomically,
)
from slotbench.runs.provenance import describe_environment
from slotbench.runs.run_info import RunInfo

__all__ = ["RunFolder", "RunFolderError", "check_run_name", "is_validation", "usable_run_name"]

CONFIG, RECORD, METRICS, RESULT, LOCK = "config.yaml", "run.json", "metrics.jsonl", "result.json", ".lock"


class RunFolderError(FileError):
    """A path is not a run folder, or a run folder lacks what was asked for."""


def check_run_name(name: str) -> None:
    """Refuses what cannot be the folder of a run."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+=,@-]*", name):
        raise RunFolderError(f"run name {name!r} cannot be a folder's name; try {usable_run_name(name)!r}")


def usable_run_name(name: str) -> str:
    """The name with what cannot be in it replaced."""
    return re.sub(r"[^A-Za-z0-9_.+=,@-]+", "-", name).lstrip(".-+=,@") or "run"


class RunFolder:
    """One run on disk; make it with `create`, reopen it with `open`.

    A process that is killed at any moment leaves a folder that `open` and `history` can read: the folder appears under
    its final name with its record already in it, the record is replaced by rename, and a metrics line that was cut off
    is ignored when reading and removed by the next writer.
    """

    def __init__(self, path: Path) -> None:
        """Wraps an existing folder without checking it; callers want `create` or `open`."""
        self.path = path
        self.checkpoints, self.media = path / "checkpoints", path / "media"
        self._tail_is_whole = False

    @classmethod
    def create(cls, root: str | Path = "runs", name: str = "run", *, group: str | None = None) -> RunFolder:
        """Makes `root/name/<date>-<time>-<4 hex digits>` in state "starting"; `group` is a label that runs share."""
        check_run_name(name)
        while True:
            run_id = f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
            # built beside its place and renamed into it, so that no moment shows a run folder without a record
            hidden = Path(root) / name / f".{run_id}"
            try:
                hidden.mkdir(parents=True)
            except FileExistsError:
                continue
            _fill(hidden, _new_record(run_id, name, group))
            try:
                os.replace(hidden, hidden.with_name(run_id))
            except OSError:
                shutil.rmtree(hidden)
                if not hidden.with_name(run_id).exists():
                    raise
                continue
            return cls(hidden.with_name(run_id))

    @classmethod
    def create_at(cls, path: str | Path, name: str = "run", *, group: str | None = None) -> RunFolder:
        """Makes `path` itself a run folder in state "starting"; files that are there stay. Its name is the run's id."""
        path = Path(path)
        if path.is_file() or (path / RECORD).exists():
            raise RunFolderError(f"{path} is a {'file' if path.is_file() else 'run folder'} already")
        _fill(path, _new_record(path.resolve().name, name, group))
        return cls(path)

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """Opens a run folder that exists, finished or not."""
        folder = cls(Path(path))
        if not folder.path.exists():
            raise RunFolderError(f"no run folder at {path}: there is no such path")
        if not (folder.path / RECORD).is_file():
            what = "has no" if folder.path.is_dir() else "is a file, not a folder with a"
            raise RunFolderError(f"{path} is not a run folder: it {what} {RECORD}; they are runs/NAME/DATE-TIME-ID")
        folder.info  # noqa: B018  raises if the record cannot be read
        return folder

    @property
    def info(self) -> RunInfo:
        """The record as it is on disk now."""
        try:
            return read_json_object(self.path / RECORD)
        except FileError as error:
            raise RunFolderError(str(error)) from error

    @property
    def state(self) -> str:
        """`info["state"]`, or "killed" if that says that the run trains on this machine, and its process is gone."""
        info = self.info
        state = str(info.get("state", "unknown"))
        if state not in ("starting", "running") or info.get("host") != socket.gethostname():
            return state
        # the command line holds the lock, a script of one's own need not
        is_alive = self.is_locked() if (self.path / LOCK).exists() else _is_alive(int(info["pid"]))
        return state if is_alive else "killed"

    @property
    def is_done(self) -> bool:
        """Whether the run reached its end: there is a `result.json`, it is whole, and it is not of a divergence."""
        return self.result is not None and not self.has_diverged

    @property
    def has_diverged(self) -> bool:
        """Whether the run was ended because its loss was no longer finite."""
        return (self.result or {}).get("state") == "diverged"

    @property
    def result(self) -> RunInfo | None:
        """`result.json`; None if the run has neither finished nor diverged."""
        return read_json_object_or_none(self.path / RESULT)

    def is_locked(self) -> bool:
        """Whether a process trains this run now."""
        return is_locked(self.path / LOCK)

    def write_config(self, text: str) -> Path:
        """Writes the resolved configuration."""
        write_atomically(self.path / CONFIG, text)
        return self.path / CONFIG

    def update(self, **fields: Any) -> dict[str, Any]:
        """Merges `fields` into the record and returns it; a reader sees the old record or the new one, no mixture."""
        record = {**self.info, **fields}
        write_atomically(self.path / RECORD, dump_json(record, indent=2))
        return record

    def append(self, step: int, values: Mapping[str, Any]) -> None:
        """Adds one line of scalars to the metrics and hands it to the operating system, so that a kill cannot lose it.

        Numbers that are not finite are written as "NaN", "Infinity" or "-Infinity" in quotes.
        """
        if "step" in values:
            raise ValueError(f"'step' is the argument, not a value; got values {sorted(values)}")
        if not self._tail_is_whole:
            cut_torn_line(self.path / METRICS)
            self._tail_is_whole = True
        append_line(self.path / METRICS, dump_json({"step": int(step), **values}))

    def drop_rows_from(self, step: int, is_validated: bool = True) -> int:
        """Removes the lines of the metrics from a checkpoint's step on, in one step, and returns how many they were.

        The line of the first optimiser step has step 0, so that a checkpoint made after n steps is what the lines
        before n lead up to. If it was made before the validation of that step, those scores are dropped too.
        """
        rows = self.history()
        kept = [row for row in rows if row["step"] < step]
        if not is_validated:
            kept = [row for row in kept if row["step"] != step - 1 or not is_validation(row)]
        if len(kept) < len(rows):
            write_atomically(self.path / METRICS, "".join(dump_json(row) + "\n" for row in kept))
            self._tail_is_whole = True
        return len(rows) - len(kept)

    def history(self) -> list[dict[str, Any]]:
        """Every line of the metrics as written, non-finite values as floats again; a torn last line is left out."""
        path = self.path / METRICS
        if not path.exists():
            return []
        *lines, _torn = path.read_bytes().split(b"\n")
        try:
            rows = [parse_json(line, f"{path}, line {number},") for number, line in enumerate(lines, 1) if line]
        except FileError as error:
            raise RunFolderError(str(error)) from error
        return [{key: _number(value) for key, value in row.items()} for row in rows]

    def last_checkpoint(self) -> Path | None:
        """The checkpoint to continue from, or None if the run has not saved one yet."""
        path = self.checkpoints / "last.ckpt"
        return path if path.is_file() else None

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"


def is_validation(row: Mapping[str, Any]) -> bool:
    """Whether a line of the metrics holds scores of a validation and nothing else."""
    named = [key for key in row if key not in ("step", "epoch", "seconds")]
    return bool(named) and all(key.startswith("val/") for key in named)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def _number(value: Any) -> Any:
    """A word for a number that is not finite as that number; everything else as it is."""
    found = real(value) if isinstance(value, str) else None
    return value if found is None else found


def _new_record(run_id: str, name: str, group: str | None) -> dict[str, Any]:
    return {
        "id": run_id,
        "name": name,
        "group": group,
        "state": "starting",
        "created": datetime.now().astimezone().isoformat(timespec="seconds"),
        "step": 0,
        "wandb_id": None,
        "kernels": {},
        "pid": os.getpid(),
        "host": socket.gethostname(),
        **describe_environment(),
    }


def _fill(path: Path, record: dict[str, Any]) -> None:
    for sub in ("checkpoints", "media"):
        (path / sub).mkdir(parents=True, exist_ok=True)
    (path / METRICS).touch()
    write_atomically(path / RECORD, dump_json(record, indent=2))
