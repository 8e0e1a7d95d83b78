"""Relative paths of a run lead to where they led when it was begun."""

from __future__ import annotations

from pathlib import Path

import pytest
from jsonargparse import Namespace

from slotbench.config.data_paths import resolve_paths
from slotbench.runs.folder import RunFolder

PATH, WEIGHTS, FVD = "data.init_args.path", "model.init_args.init_from", "model.init_args.metric_weights.fvd"


@pytest.fixture
def values() -> Namespace:
    settings = {"data.class_path": "videos", PATH: "videos", "data.init_args.annotations": "nowhere"}
    return Namespace(settings | {WEIGHTS: "weights/run", FVD: "videos", "trainer.default_root_dir": "videos"})


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    for name in ("begun/videos", "begun/weights/run", "elsewhere/videos"):
        (tmp_path / name).mkdir(parents=True)
    folder = RunFolder.create_at(tmp_path / "begun" / "run", "run")
    folder.update(begun_in=str(tmp_path / "begun"))
    return folder


def test_they_start_from_where_the_run_was_begun(folder, values, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path / "elsewhere")
    resolve_paths(values, folder)
    assert values[PATH] == str(tmp_path / "begun" / "videos")
    assert values[WEIGHTS] == str(tmp_path / "begun" / "weights" / "run")
    assert values[FVD] == values[PATH]
    assert values["data.init_args.annotations"] == "nowhere"
    assert values["data.class_path"] == values["trainer.default_root_dir"] == "videos"


def test_what_is_typed_starts_from_here(folder, values, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path / "elsewhere")
    resolve_paths(values, folder, {"data.path"})
    assert values[PATH] == "videos"


def test_in_the_same_folder_they_stay_as_they_are(folder, values, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path / "begun")
    resolve_paths(values, folder)
    assert values[PATH] == "videos"
