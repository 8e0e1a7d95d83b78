"""W&B gets, without a server, what the folder has; read back with W&B's own reader."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import wandb
import yaml
from tiny_run import TinyTask, fit, loader, make_trainer

from slotbench.callbacks.loggers import WandbOptions, wandb_logger
from slotbench.callbacks.wiring import evaluation_parts, run_parts
from slotbench.runs.folder import RunFolder

CONFIG = {"model": {"class_path": "TinyTask", "init_args": {"width": 4}}, "seed_everything": 0}


def inspect(run: Path, *options: str) -> str:
    (file,) = run.glob("wandb/offline-run-*/*.wandb")
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", *options, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def history(run: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in inspect(run).splitlines()]
    return [record["history"]["item"] for record in records if record["type"] == "history"]


def test_an_offline_run_has_config_scalars_and_pictures(folder: RunFolder, capfd: pytest.CaptureFixture[str]) -> None:
    folder.update(group="ablation")
    fit(folder, TinyTask(), wandb="offline", max_steps=5, val_check_interval=2)
    summary = json.loads(inspect(folder.path, "--summary"))
    # the configuration once, nested; nothing from the module's hyper-parameters beside it
    assert summary["config"] == CONFIG
    assert summary["run_id"] == folder.info["wandb_id"] == folder.info["id"]
    assert summary["name"] == f"tiny-{folder.info['id']}"
    assert (summary["project"], summary["state"], summary["exit_code"]) == ("tests", "finished", 0)
    # nothing of ours but what a user looks for
    kept = summary["summary"]
    assert kept["parameters"] == {"encoder": 196, "decoder": 240, "total": 436}
    assert [name for name in kept if "slotbench" in name] == []
    scores = [row["val/score"] for row in folder.history() if "val/score" in row]
    assert kept["val/score"] == pytest.approx({"max": max(scores), "last": scores[-1]})
    assert isinstance(kept["train/loss"], float)
    rows = history(folder.path)
    for name in ("train/loss", "val/loss", "val/score"):
        theirs = [(row["trainer/global_step"], row[name]) for row in rows if name in row]
        ours = [(row["step"], row[name]) for row in folder.history() if name in row]
        assert theirs == ours
        assert len(ours) >= 2
    pictures = [row for row in rows if "pictures/clips.filenames" in row]
    # of the untrained model, then beside the metrics of each validation, that of the final weights too
    assert [row["trainer/global_step"] for row in pictures] == [0, 1, 3, 4]
    files = next(folder.path.glob("wandb/offline-run-*")) / "files"
    assert all((files / row["pictures/clips.filenames"][0]).is_file() for row in pictures)
    record = next(json.loads(line) for line in inspect(folder.path).splitlines() if '"type":"run"' in line)
    assert record["run"]["run_group"] == "ablation"
    said = capfd.readouterr()
    assert f"wandb sync {next(folder.path.glob('wandb/offline-run-*'))}" in said.out
    assert "wandb" not in said.err
    assert "WANDB_MODE" not in os.environ


def test_a_resumed_run_stays_in_its_project_with_its_options(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb_logger(folder, "offline", "tests", CONFIG, WandbOptions("lab", ("april",), "a note"))
    init = wandb_logger(folder, "offline", None, CONFIG, WandbOptions(tags=("may",)))._wandb_init
    assert (init["project"], init["entity"], init["notes"]) == ("tests", "lab", "a note")
    assert init["tags"] == ["april", "may"]
    other = RunFolder.create(folder.path.parent.parent, "other")
    monkeypatch.setenv("WANDB_PROJECT", "named")
    monkeypatch.setenv("WANDB_TAGS", "june, july")
    init = wandb_logger(other, "offline", None, CONFIG)._wandb_init
    assert (init["project"], init["tags"]) == ("named", ["june", "july"])


def test_a_failed_run_is_failed_there_too(folder: RunFolder) -> None:
    with pytest.raises(RuntimeError):
        fit(folder, TinyTask(fail_at=2), wandb="offline")
    assert json.loads(inspect(folder.path, "--summary"))["exit_code"] == 1


def test_a_run_that_goes_on_keeps_its_id(folder: RunFolder) -> None:
    folder.update(wandb_id="earlier")
    logger = wandb_logger(folder, "offline", "tests", CONFIG)
    assert logger.version == "earlier"
    assert folder.info["wandb_id"] == "earlier"
    assert folder.info["wandb_mode"] == "offline"


def test_a_run_at_a_path_of_choice_gets_an_id_that_no_other_run_has(folder: RunFolder) -> None:
    folder.update(id="slots=4,seed=0-0a1b2c3d")
    logger = wandb_logger(folder, "offline", "tests", CONFIG)
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{8}", str(logger.version))
    assert wandb_logger(folder, "offline", "tests", CONFIG).version == logger.version


def test_a_point_of_a_grid_is_named_by_what_differs(folder: RunFolder) -> None:
    (folder.path / "point.json").write_text('{"id": "core=RIM,slots=4,seed=0-0a1b2c3d", "settings": {}}')
    given = wandb_logger(folder, "offline", "tests", CONFIG)._wandb_init
    assert given["name"] == "core=RIM,slots=4,seed=0"
    assert given["group"] == folder.path.parent.name == "tiny"
    assert (given["job_type"], given["resume"]) == ("train", "allow")
    folder.update(group="cores")
    assert wandb_logger(folder, "offline", "tests", CONFIG)._wandb_init["group"] == "cores"


def test_rows_that_the_server_has_are_not_sent_again(folder: RunFolder) -> None:
    class Server:
        starting_step = 5
        sent: list[tuple[int, dict[str, Any]]] = []  # noqa: RUF012

        def log(self, values: dict[str, Any], step: int) -> None:
            self.sent.append((step, values))

    logger = wandb_logger(folder, "offline", "tests", CONFIG)
    logger._experiment = Server()
    for step in range(3, 7):
        logger.log_metrics({"loss": 1.0}, step=step)
    assert Server.sent == [(step, {"loss": 1.0, "trainer/global_step": step}) for step in (5, 6)]


def test_an_agent_of_a_sweep_chooses_id_and_project(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_SWEEP_ID", "s1")
    monkeypatch.setenv("WANDB_RUN_ID", "r1")
    monkeypatch.setenv("WANDB_PROJECT", "swept")
    given = wandb_logger(folder, "offline", "tests", CONFIG)._wandb_init
    assert (folder.info["wandb_id"], folder.info["wandb_project"]) == ("r1", "swept")
    assert "id" not in given or given["id"] is None


def test_online_without_a_key_is_offline_and_says_so_in_a_sentence(
    folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_MODE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    logger = wandb_logger(folder, "online", "tests", CONFIG)
    assert (logger._wandb_init["mode"], folder.info["wandb_mode"]) == ("offline", "offline")
    (said,) = capsys.readouterr().err.splitlines()
    assert "there is no W&B key" in said
    assert "recorded offline. Type `wandb login`" in said
    monkeypatch.setenv("WANDB_API_KEY", "0123456789" * 4)
    assert wandb_logger(folder, "online", "tests", CONFIG)._wandb_init["mode"] == "online"


@pytest.mark.parametrize("mode", ["online", "offline"])
def test_where_wandb_is_switched_off_there_is_no_mirror_and_a_sentence_says_so(
    mode: str, folder: RunFolder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "0123456789" * 4)
    monkeypatch.setenv("WANDB_MODE", "disabled")
    wandb.teardown()
    loggers, _ = run_parts(folder, wandb=mode, wandb_project="tests", config=CONFIG)
    assert [type(logger).__name__ for logger in loggers] == ["RunFolderLogger"]
    assert folder.info["wandb_id"] is None
    assert "switched off here (WANDB_MODE=disabled" in capsys.readouterr().err
    wandb.teardown()


def test_a_test_leaves_the_wandb_run_as_it_is(folder: RunFolder) -> None:
    folder.write_config(yaml.safe_dump(CONFIG))
    fit(folder, TinyTask(), wandb="offline", max_steps=2)
    before, trained = (folder.path / "run.json").read_text(), set(folder.path.glob("wandb/offline-run-*"))
    make_trainer(*evaluation_parts(folder.path, "test")).test(TinyTask(), loader(16))
    assert set(folder.path.glob("wandb/offline-run-*")) == trained
    assert (folder.path / "run.json").read_text() == before
