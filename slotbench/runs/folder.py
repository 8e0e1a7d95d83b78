"""The run folder: everything that is known about a run, on disk, readable at any moment.

    RUN/config.yaml      the complete resolved configuration
    RUN/run.json         identity, versions, state; replaced by atomic rename, never edited in place
    RUN/metrics.jsonl    one JSON object per logging call; only ever appended to
    RUN/checkpoints/     last.ckpt, best.ckpt
    RUN/media/           pictures

Nothing here imports torch at the top: comparing runs must not need it.
"""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import shutil
import socket
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from slotbench.runs.provenance import describe_environment

__all__ = ["RunFolder", "RunFolderError", "dump_json", "plain", "write_atomically"]

CONFIG, RECORD, METRICS = "config.yaml", "run.json", "metrics.jsonl"
_ALLOWED_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=,@-]*")


class RunFolderError(ValueError):
    """A path is not a run folder, or a run folder lacks what was asked for."""


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
        if not _ALLOWED_NAME.fullmatch(name):
            usable = re.sub(r"[^A-Za-z0-9_.+=,@-]+", "-", name).lstrip(".-+=,@") or "run"
            raise RunFolderError(
                f"run name {name!r} cannot be a folder's name: expected letters, digits and _ . + = , @ - "
                f"(starting with a letter, digit or _); try {usable!r}"
            )
        parent = Path(root) / name
        parent.mkdir(parents=True, exist_ok=True)
        while True:
            run_id = f"{datetime.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
            # built beside its place and renamed into it, so that no moment shows a run folder without a record
            hidden = parent / f".{run_id}"
            try:
                hidden.mkdir()
            except FileExistsError:
                continue
            record = {
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
            for sub in ("checkpoints", "media"):
                (hidden / sub).mkdir()
            (hidden / METRICS).touch()
            write_atomically(hidden / RECORD, dump_json(record, indent=2))
            try:
                hidden.rename(parent / run_id)
            except OSError:
                shutil.rmtree(hidden)
                if not (parent / run_id).exists():
                    raise
                continue
            return cls(parent / run_id)

    @classmethod
    def open(cls, path: str | Path) -> RunFolder:
        """Opens a run folder that exists, finished or not.

        Raises:
            RunFolderError: there is no such folder, or it is not a run folder; says which, and what was missing.
        """
        path = Path(path)
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
        """Where checkpoints are kept."""
        return self.path / "checkpoints"

    @property
    def media(self) -> Path:
        """Where pictures and curves are kept."""
        return self.path / "media"

    @property
    def info(self) -> dict[str, Any]:
        """The record as it is on disk now."""
        try:
            return json.loads((self.path / RECORD).read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise RunFolderError(f"{self.path / RECORD} is not valid JSON ({error}); was it edited by hand?") from error

    @property
    def state(self) -> str:
        """`info["state"]`, or "killed" if it says that the run is going on but its process on this machine is gone."""
        info = self.info
        state = str(info.get("state", "unknown"))
        if (
            state in ("starting", "running")
            and info.get("host") == socket.gethostname()
            and not _alive(info.get("pid"))
        ):
            return "killed"
        return state

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
            _cut_torn_line(self.path / METRICS)
            self._tail_is_whole = True
        # unbuffered and in append mode: one line is one write
        with open(self.path / METRICS, "ab", buffering=0) as file:
            file.write((dump_json({"step": int(step), **values}) + "\n").encode())

    def history(self) -> list[dict[str, Any]]:
        """Every line of the metrics as written, non-finite values as floats again; a torn last line is left out."""
        try:
            text = (self.path / METRICS).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return []
        lines = text.split("\n")[:-1]  # what follows the last newline is torn or empty
        return [{key: _number(value) for key, value in json.loads(line).items()} for line in lines if line]

    def last_checkpoint(self) -> Path | None:
        """The checkpoint to continue from, or None if the run has not saved one yet."""
        path = self.checkpoints / "last.ckpt"
        return path if path.is_file() else None

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"


def write_atomically(path: Path, text: str) -> None:
    """Replaces a file in one step: a reader, or a process killed half-way, finds the old content or the new."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with open(partial, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def dump_json(value: Any, indent: int | None = None) -> str:
    """Strict JSON: non-finite floats become strings that `float` reads back, other objects become their text."""
    return json.dumps(plain(value), indent=indent, allow_nan=False)


def plain(value: Any) -> Any:
    """`value` as what strict JSON can hold."""
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, float) or hasattr(value, "__float__"):
        number = float(value)
        if math.isfinite(number):
            return number
        return "NaN" if math.isnan(number) else ("Infinity" if number > 0 else "-Infinity")
    return str(value)


def _number(value: Any) -> Any:
    return float(value) if value in ("NaN", "Infinity", "-Infinity") else value


def _cut_torn_line(path: Path) -> None:
    """Removes what a killed writer left after the last newline, so that the next line starts on its own."""
    if not path.exists():
        return
    with open(path, "rb+") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)


def _alive(pid: Any) -> bool:
    if not isinstance(pid, int) or sys.platform == "win32":
        return True  # cannot tell: believe the record
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _suggest_runs(path: Path) -> str:
    """Names the newest run folders below or beside `path`, for an error message."""
    near = path if path.is_dir() else path.parent
    found = [record.parent for pattern in (RECORD, f"*/{RECORD}", f"*/*/{RECORD}") for record in near.glob(pattern)]
    if not found:
        return "; a run folder is what `slotbench fit` prints as it starts, usually runs/NAME/DATE-TIME-ID"
    newest = sorted(found, key=lambda run: run.name, reverse=True)[:3]
    return "; did you mean " + " or ".join(str(run) for run in newest) + "?"
