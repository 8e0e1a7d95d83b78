"""MOVi as it lies on the disk comes out as it went in, cut and ordered as promised, from TFRecords and from a cache."""

from __future__ import annotations

import pickle
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import tfrecord_files
import torch
from tfrecord_files import framed, movi_record, movi_video, write_movi
from torch import Tensor

from slotbench.data import clip_cache
from slotbench.data.base import LoaderOptions, Split
from slotbench.data.clip_cache import ClipCache, write_cache
from slotbench.data.mnist.moving_mnist import MovingMNIST
from slotbench.data.movi import record as reading
from slotbench.data.movi.movi import MOVi
from slotbench.errors import DataFilesError
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


@pytest.mark.parametrize("kind", ["records", "cache"])
def test_a_training_clip_is_a_cut_of_the_video_it_names(
    kind: str, folder: Path, cache: Path, videos: list[dict]
) -> None:
    data = MOVi(str(folder if kind == "records" else cache), resolution=SIDE)
    batch = clips(data, "train", list(range(10)))
    for clip in range(10):
        video = videos[int(batch.objects["video"][clip])]
        first = int(batch.objects["first_frame"][clip])
        count = len(video["visibility"])
        assert np.array_equal(batch.frames[clip], video["video"][first : first + 6].transpose(0, 3, 1, 2))
        assert np.array_equal(batch.masks[clip], video["segmentations"][first : first + 6])  # type: ignore[index]
        cut = video["instances"]["positions"][:, first : first + 6].swapaxes(0, 1)
        assert np.array_equal(batch.objects["positions"][clip, :, :count], cut)
        assert batch.time[clip].tolist() == [0, 1, 2, 3, 4, 5]


def test_each_pass_shows_every_video_once_in_another_order_and_cut(folder: Path) -> None:
    batch = clips(MOVi(str(folder), resolution=SIDE), "train", list(range(50)))
    passes = batch.objects["video"].reshape(10, 5)
    assert (passes.sort(1).values == torch.arange(5)).all()
    assert len({tuple(row.tolist()) for row in passes}) > 5
    starts = {(int(v), int(s)) for v, s in zip(batch.objects["video"], batch.objects["first_frame"], strict=True)}
    assert len(starts) > 25
    assert {start for _, start in starts} <= set(range(19))


def test_cuts_begin_at_every_frame_that_leaves_room(folder: Path) -> None:
    for num_frames, starts in ((6, 19), (23, 2), (24, 1)):
        dataset = MOVi(str(folder), num_frames=num_frames).dataset("train")
        drawn = [dataset.place(index)[1] for index in range(600)]  # type: ignore[attr-defined]
        assert set(drawn) == set(range(starts))


def test_a_training_clip_depends_on_seed_and_index_alone(folder: Path, cache: Path) -> None:
    together = everything(clips(MOVi(str(folder), resolution=SIDE), "train", [12, 3]))
    for path in (folder, cache):
        alone = everything(clips(MOVi(str(path), resolution=SIDE), "train", [3]))
        for name, value in together.items():
            assert torch.equal(value[1:], alone[name]), name
    places = [
        clips(MOVi(str(folder), resolution=SIDE, loader=LoaderOptions(seed=seed)), "train", list(range(10)))
        .objects["first_frame"]
        .tolist()
        for seed in (0, 1)
    ]
    assert places[0] != places[1]


def test_evaluation_clips_follow_each_other_and_limits_take_a_fixed_subset(folder: Path) -> None:
    data = MOVi(str(folder), resolution=SIDE, eval_frames=7)
    objects = clips(data, "val", list(range(len(data.dataset("val"))))).objects  # type: ignore[arg-type]
    assert objects["video"].tolist() == [0, 0, 0, 1, 1, 1]
    assert objects["first_frame"].tolist() == [0, 7, 14] * 2
    limited = [
        MOVi(str(folder), resolution=SIDE, eval_frames=1, loader=LoaderOptions(val_size=9, seed=s)).dataset("val")
        for s in (0, 1)
    ]
    chosen = [dataset.clips(range(9)).objects["first_frame"].tolist() for dataset in limited]  # type: ignore[attr-defined]
    assert chosen[0] == chosen[1]
    assert chosen[0] != list(range(9))


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


def test_the_sizes_are_known_before_there_are_files() -> None:
    spec = MOVi("nowhere", resolution=48).spec
    assert (spec.input.channels, spec.input.height, spec.input.width) == (3, 48, 48)
    assert spec.target == spec.input


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
    with pytest.raises(DataFilesError, match=r"has 2 of the 3 files of movi_a-train; missing are the numbers 1:"):
        MOVi(str(tmp_path / "a")).dataset("train")


def test_too_many_objects_and_too_few_frames_say_what_to_set(folder: Path) -> None:
    with pytest.raises(DataFilesError, match=r"has [4-7] objects, and annotations have room for 3: set num_objects"):
        clips(MOVi(str(folder), resolution=SIDE, num_objects=3), "train", list(range(5)))
    with pytest.raises(DataFilesError, match=r"clips of 25 frames are asked for, and the longest .* has 24"):
        MOVi(str(folder), num_frames=25).dataset("train")
    with pytest.raises(ValueError, match="eval_frames is 0; expected 1 or more"):
        MOVi(str(folder), eval_frames=0)


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
        (image(4_000_000_000, 4_000_000_000), "an image of 4,000,000,000 x 4,000,000,000 pixels"),
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


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"metadata/num_instances": np.array([], np.int64)}, "has 0 values of metadata/num_instances; expected 1"),
        ({"metadata/num_instances": np.array([0])}, "has 216 values of instances/positions; expected 0"),
        ({"metadata/num_instances": np.array([-2])}, "has -2 objects"),
        ({"metadata/num_frames": np.array([10**15])}, "says 1,000,000,000,000,000 frames and has 24"),
        ({"instances/visibility": np.array([1, 2])}, "has 2 values of instances/visibility; expected 72"),
        ({"instances/bbox_frames/ragged_row_lengths_0": np.array([1, 2, -1])}, "boxes of frames that it has not"),
        ({"segmentations": [tfrecord_files.png(np.zeros((SIDE, SIDE, 3), np.uint8))] * 24}, "3 channels; expected 1"),
        ({"segmentations": [tfrecord_files.png(np.zeros((SIDE, SIDE), np.uint16))] * 24}, "16 bits per channel"),
    ],
)
def test_a_record_whose_numbers_cannot_be_ends_with_file_and_record(
    changed: dict, complaint: str, tmp_path: Path
) -> None:
    write_movi(tmp_path, {"validation": [movi_video(0, SIDE)]}, shards=1)
    (file,) = tmp_path.glob("*.tfrecord*")
    file.write_bytes(framed([movi_record(movi_video(0, SIDE), changed)]))
    with pytest.raises(DataFilesError, match=rf"movi_a-validation.* \(record at byte 0\).*{complaint}"):
        clips(MOVi(str(tmp_path), resolution=SIDE), "val", [0])


def test_a_video_without_objects_is_read(tmp_path: Path) -> None:
    write_movi(tmp_path, {"validation": [movi_video(0, SIDE, num_objects=0)]}, shards=1)
    (batch,) = MOVi(str(tmp_path), resolution=SIDE).val_dataloader()
    assert batch.objects["num_objects"].tolist() == [0]
    assert not batch.objects["present"].any()


def test_data_sets_can_be_sent_to_other_processes(folder: Path, cache: Path) -> None:
    for path in (folder, cache):
        dataset = MOVi(str(path), resolution=SIDE).dataset("train")
        before = dataset[1].frames
        assert torch.equal(pickle.loads(pickle.dumps(dataset))[1].frames, before)
        assert len(pickle.dumps(dataset)) < 20_000


def test_a_cache_says_what_it_cannot_give(cache: Path, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        DataFilesError, match=r"prepared with resolution 16, and resolution is 128: set data.resolution to 16"
    ):
        MOVi(str(cache)).dataset("train")
    MOVi(str(folder), resolution=8).prepare(tmp_path, silent)
    with pytest.raises(DataFilesError, match="prepared without depth"):
        MOVi(str(tmp_path), resolution=8, depth=True).dataset("train")
    with pytest.raises(DataFilesError, match="is a cache already"):
        MOVi(str(cache), resolution=SIDE).prepare(tmp_path / "again", silent)
    with pytest.raises(DataFilesError, match=r"holds a cache of something else: resolution is 8 and 16 is asked for"):
        MOVi(str(folder), resolution=SIDE).prepare(tmp_path, silent)
    with (tmp_path / "train" / "frames.bin").open("r+b") as file:
        file.truncate(100)
    with pytest.raises(DataFilesError, match=r"frames.bin has 100 bytes and cache.json says"):
        MOVi(str(tmp_path), resolution=8).dataset("train")


def test_an_interrupted_cache_is_not_read_and_goes_on_where_it_was(tmp_path: Path) -> None:
    source = MovingMNIST(num_frames=3, resolution=32, digit_size=14).dataset("train")
    asked: list[int] = []

    def pieces(first: int, stop: int | None = None):
        for index in range(first, 7, 2):
            if index == stop:
                raise KeyboardInterrupt
            asked.append(index)
            yield source.clips(range(index, min(index + 2, 7)))  # type: ignore[attr-defined]

    with pytest.raises(KeyboardInterrupt):
        write_cache(tmp_path, lambda first: pieces(first, stop=4), {"set": "digits"}, ("positions", "velocities"))
    with pytest.raises(DataFilesError, match=r"is not complete \(4 videos so far\)"):
        ClipCache(tmp_path)
    # as if it had been killed while it wrote the next piece
    with (tmp_path / "frames.bin").open("ab") as file:
        file.write(b"half a video")
    assert write_cache(tmp_path, pieces, {"set": "digits"}, ("positions", "velocities")) == 7
    assert asked == [0, 2, 4, 6]
    cache = ClipCache(tmp_path)
    whole = source.clips(range(7))  # type: ignore[attr-defined]
    again = cache.read(range(7), [0] * 7, 3)
    for name, value in everything(whole).items():
        assert torch.equal(value, everything(again)[name]), name
    cut = cache.read([5], [1], 2)
    assert torch.equal(cut.objects["positions"], whole.objects["positions"][5:6, 1:3])
    assert torch.equal(cut.objects["digits"], whole.objects["digits"][5:6])
    assert write_cache(tmp_path, lambda first: pytest.fail("it is complete"), {"set": "digits"}) == 7
    assert sorted(path.suffix for path in tmp_path.iterdir() if path.suffix != ".bin") == [
        "",
        ".json",
    ]


def test_a_cache_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataFilesError, match="has no videos"):
        write_cache(tmp_path, lambda first: [], {})
    assert not clip_cache.is_cache(tmp_path)


@pytest.mark.parametrize("kind", ["records", "cache"])
def test_a_clip_can_be_asked_for_its_name_and_has_none(kind: str, folder: Path, cache: Path) -> None:
    dataset = MOVi(str(folder if kind == "records" else cache), resolution=SIDE).dataset("val")
    assert dataset.clip_name(0) is None  # type: ignore[attr-defined]
