"""Relative paths of a run lead to where they led when it was begun, and what they hold is what they held then."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from slotbench import load_run
from slotbench.cli import run
from slotbench.config.read_paths import held_by, resolve_paths
from slotbench.errors import UserError
from slotbench.runs.folder import RunFolder

EXPERIMENT = {
    "model": {
        "class_path": "SlotAutoencoding",
        "init_args": {
            "encoder": {"class_path": "PatchEncoder", "init_args": {"dim": 8}},
            "core": {"class_path": "SlotAttention", "init_args": {"num_slots": 2, "dim": 8, "num_iterations": 1}},
            "decoder": {"class_path": "SpatialBroadcastDecoder", "init_args": {"channels": 4}},
        },
    },
    "data": {
        "class_path": "VideoFolder",
        "init_args": {"path": "vids", "num_frames": 2, "eval_frames": 2, "resolution": 16}
        | {"loader": {"batch_size": 2, "val_batch_size": 2}},
    },
    "trainer": {"max_steps": 1, "limit_val_batches": 1, "accelerator": "cpu", "enable_progress_bar": False},
}


def videos(folder: Path, seed: int, frames: int = 4) -> None:
    for split in ("train", "val", "test"):
        (folder / split).mkdir(parents=True)
        for name in ("a", "b"):
            values = np.random.default_rng(seed).integers(0, 256, (frames, 16, 16, 3), dtype=np.uint8)
            np.save(folder / split / f"{name}.npy", values)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a run and its videos, and one beside it with other videos of the same name."""
    place = tmp_path_factory.mktemp("places")
    videos(place / "here" / "vids", 0)
    videos(place / "elsewhere" / "vids", 1, frames=5)
    (place / "here" / "small.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLOTBENCH_RUN_DIR", "")
        patch.chdir(place / "here")
        assert run(["fit", "--config", "small.yaml", "--run_dir", "run"]) == 0
    return place


@pytest.fixture
def place(trained, tmp_path, monkeypatch):
    """A copy of it, whose run was begun in the copy; the working folder is the other one."""
    monkeypatch.setenv("SLOTBENCH_RUN_DIR", "")
    for name in ("here", "elsewhere"):
        shutil.copytree(trained / name, tmp_path / name)
    record = tmp_path / "here" / "run" / "run.json"
    info = json.loads(record.read_text())
    assert info["begun_in"] == str(trained / "here")
    assert info["held"] == {"data.init_args.path": held_by(trained / "here" / "vids")}
    record.write_text(json.dumps(info | {"begun_in": str(tmp_path / "here")}))
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path


def said(capsys) -> str:
    return " ".join("".join(capsys.readouterr()).split())


def resume(place, *more):
    return run(["fit", "--resume", str(place / "here" / "run"), "--trainer.max_steps", "2", "--allow-changes", *more])


def loss(folder: Path) -> float:
    (path,) = folder.glob("validate-*[0-9].json")
    found = json.loads(path.read_text())["metrics"]["val/loss"]
    path.unlink()
    return found


def test_a_run_is_evaluated_on_its_own_data_wherever_the_command_is_typed(place, monkeypatch, capsys):
    folder = place / "here" / "run"
    losses = []
    for where in ("here", "elsewhere"):
        monkeypatch.chdir(place / where)
        assert run(["validate", str(folder)]) == 0
        losses.append(loss(folder))
        assert load_run(folder)[1].path == place / "here" / "vids"
    assert losses[0] == losses[1]
    assert "does not hold" not in said(capsys)


def test_a_path_that_is_typed_is_one_of_the_folder_where_it_is_typed(place):
    folder = place / "here" / "run"
    assert load_run(folder, changes={"data.path": "vids"})[1].path.resolve() == place / "elsewhere" / "vids"
    Path("more.yaml").write_text("data:\n  init_args:\n    path: vids\n")
    assert run(["validate", str(folder), "--data.path", "vids"]) == 0
    typed = loss(folder)
    assert run(["validate", str(folder), "--config", "more.yaml"]) == 0
    assert loss(folder) == typed
    assert run(["validate", str(folder)]) == 0
    assert loss(folder) != typed


def test_predict_and_lengths_and_probe_read_there_too(place, capsys):
    folder = str(place / "here" / "run")
    assert run(["predict", folder, "--save", "slots"]) == 0
    (saved,) = Path(folder).glob("media/predict-*/video0000_a.npz")
    with np.load(saved) as found:
        assert str(found["source"]) == str(place / "here" / "vids" / "test" / "a.npy")
        assert len(found["frame"]) == 4
    shutil.rmtree(place / "elsewhere" / "vids")
    assert run(["test", folder, "--lengths", "1,2", "--clips", "1"]) in (0, 2)
    assert "there is nothing at" not in said(capsys)
    assert run(["probe", folder, "--fit-clips", "2", "--clips", "2"]) == 2
    assert "there is nothing at" not in said(capsys)


def test_another_content_is_said_where_a_run_is_evaluated(place, capsys):
    shutil.copy(place / "here" / "vids" / "val" / "a.npy", place / "here" / "vids" / "val" / "c.npy")
    assert run(["validate", str(place / "here" / "run")]) == 0
    printed = said(capsys)
    assert "does not hold what it held when the run was begun: 6 files of" in printed
    assert "7 files of" in printed
    load_run(place / "here" / "run")
    assert "7 files of" in said(capsys)


def test_another_content_is_refused_where_a_run_is_resumed(place, capsys):
    (place / "here" / "run" / "result.json").unlink()
    np.save(place / "here" / "vids" / "train" / "a.npy", np.zeros((9, 16, 16, 3), np.uint8))
    folder = str(place / "here" / "run")
    assert run(["fit", "--resume", folder]) == 2
    assert "put back what it held, or add --allow-changes" in said(capsys)
    assert run(["fit", "--resume", folder, "--allow-changes"]) == 0
    assert "does not hold what it held" in said(capsys)
    # from now on that is what it held
    assert run(["validate", folder]) == 0
    assert "does not hold" not in said(capsys)


def test_a_run_that_is_resumed_elsewhere_reads_its_own_data(place):
    (place / "here" / "run" / "result.json").unlink()
    shutil.rmtree(place / "elsewhere" / "vids")
    assert resume(place) == 0
    config = yaml.safe_load((place / "here" / "run" / "config.yaml").read_text())
    assert config["data"]["init_args"]["path"] == "vids"
    assert json.loads((place / "here" / "run" / "run.json").read_text())["begun_in"] == str(place / "here")


def test_the_same_words_typed_elsewhere_are_refused_if_they_name_other_data(place, capsys):
    (place / "here" / "run" / "result.json").unlink()
    command = ["fit", "--config", str(place / "here" / "small.yaml"), "--run_dir", str(place / "here" / "run")]
    assert run(command) == 2
    printed = said(capsys)
    assert "data.path vids is another folder or file here than where the run was begun" in printed
    assert str(place / "elsewhere" / "vids") in printed
    shutil.rmtree(place / "elsewhere" / "vids")
    assert run(command) == 0


def test_other_data_for_a_run_that_is_resumed_elsewhere_are_named_in_full(place, capsys):
    (place / "here" / "run" / "result.json").unlink()
    shutil.move(place / "elsewhere" / "vids", place / "elsewhere" / "other")
    assert resume(place, "--data.path", "other") == 2
    assert f"expected --data.path {place / 'elsewhere' / 'other'}" in said(capsys)
    assert resume(place, "--data.path", str(place / "elsewhere" / "other")) == 0
    assert load_run(place / "here" / "run")[1].path == place / "elsewhere" / "other"
    assert "does not hold" not in said(capsys)


def test_a_project_that_was_moved_is_read_where_it_is_now_if_it_holds_the_same(place, capsys):
    shutil.move(place / "here", place / "moved")
    folder = place / "moved" / "run"
    with pytest.raises(UserError, match="holds something else than it did"):
        load_run(folder)
    shutil.rmtree(place / "elsewhere" / "vids")
    with pytest.raises(UserError, match=r"--data.path PATH, where these data are now"):
        load_run(folder)
    shutil.copytree(place / "moved" / "vids", place / "elsewhere" / "vids")
    assert load_run(folder)[1].path == place / "elsewhere" / "vids"
    assert "which holds what" in said(capsys)
    assert load_run(folder, changes={"data.path": str(place / "moved" / "vids")})[1].path == place / "moved" / "vids"


def test_words_that_only_look_like_paths_stay_as_they_are(place):
    folder = RunFolder.open(place / "here" / "run")
    values = {
        "model": {"init_args": {"weights": "uniform", "init_from": "vids/train", "part": {"class_path": "Path"}}},
        "data": {"init_args": {"path": "vids", "files": ["vids/val", "https://host/file"], "cache": "~/cache"}},
    }
    # arguments of a third-party data set
    values["data"]["init_args"] |= {"clips": "vids/val", "backbone": "some/network", "split": "vids"}
    config = place / "here" / "run" / "config.yaml"
    config.write_text(yaml.safe_dump(values))
    resolve_paths(values, [], folder)
    here = place / "here" / "vids"
    assert values["model"]["init_args"] == {
        "weights": "uniform",
        "init_from": str(here / "train"),
        "part": {"class_path": "Path"},
    }
    assert values["data"]["init_args"] == {
        "path": str(here),
        "files": [str(here / "val"), "https://host/file"],
        "cache": "~/cache",
        "clips": str(here / "val"),
        "backbone": "some/network",
        "split": "vids",
    }


def test_runs_of_before_read_where_the_command_is_typed(place):
    record = place / "here" / "run" / "run.json"
    info = json.loads(record.read_text())
    del info["begun_in"], info["held"]
    record.write_text(json.dumps(info))
    assert load_run(place / "here" / "run")[1].path.resolve() == place / "elsewhere" / "vids"


@pytest.mark.parametrize("record", [{"begun_in": 3}, {"held": []}, {"held": {"data.init_args.path": 7}}])
def test_a_damaged_record_is_no_traceback(place, record):
    path = place / "here" / "run" / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | record))
    load_run(place / "here" / "run")


def test_what_a_folder_holds_are_names_and_sizes(tmp_path):
    videos(tmp_path / "one", 0)
    videos(tmp_path / "other", 1)
    assert held_by(tmp_path / "one") == held_by(tmp_path / "other")
    (tmp_path / "other" / ".DS_Store").write_text("x")
    (tmp_path / "other" / "runs" / "x").mkdir(parents=True)
    (tmp_path / "other" / "runs" / "x" / "run.json").write_text("{}")
    assert held_by(tmp_path / "one") == held_by(tmp_path / "other")
    (tmp_path / "other" / "val" / "a.npy").rename(tmp_path / "other" / "val" / "c.npy")
    assert held_by(tmp_path / "one") != held_by(tmp_path / "other")
    assert held_by(tmp_path / "one" / "val" / "a.npy")["files"] == 1
    assert held_by(tmp_path / "nowhere") is None
    (tmp_path / "empty").mkdir()
    assert held_by(tmp_path / "empty") is None
