"""Every shipped experiment trains, at tiny size, through the command that its header names."""

import inspect
import json
import sys
from pathlib import Path

import pytest
import yaml

from slotbench.cli import run
from slotbench.data.clevr import CLEVR
from slotbench.registry import load

sys.path.insert(0, str(Path(__file__).parent / "data"))
from feature_files import write_feature_file
from tfrecord_files import clevr_scene, movi_video, write_clevr, write_movi

ROOT = Path(__file__).parents[1]
EXPERIMENTS = sorted(path for path in (ROOT / "experiments").rglob("*.yaml") if "matched" not in path.parts)
TINY = {
    "encoder": {"dim": 8},
    "core": {
        "dim": 8,
        "num_slots": 2,
        "num_layers": 1,
        "num_heads": 2,
        "encoder_layers": 1,
        "state_dim": 2,
        "output_dim": 8,
        "num_features": 4,
    },
    "decoder": {"num_layers": 1, "hidden_dim": 8},
}
"""What makes a part small, by its arguments; it is given those that it has."""

TINY_RUN = {
    "data": {"batch_size": 1, "val_batch_size": 1, "val_size": 1, "train_size": 4, "num_workers": 0},
    "trainer": {"max_steps": 2, "val_check_interval": 2, "accelerator": "cpu", "devices": 1},
}
MAX_FRAMES = 100
"""An experiment on longer clips is tried on clips of a few frames."""


def feature_files(folder):
    """The files that `FeatureFile` reads, in small."""
    for split in ("train", "val"):
        write_feature_file(folder / f"{split}.h5", side=SIDE)
    return folder


def movi_files(folder):
    """The files that `MOVi` reads, in small."""
    videos = [movi_video(seed, SIDE) for seed in range(2)]
    return write_movi(folder, {"train": videos[:1], "validation": videos[1:]}, shards=1)


def clevr_cache(folder):
    """What `slotbench prepare CLEVR` makes as the headers say, in small."""
    folder.mkdir()
    file = write_clevr(folder / "clevr.tfrecords", [clevr_scene(seed) for seed in range(7)])
    CLEVR(str(file), resolution=SIDE, crop=(24, 216, 64, 256)).prepare(folder / "cache", lambda what, done, total: None)
    return folder / "cache"


SIDE = 16
FILES = {"FeatureFile": feature_files, "MOVi": movi_files, "CLEVR": clevr_cache}
"""Data sets that read files, and what writes some to a folder, of `SIDE` pixels, and returns their `path`."""


def overrides_of(experiment, folder):
    config = yaml.safe_load(experiment.read_text())
    model = config["model"]["init_args"]
    values = {part: dict(given) for part, given in TINY_RUN.items()}
    for part, given in TINY.items():
        arguments = inspect.signature(load(f"{part}s", model[part]["class_path"])).parameters
        values[f"model.{part}"] = {name: value for name, value in given.items() if name in arguments}
        if "depths" in arguments:  # as many, for they say how large the grid is
            values[f"model.{part}"]["depths"] = [4] * len(model[part]["init_args"]["depths"])
        if isinstance(model[part]["init_args"].get("channels"), list):  # one per layer, like other lists beside it
            values[f"model.{part}"]["channels"] = [4] * len(model[part]["init_args"]["channels"])
    if (write := FILES.get(config["data"]["class_path"])) is not None:
        values["data"] |= {"path": write(folder)}
        values["data"] |= {"resolution": SIDE} if "resolution" in config["data"]["init_args"] else {}
    if config["data"]["class_path"] == "MOViLike":
        values["data"] |= {"train_videos": 2}
    if config["data"]["init_args"].get("num_frames", 0) > MAX_FRAMES:
        values["data"] |= {"num_frames": 4, "eval_frames": 8}
        values["model"] = {"context": 3, "horizon": 5}
    return [f"--{part}.{name}={value}" for part, given in values.items() for name, value in given.items()]


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda path: str(path.relative_to(ROOT / "experiments")))
def test_experiment_trains_two_steps(experiment, tmp_path, monkeypatch):
    monkeypatch.setenv("SLOTBENCH_CACHE", str(tmp_path / "cache"))
    overrides = overrides_of(experiment, tmp_path / "data")
    assert run(["fit", "--config", str(experiment), *overrides, "--runs_dir", str(tmp_path)]) == 0
    (folder,) = (tmp_path / experiment.stem).iterdir()
    record = json.loads((folder / "run.json").read_text())
    assert record["state"] == "finished"
    assert record["step"] == 2
    scores = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    headline = record["headlines"][0]["metric"]
    assert any(headline in row for row in scores)
    assert record["headlines"][0]["floors"]
    assert (folder / "checkpoints" / "last.ckpt").is_file()
    assert list((folder / "media").glob("*_latest.png"))
