"""Masks of several cameras as files: scored over all of them, and those of a run as its own test scores them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from posed_scene_files import write_posed_videos
from scored_arrays import means, scored
from tested_runs import train_and_test

from slotbench.cli import run
from slotbench.metrics.mask_metrics import MASK_METRICS

SCOPES = ("scene", "step", "video", "frame")


def blocks(seed: int, ids: int, time: int = 4, views: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, ids, (time, views, 4, 4)).repeat(2, 2).repeat(2, 3)


def layers(ids: np.ndarray, slots: int) -> np.ndarray:
    return np.moveaxis(ids[..., None] == np.arange(slots), -1, 2)


@pytest.mark.parametrize("given", ["ids", "soft masks", "windows"])
def test_masks_with_an_axis_of_views_have_the_scores_of_the_metrics(tmp_path, capsys, given):
    truth, masks = blocks(0, 4), blocks(1, 5)
    values = layers(masks, 5).astype(np.float32) if given == "soft masks" else masks
    rules = {"windows": ("--skip", "1", "--first", "3", "--window", "1")}.get(given, ())
    code, printed, record = scored(tmp_path, capsys, "--views", *rules, masks=values, truth=truth)
    assert code == 0, printed
    part = slice(1, 3) if rules else slice(None)
    predicted, true = (torch.from_numpy(one[part][None]) for one in (masks, truth))
    if rules:
        predicted, true = predicted.transpose(0, 1), true.transpose(0, 1)
    found = means(record)
    for name, metric in MASK_METRICS.items():
        for scope in SCOPES:
            expected = metric.make(scope)
            expected.update(predicted, true)
            assert found[f"{name}/{scope}"] == pytest.approx(float(expected.compute())), (name, scope)
    assert record["frames"]["views"] == {"3": 1}
    assert record["frames"]["scored"] == true[..., 0, 0].numel()
    assert "3 cameras a clip; videos and frames are of one camera, and tracks too" in printed


def test_baselines_of_several_cameras_keep_the_first_masks_of_each(tmp_path, capsys):
    truth = np.repeat(blocks(0, 4, time=1), 3, axis=0)
    for side in ("masks", "truth"):
        (tmp_path / side).mkdir()
        np.save(tmp_path / side / "a.npy", truth)
    command = ["score", str(tmp_path / "masks"), "--truth", str(tmp_path / "truth"), "--views"]
    assert run([*command, "--out", str(tmp_path / "out.json")]) == 0
    kept = json.loads((tmp_path / "out.json").read_text())["baselines"]["first masks kept"]
    assert kept["miou/scene"]["mean"] == kept["mota"]["mean"] == 1
    assert "FG-ARI per scene" in capsys.readouterr().out
    assert run([*command, "--frames", str(tmp_path)]) == 2
    assert "--frames has videos of one camera" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "masks", "truth", "message"),
    [
        ((), blocks(0, 3), blocks(0, 3), "those of several cameras need --views"),
        (("--views",), blocks(0, 3)[:, 0], blocks(0, 3), "expected ids, integers (time, views, height, width)"),
        (("--views",), blocks(0, 3)[:, :2], blocks(0, 3), "has masks of 2 cameras, and"),
        (("--views",), blocks(0, 3)[:2], blocks(0, 3), "give --first 2"),
        (("--views",), layers(blocks(0, 3), 3).astype(np.int32), blocks(0, 3), "numpy.argmax(masks, 2)"),
        (("--views",), blocks(0, 3), layers(blocks(0, 3), 3), "as integers (time, views, height, width)"),
        (("--views",), np.moveaxis(layers(blocks(0, 3), 3), 2, -1) * 1.0, blocks(0, 3), "numpy.moveaxis(masks"),
    ],
)  # fmt: skip
def test_what_is_not_of_these_cameras_is_refused(tmp_path, capsys, arguments, masks, truth, message):
    code, printed, _ = scored(tmp_path, capsys, *arguments, masks=masks, truth=truth)
    assert code == 2
    assert message in printed


def test_cameras_of_a_clip_are_of_one_kind_and_size(tmp_path, capsys):
    truth = blocks(0, 3)
    code, printed, _ = scored(tmp_path, capsys, "--views", masks=truth, truth=truth)
    assert code == 0, printed
    shutil.rmtree(tmp_path / "truth")
    (tmp_path / "truth" / "a").mkdir(parents=True)
    (tmp_path / "truth" / "notes").mkdir()
    for camera in range(3):
        np.save(tmp_path / "truth" / "a" / f"cam_{camera}.npy", truth[:, camera])
    code, printed, record = scored(tmp_path, capsys, "--views")
    assert (code, means(record)["miou/scene"]) == (0, 1), printed
    assert "1 files and folders that hold no masks" in printed
    np.save(tmp_path / "truth" / "a" / "cam_1.npy", truth[:2, 1])
    code, printed, _ = scored(tmp_path, capsys, "--views")
    assert code == 2
    assert "expected cameras of one kind and size" in printed


EXPERIMENT = {
    "seed_everything": 1,
    "model": {
        "class_path": "NovelViewAutoencoding",
        "init_args": {
            "encoder": {"class_path": "SLSREncoder"}
            | {"init_args": {"dim": 8, "stages": 1, "blocks": 1, "num_layers": 1, "mlp_ratio": 1}},
            "core": {"class_path": "SAVi", "init_args": {"num_slots": 3, "dim": 8, "mlp_ratio": 1}},
            "decoder": {"class_path": "SlotMixerDecoder"}
            | {"init_args": {"dim": 8, "num_layers": 1, "mlp_ratio": 1, "num_blocks": 1}},
            "rays_per_step": 16,
            "baseline_clips": 0,
        },
    },
    "data": {
        "class_path": "PosedVideoFolder",
        "init_args": {"num_cameras": 3, "num_frames": 2, "eval_frames": 4, "resolution": 10}
        | {"loader": {"batch_size": 2, "val_batch_size": 2}},
    },
    "trainer": {"max_steps": 1, "accelerator": "cpu", "enable_progress_bar": False},
}


@pytest.fixture(scope="module")
def tested(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("posed")
    write_posed_videos(folder / "videos")
    for path in (folder / "videos").glob("*/*/masks/*/*.png"):
        # objects are elsewhere in each camera and step
        move = int(path.parent.name[-1]) * 3 + int(path.stem)
        Image.fromarray(np.roll(np.asarray(Image.open(path)), move, 1)).save(path)
    train_and_test(folder, EXPERIMENT)
    return folder


def test_a_training_and_a_test_leave_records_of_all_cameras(tested):
    logged = json.loads((tested / "run" / "result.json").read_text())["metrics"]
    record = json.loads((tested / "run" / "val-decoder.json").read_text())
    for scope in SCOPES:
        assert record["scores"][f"fg_ari/{scope}"]["mean"] == pytest.approx(logged[f"val/fg_ari/{scope}/decoder"])
    assert record["frames"]["views"] == {"2 of 3": 2}
    assert len(record["scores"]["miou/scene"]["values"]) == 2
    (of_test,) = (tested / "run").glob("test-*-decoder.json")
    assert json.loads(of_test.read_text())["clips"]["truth"] == record["clips"]["truth"]


@pytest.mark.parametrize("saved", ["masks", "soft_masks"])
def test_predictions_of_all_cameras_score_as_the_test_of_the_run(tested, saved, capsys):
    (of_test,) = (tested / "run").glob("test-*-decoder.json")
    expected = json.loads(of_test.read_text())
    assert run(["predict", str(tested / "run"), "--save", f"slots,reconstruction,{saved}"]) == 0
    folder = max((tested / "run" / "media").glob("predict-*"), key=lambda path: path.stat().st_mtime_ns)
    first = np.load(sorted(folder.glob("*.npz"))[0])
    axes = json.loads(str(first["axes"]))
    assert axes["slots"] == "time slots dim"
    assert axes["reconstruction"] == "time views channels height width"
    assert axes[saved].startswith("time views ")
    assert first["reconstruction"].shape == (4, 3, 3, 10, 10)
    assert first["shown"].shape == (2,)
    # the square in the middle of frames of 10 x 12 pixels
    assert first["view"].tolist() == [10, 12, 0, 1, 10, 10]
    capsys.readouterr()
    out = tested / "scores.json"
    truth = str(tested / "videos" / "test")
    assert run(["score", str(folder), "--truth", truth, "--views", "--no-baselines", "--out", str(out)]) == 0
    found = json.loads(out.read_text())
    assert means(found) == pytest.approx(means(expected), abs=1e-6)
    assert sorted(found["clips"]["names"]) == ["clip0", "clip1"]


def test_saved_cameras_are_in_the_order_of_the_data(tested):
    """Whichever of them are shown, which is drawn for each clip."""
    assert run(["predict", str(tested / "run"), "--save", "masks", "--data.eval_shown", "3"]) == 0
    folders = sorted((tested / "run" / "media").glob("predict-*"), key=lambda path: path.stat().st_mtime_ns)
    for path in folders[-1].glob("*.npz"):
        saved = np.load(path)
        assert sorted(saved["shown"]) == [0, 1, 2]
        assert saved["masks"].shape == (4, 3, 10, 10)
