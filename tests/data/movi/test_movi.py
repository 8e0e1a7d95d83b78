"""MOVi as it lies on the disk comes out as it went in, cut and ordered as promised, from TFRecords and from a cache."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from tfrecord_files import framed, movi_record, movi_video, write_movi
from torch import Tensor

from slotbench.data.base import Split
from slotbench.data.movi import record as reading
from slotbench.data.movi.movi import MOVi
from slotbench.errors import DataFilesError, FileError
from slotbench.interfaces import VideoBatch

SIDE = 16


def silent(what: str, done: int, total: int) -> None:
    """Reports nothing."""


def everything(batch: VideoBatch) -> dict[str, Tensor]:
    return {k: v for k, v in vars(batch).items() if isinstance(v, Tensor)} | batch.objects


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


def test_cuts_begin_at_every_frame_that_leaves_room(folder: Path) -> None:
    for num_frames, starts in ((6, 19), (23, 2), (24, 1)):
        dataset = MOVi(str(folder), num_frames=num_frames).dataset("train")
        drawn = [dataset.place(index)[1] for index in range(600)]  # type: ignore[attr-defined]
        assert set(drawn) == set(range(starts))


@pytest.mark.parametrize("kind", ["records", "cache"])
def test_videos_of_many_objects_are_passed_over(kind: str, folder: Path, cache: Path) -> None:
    data = MOVi(str(folder if kind == "records" else cache), resolution=SIDE, max_objects=5)
    batch = clips(data, "train", list(range(12)))
    assert set(batch.objects["video"].tolist()) == {0, 1, 2}
    assert batch.objects["num_objects"].max() == 5
    with pytest.raises(DataFilesError, match="none of the 2 videos of the val split is left"):
        data.dataset("val")


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


def test_missing_files_are_named_with_what_was_expected(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataFilesError, match=r"folder .*nowhere does not exist; expected .*tfrecord-00000.*gsutil"):
        MOVi(str(tmp_path / "nowhere")).dataset("train")
    with pytest.raises(DataFilesError, match="has no such files; expected"):
        MOVi(str(tmp_path)).dataset("train")
    write_movi(tmp_path / "a", {"train": [movi_video(0, 8)] * 3}, shards=3)
    write_movi(tmp_path / "b", {"train": [movi_video(0, 8)]}, shards=1)
    with pytest.raises(DataFilesError, match="holds several data sets: name one of"):
        MOVi(str(tmp_path)).dataset("train")
    (tmp_path / "a" / "movi_a-train.tfrecord-00001-of-00003").unlink()
    with pytest.raises(DataFilesError, match="has 2 of the 3 files"):
        MOVi(str(tmp_path / "a")).dataset("train")


def test_too_many_objects_say_what_to_set(folder: Path) -> None:
    with pytest.raises(DataFilesError, match=r"has [4-7] objects, and annotations have room for 3: set num_objects"):
        clips(MOVi(str(folder), resolution=SIDE, num_objects=3), "train", list(range(5)))


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    write_movi(tmp_path, {"validation": [movi_video(0, SIDE)]}, shards=1)
    (file,) = tmp_path.glob("*.tfrecord*")
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"IHDR", b"IHDX", 1).replace(b"\x89PNG", b"\x89PNX", 1))
    with pytest.raises(
        DataFilesError, match=r"movi_a-validation.* \(record at byte 0\): .* cannot be decoded as a PNG"
    ):
        clips(MOVi(str(tmp_path), resolution=SIDE), "val", [0])
    file.write_bytes(whole.replace(b"instances/visibility", b"instances/visibilitx"))
    with pytest.raises(
        DataFilesError, match=r"\(record at byte 0\) has no instances/visibility; expected a record of MOVi"
    ):
        clips(MOVi(str(tmp_path), resolution=SIDE), "val", [0])


def image(width: int, height: int, content: bytes = b"", after: bytes = b"") -> bytes:
    """A PNG in red, green and blue that claims a size."""
    parts = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)), (b"IDAT", zlib.compress(content))]
    out = b"\x89PNG\r\n\x1a\n"
    for kind, part in [*parts, (b"IEND", b"")]:
        out += struct.pack(">I", len(part)) + kind + part + struct.pack(">I", zlib.crc32(kind + part))
    return out + after


@pytest.mark.parametrize(
    ("first", "complaint"),
    [
        (image(0, 0), "cannot be decoded as a PNG"),
        (image(4_000_000_000, 4_000_000_000), "cannot be decoded as a PNG"),
        (image(SIDE, SIDE, bytes(7)), "image file is truncated"),
    ],
    ids=["empty", "huge", "shorter"],
)
def test_an_image_that_is_not_what_it_says_ends_with_file_and_record(
    first: bytes, complaint: str, tmp_path: Path
) -> None:
    frames = [image(SIDE, SIDE, bytes(SIDE * (3 * SIDE + 1)))] * 24
    write_movi(tmp_path, {"validation": [movi_video(0, SIDE)]}, shards=1)
    (file,) = tmp_path.glob("*.tfrecord*")
    for frame, fits in ((frames[0], True), (first, False)):
        file.write_bytes(framed([movi_record(movi_video(0, SIDE), {"video": [frame, *frames[1:]]})]))
        dataset = MOVi(str(tmp_path), resolution=SIDE).dataset("val")
        if fits:
            assert not dataset[0].frames.any()
            continue
        with pytest.raises(DataFilesError, match=rf"movi_a-validation.* \(record at byte 0\): .*{complaint}"):
            dataset[0]


def test_a_video_without_objects_is_read(tmp_path: Path) -> None:
    write_movi(tmp_path, {"validation": [movi_video(0, SIDE, num_objects=0)]}, shards=1)
    (batch,) = MOVi(str(tmp_path), resolution=SIDE).val_dataloader()
    assert batch.objects["num_objects"].tolist() == [0]
    assert not batch.objects["present"].any()


def test_a_cache_says_what_it_cannot_give(folder: Path, tmp_path: Path) -> None:
    MOVi(str(folder), resolution=8).prepare(tmp_path, silent)
    with pytest.raises(DataFilesError, match="prepared without depth"):
        MOVi(str(tmp_path), resolution=8, depth=True).dataset("train")
    with (tmp_path / "train" / "frames.npy").open("r+b") as file:
        file.truncate(100)
    with pytest.raises(FileError, match=r"frames.npy is damaged"):
        MOVi(str(tmp_path), resolution=8).dataset("train")


@pytest.mark.parametrize("kind", ["records", "cache"])
def test_a_clip_can_be_asked_for_its_name_and_has_none(kind: str, folder: Path, cache: Path) -> None:
    dataset = MOVi(str(folder if kind == "records" else cache), resolution=SIDE).dataset("val")
    assert dataset.clip_name(0) is None  # type: ignore[attr-defined]
