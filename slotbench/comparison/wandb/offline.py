"""Runs from the logs that wandb writes on this machine, `run-<id>.wandb`, read without a server.

A log is read by `wandb leet inspect --json`, wandb's own command; it stops at a torn end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from slotbench.comparison.records import ComparisonError, Curve, RunDetails, RunRecord, thinned, whole
from slotbench.comparison.run_folders import images_in
from slotbench.comparison.settings import flat_settings
from slotbench.comparison.wandb.rows import MetricRows, best_of, metrics_of, step_of
from slotbench.errors import FileError
from slotbench.files import is_inside, open_regular, own_file, read_json
from slotbench.records import valid_part
from slotbench.runs.run_info import RunInfo
from slotbench.runs.wandb_compat import LEGACY_PART, PART

__all__ = ["find_logs", "printed_log", "read_log", "read_wandb_offline"]

Record = tuple[str, dict[str, Any]]
"""The kind, "run", "config", "summary", "history" or "exit", and what the record says."""

_KINDS = ("run", "config", "summary", "history", "exit")
_MAGIC = b":W&B"

_NOT_SEARCHED = frozenset({"files", "logs", "checkpoints", "media", "latest-run"})
_KEPT_POINTS = 2000
# wandb writes the machine's load every 15 s, whatever the run does
_SILENCE = 60.0
_INTERRUPTED = (130, 143)
# what the run folder around a log knows beyond it
_FROM_RUN = ("parameters", "seconds_per_step", "headlines", "device", "accelerator", "error")


def read_wandb_offline(folder: Path) -> list[RunRecord]:
    """Runs as wandb has logged them on this machine; the logs of one run, which has been resumed, are one record.

    Args:
        folder: a `wandb` folder, one `offline-run-*` in it, a run folder of ours, or a folder of any of these.

    Raises:
        ComparisonError: there is no such folder, no log in it, or none that can be read.
    """
    if not os.path.exists(folder):
        raise ComparisonError(f"no W&B runs at {folder}: there is no such folder")
    by_run: dict[str, list[Path]] = defaultdict(list)
    for path in find_logs(folder):
        by_run[path.stem.removeprefix("run-")].append(path)
    if not by_run:
        raise ComparisonError(
            f"no W&B runs in {folder}: no file wandb/offline-run-*/run-*.wandb; "
            "`slotbench fit ... --wandb offline` writes one"
        )
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        records = list(pool.map(_read_run_if_possible, by_run, by_run.values()))
    if all(record.state == "unknown" for record in records):
        raise ComparisonError(str(records[0].info["problem"]))
    return records


def find_logs(folder: Path) -> Iterator[Path]:
    """Every log at or below a folder once, in the order of names, which is that of time within a `wandb` folder."""
    if folder.is_file():
        yield folder
        return
    # links are not followed: wandb links its newest folder under a second name
    for path, folders, files in os.walk(folder.resolve()):
        folders[:] = sorted(name for name in folders if name not in _NOT_SEARCHED and not name.startswith("."))
        yield from (Path(path) / name for name in sorted(files) if name.startswith("run-") and name.endswith(".wandb"))


@dataclass
class _Log:
    """One file, parsed."""

    path: Path
    run: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    exit_code: int | None = None

    def take(self, record: Record) -> None:
        kind, content = record
        if kind == "run":
            self.run = {**self.run, **content}
        elif kind == "config":
            self.run = {**self.run, "config": {**self.run.get("config", {}), **content}}
        elif kind == "summary":
            self.summary |= content
        elif kind == "history":
            self.rows.append(content)
        else:
            self.exit_code = int(content["exit_code"])

    @property
    def place(self) -> tuple[int, bool, int, int, str]:
        """What orders the logs of one run, from what is in them: clocks are set back, and files are copied.

        Logs say which part of the run they are. Those of before they did come first, by their first and last step: one
        that resumes begins at the step of a checkpoint. A log without a step was given up as it started, or starts now.
        """
        steps = [step for row in self.rows if (step := step_of(row)) is not None]
        starts = not steps and self.state == "running"
        return self.part, starts, steps[0] if steps else -1, max(steps, default=-1), str(self.path)

    @property
    def part(self) -> int:
        """Which part of the run it is, from 1; 0 where it does not say."""
        kept = self.run.get("config", {}).get("_wandb")
        part = whole(kept.get(PART)) if isinstance(kept, dict) else None
        return part or whole(self.summary.get(LEGACY_PART)) or 0

    @property
    def state(self) -> str:
        if self.exit_code is None:
            # a file from the future has no known time
            return "running" if abs(time.time() - self.path.stat().st_mtime) < _SILENCE else "killed"
        if self.exit_code == 0:
            return "finished"
        return "interrupted" if self.exit_code in _INTERRUPTED else "failed"


def _read_run_if_possible(run_id: str, paths: Sequence[Path]) -> RunRecord:
    """The run, or one in state "unknown" that says why its log cannot be read: the others are still of use."""
    try:
        return _read_run(run_id, paths)
    except ComparisonError as error:
        problem = str(error)
    except (
        FileError,
        OSError,
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        problem = f"{paths[-1]} cannot be read as a log of wandb's: {str(error) or type(error).__name__}"
    return RunRecord(run_id, run_id, str(paths[-1].parent), "unknown", {}, {}, info={"problem": problem})


def _read_run(run_id: str, paths: Sequence[Path]) -> RunRecord:
    logs = sorted(map(_read_log, paths), key=lambda log: log.place)
    rows = MetricRows()
    told: dict[str, Any] = {}
    summary: dict[str, float] = {}
    kept: dict[str, Any] = {}
    for log in logs:
        told |= log.run
        summary |= metrics_of(log.summary)
        kept |= log.summary
        rows.start_log()
        for row in log.rows:
            rows.add(row)
    newest = logs[-1]
    around = _run_folder(newest.path, run_id)
    config = {key: value for key, value in told.get("config", {}).items() if key != "_wandb"}
    given = {
        "group": told.get("run_group"),
        "project": told.get("project"),
        "job_type": told.get("job_type"),
        "tags": list(told.get("tags", ())),
        "created": logs[0].run.get("start_time"),
        "step": rows.step,
        "parameters": kept.get("parameters"),
        **{key: value for key, value in around.items() if key in _FROM_RUN},
        "problem": "" if told else "its W&B log is empty: it was killed as it started",
    }
    info = valid_part({key: value for key, value in given.items() if value not in (None, "", [])}, RunDetails)
    try:
        settings = flat_settings(config)
    except FileError as error:
        settings, info["problem"] = {}, f"has no settings: its configuration {error}"
    return RunRecord(
        id=run_id,
        name=str(told.get("display_name") or run_id),
        source=str(newest.path.parent),
        state=newest.state,
        settings=settings,
        # a metric that has rows is what they say: an older log's summary is from beyond the checkpoint
        summary={**{name: value for name, value in summary.items() if name not in rows.names}, **rows.last()},
        best=best_of(kept) | _best(around),
        info=info,
        curves=partial(_curves, rows.curves(_KEPT_POINTS)),
        media=_media(log.path.parent for log in logs),
    )


def _read_log(path: Path) -> _Log:
    log = _Log(path)
    for record in read_log(path):
        log.take(record)
    return log


def _curves(kept: Mapping[str, Curve], limit: int) -> dict[str, Curve]:
    return {name: thinned(curve, limit) for name, curve in kept.items()}


def _run_folder(path: Path, run_id: str) -> RunInfo:
    """The record of the run folder that the log lies in, if it is one."""
    try:
        folder = path.parents[2]
        record = valid_part(read_json(own_file(folder, "run.json")), RunInfo)
    except (FileError, IndexError):
        return {}
    return record if record.get("wandb_id") == run_id else {}


def _best(around: RunInfo) -> dict[str, float]:
    return metrics_of({name: item["value"] for name, item in around.get("best", {}).items()})


def _media(folders: Iterator[Path]) -> tuple[Path, ...]:
    found: list[Path] = []
    for folder in folders:
        media = folder / "files" / "media"
        if os.path.isdir(media) and is_inside(folder, media):
            found += images_in(media)
    return tuple(sorted(found))


def read_log(path: Path) -> Iterator[Record]:
    """Every record of a log that a comparison can use, in the order in which they were written.

    Raises:
        ComparisonError: the file is no log of wandb's, or its beginning is broken.
    """
    with open_regular(path) as file:
        begins = file.read(len(_MAGIC))
    if not _MAGIC.startswith(begins):
        raise ComparisonError(f"{path} is no log of wandb's: it does not begin with {_MAGIC.decode()}")
    if len(begins) < len(_MAGIC):
        return  # nothing has been written yet
    for line in printed_log(path):
        # other kinds are many and long: the machine's load, the terminal's text
        if not any(f'"type":"{kind}"' in line[:40] for kind in _KINDS):
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        yield record["type"], _content(record["type"], record.get(record["type"]) or {})


def printed_log(path: Path) -> Iterator[str]:
    """A log as wandb prints it, a line of JSON for each record.

    Raises:
        ComparisonError: wandb refuses the file.
    """
    # wandb's tools report errors and use to their maker unless they are told that there is no network
    quiet = {**os.environ, "WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false"}
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "wandb", "leet", "inspect", "--json", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        env=quiet,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        yield from process.stdout
        printed = process.stderr.read().strip()
    if process.returncode != 0:
        raise ComparisonError(
            f"wandb cannot read {path}: {printed.splitlines()[-1] if printed else 'it prints no reason'}"
        )


def _content(kind: str, given: dict[str, Any]) -> dict[str, Any]:
    """What a printed record says, without its shell."""
    if kind == "history":
        return dict(given.get("item") or {})
    if kind in ("summary", "config"):
        return dict(given.get("update") or {})
    if kind == "exit":
        return {"exit_code": given.get("exit_code", 0)}
    config = (given.get("config") or {}).get("update") or {}
    return {**given, "config": config}
