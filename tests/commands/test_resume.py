"""A run that was stopped, killed or damaged goes on, and ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml
from tiny_configs import COMPONENTS, components_in

from slotbench.cli import run
from slotbench.runs.folder import RunFolder

TRAINERS = {
    # an epoch is five steps
    "validation by steps": {
        "max_steps": 13,
        "max_epochs": -1,
        "val_check_interval": 4,
        "check_val_every_n_epoch": None,
    },
    "validation by epochs": {"max_epochs": 3},
    "validation every other epoch": {"max_epochs": 4, "check_val_every_n_epoch": 2},
    "no validation": {"max_epochs": 3, "limit_val_batches": 0},
    "accumulation by epochs": {
        "max_epochs": 3,
        "callbacks": {
            "class_path": "lightning.pytorch.callbacks.GradientAccumulationScheduler",
            "init_args": {"scheduling": {1: 2, 2: 5}},
        },
    },
}
pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers.*")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory, the components registered, and everything put back afterwards."""
    with components_in(tmp_path_factory.mktemp("resume")) as folder:
        yield folder


@pytest.fixture(autouse=True)
def interrupts_are_heard() -> Iterator[None]:
    """A process started in the background ignores SIGINT from birth."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def wherever_training_happens(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


def fit(folder: str, *more: str, trainer: str = "validation by steps") -> int:
    config = Path(f"{trainer.replace(' ', '_')}.yaml")
    if not config.exists():
        shared = {"accelerator": "cpu", "enable_progress_bar": False, "log_every_n_steps": 1}
        parts = {"model": {"class_path": "DrawingTask"}, "data": {"class_path": "NoiseData"}}
        config.write_text(yaml.safe_dump({**parts, "trainer": {**shared, **TRAINERS[trainer]}}))
    return run(["fit", "--config", str(config), "--run_dir", folder, *more])


def stopped(monkeypatch: pytest.MonkeyPatch, folder: str, step: int, number: int, **settings: str) -> int:
    """The exit code of a run that gets a signal in the step after `step` ones."""
    with monkeypatch.context() as patch:
        patch.setenv("SIGNAL_AT", f"{step}:{int(number)}")
        return fit(folder, **settings)


def rows(folder: str) -> list[dict]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in RunFolder(Path(folder)).history()]


def checkpoint(folder: str, name: str = "last.ckpt") -> dict:
    return torch.load(Path(folder) / "checkpoints" / name, weights_only=True)


def assert_same_end(folder: str, reference: str) -> None:
    ours, theirs = checkpoint(folder), checkpoint(reference)
    assert ours["global_step"] == theirs["global_step"]
    assert rows(folder) == rows(reference)
    torch.testing.assert_close(ours["state_dict"], theirs["state_dict"], rtol=0, atol=0)
    torch.testing.assert_close(ours["optimizer_states"], theirs["optimizer_states"], rtol=0, atol=0)
    assert ours["lr_schedulers"] == theirs["lr_schedulers"]
    result, expected = (RunFolder.open(path).result for path in (folder, reference))
    assert result is not None
    assert expected is not None
    for key in ("step", "metrics", "best", "parameters"):
        assert result[key] == expected[key], key


@pytest.fixture(scope="module")
def reference(place: Path) -> str:
    """A run that nothing happened to."""
    assert fit("reference") == 0
    return "reference"


def test_a_finished_run_says_what_it_came_to_and_is_left_alone(
    reference: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder.open(reference)
    result = json.loads((folder.path / "result.json").read_text())
    assert result["id"] == "reference"
    assert (result["step"], result["name"]) == (13, "validation_by_steps")
    assert result["metrics"]["train/loss"] == rows(reference)[-2]["train/loss"]
    assert set(result["metrics"]) == {"train/loss", "train/gradient_norm", "val/loss"}
    assert result["best"]["val/loss"]["step"] in (4, 8, 12, 13)
    assert result["headlines"][0]["metric"] == "val/loss"
    assert not (folder.checkpoints / "previous.ckpt").exists()
    before = {path: path.stat().st_mtime_ns for path in folder.path.rglob("*") if path.name != ".lock"}
    assert fit(reference) == 0
    assert "reference is finished: 13 steps" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in folder.path.rglob("*") if path.name != ".lock"} == before
    assert not folder.is_locked()


@pytest.mark.parametrize(
    ("step", "number", "code"),
    [(3, signal.SIGTERM, 143), (4, signal.SIGINT, 130)],
    ids=["SIGTERM before a validation", "SIGINT at the end of an epoch"],
)
def test_a_stopped_run_that_goes_on_ends_like_one_that_was_not(
    reference: str,
    step: int,
    number: int,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = f"stopped at {step}"
    Path(folder).mkdir()
    (Path(folder) / "point.json").write_text("{}")  # of a grid: it stays
    assert stopped(monkeypatch, folder, step, number) == code
    info = RunFolder.open(folder).info
    assert (info["state"], info["step"]) == ("interrupted", step + 1)
    assert checkpoint(folder)["global_step"] == step + 1
    assert not RunFolder.open(folder).is_done
    assert f"slotbench fit --resume '{folder}'" in capsys.readouterr().out
    assert rows(folder) == rows(reference)[: len(rows(folder))]
    assert run(["fit", "--resume", folder]) == 0
    assert_same_end(folder, reference)
    info = RunFolder.open(folder).info
    assert (info["state"], info["name"], len(info["resumed"])) == ("finished", "validation_by_steps", 1)
    assert info["resumed"][0]["step"] == step + 1
    assert info["resumed"][0]["after"] == "interrupted"
    assert (Path(folder) / "point.json").read_text() == "{}"


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("trainer", TRAINERS)
def test_wherever_a_run_is_stopped_it_ends_the_same(
    place: Path, trainer: str, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{trainer} {workers}"
    assert fit(name, "--data.loader.num_workers", str(workers), trainer=trainer) == 0
    for step in range(checkpoint(name)["global_step"]):
        folder = f"{name} {step}"
        assert stopped(monkeypatch, folder, step, signal.SIGTERM, trainer=trainer) == 143
        assert fit(folder, "--data.loader.num_workers", str(workers), trainer=trainer) == 0
        assert_same_end(folder, name)


def test_while_one_process_trains_another_is_refused_and_a_killed_run_goes_on(
    reference: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Trained first with the data in a process of their own, and then without."""
    folder = RunFolder(Path("killed"))
    arguments = ["--config", "validation_by_steps.yaml", "--run_dir", "killed", "--plugin", str(COMPONENTS)]
    command = [sys.executable, "-m", "slotbench", "fit", *arguments, "--data.loader.num_workers", "1", "--threads", "1"]
    with open("killed.txt", "wb") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PAUSE": "0.4", "SLOTBENCH_RUN_DIR": ""},
        )
    try:
        while folder.last_checkpoint() is None:
            assert process.poll() is None, Path("killed.txt").read_text()
            time.sleep(0.01)
        assert folder.is_locked()
        assert folder.state == "running"
        assert fit("killed") == 2
        assert "killed is being trained by another process" in capsys.readouterr().err
    finally:
        process.kill()
        process.wait()
    assert folder.state == "killed"
    assert not folder.is_locked()  # though its data loader's worker may be alive
    assert not folder.is_done
    assert fit("killed") == 0
    assert_same_end("killed", reference)


def test_another_configuration_is_refused_with_both_values_unless_it_is_wanted(
    reference: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(reference, "changed")
    folder = RunFolder.open("changed")
    before = (folder.path / "config.yaml").read_text()
    more = ["--trainer.max_steps", "14", "--model.core.num_slots", "3", "--data.loader.num_workers", "0"]
    assert fit("changed", *more) == 2
    error = capsys.readouterr().err
    assert "changed is the run of another configuration" in error
    assert "model.core.num_slots: 2 in the run, 3 now" in error
    assert "trainer.max_steps: 13 in the run, 14 now" in error
    assert "--allow-changes" in error
    assert "num_workers" not in error
    assert (folder.path / "config.yaml").read_text() == before
    assert folder.is_done
    assert run(["fit", "--resume", "changed", "--allow-changes", *more]) == 0
    assert (folder.path / "config.1.yaml").read_text() == before
    assert yaml.safe_load((folder.path / "config.yaml").read_text())["trainer"]["max_steps"] == 14
    assert json.loads((folder.path / "result.1.json").read_text())["step"] == 13
    assert folder.result is not None
    assert folder.result["step"] == 14
    (change,) = folder.info["changes"]
    assert (change["step"], change["config"]) == (13, "config.1.yaml")
    assert change["settings"] == {"model.core.num_slots": ["2", "3"], "trainer.max_steps": ["13", "14"]}


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("--model.optimizer SGD", "SGD cannot use the state that AdamW has in the run"),
        ("--model.optimizer.amsgrad true", "key:      model.optimizer.amsgrad"),
        ("--model.core OtherCore", "the checkpoint has the core DrawingCore"),
        ("--trainer.max_steps 12", "the run has had 13 steps\n  key:      trainer.max_steps"),
        ("--trainer.max_steps -1 --trainer.max_epochs 1", "the run has had 2 epochs"),
    ],
)
def test_what_cannot_be_changed_is_refused_before_anything_is_written(
    reference: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], typed: str, said: str
) -> None:
    shutil.copytree(reference, tmp_path / "run")
    files = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert run(["fit", "--resume", str(tmp_path / "run"), "--allow-changes", *typed.split()]) == 2
    assert said in capsys.readouterr().err
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == files


def test_a_rate_that_was_typed_holds_though_the_run_is_killed_before_its_first_checkpoint(
    reference: str, tmp_path: Path
) -> None:
    shutil.copytree(reference, tmp_path / "run")
    resume = ["fit", "--resume", str(tmp_path / "run")]
    more = ["--allow-changes", "--trainer.max_steps", "16", "--model.optimizer.lr", "0.5"]
    assert run([*resume, *more]) == 0
    expected = checkpoint(str(tmp_path / "run"))
    (group, *_) = expected["optimizer_states"][0]["param_groups"]
    assert (group["initial_lr"], group["weight_decay"]) == (0.5, 0.01)
    shutil.copy(Path(reference) / "checkpoints" / "last.ckpt", tmp_path / "run" / "checkpoints" / "last.ckpt")
    (tmp_path / "run" / "result.json").unlink()
    assert run(resume) == 0
    again = checkpoint(str(tmp_path / "run"))
    torch.testing.assert_close(again["state_dict"], expected["state_dict"], rtol=0, atol=0)


@pytest.mark.parametrize("trainer", ["validation by steps", pytest.param("no validation", marks=pytest.mark.slow)])
def test_a_run_that_is_stopped_after_an_epoch_and_in_the_next_ends_the_same(
    reference: str, trainer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, folder = (
        (reference, "twice") if trainer == "validation by steps" else ("not validated", "twice not validated")
    )
    assert fit(whole, trainer=trainer) == 0
    for step in (4, 7):
        assert stopped(monkeypatch, folder, step, signal.SIGTERM, trainer=trainer) == 143
    assert fit(folder, trainer=trainer) == 0
    assert_same_end(folder, whole)


def test_damaged_checkpoints_are_passed_over_and_named(
    reference: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stopped(monkeypatch, "damaged", 9, signal.SIGTERM) == 143
    checkpoints = Path("damaged") / "checkpoints"
    assert checkpoint("damaged", "previous.ckpt")["global_step"] == 8
    os.truncate(checkpoints / "last.ckpt", 5000)
    shutil.copytree("damaged", "all damaged")
    for path in Path("all damaged").glob("checkpoints/*.ckpt"):
        path.write_bytes(path.read_bytes()[:-100])
    capsys.readouterr()

    assert fit("damaged") == 0
    assert f"warning: {checkpoints / 'last.ckpt'} is damaged or cut off" in capsys.readouterr().err
    assert RunFolder.open("damaged").info["resumed"][0]["step"] == 8
    assert (checkpoints / "last.ckpt.broken").stat().st_size == 5000
    assert_same_end("damaged", reference)

    assert fit("all damaged") == 0
    error = capsys.readouterr().err
    assert "previous.ckpt is damaged or cut off" in error
    assert "all damaged has no good checkpoint: it starts from the beginning" in error
    assert_same_end("all damaged", reference)


def test_an_experiment_that_never_started_leaves_nothing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, there in enumerate(([], ["--run_dir", "of a grid"], ["--run_dir", "new"])):
        if number == 1:
            Path("of a grid").mkdir()
            (Path("of a grid") / "point.json").write_text("{}")
        config = ["--config", "validation_by_steps.yaml"] if number else ["--config", "c.yaml", "--runs_dir", "all"]
        if not number:
            parts = {"model": {"class_path": "DrawingTask"}, "data": {"class_path": "NoiseData"}}
            Path("c.yaml").write_text(yaml.safe_dump({**parts, "trainer": {"accelerator": "cpu", "max_epochs": 1}}))
        assert run(["fit", *config, *there, "--model.init_from", "nowhere"]) == 2
        assert "no weights at nowhere" in capsys.readouterr().err
    assert not Path("all").exists()
    assert not Path("new").exists()
    assert [path.name for path in Path("of a grid").iterdir()] == ["point.json"]
