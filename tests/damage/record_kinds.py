"""Files of runs, of grids, and of what is measured and compared."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import made_up_runs
import pytest
import torch
import yaml
from kinds import Kind, through_cli

from slotbench.callbacks.loggers import wandb_logger
from slotbench.comparison.wandb.offline import find_logs, printed_log
from slotbench.errors import FileError
from slotbench.files import read_bytes
from slotbench.grids.expansion import expand
from slotbench.grids.grid_file import read_grid_file
from slotbench.grids.grid_folder import GridFolder
from slotbench.pretrained.weights import match_weights
from slotbench.runs.checkpoints import find_good, load_checkpoint
from slotbench.runs.evaluation_record import make_record, record_file, write_record
from slotbench.runs.folder import RunFolder

# --- runs


def two_runs(folder: Path) -> Path:
    """Two runs of one experiment; the second one's files are damaged."""
    for seed, core in enumerate(("SlotSSM", "RIM")):
        rows = [
            {"step": step, "train/loss": 1 / (step + 1), "val/loss": 0.5, "val/iou": 0.1 * step} for step in range(9)
        ]
        run = made_up_runs.make_run(
            folder / "runs" / f"run-{core}",
            made_up_runs.config(core),
            {"val/loss": 0.5 + seed, "val/iou": 0.7 - 0.1 * seed, "val/mse": 0.1},
            rows,
        )
        result = {"state": "finished", "step": 100, "metrics": {"val/loss": 0.5 + seed, "val/iou": 0.7}, "seconds": 3.5}
        (run / "result.json").write_text(json.dumps(result))
        (run / "media").mkdir()
        (run / "checkpoints").mkdir()
        parts = {"data": {"name": "Clips"}, "masks": {"source": "decoder"}, "baselines": {}}
        record = make_record(
            rules={"window": None, "void": [1, 2]},
            clips={"scored": 2, "truth": f"{seed}"},
            frames={"lengths": {"6": 2}},
            scores={"iou": {"mean": 0.5}},
            **parts,
        )
        write_record(record_file(run, "val", "decoder"), record)
        for kind in ("test", "lengths"):
            (run / f"{kind}-20260131-120000.json").write_text(json.dumps({"metrics": {f"{kind}/4T/iou": 0.5}}))
    return folder / "runs" / "run-RIM"


def run_file(name: str) -> Callable[[Path], Path]:
    return lambda folder: two_runs(folder) / name


def compared(folder: Path, metrics: tuple[str, ...] = ()) -> str:
    """The table of both runs; a damaged one must not hide the other."""
    try:
        shown = through_cli("compare", folder / "runs", "--runs", "--format", "csv", "--metric", "val/loss", *metrics)
    except FileError as error:
        raise AssertionError(f"a damaged run hides the others: {error}") from error
    assert "SlotSSM" in shown or "run-SlotSSM" in shown, shown
    return shown


def page(folder: Path) -> str:
    try:
        through_cli("compare", folder / "runs", "--html", folder / "page.html", "--metric", "val/loss")
    except FileError as error:
        raise AssertionError(f"a damaged run hides the others: {error}") from error
    shown = (folder / "page.html").read_text(encoding="utf-8")
    assert "run-SlotSSM" in shown
    return str(len(shown))


def looked_at(folder: Path) -> str:
    """A run as what trains, resumes and reports it sees it."""
    run = RunFolder.open(folder / "runs" / "run-RIM")
    return repr((run.info, run.state, run.result, run.history(), run.is_done))


def resumed(folder: Path) -> str:
    run = RunFolder.open(folder / "runs" / "run-RIM")
    run.drop_rows_from(5)
    run.append(5, {"train/loss": 0.1})
    run.update(state="finished")
    return repr((run.info, run.history()))


# --- checkpoints


def checkpoint(folder: Path) -> Path:
    run = two_runs(folder)
    torch.manual_seed(0)
    network = torch.nn.Linear(4, 3)
    content = {
        "state_dict": network.state_dict(),
        **{key: {} for key in ("loops", "optimizer_states", "lr_schedulers", "callbacks")},
        "global_step": 100,
        "hyper_parameters": {"name": "x"},
    }
    for name in ("last.ckpt", "best.ckpt"):
        torch.save(content, run / "checkpoints" / name)
    return run / "checkpoints" / "last.ckpt"


def read_checkpoint(folder: Path) -> str:
    path = folder / "runs" / "run-RIM" / "checkpoints" / "last.ckpt"
    network = torch.nn.Linear(4, 3)
    held = load_checkpoint(path)
    match_weights(network, path)
    return repr((held["state_dict"], held["global_step"], network.state_dict()))


def chosen_checkpoint(folder: Path) -> str:
    good, _ = find_good(folder / "runs" / "run-RIM" / "checkpoints")
    assert good is not None, "best.ckpt is whole"
    return str(good.step)


# --- configurations


def configuration(folder: Path) -> Path:
    shutil.copy(Path(__file__).parents[2] / "experiments" / "bouncing_balls.yaml", folder / "mine.yaml")
    return folder / "mine.yaml"


def shown(folder: Path) -> str:
    # what the configuration asks for may be refused for what it is, not for where it is written
    return through_cli("show", folder / "mine.yaml")


# --- grids


def grid(folder: Path) -> Path:
    base = folder / "base.yaml"
    base.write_text(yaml.safe_dump(made_up_runs.config()))
    file = folder / "widths.yaml"
    file.write_text("base: base.yaml\nproduct:\n  model.core.dim: [1, 2]\nseeds: 1\nmetrics: [val/loss]\n")
    made = expand(read_grid_file(file))
    runs = GridFolder(folder / "runs" / "widths")
    runs.write(made, [])
    for point in made.points:
        place = runs.point(point.id)
        place.prepare(point, ["slotbench", "fit"])
        number = place.begin("local", "here")
        place.end(number, 1, "failed")
        (place.path / "run.json").write_text(json.dumps({"id": point.id, "state": "failed", "step": 3}))
        place.log.write_text("ValueError: no\n")
    (runs.point(made.points[0].id).path / "result.json").write_text(json.dumps({"state": "finished", "step": 3}))
    return runs.path


def grid_file(name: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = grid(folder)
        return folder / name if name.endswith(".yaml") and name != "grid.yaml" else next(iter(sorted(path.rglob(name))))

    return make


def stands(folder: Path) -> str:
    """Where the points stand; not all being done is exit code 1."""
    given = folder / "widths.yaml"
    try:
        return through_cli("grid", "status", given, "--runs_dir", folder / "runs", "--json")
    except AssertionError as error:
        if str(error).startswith("exit code 1") and "Traceback" not in str(error):
            return "not done"
        raise


def stands_in_folder(folder: Path) -> str:
    try:
        return through_cli("grid", "status", folder / "runs" / "widths", "--json")
    except AssertionError as error:
        if str(error).startswith("exit code 1") and "Traceback" not in str(error):
            return "not done"
        raise


# --- W&B


def wandb_log(folder: Path) -> Path:
    """A log as wandb's own command prints it: how that command takes damage is wandb's affair."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("WANDB_MODE", raising=False)
        run = RunFolder.create(folder / "runs", "balls", group="cores")
        run.write_config(yaml.safe_dump(made_up_runs.config()))
        logger = wandb_logger(run, "offline", "tests", made_up_runs.config())
        for step in range(8):
            logger.log_metrics({"train/loss": 1.0 / (step + 1), "val/loss": 0.5}, step=step)
        logger.finalize("success")
    (log,) = find_logs(folder / "runs")
    deadline = time.monotonic() + 120
    while not any('"type":"exit"' in line[:40] for line in printed_log(log)) and time.monotonic() < deadline:
        time.sleep(0.2)  # wandb writes in a process of its own
    plain = folder / "logs" / log.parent.name / log.name
    plain.parent.mkdir(parents=True)
    plain.write_bytes(b":W&B")
    plain.with_suffix(".jsonl").write_text("".join(printed_log(log)))
    shutil.rmtree(folder / "runs")
    return plain.with_suffix(".jsonl")


def read_log(folder: Path) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "slotbench.comparison.wandb.offline.printed_log",
            # as a pipe would be waited for: nothing that wandb's command prints comes from one
            lambda path: read_bytes(path.with_suffix(".jsonl")).decode(errors="replace").splitlines(),
        )
        return through_cli("compare", f"wandb-offline:{folder / 'logs'}", "--format", "csv", "--metric", "val/loss")


# --- tables


def stored_table(folder: Path) -> Path:
    two_runs(folder)
    through_cli("compare", folder / "runs", "--metric", "val/loss", "--out", folder / "stored.csv")
    return folder / "stored.csv"


def against(folder: Path) -> str:
    try:
        return through_cli("compare", folder / "runs", "--metric", "val/loss", "--against", folder / "stored.csv")
    except AssertionError as error:
        # scores that are others than those stored are what the command is for
        if str(error).startswith("exit code 1") and "Traceback" not in str(error):
            return "another"
        raise


KINDS: dict[str, Kind] = {
    **{
        f"compare: {name}": Kind(run_file(name), compared, tolerant=True)
        for name in ("run.json", "result.json", "config.yaml")
    },
    "compare: metrics.jsonl": Kind(run_file("metrics.jsonl"), compared, tolerant=True),
    "compare: val-decoder.json": Kind(
        run_file("val-decoder.json"), partial(compared, metrics=("val/iou/decoder",)), tolerant=True
    ),
    **{
        f"compare: {kind}": Kind(
            run_file(f"{kind}-20260131-120000.json"), partial(compared, metrics=(f"{kind}/4T/iou",)), tolerant=True
        )
        for kind in ("test", "lengths")
    },
    "page: metrics.jsonl": Kind(run_file("metrics.jsonl"), page, tolerant=True),
    "page: run.json": Kind(run_file("run.json"), page, tolerant=True),
    "run: run.json": Kind(run_file("run.json"), looked_at),
    "run: result.json": Kind(run_file("result.json"), looked_at, tolerant=True),
    "run: metrics.jsonl": Kind(run_file("metrics.jsonl"), looked_at),
    "resume: run.json": Kind(run_file("run.json"), resumed),
    "resume: metrics.jsonl": Kind(run_file("metrics.jsonl"), resumed),
    "checkpoint": Kind(checkpoint, read_checkpoint, exact=True),
    "checkpoint: the good one": Kind(checkpoint, chosen_checkpoint, exact=True, tolerant=True),
    "configuration": Kind(configuration, shown, named=False),
    "grid: its file": Kind(grid_file("widths.yaml"), stands, named=False),
    "grid: the base": Kind(grid_file("base.yaml"), stands, named=False),
    "grid: grid.json": Kind(grid_file("grid.json"), stands_in_folder),
    **{
        f"grid: {name}": Kind(grid_file(name), stands, tolerant=True)
        for name in ("point.json", "attempts.jsonl", "run.json", "result.json", "log.txt")
    },
    # a log without any score in it is seen by the scores that are not there
    "W&B: log": Kind(wandb_log, read_log, named=False),
    "table: stored": Kind(stored_table, against),
}
