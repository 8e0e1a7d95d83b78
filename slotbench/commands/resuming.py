"""Where `fit` records its run: in a new folder, or in one that exists and is gone on with."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import socket
import sys
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from slotbench import checksums
from slotbench.callbacks.run_checkpoint import link
from slotbench.commands.options import RunOptions
from slotbench.commands.recorded_plugins import plugin_records
from slotbench.errors import FileError, UserError, lines
from slotbench.files import parse_yaml, read_text, read_yaml, remove_partials
from slotbench.runs.checkpoints import BEST, LAST, GoodCheckpoint, find_good, remove_partial
from slotbench.runs.differences import Difference, configuration_differences
from slotbench.runs.files import write_atomically
from slotbench.runs.folder import CONFIG, LOCK, METRICS, RECORD, RESULT, RunFolder, RunFolderError
from slotbench.runs.launch import RUN_DIR_VARIABLE, Launch
from slotbench.runs.lock import LockedError, RunLock
from slotbench.runs.provenance import describe_environment
from slotbench.runs.result import write_result

__all__ = ["RunPlace", "disk_failure"]

# seconds that the other processes wait for the first one to make the run folder
_PATIENCE = 300.0
_MOST_NAMED = 12


class RunPlace:
    """The run folder of one `fit`: `look` at what is there, `enter` it, then `finish` or `give_up`, and `leave`.

    Of several processes only the first writes; the others come to the same verdict, and wait for the folder.

    Args:
        options: of the command line.
        launch: which process this is.
    """

    def __init__(self, options: RunOptions, launch: Launch) -> None:
        self._options, self._launch = options, launch
        self._path = self._chosen()
        self._lock: RunLock | None = None
        self._config = ""
        self._differences: list[Difference] = []
        self._made = False
        self._is_new = False
        self.folder: RunFolder | None = None
        self.checkpoint: GoodCheckpoint | None = None
        self.goes_on = False

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that writes."""
        return self._launch.rank == 0

    def look(self, config: str) -> bool:
        """Compares with what is there, and locks it; returns whether there is anything left to do.

        Args:
            config: the resolved configuration, as text.

        Raises:
            UserError: it is the run of another configuration, another process trains it, or it is no run folder.
        """
        self._config = config
        path = self._path
        if path is None:
            self._is_new = True
            return True
        exists = (path / RECORD).is_file()
        if self._options.resume is not None or exists:
            try:
                folder = RunFolder.open(path)
            except RunFolderError as error:
                raise UserError(str(error)) from error
        if self.is_first:
            if path.exists() and not path.is_dir():
                raise UserError(f"--run_dir {path} is a file; expected a folder, or a path where there is nothing yet")
            self._made = not path.exists()
            path.mkdir(parents=True, exist_ok=True)
            self._take_lock(path)
            exists = (path / RECORD).is_file()  # another process may just have made it, and ended
        if not exists:
            self._is_new = True
            return True
        folder = RunFolder.open(path)
        remove_partials(path, older_than=0.0 if self.is_first else 3600.0)
        if not (path / CONFIG).is_file():
            # killed between two files: nothing has been trained
            self.goes_on = True
            return True
        self._differences = self._compared(folder)
        if folder.has_diverged and not self._differences:
            raise UserError(self._about_divergence(folder))
        if folder.is_done and not self._differences:
            if self.is_first:
                step = (folder.result or {}).get("step")
                count = f"{step:,} steps, " if isinstance(step, int) else ""
                print(f"{path} is finished: {count}result in {path / RESULT}")
            return False
        self.goes_on = True
        return True

    def enter(self) -> RunFolder:
        """Makes the folder, or makes the one that exists ready to go on: the newest good checkpoint, and rows up to it.

        Raises:
            RunFolderError: the name of the run cannot be a folder's.
            UserError: another process was to make the folder, and has not.
        """
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
        elif self.goes_on:
            self.folder = self._continued(RunFolder.open(self._path))
        else:
            name = self._options.name or self._path.resolve().parent.name
            self.folder = RunFolder.create_at(self._path, name, group=self._options.group)
        if not self.goes_on or not (self.folder.path / CONFIG).is_file():
            self.folder.write_config(self._config)
        checkpoint = self.checkpoint.path.name if self.checkpoint else None
        if self._options.plugin:
            self.folder.update(plugins=plugin_records(self._options.plugin))
        self.folder.update(attempt={"token": self._launch.token, "checkpoint": checkpoint, "at": time.time()})
        os.environ[RUN_DIR_VARIABLE] = str(self.folder.path)
        return self.folder

    def finish(self) -> None:
        """Writes what the run came to: from here on it is done, or known to have diverged."""
        if self.is_first and self.folder is not None:
            write_result(self.folder)

    def give_up(self) -> None:
        """Removes what this process has made if the run never started; a run that has begun keeps everything."""
        if not self.is_first or not self._is_new or self._lock is None:
            return  # what is there is a run that has begun, or somebody else's
        path = self.folder.path if self.folder is not None else self._path
        if path is None or not path.is_dir():
            return
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
        """Gives the lock back; a folder in which nothing was recorded goes with it."""
        if self.folder is None:
            self.give_up()
        if self._lock is not None:
            self._lock.release()

    def command_after_divergence(self) -> str:
        """What goes on from the last checkpoint of a run that has diverged, if there is one."""
        assert self.folder is not None
        return _after_divergence(self.folder.path)

    def validates_finally(self) -> bool:
        """Whether the final weights are to be validated; what was said once holds for the run."""
        said = self._options.final_validation
        assert self.folder is not None
        if said is None and self.goes_on:
            said = self.folder.info.get("final_validation")
        wanted = said is not False
        if self.is_first:
            self.folder.update(final_validation=wanted)
        return wanted

    def options_to_repeat(self) -> str:
        """What of the command line is not in the folder and has to be given again to go on."""
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
        raise UserError(
            lines(
                "several processes were started from outside, and cannot know one another's run folder",
                expected="--run_dir DIR, the same for all of them (or --resume RUN)",
            )
        )

    def _take_lock(self, path: Path) -> None:
        lock = RunLock(path / LOCK)
        try:
            lock.acquire()
        except LockedError as error:
            pid, host = error.holder.get("pid", "unknown"), error.holder.get("host", "unknown")
            raise UserError(f"{path} is being trained by process {pid} on {host}; one process at a time") from error
        self._lock = lock

    def _compared(self, folder: RunFolder) -> list[Difference]:
        before = read_yaml(folder.path / CONFIG)
        found = configuration_differences(before, parse_yaml(self._config, "the configuration"))
        if found and not self._options.allow_changes:
            made, ours = folder.info.get("versions", {}).get("slotbench"), _version_of(self._config)
            raise UserError(
                "\n".join(
                    [
                        f"{folder.path} is the run of another configuration:",
                        *(f"  {difference}" for difference in found[:_MOST_NAMED]),
                        *([f"  and {len(found) - _MOST_NAMED} more"] if len(found) > _MOST_NAMED else []),
                        *([f"  (it was made by slotbench {made}, and this is {ours})"] if made != ours else []),
                        "give another --run_dir, leave these settings as they were, or add --allow-changes",
                    ]
                )
            )
        return found

    def _continued(self, folder: RunFolder) -> RunFolder:
        remove_partial(folder.checkpoints)
        self.checkpoint, problems = find_good(folder.checkpoints)
        for problem in problems:
            print(f"warning: {problem}", file=sys.stderr)
        for path in folder.checkpoints.glob("*.ckpt"):
            # set aside, so that it never takes the place of a good one
            if any(problem.startswith(f"{path} ") for problem in problems):
                os.replace(path, path.with_name(f"{path.name}.broken"))
        step = self.checkpoint.step if self.checkpoint else 0
        if folder.media.is_dir():
            remove_partial(folder.media)
        for path in folder.path.glob(".lr_find_*.ckpt"):  # Lightning's, of a search for a learning rate
            path.unlink(missing_ok=True)
        if self.checkpoint is not None and self.checkpoint.path.name != LAST:
            last = folder.checkpoints / LAST
            link(self.checkpoint.path, last)
            self.checkpoint = replace(self.checkpoint, path=last)
        if self.checkpoint is not None:
            _put_best_in_place(self.checkpoint)
        if self.checkpoint is None and (problems or folder.history()):
            print(f"warning: {folder.path} has no good checkpoint: it starts from the beginning", file=sys.stderr)
        if self._differences:
            self._record_changes(folder, step)
        dropped = folder.drop_rows_from(step, is_validated=self._is_validated(step))
        at = datetime.now().astimezone().isoformat(timespec="seconds")
        before = folder.info
        fields: dict[str, Any] = {
            **describe_environment(),
            "state": "starting",
            "error": None,
            "step": step,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "resumed": [
                *before.get("resumed", []),
                {
                    "at": at,
                    "step": step,
                    "rows_dropped": dropped,
                    "after": before.get("state"),
                    "git": before.get("git"),
                },
            ],
        }
        if self.checkpoint is None:
            fields |= {"metrics": {}, "metrics_step": None, "best": {}}
        if any(difference.key.split(".")[0] in ("data", "model") for difference in self._differences):
            fields["headlines"] = []  # other clips, or other slots, have other baselines
        folder.update(**fields)
        return folder

    def _is_validated(self, step: int) -> bool:
        """Whether the scores of the checkpoint's step, if there are any on record, are part of the checkpoint."""
        validated = self.checkpoint.validated_step if self.checkpoint is not None else None
        # checkpoints of an earlier version do not say
        return validated is None or validated == step

    def _about_divergence(self, folder: RunFolder) -> str:
        result = folder.result or {}
        said = str(result.get("error") or f"the training has diverged at step {result.get('diverged_at')}")
        return lines(
            f"{folder.path} is not gone on with: {said}",
            again=f"{_after_divergence(folder.path)}   from its last checkpoint",
            same=f"remove {folder.path / RESULT} first, to try the same settings once more",
        )

    def _record_changes(self, folder: RunFolder, step: int) -> None:
        """Keeps the configuration and the result that were, and says in the record what has changed."""
        number = 1
        while (folder.path / f"config.{number}.yaml").exists():
            number += 1
        kept = f"config.{number}.yaml"
        # the result first: without it the run is not done, whatever its configuration
        if (folder.path / RESULT).is_file():
            os.replace(folder.path / RESULT, folder.path / f"result.{number}.json")
        write_atomically(folder.path / kept, read_text(folder.path / CONFIG))
        change = {
            "at": datetime.now().astimezone().isoformat(timespec="seconds"),
            "step": step,
            "config": kept,
            "settings": {difference.key: [difference.before, difference.now] for difference in self._differences},
        }
        folder.update(changes=[*folder.info.get("changes", []), change])
        folder.write_config(self._config)

    def _of_first_process(self) -> RunFolder:
        """Waits until the first process has the folder ready."""
        if path := os.environ.get(RUN_DIR_VARIABLE):
            return RunFolder.open(path)
        if self._path is None:
            raise UserError(
                lines(
                    f"process {self._launch.rank} of this run does not know its run folder",
                    expected="slotbench fit --trainer.devices N, which starts the others itself, or --run_dir DIR",
                )
            )
        patience = time.monotonic() + _PATIENCE
        while time.monotonic() < patience:
            with contextlib.suppress(RunFolderError, OSError):
                folder = RunFolder.open(self._path)
                if self._is_of_now(folder):
                    return folder
            time.sleep(0.2)
        raise UserError(
            f"process {self._launch.rank} has waited {_PATIENCE:.0f} s for the first process of the run to make "
            f"{self._path}: did that fail, or is the folder not on a disk that all of them share?"
        )

    def _is_of_now(self, folder: RunFolder) -> bool:
        info = folder.info
        if info.get("attempt", {}).get("token") != self._launch.token:
            return False
        # an earlier start may have had the same address; then nobody holds its lock any more
        return info.get("host") != socket.gethostname() or folder.is_locked()


def _after_divergence(path: Path) -> str:
    return f"slotbench fit --resume {shlex.quote(str(path))} --allow-changes --model.optimizer.lr RATE"


def _put_best_in_place(last: GoodCheckpoint) -> None:
    """Makes `best.ckpt` the checkpoint that is gone on from if that had scored best and a kill came between the two."""
    best = last.path.with_name(BEST)
    if last.best_step != last.step or (best.is_file() and best.samefile(last.path)):
        return
    with contextlib.suppress(FileError):
        if best.is_file() and checksums.file_digest(best) == checksums.file_digest(last.path):
            return
    link(last.path, best)


def disk_failure(error: OSError, folder: RunFolder) -> str:
    """In a sentence or two: what could not be written, and how to go on once it can be."""
    what = f" ({error.filename})" if error.filename else ""
    more = f"slotbench fit --resume {shlex.quote(str(folder.path))}"
    return f"{folder.path} failed: {error.strerror or error}{what}; its last checkpoint is as it was, go on with {more}"


def _version_of(config: str) -> str:
    return config.partition("\n")[0].removeprefix("# slotbench ").strip()
