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

import contextlib
import difflib
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slotbench.errors import FileError
from slotbench.files import (
    append_whole_line,
    check_own_folder,
    cut_torn_line,
    dump_json,
    is_inside,
    make_folder,
    open_to_append,
    persist,
    read_json_object_or_none,
    replace_file,
    write_atomically,
)
from slotbench.locks import is_locked
from slotbench.runs.provenance import describe_environment
from slotbench.runs.rows import is_validation, read_rows
from slotbench.runs.standing import Standing, standing

if TYPE_CHECKING:
    from slotbench.runs.run_info import RunInfo

__all__ = [
    "RunFolder",
    "RunFolderError",
    "check_run_name",
    "usable_run_name",
]

CONFIG, RECORD, METRICS, RESULT, LOCK = "config.yaml", "run.json", "metrics.jsonl", "result.json", ".lock"
_HALF_MADE = re.compile(r"\.\d{8}-\d{6}-[0-9a-f]{4}")
_ABANDONED = 3600.0
_ALLOWED_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=,@-]*")


class RunFolderError(FileError):
    """A path is not a run folder, or a run folder lacks what was asked for."""


def check_run_name(name: str) -> None:
    """Refuses what cannot be the folder of a run.

    Raises:
        RunFolderError: says which characters.
    """
    if _ALLOWED_NAME.fullmatch(name):
        return
    wrong = "".join(dict.fromkeys(re.findall(r"[^A-Za-z0-9_.+=,@-]", name))) or name[:1]
    raise RunFolderError(
        f"run name {name!r} cannot be a folder's name, because of {wrong!r}: expected letters a to z, digits and "
        f"_ . + = , @ - (starting with a letter, digit or _); try {usable_run_name(name)!r}"
    )


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
        self._tail_is_whole = False

    @classmethod
    def create(cls, root: str | Path = "runs", name: str = "run", *, group: str | None = None) -> RunFolder:
        """Makes `root/name/<date>-<time>-<4 hex digits>` with its record in state "starting".

        Args:
            root: folder that holds all runs; made if absent.
            name: name of the experiment; one path component.
            group: label that several runs share, e.g. the grid they belong to.

        Raises:
            RunFolderError: `name` is not usable as the name of a folder.
        """
        check_run_name(name)
        parent = Path(root) / name
        make_folder(parent)
        _remove_half_made(parent)
        while True:
            run_id = f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
            # built beside its place and renamed into it, so that no moment shows a run folder without a record
            hidden = parent / f".{run_id}"
            try:
                persist(hidden.mkdir)
            except FileExistsError:
                continue
            _fill(hidden, _new_record(run_id, name, group))
            try:
                replace_file(hidden, parent / run_id)
            except OSError:
                shutil.rmtree(hidden)
                if not (parent / run_id).exists():
                    raise
                continue
            return cls(parent / run_id)

    @classmethod
    def create_at(cls, path: str | Path, name: str = "run", *, group: str | None = None) -> RunFolder:
        """Makes `path` itself a run folder in state "starting"; files that are there stay.

        Args:
            path: the folder; made if absent. Its name is the run's id.
            name: name of the experiment.
            group: label that several runs share, e.g. the grid they belong to.

        Raises:
            RunFolderError: `path` is a file, or is a run folder already.
        """
        path = Path(path)
        if path.exists() and not path.is_dir():
            raise RunFolderError(f"{path} is a file; expected a folder, or a path where there is nothing yet")
        if (path / RECORD).exists():
            raise RunFolderError(f"{path} is a run folder already")
        make_folder(path)
        check_own_folder(path)
        record = _new_record(path.resolve().name, name, group)
        # many grids have points of one name, and W&B has one list of ids per project
        record["wandb_id"] = f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"
        _fill(path, record)
        return cls(path)

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """Opens a run folder that exists, finished or not.

        Raises:
            RunFolderError: there is no such folder, or it is not a run folder; says which, and what was missing.
        """
        path = Path(path)
        try:
            os.scandir(path).close()
        except PermissionError as error:
            raise RunFolderError(f"{path} may not be read: its permissions do not allow it") from error
        except OSError:
            pass  # reported below
        if not path.exists():
            raise RunFolderError(f"no run folder at {path}: there is no such path{_suggest_runs(path)}")
        if not path.is_dir():
            raise RunFolderError(
                f"{path} is a file; expected a run folder, i.e. one that holds {RECORD}{_suggest_runs(path)}"
            )
        if not (path / RECORD).is_file():
            raise RunFolderError(f"{path} is not a run folder: it has no {RECORD}{_suggest_runs(path)}")
        folder = cls(path)
        folder.info  # noqa: B018  raises if the record cannot be read
        return folder

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints are kept.

        Raises:
            RunFolderError: it is a link that leads out of the run's folder.
        """
        return self._own("checkpoints")

    @property
    def media(self) -> Path:
        """Where pictures and curves are kept.

        Raises:
            RunFolderError: it is a link that leads out of the run's folder.
        """
        return self._own("media")

    @property
    def info(self) -> RunInfo:
        """The record as it is on disk now.

        Raises:
            RunFolderError: it cannot be read, or an entry is of another kind than `fit` writes.
        """
        # what refuses a mistyped command line imports this file, and reads no record
        from slotbench.records import read_record
        from slotbench.runs.run_info import RunInfo

        advice = "restore it from a copy, or delete the run"
        return read_record(self.path / RECORD, RunInfo, advice=advice, raising=RunFolderError)

    @property
    def state(self) -> str:
        """`info["state"]`, or "killed" if it says that the run trains and nothing does (`standing`)."""
        return self.standing.state

    @property
    def standing(self) -> Standing:
        """The state, with the reason where that the run has stopped is not certain."""
        return standing(self.path, self.info, LOCK)

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
        """The valid part of `result.json`; None if the run has neither finished nor diverged."""
        from slotbench.records import valid_part
        from slotbench.runs.run_info import RunInfo

        found = read_json_object_or_none(self.path / RESULT)
        return None if found is None else valid_part(found, RunInfo)

    def check_own(self) -> None:
        """Refuses to write into the folder if a link in it leads elsewhere (`slotbench.files.check_own_folder`).

        Raises:
            RunFolderError: says which.
        """
        try:
            check_own_folder(self.path)
        except FileError as error:
            raise RunFolderError(str(error)) from error

    def is_locked(self) -> bool:
        """Whether a process trains this run now; asks without waiting, and changes nothing."""
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
        """Adds one line to the metrics and hands it to the operating system at once, so that a kill cannot lose it.

        Args:
            step: optimiser steps done.
            values: scalars by name; "step" is not allowed among them. Non-finite ones are written as "NaN",
                "Infinity" or "-Infinity" in quotes, which keeps every line valid JSON.
        """
        if "step" in values:
            raise ValueError(f"'step' is the argument, not a value; got values {sorted(values)}")
        if not self._tail_is_whole:
            cut_torn_line(self.path / METRICS)
            self._tail_is_whole = True
        append_whole_line(self.path / METRICS, dump_json({"step": int(step), **values}))

    def drop_rows_from(self, step: int, is_validated: bool = True) -> int:
        """Removes the lines of the metrics whose step is `step` or later, in one step, and returns how many they were.

        The line of the first optimiser step has step 0, so that a checkpoint made after n steps is what the lines
        before n lead up to.

        Args:
            step: optimiser steps done by the checkpoint that the run is resumed from.
            is_validated: whether it was made after the validation of that step; else those scores are dropped too.
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
        """Every line of the metrics as written, non-finite values as floats again; a torn last line is left out.

        A line that is damaged is left out too, with a warning on stderr that names it, once per process.

        Raises:
            RunFolderError: the file cannot be read.
        """
        try:
            return read_rows(self.path / METRICS)
        except FileError as error:
            raise RunFolderError(str(error)) from error

    def last_checkpoint(self) -> Path | None:
        """The checkpoint to continue from, or None if the run has not saved one yet."""
        path = self.checkpoints / "last.ckpt"
        return path if path.is_file() else None

    def _own(self, name: str) -> Path:
        path = self.path / name
        if path.is_symlink() and not is_inside(self.path, path):
            raise RunFolderError(f"{path} is a link that leads out of the run's folder; put what it leads to there")
        return path

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"


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


def _remove_half_made(parent: Path) -> None:
    """Removes the folders that processes were making when they were killed."""
    for path in parent.glob(".*"):
        with contextlib.suppress(OSError):
            old = time.time() - path.lstat().st_mtime >= _ABANDONED
            if old and _HALF_MADE.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)


def _fill(path: Path, record: dict[str, Any]) -> None:
    for sub in ("checkpoints", "media"):
        make_folder(path / sub)
    open_to_append(path / METRICS).close()
    write_atomically(path / RECORD, dump_json(record, indent=2))


def _near_path(path: Path) -> Path | None:
    """What is there and nearly has the name of a path that is not: the first part that is missing is looked for."""
    missing = next((part for part in (*reversed(path.parents), path) if not part.exists()), None)
    if missing is None or not missing.parent.is_dir():
        return None
    there = [entry.name for entry in missing.parent.iterdir() if entry.is_dir() or entry.suffix in (".yaml", ".yml")]
    near = difflib.get_close_matches(missing.name, there, n=1, cutoff=0.6)
    if not near:
        return None
    found = missing.parent / near[0]
    whole = found / path.relative_to(missing)
    return whole if whole.exists() else found


def _suggest_runs(path: Path) -> str:
    """Names the newest run folders below or beside `path`, for an error message."""
    if (meant := _near_path(path)) is not None:
        return f"; did you mean {meant}?"
    near = path if path.is_dir() else path.parent
    found = [record.parent for pattern in (RECORD, f"*/{RECORD}", f"*/*/{RECORD}") for record in near.glob(pattern)]
    if not found:
        return "; a run folder is what `slotbench fit` prints as it starts, usually runs/NAME/DATE-TIME-ID"
    newest = sorted(found, key=lambda run: run.name, reverse=True)[:3]
    return "; did you mean " + " or ".join(str(run) for run in newest) + "?"
