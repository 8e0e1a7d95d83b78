"""A run folder, made ready to be resumed: newest good checkpoint in place, rows up to it, changes on record."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from slotbench.errors import UserError
from slotbench.runs.checkpoints import BEST, LAST, GoodCheckpoint, find_good, link
from slotbench.runs.differences import Difference
from slotbench.runs.folder import CONFIG, RESULT, RunFolder, RunFolderError
from slotbench.runs.provenance import describe_environment

__all__ = ["command_after_divergence", "make_ready", "wait_for_folder"]

# seconds that the other processes wait for the first one to make the run folder
_PATIENCE = 300.0


def make_ready(folder: RunFolder, differences: Sequence[Difference], config: str) -> GoodCheckpoint | None:
    """Lets a run be resumed from its newest good checkpoint; damaged ones are set aside, with a warning.

    `differences` of the configuration are noted, and what was is kept beside `config`, which is.

    Returns:
        The checkpoint, or None for a start from the beginning.
    """
    for partial in (*folder.checkpoints.glob(".*.partial"), *folder.media.glob(".*.partial")):
        partial.unlink()  # of a process that was killed while it saved
    checkpoint = _checkpoint_in_place(folder)
    step = checkpoint.step if checkpoint else 0
    if differences:
        _record_changes(folder, step, differences, config)
    # whether the scores of the checkpoint's step are part of it
    validated = checkpoint.validated_step if checkpoint is not None else None
    dropped = folder.drop_rows_from(step, is_validated=validated is None or validated == step)
    before = folder.info
    resumption = {"at": _now(), "step": step, "rows_dropped": dropped}
    resumption |= {"after": before.get("state"), "git": before.get("git")}
    fields: dict[str, Any] = {
        **describe_environment(),
        "state": "starting",
        "error": None,
        "step": step,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "resumed": [*before.get("resumed", []), resumption],
    }
    if checkpoint is None:
        fields |= {"metrics": {}, "metrics_step": None, "best": {}}
    if any(difference.key.split(".")[0] in ("data", "model") for difference in differences):
        fields["headlines"] = []  # other clips, or other slots, have other baselines
    folder.update(**fields)
    return checkpoint


def wait_for_folder(path: Path, rank: int, token: str) -> RunFolder:
    """The run folder that the first process of a run makes, as soon as it is ready; `token` as in `Launch`."""
    patience = time.monotonic() + _PATIENCE
    while time.monotonic() < patience:
        with contextlib.suppress(RunFolderError, OSError):
            folder = RunFolder.open(path)
            info = folder.info
            # an earlier start may have had the same address; then its lock is free
            is_alive = info.get("host") != socket.gethostname() or folder.is_locked()
            if info.get("attempt", {}).get("token") == token and is_alive:
                return folder
        time.sleep(0.2)
    raise UserError(
        f"process {rank} has waited {_PATIENCE:.0f} s for the first process of the run to make "
        f"{path}: did that fail, or is the folder not on a disk that all of them share?"
    )


def command_after_divergence(path: Path) -> str:
    """What to type to resume a run that has diverged from its last checkpoint."""
    key = "schedule.max_lr" if "max_lr:" in (path / CONFIG).read_text() else "optimizer.lr"
    return f"slotbench fit --resume {shlex.quote(str(path))} --allow-changes --model.{key} VALUE"


def _checkpoint_in_place(folder: RunFolder) -> GoodCheckpoint | None:
    """The newest good checkpoint, as `last.ckpt`, and as `best.ckpt` if it scored best and a kill came between."""
    found, problems = find_good(folder.checkpoints)
    for path, problem in problems.items():
        print(f"warning: {problem}", file=sys.stderr)
        # set aside, so that it never takes the place of a good one
        os.replace(path, path.with_name(f"{path.name}.broken"))
    if found is None:
        if problems or folder.history():
            print(f"warning: {folder.path} has no good checkpoint: it starts from the beginning", file=sys.stderr)
        return None
    last, best = folder.checkpoints / LAST, folder.checkpoints / BEST
    if found.path != last:
        link(found.path, last)
    if found.best_step == found.step and not (best.is_file() and best.samefile(last)):
        link(last, best)
    return replace(found, path=last)


def _record_changes(folder: RunFolder, step: int, differences: Sequence[Difference], config: str) -> None:
    """Keeps the configuration and the result that were, and says in the record what has changed."""
    number = 1
    while (folder.path / f"config.{number}.yaml").exists():
        number += 1
    kept = f"config.{number}.yaml"
    # the result first: without it the run is not done, whatever its configuration
    if (folder.path / RESULT).is_file():
        os.replace(folder.path / RESULT, folder.path / f"result.{number}.json")
    shutil.copyfile(folder.path / CONFIG, folder.path / kept)
    settings = {difference.key: [difference.before, difference.now] for difference in differences}
    change = {"at": _now(), "step": step, "config": kept, "settings": settings}
    folder.update(changes=[*folder.info.get("changes", []), change])
    folder.write_config(config)


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
