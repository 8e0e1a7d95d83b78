"""A trained model with another number of slots, and on videos of another size than those that it was trained on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from slotbench import registry
from slotbench.cli import run

PLUGIN = """
from slotbench.data.video_folder import VideoFolder
from slotbench.registry import register


@register("datasets")
class SmallVideos(VideoFolder):
    def __init__(self, path: str, num_frames: int = 2, eval_frames: int | None = 2, resolution: int = 16) -> None:
        super().__init__(path, num_frames, eval_frames, resolution, batch_size=2, val_batch_size=2)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("other")
    (path / "small_videos.py").write_text(PLUGIN)
    (path / "videos").mkdir()
    for number in range(2):
        clip = np.random.default_rng(number).integers(0, 256, (4, 24, 40, 3), dtype=np.uint8)
        np.save(path / "videos" / f"mine_{number}.npy", clip)
    registered = dict(registry._registered)
    yield path
    registry._registered.clear()
    registry._registered.update(registered)


@pytest.fixture(scope="module")
def train(folder):
    def make(kind: str) -> Path:
        core = {"class_path": "SlotAttention", "init_args": {"num_slots": 3, "dim": 8, "slot_init": kind}}
        experiment = {
            "model": {
                "class_path": "SlotAutoencoding",
                "init_args": {
                    "encoder": {"class_path": "PatchEncoder", "init_args": {"dim": 8}},
                    "core": core,
                    "decoder": {"class_path": "SpatialBroadcastDecoder", "init_args": {"channels": 4}},
                },
            },
            "data": {"class_path": "SmallVideos", "init_args": {"path": str(folder / "videos")}},
            "trainer": {"max_steps": 1, "limit_val_batches": 0, "accelerator": "cpu", "enable_progress_bar": False},
        }
        (folder / f"{kind}.yaml").write_text(yaml.safe_dump(experiment))
        given = ["--plugin", str(folder / "small_videos.py"), "--runs_dir", str(folder / "runs")]
        patch = pytest.MonkeyPatch()
        # the command sets it, for processes that it starts
        patch.setenv("SLOTBENCH_RUN_DIR", "")
        assert run(["fit", "--config", str(folder / f"{kind}.yaml"), *given]) == 0
        patch.undo()
        (path,) = (folder / "runs" / kind).iterdir()
        return path

    return make


@pytest.fixture(scope="module")
def drawn(train) -> Path:
    return train("gaussian")


@pytest.fixture(scope="module")
def learned(train) -> Path:
    return train("learned")


def occupied(path: Path, *arguments: str) -> float:
    """Slots that have any pixels, as `test` finds them."""
    before = set(path.glob("test-*.json"))
    assert run(["test", str(path), *arguments]) == 0
    (record,) = set(path.glob("test-*.json")) - before
    return json.loads(record.read_text())["metrics"]["test/live_slots/decoder"]


def test_a_run_that_draws_its_slots_is_tested_with_more(drawn: Path) -> None:
    assert occupied(drawn, "--model.core.num_slots", "1") == 1
    assert occupied(drawn) <= 3
    assert occupied(drawn, "--model.core.num_slots", "24") > 3


def test_learned_slots_stay_as_many_as_they_were(learned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["test", str(learned), "--model.core.num_slots", "5"]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "num_slots is 5, and the checkpoint has 3 slots, which are learned" in error
    assert "slot_init gaussian" in error
    assert run(["test", str(learned), "--model.core.num_slots", "3"]) == 0


def test_weights_of_another_shape_are_refused_with_their_name(drawn: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["test", str(drawn), "--model.decoder.channels", "6"]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "the checkpoint does not fit the model: decoder." in error


def test_videos_of_another_set_come_in_the_size_of_the_training(drawn: Path, folder: Path) -> None:
    other = ["--data", "VideoFolder", "--data.path", str(folder / "videos"), "--data.eval_frames", "4"]
    assert run(["predict", str(drawn), *other]) == 0
    pictures = {picture.name for picture in (drawn / "media" / "predict").iterdir()}
    assert {"clip0000_mine_0_frame00000.gif", "clip0001_mine_1_frame00000.gif"} <= pictures


def test_a_size_that_was_asked_for_is_kept(drawn: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = ["--data", "VideoFolder", "--data.path", str(folder / "videos"), "--data.eval_frames", "4"]
    assert run(["predict", str(drawn), *other, "--data.resolution", "32"]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "does not fit the model" in error
    assert "the size of its input" in error
