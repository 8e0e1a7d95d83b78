"""MOVi as it lies on the disk comes out as it went in, cut and ordered as promised, from TFRecords and from a cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tfrecord_files import movi_video, write_movi

from slotbench.data.base import Split
from slotbench.data.movi import record as reading
from slotbench.data.movi.movi import MOVi
from slotbench.errors import DataFilesError
from slotbench.interfaces import VideoBatch

SIDE = 16


def silent(what: str, done: int, total: int) -> None:
    """Reports nothing."""


def clips(data: MOVi, split: Split, indices: list[int]) -> VideoBatch:
    return data.dataset(split).clips(indices)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def videos() -> list[dict]:
    return [movi_video(seed, SIDE, num_objects=3 + seed) for seed in range(5)]


@pytest.fixture(scope="module")
def folder(videos: list[dict], tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("movi")
    write_movi(root / "movi_a" / "128x128" / "1.0.0", {"train": videos, "validation": videos[3:]})
    return root


@pytest.fixture(scope="module")
def cache(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cache")
    MOVi(str(folder), resolution=SIDE, depth=True).prepare(out, silent)
    return out


@pytest.mark.parametrize("kind", ["records", "cache"])
def test_whole_videos_come_out_as_they_went_in(kind: str, folder: Path, cache: Path, videos: list[dict]) -> None:
    data = MOVi(str(folder if kind == "records" else cache), resolution=SIDE, depth=True)
    batch = clips(data, "val", [0, 1])
    assert batch.masks is not None
    assert batch.frames.dtype == batch.masks.dtype == torch.uint8
    assert batch.time.tolist() == [list(range(24))] * 2
    for clip, video in enumerate(videos[3:]):
        count = len(video["visibility"])
        log = {name: value[clip] for name, value in batch.objects.items()}
        assert np.array_equal(batch.frames[clip], video["video"].transpose(0, 3, 1, 2))
        assert np.array_equal(batch.masks[clip], video["segmentations"])
        assert log["num_objects"] == count
        assert log["present"].tolist() == [True] * count + [False] * (10 - count)
        for name in ("positions", "velocities", "angular_velocities", "quaternions", "image_positions"):
            assert np.array_equal(log[name][:, :count], video["instances"][name].swapaxes(0, 1)), name
            assert not log[name][:, count:].any()
        for name in ("mass", "friction", "restitution", "color"):
            assert np.array_equal(log[name][:count], video["instances"][name]), name
        for name, labels in video["labels"].items():
            assert log[name].tolist() == [*labels, *[-1] * (10 - count)], name
        assert np.array_equal(log["visibility"][:, :count], video["visibility"].T)
        seen = video["visibility"].T > 0
        assert np.array_equal(log["bboxes"][:, :count], video["bboxes"].swapaxes(0, 1) * seen[..., None])
        assert np.array_equal(log["camera_positions"], video["camera"]["positions"])
        assert log["camera_focal_length"] == 35
        distance = video["depth"] / 65535 * (30 - 2.5) + 2.5
        assert np.allclose(log["depth"], distance, atol=1e-4)


@pytest.mark.parametrize(
    ("variant", "has", "lacks", "room"),
    [
        ("b", ["shape_label", "color", "background_color"], ["size_label", "category"], 10),
        ("c", ["category", "scale"], ["shape_label", "is_dynamic", "color"], 10),
        ("e", ["category", "scale", "is_dynamic"], ["shape_label"], 23),
    ],
)
def test_each_variant_has_its_own_annotations(
    variant: str, has: list[str], lacks: list[str], room: int, tmp_path: Path
) -> None:
    write_movi(tmp_path, {"validation": [movi_video(0, SIDE, variant=variant)]}, f"movi_{variant}", shards=1)
    objects = clips(MOVi(str(tmp_path), resolution=SIDE), "val", [0]).objects
    assert set(has) <= objects.keys()
    assert not set(lacks) & objects.keys()
    assert objects["positions"].shape == (1, 24, room, 3)


def test_only_the_frames_of_a_clip_are_decoded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []
    decode = reading.decode_png
    monkeypatch.setattr(reading, "decode_png", lambda png: decoded.append(png) or decode(png))
    clips(MOVi(str(folder), resolution=SIDE), "train", [0])
    assert len(decoded) == 2 * 6


def test_any_resolution_is_read_in_any_other(tmp_path: Path) -> None:
    video = movi_video(0, 32)
    video["video"][:] = np.arange(0, 256, 8, dtype=np.uint8)[:, None, None]
    write_movi(tmp_path, {"validation": [video]}, shards=1)
    batch = clips(MOVi(str(tmp_path), resolution=16), "val", [0])
    assert batch.masks is not None
    assert batch.frames.shape == (1, 24, 3, 16, 16)
    # a mean over the pixels that are covered: rows 2 y and 2 y + 1, and with weights a third those beside them
    assert (batch.frames[0, 0, 0, 1:-1, 0] == torch.arange(20, 236, 16)).all()
    assert np.array_equal(batch.masks[0], video["segmentations"][:, 1::2, 1::2])
    larger = clips(MOVi(str(tmp_path), resolution=64), "val", [0])
    assert np.array_equal(larger.masks[0], video["segmentations"].repeat(2, 1).repeat(2, 2))  # type: ignore[index]


def test_the_test_split_is_that_of_the_set(folder: Path, tmp_path: Path) -> None:
    assert len(MOVi(str(folder), resolution=SIDE).dataset("test")) == 2  # type: ignore[arg-type]
    one = [movi_video(0, SIDE, variant="c")]
    write_movi(tmp_path, {"train": one, "validation": one}, "movi_c", shards=1)
    with pytest.raises(DataFilesError, match=r"no test split of MOVi.*test_split=validation"):
        MOVi(str(tmp_path), resolution=SIDE).dataset("test")
    assert len(MOVi(str(tmp_path), resolution=SIDE, test_split="validation").dataset("test")) == 1  # type: ignore[arg-type]
    write_movi(tmp_path, {"test": one * 3}, "movi_c", shards=1)
    assert len(MOVi(str(tmp_path), resolution=SIDE).dataset("test")) == 3  # type: ignore[arg-type]


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    write_movi(tmp_path, {"validation": [movi_video(0, SIDE)]}, shards=1)
    (file,) = tmp_path.glob("*.tfrecord*")
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"IHDR", b"IHDX", 1).replace(b"\x89PNG", b"\x89PNX", 1))
    with pytest.raises(
        DataFilesError, match=r"movi_a-validation.* \(record at byte 0\): .* cannot be decoded as a PNG"
    ):
        clips(MOVi(str(tmp_path), resolution=SIDE), "val", [0])
    short = movi_video(0, SIDE)
    short["segmentations"] = short["segmentations"][:-1]
    write_movi(tmp_path, {"validation": [short]}, shards=1)
    with pytest.raises(DataFilesError, match=r"has 23 frames of segmentations; expected 24"):
        clips(MOVi(str(tmp_path), resolution=SIDE), "val", [0])
    file.write_bytes(whole.replace(b"instances/visibility", b"instances/visibilitx"))
    with pytest.raises(
        DataFilesError, match=r"\(record at byte 0\) has no instances/visibility; expected a record of MOVi"
    ):
        clips(MOVi(str(tmp_path), resolution=SIDE), "val", [0])
