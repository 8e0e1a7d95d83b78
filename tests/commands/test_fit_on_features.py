"""`slotbench fit` on the features of a frozen network, computed on the way or read from files."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import slotbench
from slotbench.cli import run
from slotbench.errors import FileError
from slotbench.pretrained.weights import WeightError
from slotbench.tasks.slot_autoencoding import SlotAutoencoding

sys.path.insert(0, str(Path(__file__).parents[1] / "pretrained"))
from vit_folders import vit_folder

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
def weights(tmp_path):
    return vit_folder(tmp_path / "small")


@pytest.fixture
def videos(tmp_path):
    for split in ("train", "val", "test"):
        (tmp_path / "videos" / split).mkdir(parents=True)
    for number in range(2):
        pixels = np.random.default_rng(number).integers(0, 256, (2, 8, 8, 3), dtype=np.uint8)
        for split in ("train", "val", "test"):
            np.save(tmp_path / "videos" / split / f"{number}.npy", pixels)
    return tmp_path / "videos"


def test_a_run_with_a_frozen_network_keeps_nothing_of_it_and_is_loaded_with_its_file(weights, videos, tmp_path, capsys):
    data = ["--data=VideoFolder", f"--data.path={videos}", "--data.num_frames=2", "--data.eval_frames=2"]
    data += ["--data.resolution=8", "--data.loader.batch_size=2"]
    features = [f"--features={weights}", "--model.features.resolution=12"]
    assert run(["fit", *PARTS, *features, *data, *SHORT, f"--runs_dir={tmp_path / 'runs'}", "--name=vit"]) == 0
    (folder,) = (tmp_path / "runs" / "vit").iterdir()
    checkpoint = folder / "checkpoints" / "last.ckpt"
    state = torch.load(checkpoint, weights_only=True)["state_dict"]
    assert {name.partition(".")[0] for name in state if not name.startswith("scores")} == {"encoder", "core", "decoder"}
    task = SlotAutoencoding.load_from_checkpoint(checkpoint, weights_only=True)
    assert torch.equal(task.decoder.positions, state["decoder.positions"])
    assert task.decoder.positions.shape == (9, 8)
    hashed = {"weights": "small", "weights_sha256": task.extractor.weights_sha256}
    assert json.loads((folder / "run.json").read_text())["features"] == hashed
    out = tmp_path / "out"
    assert run(["export", str(folder), "--out", str(out)]) == 0
    named = json.loads((out / "config.json").read_text())["task"]["init_args"]["features"]
    assert named["init_args"].items() >= hashed.items()
    assert hashed["weights_sha256"] in (out / "README.md").read_text()
    assert str(tmp_path) not in (out / "config.json").read_text()
    with pytest.raises(FileError, match=rf"small \(SHA-256 {hashed['weights_sha256']}\): .*features=PATH"):
        slotbench.from_pretrained(out)
    read, frames = slotbench.from_pretrained(out, features=weights), torch.rand(1, 2, 3, 8, 8)
    batch = read.as_batch(frames)
    assert torch.equal(read.encoder(read.read(batch)), task.encoder(task.read(batch)))
    task.save_pretrained(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "config.json").read_text())["task"]["init_args"]["features"] == named
    vit_folder(tmp_path / "small", seed=1)
    with pytest.raises(FileError, match=f"the weights small have the hash .* of the hash {hashed['weights_sha256']}"):
        slotbench.from_pretrained(out, features=weights)
    with pytest.raises(WeightError, match=f"the weights small have the hash .* of the hash {hashed['weights_sha256']}"):
        SlotAutoencoding.load_from_checkpoint(checkpoint, weights_only=True)
    record = (folder / "run.json").read_text()
    longer = ["fit", "--resume", str(folder), "--trainer.max_steps=2", "--allow-changes"]
    for command in (longer, ["predict", str(folder)]):
        assert run(command) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert (
            f"expected the weights that {folder} was trained on, small of the hash {hashed['weights_sha256'][:12]}"
            in said
        )
    assert (folder / "run.json").read_text() == record
    vit_folder(tmp_path / "small")
    assert run(longer) == 0


def test_a_model_on_features_that_are_drawn_is_exported_whole(videos, tmp_path):
    data = ["--data=VideoFolder", f"--data.path={videos}", "--data.num_frames=2", "--data.eval_frames=2"]
    data += ["--data.resolution=8", "--data.loader.batch_size=2", "--features=RandomViT", "--model.features.seed=3"]
    folder, out = tmp_path / "run", tmp_path / "out"
    assert run(["fit", *PARTS, *data, *SHORT, f"--run_dir={folder}"]) == 0
    assert run(["export", str(folder), "--out", str(out)]) == 0
    trained = SlotAutoencoding.load_from_checkpoint(folder / "checkpoints" / "last.ckpt", weights_only=True).eval()
    read, frames = slotbench.from_pretrained(out), torch.rand(1, 2, 3, 8, 8)
    assert torch.equal(read.extractor(frames), trained.extractor(frames))
