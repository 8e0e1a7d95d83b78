"""Codes in a cache: computed once by the tokenizer of a run, read with the frames, and refused where damaged."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from action_files import FRAMES, write_npz
from code_tasks import quiet_trainer

from slotbench.cli import run
from slotbench.data.action_videos.action_videos import ActionVideos
from slotbench.data.crops import Crop, cropped
from slotbench.interfaces import VideoSpec
from slotbench.registry import load
from slotbench.tasks.codes.chosen_tokenizer import trained_tokenizer
from slotbench.tasks.codes.frame_tokenization import FrameTokenization

LOOK: dict[str, Any] = {"resolution": 8, "num_frames": 4, "video_frames": FRAMES}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_npz(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def tokenizer_run(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run, and no more of it than is read."""
    folder, data = tmp_path_factory.mktemp("run"), ActionVideos(str(files), **LOOK)
    tokenizer = partial(load("tokenizers", "PatchKMeans"), num_codes=5, fit_frames=9)
    task = FrameTokenization(tokenizer, data_spec=data.spec, baseline_frames=0)
    trainer = quiet_trainer(max_steps=1, limit_val_batches=0)
    trainer.fit(task, datamodule=data)
    (folder / "checkpoints").mkdir()
    trainer.save_checkpoint(folder / "checkpoints" / "last.ckpt")
    return folder


@pytest.fixture(scope="module")
def cache(files: Path, tokenizer_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cache")
    look = ["--resolution", "8", "--video_frames", str(FRAMES), "--jobs", "1"]
    command = ["prepare", "ActionVideos", "--path", str(files), "--out", str(out), *look, "--codes"]
    assert run([*command, str(tokenizer_run)]) == 0
    return out


def test_a_batch_has_the_codes_of_its_frames(cache: Path, tokenizer_run: Path) -> None:
    data = ActionVideos(str(cache), **LOOK)
    assert data.spec.input == VideoSpec(3, 8, 8, num_actions=6, codes=VideoSpec(5, 2, 2))
    assert data.spec.target.codes is None
    batch = data.dataset("train").clips([0, 1, 4])
    assert batch.objects["first_frame"].any()
    tokenizer = trained_tokenizer(str(tokenizer_run), VideoSpec(3, 8, 8))
    assert batch.codes is not None
    assert batch.codes.dtype == torch.int64
    assert torch.equal(batch.codes, tokenizer.encode(batch.frames.float() / 255))
    assert len(batch.codes.unique()) > 2
    assert torch.equal(batch.slice_time(1, 3).require("codes"), batch.codes[:, 1:3])


def test_a_crop_of_a_frame_has_no_codes(cache: Path) -> None:
    batch = ActionVideos(str(cache), **LOOK).dataset("val").clips([0])
    assert cropped(batch, Crop(0, 0, 6, 6)).codes is None


def test_without_a_tokenizer_there_are_none(files: Path, tmp_path: Path) -> None:
    data = ActionVideos(str(files), **LOOK)
    assert data.spec.input.codes is None
    data.prepare(tmp_path, lambda *told: None, jobs=1)
    data = ActionVideos(str(tmp_path), **LOOK)
    assert data.spec.input.codes is None
    assert data.dataset("val").clips([0]).codes is None
