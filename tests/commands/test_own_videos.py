"""The guide to training on own videos: its commands run, and FG-ARI is scored where there are masks."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from real_files import write_davis

from slotbench import registry
from slotbench.cli import run

sys.path.insert(0, str(Path(__file__).parents[1] / "pretrained"))
from vit_folders import vit_folder

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "your_own_videos.md").read_text(encoding="utf-8")
# what makes the page's trainings last a second
QUICK = ["--trainer.max_steps", "2", "--trainer.val_check_interval", "2", "--trainer.accelerator", "cpu"]
SMALL = ["--model.core.num_slots", "3", "--model.core.dim", "8", "--model.encoder.channels", "[8,8,8,8]"]


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.S)


def commands() -> list[list[str]]:
    """The slotbench commands of the page, without comments."""
    lines = "\n".join(blocks("bash")).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("slotbench ")]


def clip(seed: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """A bright square before a dark ground, and its mask."""
    masks = np.zeros((length, 32, 32), np.uint8)
    for time in range(length):
        masks[time, 4 + seed : 12 + seed, time : time + 8] = 1
    return np.where(masks[..., None] == 1, 220, 30).astype(np.uint8).repeat(3, -1), masks


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory):
    """The folders that the page speaks of, and the data set of the page."""
    path = tmp_path_factory.mktemp("own")
    (path / "packed").mkdir()
    for split in ("train", "val", "test"):
        (path / "my_videos" / split / "masks").mkdir(parents=True)
        made = [clip(seed, 7) for seed in range(2)]
        for seed, (frames, masks) in enumerate(made):
            np.save(path / "my_videos" / split / f"walk{seed}.npy", frames)
            np.savez(path / "my_videos" / split / "masks" / f"walk{seed}.npz", masks=masks)
        frames, masks = (np.stack(arrays) for arrays in zip(*made, strict=True))
        np.savez(path / "packed" / f"{split}.npz", frames=frames, masks=masks)
    (path / "other_videos").mkdir()
    np.save(path / "other_videos" / "long.npy", clip(0, 20)[0])
    (path / "packed_videos.py").write_text(next(code for code in blocks("python") if "@register" in code))
    (path / "experiments").symlink_to(ROOT / "experiments")
    registered = dict(registry._registered)
    patch = pytest.MonkeyPatch()
    patch.chdir(path)
    # the command sets it, for processes that it starts
    patch.setenv("SLOTBENCH_RUN_DIR", "")
    yield path
    patch.undo()
    registry._registered.clear()
    registry._registered.update(registered)


@pytest.fixture(scope="module")
def trained(here: Path) -> Path:
    """The run of the page's first training."""
    command = next(command for command in commands() if command[0] == "fit" and "my_videos" in command)
    assert run([*command, *QUICK, *SMALL]) == 0
    (found,) = (here / "runs" / "movi_like").iterdir()
    return found


def test_a_run_is_tested_and_shown_as_the_page_says(trained: Path) -> None:
    for command in commands():
        if "runs/movi_like/ID" in command:
            assert run([str(trained) if word == "runs/movi_like/ID" else word for word in command]) == 0
    (record,) = trained.glob("test-*[0-9].json")
    found = json.loads(record.read_text())
    assert found["checkpoint"].endswith("best.ckpt")
    assert 0 <= found["metrics"]["test/fg_ari/video/decoder"] <= 1
    saved = sorted(file.name for file in (trained / "media").glob("predict-*/*.npz"))
    assert saved == ["video0000_walk0.npz", "video0001_walk1.npz"]
    shown = {file.name for file in (trained / "media").glob("predict-*/*.png")}
    assert shown == {"video0000_walk0.png", "video0001_walk1.png", "video0000_long.png"}


def test_a_tree_of_davis_is_trained_on_as_the_page_says(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_davis(here / "DAVIS", {"bear": 7, "ant": 4, "dog": 8, "cat": 14})
    (fit,) = (command for command in commands() if "DAVIS" in command)
    assert run([*fit, *QUICK, *SMALL, "--name", "davis"]) == 0
    assert "train: 2 of 2 videos; val: 3 clips of 6 frames, from 2 of 2 videos" in capsys.readouterr().out
    (found,) = (here / "runs" / "davis").iterdir()
    assert "val/fg_ari/video/decoder" in json.loads((found / "result.json").read_text())["metrics"]


def test_a_tree_of_youtube_vos_is_trained_on_as_the_page_says(here: Path) -> None:
    write_davis(here / "tree")
    (here / "VOS" / "train").mkdir(parents=True)
    for tree in ("JPEGImages", "Annotations"):
        (here / "tree" / tree / "480p").rename(here / "VOS" / "train" / tree)
    (link,) = (line for line in blocks("bash") if line.startswith("ln -s"))
    subprocess.run(link.splitlines()[0], shell=True, check=True, cwd=here, env=os.environ | {"PWD": str(here)})
    (fit,) = (command for command in commands() if "VOS/train/JPEGImages" in command)
    with pytest.warns(UserWarning, match="no folders train, val and test"):
        assert run([*fit, *QUICK, *SMALL, "--name", "vos"]) == 0
    (found,) = (here / "runs" / "vos").iterdir()
    assert "val/fg_ari/video/decoder" in json.loads((found / "result.json").read_text())["metrics"]


def test_films_of_three_proportions_go_through_features_to_masks(here: Path) -> None:
    (here / "films").mkdir()
    for name, (rows, columns) in {"wide": (32, 48), "tall": (40, 24), "square": (32, 32)}.items():
        film = np.zeros((26, rows, columns, 3), np.uint8)
        film[:, 4:12, 4:12] = 220
        np.save(here / "films" / f"{name}.npy", film)
    weights = vit_folder(here / "tiny_vit")
    prepare, fit = (
        next(command for command in commands() if command[0] == kind and "features/films" in command)
        for kind in ("prepare", "fit")
    )
    assert run([weights if word == "WEIGHTS" else word for word in prepare] + ["--resolution", "16"]) == 0
    assert (here / "features" / "films" / "val").is_symlink()
    assert run([*fit, *QUICK, "--model.decoder.hidden_dim", "8", "--data.loader.val_size", "2"]) == 0
    (found,) = (here / "runs" / "own_video").iterdir()
    predict = next(command for command in commands() if "runs/own_video/ID" in command)
    assert run([str(found) if word == "runs/own_video/ID" else word for word in predict]) == 0
    saved = {file.stem: np.load(file)["masks"].shape for file in (found / "media").glob("predict-*/*.npz")}
    assert sorted(saved) == ["video0000_square", "video0001_tall", "video0002_wide"]
    assert set(saved.values()) == {(26, 16, 16)}


def test_the_data_set_of_the_page_is_found_and_trained_on(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (fit,) = (command for command in commands() if "--plugin" in command)
    assert run([*fit, *QUICK, *SMALL, "--name", "packed"]) == 0
    (found,) = (here / "runs" / "packed").iterdir()
    assert "val/fg_ari/video/decoder" in json.loads((found / "result.json").read_text())["metrics"]
    capsys.readouterr()
    (here / "packed" / "val.npz").unlink()
    assert run([*fit, *QUICK, *SMALL, "--name", "less"]) == 2
    assert "there is no packed/val.npz" in " ".join(capsys.readouterr().err.split())
