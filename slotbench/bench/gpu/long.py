"""The slices of what takes longer than one of them: the points of a study, and one experiment at a paper's size.

Both are stopped when their time is up, as by Ctrl-C, and kept in one file, `OUT/SLICE.zip`, from which the same slice
goes on: on another machine, if the file is there.
"""

from __future__ import annotations

import json
import re
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from slotbench.bench.gpu.plan import PATIENCE, Items, OutOfTimeError, Settings, run_command
from slotbench.bench.gpu.training import merged, small_data
from slotbench.bench.harness import python
from slotbench.errors import FileError
from slotbench.files import open_atomically, open_regular, read_json_object_or_none, regular_files, write_atomically
from slotbench.runs.checkpoints import LAST
from slotbench.yaml_files import read_yaml

__all__ = ["experiment", "keep", "study", "unpack"]

_PART = 200.0  # seconds after which all is stopped and kept: more is never lost with a machine
_KEEPING = 45.0  # seconds at the end of a slice, for the last step, its checkpoint and the file
_MOST_BYTES = 1 << 30
_ROOM = 15_000_000  # bytes of checkpoints of a study that are kept, so that its file stays small
_TIME_IS_UP = 124  # exit code of `slotbench grid run --minutes`
_QUICK_STEPS = 4
_QUICK_LOADER = {
    "batch_size": 2,
    "val_batch_size": 2,
    "num_workers": 0,
    "train_size": 64,
    "val_size": 4,
    "test_size": 4,
}


def experiment(settings: Settings, items: Items, config: str) -> str:
    """Trains on from the checkpoint of the last call, as far as the time goes; returns the steps.

    Raises:
        OutOfTimeError: there are steps left.
    """
    given = read_yaml(config)
    if settings.quick:
        loader = {
            "init_args": {**small_data(given["data"]["init_args"]), "patches_per_side": 1, "loader": _QUICK_LOADER}
        }
        given = merged(given, {"data": loader, "trainer": {"max_steps": _QUICK_STEPS, "val_check_interval": 2}})
    trainer = {"accelerator": "gpu" if settings.device == "cuda" else "cpu", "devices": 1}
    with tempfile.TemporaryDirectory() as scratch:
        run, file = Path(scratch, "runs", "run"), Path(scratch, "config.yaml")
        write_atomically(file, json.dumps(merged(given, {"trainer": trainer}), indent=1))  # JSON is YAML
        command = python("slotbench", "fit", "--config", str(file), "--run_dir", str(run), "--allow-changes")

        def note() -> None:
            record = read_json_object_or_none(run / "run.json") or {}
            speed, kept = record.get("seconds_per_step"), ("step", "total_steps", "seconds", "metrics", "headlines")
            found = {"config": config, **{name: record.get(name) for name in kept}, "state": record.get("state")}
            items["run"] = {**found, "steps_per_second": 1 / speed if speed else None}

        def train(seconds: float) -> int | None:
            return run_command(command, seconds, items.log)

        code = _in_parts(train, items, run.parent, note, weights=True)
    done = items["run"]
    total = done["total_steps"] or given["trainer"]["max_steps"]
    return _ended(code, f"{done['step'] or 0:,} of {total:,} steps", "slotbench fit", items)


def study(settings: Settings, items: Items, grid: str, smallest: Sequence[str] = (), jobs: int = 8) -> str:
    """Runs the points of a grid that are not done, side by side, or two steps of its `smallest`; returns how many are.

    Their records are packed into `OUT/SLICE.records.zip` too, which `slotbench grid unpack` takes.

    Raises:
        OutOfTimeError: there are points left.
    """
    records = items.path.with_suffix(".records.zip")
    with tempfile.TemporaryDirectory() as scratch:
        common = ["--runs_dir", str(Path(scratch, "runs"))]
        command = python("slotbench", "grid", "run", grid, *common, "--jobs", str(jobs), "--threads", "1")
        if settings.quick:
            small: dict[str, object] = {f"data.loader.{name}": size for name, size in _QUICK_LOADER.items()}
            small |= {"trainer.max_epochs": 1, "trainer.limit_train_batches": 2, "trainer.accelerator": "cpu"}
            common += [word for name, value in small.items() for word in (f"--{name}", str(value))]
            command += [*common[2:], "--only", *smallest]

        def note() -> None:
            run_command(python("slotbench", "grid", "pack", grid, str(records), *common), 60.0, items.log)
            counted = re.findall(r"records of (\d+) points of (\d+)", items.log.read_text(errors="replace"))
            done, points = map(int, counted[-1]) if counted else (0, None)
            items["points"] = {"grid": grid, "done": done, "points": points}

        def run(seconds: float) -> int | None:
            whole = seconds + PATIENCE
            code = run_command([*command, "--minutes", f"{whole / 60:.4f}"], whole, items.log)
            return None if code == _TIME_IS_UP else code

        code = _in_parts(run, items, Path(scratch, "runs"), note)
    done, points = items["points"]["done"], items["points"]["points"]
    return _ended(code, f"{done} of {points or 'all'} points done", "slotbench grid run", items)


def _in_parts(
    run: Callable[[float], int | None], items: Items, runs: Path, note: Callable[[], None], *, weights: bool = False
) -> int | None:
    """The exit code of a command that resumes by itself; None if the time was up.

    Args:
        run: runs it, for so many seconds until it saves and ends; returns the exit code, None if it did not come to it.
        items: of the slice.
        runs: folder of what it writes: laid out from the archive first, and kept after each part.
        note: adds items after each part.
        weights: of `keep`.
    """
    unpack(items.archive, runs)
    code: int | None = None
    while code is None and (left := items.left() - _KEEPING) > 0:
        # no part that is all start
        try:
            code = run(left if left < 1.5 * _PART else _PART)
        finally:  # after an interruption, too
            if runs.is_dir():
                keep(runs, items.archive, weights=weights)
        note()
    return code


def _ended(code: int | None, reached: str, command: str, items: Items) -> str:
    """What a slice has reached, or an error of the same words where that is not all.

    Raises:
        OutOfTimeError: the time was up.
        RuntimeError: the command has failed.
    """
    if code is None:
        raise OutOfTimeError(f"{reached}; goes on from {items.archive.name}")
    if code:
        raise RuntimeError(f"{command} ended with code {code} after {reached}; {items.log.name} says more")
    return reached


def keep(runs: Path, archive: Path, *, weights: bool = False) -> None:
    """Writes what runs resume from into a zip file: records, and the newest checkpoint of each that has not ended.

    Runs that have not ended and whose checkpoint no longer fits into a small file are left out, and begin anew: those
    with the fewest steps.

    Args:
        runs: folder of them all.
        archive: the file, which is replaced in one step.
        weights: keep the newest checkpoint of those that have ended, too.
    """
    room, wanted, left_out = _ROOM, set(), set()
    for path in sorted(regular_files(runs, f"**/{LAST}"), key=_steps_done, reverse=True):
        if weights or not (path.parents[1] / "result.json").is_file():
            room -= path.stat().st_size
            wanted.add(path) if weights or room >= 0 else left_out.add(path.parents[1])
    with open_atomically(archive) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in regular_files(runs, "**/*"):
            record = path.suffix != ".ckpt" and "media" not in path.parts and left_out.isdisjoint(path.parents)
            if record or path in wanted:
                packed.write(path, path.relative_to(runs))


def _steps_done(checkpoint: Path) -> int:
    return (read_json_object_or_none(checkpoint.parents[1] / "run.json") or {}).get("step") or 0


def unpack(archive: Path, runs: Path) -> None:
    """Lays out what `keep` has written, if it is there.

    Raises:
        FileError: it is no such file, or larger than one may be.
    """
    if not archive.is_file():
        return
    try:
        with open_regular(archive) as file, zipfile.ZipFile(file) as packed:
            if sum(member.file_size for member in packed.infolist()) > _MOST_BYTES:
                raise FileError(f"{archive} is larger than the {_MOST_BYTES:,} bytes that it may hold")
            packed.extractall(runs)  # which cuts what would lead out of the folder off the names
    except (zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        raise FileError(f"{archive} is no zip file, or damaged: {error}; --restart drops it") from error
