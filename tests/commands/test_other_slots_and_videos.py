"""A trained model with another number of slots, and on videos of another size than those that it was trained on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_discovery import train

from slotbench import registry
from slotbench.callbacks.prediction_writer import PredictionWriter
from slotbench.cli import run

# the videos of these tests are few, and lie in no folders of splits
pytestmark = pytest.mark.filterwarnings("ignore:.*have the same videos")

PLUGIN = """
from slotbench.data.base import LoaderOptions
from slotbench.data.folders.video_folder import VideoFolder
from slotbench.registry import register


@register("datasets")
class SmallVideos(VideoFolder):
    def __init__(self, path: str, num_frames: int = 2, eval_frames: int | None = 2, resolution: int = 16) -> None:
        loader = LoaderOptions(batch_size=2, val_batch_size=2)
        super().__init__(path, num_frames, eval_frames, resolution, loader=loader)
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
def trained(folder):
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
        return train(experiment, folder / "runs" / kind, "--plugin", str(folder / "small_videos.py"))

    return make


@pytest.fixture(scope="module")
def drawn(trained) -> Path:
    return trained("gaussian")


@pytest.fixture(scope="module")
def learned(trained) -> Path:
    return trained("learned")


def occupied(path: Path, *arguments: str) -> float:
    """Slots that have any pixels, as `test` finds them."""
    before = set(path.glob("test-*[0-9].json"))
    assert run(["test", str(path), *arguments]) == 0
    (record,) = set(path.glob("test-*[0-9].json")) - before
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


def test_a_movie_is_one_video_whatever_its_length_and_every_call_has_a_folder(drawn: Path, folder: Path) -> None:
    movies = folder / "movies"
    movies.mkdir()
    frames = np.random.default_rng(3).integers(0, 256, (37, 24, 24, 3), dtype=np.uint8)
    np.save(movies / "long.npy", frames)
    command = ["predict", str(drawn), "--data", "VideoFolder", "--data.path", str(movies)]
    before = set((drawn / "media").iterdir())
    assert run([*command, "--save", "slots,masks,attention,soft_masks"]) == 0
    (first,) = set((drawn / "media").iterdir()) - before
    content = {file.name: file.read_bytes() for file in first.iterdir()}
    assert set(content) == {f"video0000_long.{kind}" for kind in ("png", "gif", "npz")}
    with np.load(first / "video0000_long.npz") as saved:
        assert saved["slots"].shape == (37, 3, 8)
        assert (saved["masks"].dtype, saved["masks"].shape) == (np.uint8, (37, 16, 16))
        assert (saved["attention"].dtype, saved["attention"].shape) == (np.uint8, (37, 16, 16))
        assert (saved["masks"] == saved["soft_masks"].argmax(1)).mean() > 0.99
        assert saved["frame"].tolist() == list(range(37))
        assert str(saved["source"]) == str(movies / "long.npy")
    with Image.open(first / "video0000_long.gif") as gif:
        assert gif.n_frames == 37
    assert run([*command, "--data.stride", "2"]) == 0
    (second,) = set((drawn / "media").iterdir()) - before - {first}
    assert {file.name: file.read_bytes() for file in first.iterdir()} == content
    assert not list(second.glob("*.npz"))


def test_a_size_that_was_asked_for_is_kept(drawn: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = ["--data", "VideoFolder", "--data.path", str(folder / "videos"), "--data.eval_frames", "4"]
    assert run(["predict", str(drawn), *other, "--data.resolution", "32"]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "does not fit the model" in error
    assert "set data.resolution and data.channels as they were in training" in error


def test_only_the_first_videos_have_pictures(drawn: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = np.random.default_rng(4).integers(0, 256, (5, 24, 24, 3), dtype=np.uint8)
    (folder / "two").mkdir()
    for name in ("a", "b"):
        np.save(folder / "two" / f"{name}.npy", frames)
    monkeypatch.setattr(PredictionWriter.__init__, "__defaults__", ((), 1))
    before = set((drawn / "media").iterdir())
    command = ["predict", str(drawn), "--data", "VideoFolder", "--data.path", str(folder / "two"), "--save", "masks"]
    assert run(command) == 0
    (made,) = set((drawn / "media").iterdir()) - before
    assert {file.name for file in made.iterdir()} == {
        *("video0000_a.png", "video0000_a.gif", "video0000_a.npz"),
        "video0001_b.npz",
    }
