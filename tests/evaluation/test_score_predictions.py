"""What `slotbench predict` saves of wide videos is scored by itself as the run's own test scores it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from real_files import write_davis, write_palettes
from tested_runs import train_and_test

from slotbench.cli import run

EXPERIMENT = {
    "seed_everything": 1,
    "model": {
        "class_path": "SlotAutoencoding",
        "init_args": {
            "encoder": {"class_path": "PatchEncoder", "init_args": {"dim": 8}},
            "core": {
                "class_path": "SlotAttention",
                "init_args": {"num_slots": 4, "dim": 8, "num_iterations": 1, "slot_init": "learned"},
            },
            "decoder": {"class_path": "SpatialBroadcastDecoder", "init_args": {"channels": 4}},
        },
    },
    "data": {
        "class_path": "VideoFolder",
        "init_args": {"num_frames": 2, "eval_frames": 6, "resolution": 16}
        | {"loader": {"batch_size": 2, "val_batch_size": 2}},
    },
    "trainer": {"max_steps": 2, "limit_val_batches": 0, "accelerator": "cpu", "enable_progress_bar": False},
}
NAMES = ("walk.v2", "9 lives", "run")


def discs(seed: int, frames: int = 6) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:32, :56]
    ids = np.zeros((frames, 32, 56), np.uint8)
    for one in range(3):
        row, column = rng.uniform(8, 24), rng.uniform(8, 48)
        for frame in range(frames):
            ids[frame][(rows - row) ** 2 + (columns - column - 2 * frame) ** 2 < 40] = one + 1
    return ids


@pytest.fixture(scope="module")
def tested(tmp_path_factory):
    """A run on wide videos of different names, the scores of its test, and where the videos are."""
    folder = tmp_path_factory.mktemp("wide")
    colours = np.random.default_rng(0).integers(0, 256, (4, 3), dtype=np.uint8)
    for split in ("train", "val", "test"):
        (folder / "videos" / split / "masks").mkdir(parents=True)
        for seed, name in enumerate(NAMES):
            ids = discs(seed)
            np.save(folder / "videos" / split / f"{name}.npy", colours[ids])
            np.save(folder / "videos" / split / "masks" / f"{name}.npy", ids)
    train_and_test(folder, EXPERIMENT)
    (file,) = (folder / "run").glob("test-*.json")
    logged = json.loads(file.read_text())["metrics"].items()
    return folder, {name[5:-8]: value for name, value in logged if name.endswith("/decoder")}


def predicted(folder: Path, *arguments: str) -> Path:
    assert run(["predict", str(folder / "run"), *arguments]) == 0
    return max((folder / "run" / "media").glob("predict-*"), key=lambda path: path.stat().st_mtime_ns)


def scored(masks: Path, truth: Path, *arguments: str) -> dict[str, float]:
    out = masks.parent / "scores.json"
    assert run(["score", str(masks), "--truth", str(truth), "--no-baselines", "--out", str(out), *arguments]) == 0
    return {name: one["mean"] for name, one in json.loads(out.read_text())["scores"].items()}


@pytest.mark.parametrize("saved", ["masks", "soft_masks"])
def test_predictions_of_wide_videos_score_as_the_test_of_the_run(tested, saved):
    folder, expected = tested
    found = scored(predicted(folder, "--save", saved), folder / "videos" / "test" / "masks")
    both = found.keys() & expected.keys()
    assert {"fg_ari/video", "miou/frame", "mota", "hota", "switches_per_100_frames"} <= both
    assert {name: found[name] for name in both} == pytest.approx({name: expected[name] for name in both}, abs=1e-6)


@pytest.mark.parametrize("fit", ["stretch", "letterbox"])
def test_so_do_predictions_of_videos_that_became_square_otherwise(tested, fit):
    folder, cropped = tested
    assert run(["test", str(folder / "run"), "--data.fit", fit, "--quiet", "--checkpoint", "last"]) == 0
    file = max((folder / "run").glob("test-*.json"), key=lambda path: path.stat().st_mtime_ns)
    record = json.loads(file.read_text())
    assert record["settings"] == {"data.fit": fit, "checkpoint": "last"}
    expected = {name[5:-8]: value for name, value in record["metrics"].items() if name.endswith("/decoder")}
    masks = predicted(folder, "--save", "masks", "--data.fit", fit)
    found = scored(masks, folder / "videos" / "test" / "masks")
    both = found.keys() & expected.keys()
    assert {"fg_ari/video", "miou/frame", "ari/frame"} <= both
    assert {name: found[name] for name in both} == pytest.approx({name: expected[name] for name in both}, abs=1e-6)
    assert expected["fg_ari/video"] != cropped["fg_ari/video"]


def test_every_second_frame_is_compared_with_its_own_truth(tested):
    folder, _ = tested
    masks = predicted(folder, "--save", "masks", "--data.stride", "2", "--data.eval_frames", "3")
    truth, thinned = folder / "videos" / "test" / "masks", folder / "thinned"
    thinned.mkdir()
    for name in NAMES:
        np.savez(thinned / f"{name}.npz", masks=np.load(truth / f"{name}.npy")[::2], frame=np.arange(0, 6, 2))
    assert scored(masks, truth) == scored(masks, thinned)
    np.savez(thinned / f"{name}.npz", masks=np.load(truth / f"{name}.npy")[::2])
    assert run(["score", str(masks), "--truth", str(thinned)]) == 2


def test_whole_videos_of_davis_score_as_the_test_of_the_run(tmp_path):
    """Videos of two lengths, wide frames, pixels that count nowhere; truth is the tree's own."""
    davis = tmp_path / "videos"
    ids = write_davis(davis, {"bear": 4, "ant": 4, "dog": 7, "cat": 5}, size=(32, 56))["dog"]
    ids[:, :2] = 255
    write_palettes(davis / "Annotations" / "480p" / "dog", ids)
    data = {"num_frames": 2, "resolution": [16, 24]} | {"loader": {"batch_size": 2, "val_batch_size": 1}}
    train_and_test(tmp_path, EXPERIMENT | {"data": {"class_path": "DAVIS", "init_args": data}})
    (file,) = (tmp_path / "run").glob("test-*.json")
    expected = {name[5:-8]: one for name, one in json.loads(file.read_text())["metrics"].items() if "/decoder" in name}
    truth = davis / "Annotations" / "480p"
    found = scored(predicted(tmp_path, "--save", "masks"), truth, "--void", "255", "--allow-missing")
    both = found.keys() & expected.keys()
    assert {"fg_ari/video", "miou/frame", "ari/frame", "hota"} <= both
    assert {name: found[name] for name in both} == pytest.approx({name: expected[name] for name in both}, abs=1e-6)
