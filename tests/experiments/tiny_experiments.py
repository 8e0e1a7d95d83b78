"""What makes an experiment so small that two steps of it take a second or two: sizes, and the files that it reads."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from slotbench.data.clevr import CLEVR
from slotbench.registry import load

sys.path.insert(0, str(Path(__file__).parents[1] / "data"))
from action_files import FRAMES, write_npz
from cater_files import write_cater
from clevrer_files import write_clevrer
from feature_files import write_feature_file
from tfrecord_files import clevr_scene, movi_video, write_clevr, write_movi

TINY = {
    "encoder": {"dim": 8, "width": 4, "blocks": [1, 1], "mlp_dim": 8},
    "core": {
        "dim": 8,
        "num_slots": 2,
        "num_layers": 1,
        "num_heads": 2,
        "encoder_layers": 1,
        "state_dim": 2,
        "output_dim": 8,
        "num_features": 4,
        "slot_grid": "null",
    },
    "decoder": {"dim": 8, "num_layers": 1, "hidden_dim": 8, "num_points": 3},
    "tokenizer": {"num_codes": 8, "channels": 4, "fit_frames": 4},
}
"""What makes a part small, by its arguments; it is given those that it has."""

TINY_RUN = {
    "data": {f"loader.{name}": 1 for name in ("batch_size", "val_batch_size", "val_size")}
    | {"loader.train_size": 4, "loader.num_workers": 0},
    "trainer": {"max_steps": 2, "val_check_interval": 2, "accelerator": "cpu", "devices": 1},
}
TINY_CLIPS = {"data": {"num_frames": 4, "eval_frames": 6}, "model": {"rollout.context": 3, "rollout.horizon": 3}}
"""A roll-out logs some twenty scores per predicted frame, which takes most of the time of two steps."""
SIDE = 16
TINY_DATA = {
    "DepthVideo": {"num_frames": 3, "eval_frames": 4},
    "VideoFolder": {"num_frames": 3, "eval_frames": 4},
    "CATER": {"num_frames": 4},
    "FeatureFile": {"num_frames": 2, "eval_frames": 3},
    "CLEVRER": {"num_frames": 4, "eval_frames": 4},
    "ActionVideos": {"video_frames": FRAMES},
    "MOViLike": {"train_videos": 2, "val_videos": 1},
    "MultiCameraLike": {
        "train_videos": 2, "val_videos": 1, "resolution": SIDE, "num_frames": 2, "eval_frames": 3, "video_frames": 3,
    },
}  # fmt: skip
"""Arguments of a data set that make it small."""
TINY_CONDITIONS = {"conditions.frame_mask": 2, "rollout.short_context": 1}


def feature_files(folder: Path) -> Path:
    """The files that `FeatureFile` reads, in small."""
    for split in ("train", "val"):
        write_feature_file(folder / f"{split}.h5", side=SIDE)
    return folder


def movi_files(folder: Path) -> Path:
    """The files that `MOVi` reads, in small."""
    videos = [movi_video(seed, SIDE) for seed in range(2)]
    return write_movi(folder, {"train": videos[:1], "validation": videos[1:]}, shards=1)


def clevr_cache(folder: Path) -> Path:
    """What `slotbench prepare CLEVR` makes as the headers say, in small."""
    folder.mkdir()
    file = write_clevr(folder / "clevr.tfrecords", [clevr_scene(seed) for seed in range(7)])
    CLEVR(str(file), resolution=SIDE, crop=(24, 216, 64, 256)).prepare(folder / "cache", lambda what, done, total: None)
    return folder / "cache"


def clevrer_files(folder: Path) -> Path:
    """The files that `CLEVRER` reads, of two videos."""
    return write_clevrer(folder, {"train": [0], "validation": [10000]})


def depth_videos(folder: Path) -> Path:
    """What `DepthVideo` reads, in small."""
    rng = np.random.default_rng(0)
    for split in ("train", "val"):
        (folder / split / "depth").mkdir(parents=True)
        np.save(folder / split / "a.npy", rng.integers(0, 256, (6, SIDE, SIDE, 3), np.uint8))
        np.save(folder / split / "depth" / "a.npy", rng.uniform(1, 9, (6, SIDE, SIDE)).astype(np.float32))
    return folder


def films(folder: Path) -> Path:
    """What `VideoFolder` reads, in small, with masks."""
    rng = np.random.default_rng(0)
    for split in ("train", "val"):
        (folder / split / "masks").mkdir(parents=True)
        np.save(folder / split / "a.npy", rng.integers(0, 256, (6, SIDE, SIDE, 3), np.uint8))
        np.save(folder / split / "masks" / "a.npy", rng.integers(0, 3, (6, SIDE, SIDE), np.uint8))
    return folder


FILES = {
    "FeatureFile": feature_files,
    "MOVi": movi_files,
    "CLEVR": clevr_cache,
    "CATER": write_cater,
    "CLEVRER": clevrer_files,
    "DepthVideo": depth_videos,
    "VideoFolder": films,
    "ActionVideos": write_npz,
}
"""Data sets that read files, and what writes some to a folder, of `SIDE` pixels, and returns their `path`."""


def tiny_overrides(config: Mapping[str, Any], folder: Path, kept: Collection[str] = ()) -> list[str]:
    """Settings that make an experiment tiny, as typed on the command line.

    Args:
        config: its configuration, with `class_path` and `init_args`.
        folder: for the files that its data set reads, if it reads any.
        kept: keys of settings that are left as they are.
    """
    model, data = config["model"]["init_args"], config["data"]["init_args"]
    values: dict[str, dict[str, Any]] = {part: dict(given) for part, given in TINY_RUN.items()}
    for part, given in TINY.items():
        if part not in model:
            continue
        arguments = inspect.signature(load(f"{part}s", model[part]["class_path"])).parameters
        of_part = values[f"model.{part}"] = {name: value for name, value in given.items() if name in arguments}
        if "blocks" in of_part and not isinstance(arguments["blocks"].default, tuple):  # the same number on every level
            of_part["blocks"] = 1
        if "top_k" in arguments:  # no more modules can be active than there are
            of_part.pop("num_slots", None)
        if "head_dim" in model[part]["init_args"]:  # it divides the inner width
            of_part["head_dim"] = 4
        if part == "core" and "blocks" in arguments:  # those of the HiPPO matrix, which has as many states or more
            of_part["blocks"] = 1
        if "patch" in model[part]["init_args"]:  # the whole grid, as with the sizes of the file
            of_part["patch"] = 2
        if "depths" in arguments:  # as many, for they say how large the grid is
            of_part["depths"] = [4] * len(model[part]["init_args"]["depths"])
        if isinstance(model[part]["init_args"].get("channels"), list):  # one per layer, like other lists beside it
            of_part["channels"] = [4] * len(model[part]["init_args"]["channels"])
            of_part.pop("num_layers", None)
    if (write := FILES.get(config["data"]["class_path"])) is not None:
        values["data"] |= {"path": write(folder)}
        values["data"] |= {"resolution": SIDE} if "resolution" in data else {}
    values["data"] |= TINY_DATA.get(config["data"]["class_path"], {})
    if "baseline_frames" in inspect.signature(load("tasks", config["model"]["class_path"])).parameters:
        values["model"] = {"baseline_frames": 4}
    if "rollout" in model:
        values["data"] |= TINY_CLIPS["data"]
        values["model"] = dict(TINY_CLIPS["model"])
    if "rays_per_step" in model:
        values["model"] = {"rays_per_step": 8}
    values["model"] = values.get("model", {}) | {k: v for k, v in TINY_CONDITIONS.items() if _given(model, k)}
    if "perceptual_weight" in model:  # weights that the user has, and a discriminator of larger frames
        values["model"] |= {"perceptual_weight": 0, "adversarial_weight": 0}
    if "tokenizer_run" in model:
        values["model"] |= {"tokenizer": "PatchKMeans", "tokenizer.num_codes": 8, "tokenizer.fit_frames": 4}
    if "prior" in model:
        values["model"] |= {f"prior.{name}": 2 for name in ("dim", "num_layers", "num_heads", "code_dim")}
    return [
        f"--{part}.{name}={value}"
        for part, given in values.items()
        for name, value in given.items()
        if f"{part}.{name}" not in kept
    ]


def _given(model: dict[str, Any], key: str) -> Any:
    group, _, name = key.partition(".")
    return model.get(group, {}).get(name)
