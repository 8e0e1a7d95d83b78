"""A reader from outside trains, predicts whole videos and is scored like a built-in one; `READERS` has it too."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import video_archive
import yaml

from slotbench.cli import run
from slotbench.errors import DataFilesError

CONFIG = {
    "model": {
        "class_path": "SlotAutoencoding",
        "init_args": {
            "encoder": {"class_path": "PatchEncoder", "init_args": {"dim": 8}},
            "core": {"class_path": "SAVi", "init_args": {"num_slots": 3, "dim": 8, "num_iterations": 1}},
            "decoder": {"class_path": "SpatialBroadcastDecoder", "init_args": {"channels": 4}},
            "baseline_clips": 2,
        },
    },
    "trainer": {"max_steps": 2, "val_check_interval": 1, "check_val_every_n_epoch": None, "accelerator": "cpu"}
    | {"enable_progress_bar": False, "num_sanity_val_steps": 0},
}


def test_it_is_named_in_a_configuration_trained_and_predicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOTBENCH_RUN_DIR", "")
    video_archive.write_archive(tmp_path)
    data = {"class_path": "VideoArchive", "init_args": {"path": str(tmp_path), "loader": {"batch_size": 4}}}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(CONFIG | {"data": data}))
    folder = tmp_path / "run"
    plugin = ["--plugin", video_archive.__file__]
    assert run(["fit", "--config", str(tmp_path / "tiny.yaml"), "--run_dir", str(folder), *plugin]) == 0
    assert json.loads((folder / "result.json").read_text())["metrics"]["val/fg_ari/video/decoder"] <= 1
    assert run(["predict", str(folder), "--save", "masks", *plugin]) == 0
    masks = [np.load(file)["masks"] for file in sorted((folder / "media").rglob("*.npz"))]
    assert [len(video) for video in masks] == [8, 8]


def test_another_layout_is_refused_with_what_was_expected(tmp_path: Path) -> None:
    np.savez(tmp_path / "val.npz", frames=np.zeros((2, 3, 4, 4), np.uint8))
    with pytest.raises(DataFilesError, match=r"val.npz has frames of shape \(2, 3, 4, 4\) .*; expected `frames`"):
        video_archive.VideoArchive(str(tmp_path)).dataset("val")
