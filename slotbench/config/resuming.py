"""The run folder of a `fit`: a new one, or that of a resumed run."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from filelock import BaseFileLock

from slotbench.callbacks import curves
from slotbench.config.data_paths import resolve_paths
from slotbench.config.options import RunOptions
from slotbench.config.policy import plugin_records
from slotbench.errors import UserError, lines
from slotbench.io import LockedError, lock, parse_yaml, read_yaml
from slotbench.runs.checkpoints import GoodCheckpoint, find_good, load_checkpoint
from slotbench.runs.differences import Difference, configuration_differences
from slotbench.runs.folder import CONFIG, LOCK, METRICS, RECORD, RESULT, RunFolder
from slotbench.runs.launch import RUN_DIR_VARIABLE, Launch
from slotbench.runs.result import write_result
from slotbench.runs.resuming import command_after_divergence, make_ready, wait_for_folder

__all__ = ["RunPlace"]


class RunPlace:
    """The run folder of one `fit`: `look` at what is there, `enter` it, then `finish` or `give_up`, and `leave`.

    Of several processes only the first writes; the others come to the same verdict, and wait for the folder.
    """

    def __init__(self, options: RunOptions, launch: Launch) -> None:
        self._options, self._launch = options, launch
        self._path = self._chosen()
        self._lock: BaseFileLock | None = None
        self._config = ""
        self._differences: list[Difference] = []
        self._made = False
        self._is_new = False
        self.folder: RunFolder | None = None
        self.checkpoint: GoodCheckpoint | None = None
        self.is_resumed = False

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes."""
        return self._launch.rank == 0

    @property
    def resumed(self) -> Path | None:
        """The folder of the run that is resumed; None for a new one."""
        return self._path if self.is_resumed else None

    def look(self, config: str) -> bool:
        """Locks the folder and compares configurations; returns whether there is anything left to do.

        Raises:
            UserError: it is the run of another configuration, another process trains it, or it is no run folder.
        """
        self._config = config
        path = self._path
        if path is None:
            self._is_new = True
            return True
        if self._options.resume is not None:
            RunFolder.open(path)
        if self.is_first:
            if path.is_file():
                raise UserError(f"--run_dir {path} is a file; expected a folder, or a path where there is nothing yet")
            self._made = not path.exists()
            path.mkdir(parents=True, exist_ok=True)
            self._take_lock(path)
        self._is_new = not (path / RECORD).is_file()
        self.is_resumed = not self._is_new
        if self._is_new or not (path / CONFIG).is_file():  # or killed between two files: nothing has been trained
            return True
        folder = RunFolder.open(path)
        self._differences = self._compared(folder)
        if folder.has_diverged and not self._differences:
            result = folder.result or {}
            why = result.get("error") or f"the training has diverged at step {result.get('diverged_at')}"
            raise UserError(lines(f"{path} is not resumed: {why}", again=command_after_divergence(path)))
        if folder.is_done and not self._differences:
            if self.is_first:
                step = (folder.result or {}).get("step")
                count = f"{step:,} steps, " if isinstance(step, int) else ""
                if not all((folder.media / name).exists() for name in ("loss.png", "metrics.png")):
                    curves.draw_curves(folder)  # a kill came between the result and its pictures
                print(path if self._options.quiet else f"{path} is finished: {count}result in {path / RESULT}")
            return False
        return True

    def with_changes(self) -> dict[str, Any] | None:
        """What the newest checkpoint holds, if other settings are to go on from it."""
        if self._path is None or not self._differences:
            return None
        found, _ = find_good(RunFolder.open(self._path).checkpoints)
        return load_checkpoint(found.path) if found is not None else None

    def resolve(self, values: Any, typed: Collection[str]) -> None:
        """Resolves the relative paths of a resumed run from the folder where it was begun."""
        if self._path is not None and self.is_resumed and (self._path / CONFIG).is_file():
            resolve_paths(values, RunFolder.open(self._path), typed)

    def enter(self) -> RunFolder:
        """Creates the folder, or prepares an existing one to be resumed; others than the first process wait for it."""
        if not self.is_first:
            self.folder = self._of_first_process()
            name = self.folder.info.get("attempt", {}).get("checkpoint")
            if name:
                self.checkpoint = GoodCheckpoint(self.folder.checkpoints / name, 0)
            return self.folder
        if self._path is None:
            name = self._options.name or "run"
            self.folder = RunFolder.create(self._options.runs_dir, name, group=self._options.group)
            self._made = True
            self._take_lock(self.folder.path)
        elif self.is_resumed:
            self.folder = RunFolder.open(self._path)
            self.checkpoint = make_ready(self.folder, self._differences, self._config)
        else:
            name = self._options.name or self._path.resolve().parent.name
            self.folder = RunFolder.create_at(self._path, name, group=self._options.group)
        if not self.is_resumed or not (self.folder.path / CONFIG).is_file():
            # first where its relative paths start
            self.folder.update(begun_in=str(Path.cwd()))
            self.folder.write_config(self._config)
        checkpoint = self.checkpoint.path.name if self.checkpoint else None
        if self._options.plugin:
            self.folder.update(plugins=plugin_records(self._options.plugin))
        self.folder.update(attempt={"token": self._launch.token, "checkpoint": checkpoint, "at": time.time()})
        os.environ[RUN_DIR_VARIABLE] = str(self.folder.path)
        return self.folder

    def finish(self) -> None:
        """Writes the result: from here on the run is done, or known to have diverged."""
        if self.is_first and self.folder is not None:
            write_result(self.folder)

    def give_up(self) -> None:
        """Removes the files of a run that never started; a run that has begun keeps everything."""
        path = self.folder.path if self.folder is not None else self._path
        if not self._is_new or self._lock is None or path is None or not path.is_dir():
            return  # a run that has begun, or another process's
        if self.folder is not None:
            if self.folder.history() or any(self.folder.checkpoints.iterdir()):
                return
            for name in (RECORD, CONFIG, METRICS):
                (path / name).unlink(missing_ok=True)
            for sub in (self.folder.checkpoints, self.folder.media):
                shutil.rmtree(sub, ignore_errors=True)
        (path / LOCK).unlink(missing_ok=True)
        if self._made:
            with contextlib.suppress(OSError):  # not ours if there is something else in it
                path.rmdir()
                if self._path is None:
                    path.parent.rmdir()
                    path.parent.parent.rmdir()

    def leave(self) -> None:
        """Releases the lock, and removes a folder in which nothing was recorded."""
        if self.folder is None:
            self.give_up()
        if self._lock is not None:
            self._lock.release()

    def kept(self, name: str, given: Any, default: Any) -> Any:
        """An option as it is given, or as a resumed run has had it, or its default; the run's record has it then."""
        assert self.folder is not None
        before = self.folder.info.get(name) if self.is_resumed else None
        value = next(one for one in (given, before, default) if one is not None)
        if self.is_first:
            self.folder.update(**{name: value})
        return value

    def options_to_repeat(self) -> str:
        """Options that the folder does not hold and a resuming command has to repeat."""
        given = [("--plugin", str(file)) for file in self._options.plugin]
        given += [("--allow-import", prefix) for prefix in self._options.allow_import]
        return " ".join(f"{option} {shlex.quote(value)}" for option, value in given)

    def _chosen(self) -> Path | None:
        """The folder that is named, or that follows from the job; None for a new one with a name of its own."""
        path = self._options.resume or self._options.run_dir
        if path is not None or not self._launch.together:
            return path
        if self._launch.job is not None:
            return self._options.runs_dir / (self._options.name or "run") / self._launch.job
        if self._launch.rank > 0 and os.environ.get(RUN_DIR_VARIABLE):
            return None
        what = "several processes were started from outside, and cannot know one another's run folder"
        raise UserError(lines(what, expected="--run_dir DIR, the same for all of them (or --resume RUN)"))

    def _take_lock(self, path: Path) -> None:
        try:
            self._lock = lock(path / LOCK)
        except LockedError as error:
            raise UserError(f"{path} is being trained by another process; one at a time") from error

    def _compared(self, folder: RunFolder) -> list[Difference]:
        found = configuration_differences(read_yaml(folder.path / CONFIG), parse_yaml(self._config, folder.path))
        if found and not self._options.allow_changes:
            way = "give another --run_dir, leave these settings as they were, or add --allow-changes"
            changes = "\n".join(f"  {difference}" for difference in found[:12])
            raise UserError(f"{folder.path} is the run of another configuration:\n{changes}\n{way}")
        return found

    def _of_first_process(self) -> RunFolder:
        """Waits until the first process has the folder ready."""
        if path := os.environ.get(RUN_DIR_VARIABLE):
            return RunFolder.open(path)
        if self._path is None:
            raise UserError(f"process {self._launch.rank} does not know its run folder: expected --run_dir DIR")
        return wait_for_folder(self._path, self._launch.rank, self._launch.token)
