"""`slotbench prepare NAME --features`: from videos and a file of weights to files that training reads."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import torch

from slotbench.cli import run
from slotbench.data.features import FeatureFile
from slotbench.data.movi.movi import MOVi
from slotbench.interfaces import VideoSpec
from slotbench.pretrained.vit_features import ViTFeatures

sys.path.insert(0, str(Path(__file__).parents[1] / "data"))
sys.path.insert(0, str(Path(__file__).parents[1] / "pretrained"))
from tfrecord_files import movi_video, write_movi
from vit_folders import vit_folder


@pytest.fixture
def arguments(tmp_path):
    splits = {"train": [movi_video(i, 8) for i in range(2)], "validation": [movi_video(5, 8)]}
    movi = write_movi(tmp_path / "movi_a", splits)
    data = ["MOVi", "--path", str(movi), "--resolution", "8", "--out", str(tmp_path / "out")]
    return [*data, "--features", vit_folder(tmp_path / "small")]


def test_the_features_of_every_frame_are_written(arguments, tmp_path, capsys):
    assert run(["prepare", *arguments, "--features.resolution=12", "--split", "train"]) == 0
    assert f"--data FeatureFile --data.path {tmp_path / 'out'}" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["train"]
    data = FeatureFile(str(tmp_path / "out"))
    assert data.spec.features == VideoSpec(32, 3, 3)
    assert data.spec.input == VideoSpec(3, 12, 12)
    batch = data.dataset("train").source.read([1], [3], 2)
    movi = MOVi(str(tmp_path / "movi_a"), resolution=8).dataset("train").source.read([1], [3], 2)
    extractor = ViTFeatures(VideoSpec(3, 8, 8), str(tmp_path / "small"), resolution=12)
    expected = extractor(movi.frames / 255)
    torch.testing.assert_close(batch.features.float(), expected, atol=2e-3, rtol=2e-3)
    assert batch.masks.shape == (1, 2, 12, 12)
    assert batch.objects["num_objects"].tolist() == movi.objects["num_objects"].tolist()
    source = data.dataset("train").source.description
    assert source["data"] == "MOVi"
    weights = {"weights": "small", "weights_sha256": extractor.weights_sha256}
    assert source["features"]["init_args"].items() >= weights.items()
    assert data.feature_weights == weights
    # again, from where the weights lie now, and the split that was left out; MOVi-A tests on its validation split
    (tmp_path / "there").mkdir()
    arguments[-1] = shutil.move(tmp_path / "small", tmp_path / "there" / "small")
    assert run(["prepare", *map(str, arguments), "--features.resolution=12"]) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["test", "train", "val"]
    assert (tmp_path / "out" / "test").readlink() == Path("val")


def test_clips_that_are_made_as_they_are_asked_for_have_no_features_to_keep(arguments, tmp_path, capsys):
    assert run(["prepare", "BlinkingBalls", *arguments[5:], "--features.resolution=12"]) == 2
    assert "makes its clips as they are asked for" in " ".join(capsys.readouterr().err.split())
