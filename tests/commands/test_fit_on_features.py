"""`slotbench fit` on the features of a frozen network, computed on the way or read from files."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from slotbench.cli import run
from slotbench.pretrained import vit
from slotbench.tasks.slot_autoencoding import SlotAutoencoding

sys.path.insert(0, str(Path(__file__).parents[1] / "pretrained"))
from vit_files import SMALL, vit_state

PARTS = ["--model=SlotAutoencoding", "--model.encoder=MLPEncoder", "--model.encoder.dim=8"]
PARTS += ["--model.core=SlotAttention", "--model.core.dim=8", "--model.core.num_slots=2"]
PARTS += ["--model.decoder=MLPPatchDecoder", "--model.decoder.hidden_dim=8"]
SHORT = [
    "--trainer.max_steps=1",
    "--trainer.val_check_interval=1",
    "--trainer.accelerator=cpu",
    "--data.loader.num_workers=0",
]


@pytest.fixture
def weights(tmp_path, monkeypatch):
    monkeypatch.setitem(vit.ARCHITECTURES, "small", SMALL)
    torch.save(vit_state(), tmp_path / "small.pth")
    return tmp_path / "small.pth"


@pytest.fixture
def videos(tmp_path):
    for split in ("train", "val", "test"):
        (tmp_path / "videos" / split).mkdir(parents=True)
    for number in range(2):
        pixels = np.random.default_rng(number).integers(0, 256, (2, 8, 8, 3), dtype=np.uint8)
        for split in ("train", "val", "test"):
            np.save(tmp_path / "videos" / split / f"{number}.npy", pixels)
    return tmp_path / "videos"


def test_a_run_with_a_frozen_network_keeps_nothing_of_it_and_is_loaded_with_its_file(weights, videos, tmp_path):
    data = ["--data=VideoFolder", f"--data.path={videos}", "--data.num_frames=2", "--data.eval_frames=2"]
    data += ["--data.resolution=8", "--data.loader.batch_size=2"]
    features = ["--model.features=DINOFeatures", f"--model.features.path={weights}", "--model.features.arch=small"]
    features += ["--model.features.resolution=12"]
    assert run(["fit", *PARTS, *features, *data, *SHORT, f"--runs_dir={tmp_path / 'runs'}", "--name=dino"]) == 0
    (folder,) = (tmp_path / "runs" / "dino").iterdir()
    checkpoint = folder / "checkpoints" / "last.ckpt"
    state = torch.load(checkpoint, weights_only=True)["state_dict"]
    assert {name.partition(".")[0] for name in state if not name.startswith("scores")} == {"encoder", "core", "decoder"}
    task = SlotAutoencoding.load_from_checkpoint(checkpoint, weights_only=True)
    assert torch.equal(task.decoder.positions, state["decoder.positions"])
    assert task.decoder.positions.shape == (9, 8)
    assert torch.equal(task.extractor.network.cls_token, vit_state()["cls_token"])
