"""Features: read clip by clip as what they were written as, from HDF5 and from caches."""

from __future__ import annotations

import pickle
from functools import partial

import h5py
import numpy as np
import pytest
import torch
from feature_files import FRAMES, GRID, VIDEOS, WIDTH, write_feature_file
from real_files import write_youtube_vis

from slotbench.data.base import LoaderOptions
from slotbench.data.features import FeatureFile, StoredFeatures, write_features
from slotbench.data.folders.video_folder import VideoFolder
from slotbench.data.real.youtube_vis import YouTubeVIS
from slotbench.errors import DataFilesError
from slotbench.interfaces import DataSpec, VideoSpec


@pytest.fixture
def folder(tmp_path):
    for split in ("train", "val", "test"):
        write_feature_file(tmp_path / f"{split}.h5")
    return tmp_path


def expected_features(video, frame):
    """What `write_feature_file` writes, as "channels rows cols"."""
    cells = torch.arange(GRID[0] * GRID[1]).view(GRID)
    return 100 * video + 20 * frame + cells + torch.arange(WIDTH)[:, None, None] / 8


@pytest.mark.parametrize("class_token", [False, True])
def test_every_feature_is_where_it_was_written(tmp_path, class_token):
    source = StoredFeatures(write_feature_file(tmp_path / "a.h5", class_token=class_token))
    batch = source.read([4, 1], [1, 0], 2)
    assert batch.features.shape == (2, 2, WIDTH, *GRID)
    for clip, (video, start) in enumerate([(4, 1), (1, 0)]):
        for frame in range(2):
            expected = expected_features(video, start + frame).half()
            assert torch.equal(batch.features[clip, frame], expected)
    with h5py.File(source.path) as file:
        assert np.array_equal(batch.frames[0].numpy(), file["frames"][4, 1:])
        assert np.array_equal(batch.masks[1].numpy(), file["masks"][1, :2])
    assert batch.objects["video"].tolist() == [4, 1]
    assert batch.objects["first_frame"].tolist() == [1, 0]
    assert batch.objects["num_objects"].tolist() == [7, 4]
    assert batch.time.tolist() == [[0, 1], [0, 1]]


def test_frames_of_videos_are_independent_images(folder):
    data = FeatureFile(str(folder), loader=LoaderOptions(train_size=4 * VIDEOS, batch_size=VIDEOS))
    batches = list(data.train_dataloader())
    assert {batch.features.shape for batch in batches} == {(VIDEOS, 1, WIDTH, *GRID)}
    for batch in batches:
        assert sorted(batch.objects["video"].tolist()) == list(range(VIDEOS))
    seen = {place for b in batches for place in zip(b.objects["video"].tolist(), b.objects["first_frame"].tolist())}  # noqa: B905
    assert len(seen) > VIDEOS
    everything = data.dataset("val")
    assert len(everything) == VIDEOS * FRAMES


def test_what_is_optional_may_be_absent(tmp_path):
    path = write_feature_file(tmp_path / "test.h5", without=("masks", "num_objects", "source"))
    batch = next(iter(FeatureFile(str(tmp_path)).test_dataloader()))
    assert batch.masks is None
    assert "num_objects" not in batch.objects
    with pytest.raises(DataFilesError, match=f"{path} has no num_objects"):
        FeatureFile(str(tmp_path), max_objects=3).dataset("test")


def test_other_processes_open_the_file_themselves(folder):
    here = FeatureFile(str(folder), loader=LoaderOptions(val_batch_size=4))
    there = FeatureFile(str(folder), loader=LoaderOptions(val_batch_size=4, num_workers=1))
    source = here.dataset("val").source
    source.read([0], [0], 1)
    assert torch.equal(pickle.loads(pickle.dumps(source)).read([1], [2], 1).features, source.read([1], [2], 1).features)
    for ours, theirs in zip(here.val_dataloader(), there.val_dataloader(), strict=True):
        assert torch.equal(ours.features, theirs.features)


def test_what_is_no_such_file_is_refused(tmp_path, folder):
    with pytest.raises(DataFilesError, match=r"the folder nowhere does not exist; expected what `slotbench prepare"):
        _ = FeatureFile("nowhere").spec
    write_feature_file(folder / "test.h5", side=16)
    with pytest.raises(DataFilesError, match="and the files beside it"):
        FeatureFile(str(folder)).dataset("test")


class Cells:
    """Means over a 2 x 2 grid, and how often they were asked for."""

    spec, calls = VideoSpec(3, 2, 2), 0

    def __call__(self, frames):
        assert 0 <= frames.min() <= frames.max() <= 1
        self.calls += 1
        return torch.nn.functional.adaptive_avg_pool2d(frames, 2)


@pytest.fixture
def videos(tmp_path):
    rng = np.random.default_rng(0)
    for split, count in (("train", 3), ("test", 2)):
        (tmp_path / "videos" / split).mkdir(parents=True)
        for video in range(count):
            np.save(tmp_path / "videos" / split / f"{video}.npy", rng.integers(0, 256, (4, 12, 12, 3), dtype=np.uint8))
    return VideoFolder(str(tmp_path / "videos"), num_frames=2, eval_frames=4, resolution=12)


def test_what_is_written_is_read_back(videos, tmp_path):
    out, told = tmp_path / "out", []
    write_features(videos, Cells(), (6, 6), out, {"made": "so"}, report=lambda *told_: told.append(told_))
    assert sorted(path.name for path in out.iterdir()) == ["test", "train"]
    assert told[-1] == ("test", 2, 2)
    data = FeatureFile(str(out))
    assert data.spec == DataSpec(VideoSpec(3, 6, 6), VideoSpec(3, 6, 6), VideoSpec(3, 2, 2))
    source = data.dataset("train").source
    assert source.lengths.tolist() == [4, 4, 4]
    batch = source.read([2], [1], 3)
    true = videos.dataset("train").source.read([2], [1], 3).frames.float() / 255
    torch.testing.assert_close(batch.features[0].float(), Cells()(true[0]), atol=1e-3, rtol=1e-3)
    assert batch.frames.shape == (1, 3, 3, 6, 6)
    resized = torch.nn.functional.interpolate(true[0], size=(6, 6), mode="bicubic").clamp(0, 1)
    torch.testing.assert_close(batch.frames[0] / 255, resized, atol=0.51 / 255, rtol=0)


class Interrupted(Cells):
    def __call__(self, frames):
        if self.calls == 2:
            raise KeyboardInterrupt
        return super().__call__(frames)


def test_writing_goes_on_where_it_was_interrupted(videos, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        write_features(videos, Interrupted(), (12, 12), out, {"made": "so"}, ["train"])
    with pytest.raises(DataFilesError, match="holds a cache of something else"):
        write_features(videos, Cells(), (12, 12), out, {"made": "otherwise"}, ["train"])
    cells = Cells()
    write_features(videos, cells, (12, 12), out, {"made": "so"}, ["train"])
    assert cells.calls == 1
    for video in range(3):
        true = videos.dataset("train").source.read([video], [0], 4).frames
        batch = FeatureFile(str(out)).dataset("train").source.read([video], [0], 4)
        assert torch.equal(batch.frames, true)
        torch.testing.assert_close(batch.features[0].float(), Cells()(true[0] / 255), atol=1e-3, rtol=1e-3)
    write_features(videos, cells, (12, 12), out, {"made": "so"}, ["train"])
    assert cells.calls == 1
    with pytest.raises(DataFilesError, match="holds a cache of something else"):
        write_features(videos, cells, (12, 12), out, {"made": "otherwise"}, ["train"])


def test_a_split_that_is_missing_is_left_out_and_one_that_is_damaged_is_not(tmp_path):
    for split in ("train", "valid"):
        write_youtube_vis(tmp_path, split, (2, 2))
    made = partial(YouTubeVIS, str(tmp_path), split_rule="release", resolution=12)
    write_features(made(), Cells(), (12, 12), tmp_path / "out", {})
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["train", "val"]
    (tmp_path / "valid" / "JPEGImages").rename(tmp_path / "gone")
    with pytest.raises(DataFilesError, match="valid/JPEGImages; expected a folder of JPEGs"):
        write_features(made(), Cells(), (12, 12), tmp_path / "again", {})
    (tmp_path / "valid" / "instances.json").write_text('{"videos": [')
    with pytest.raises(DataFilesError, match="no JSON of YouTube-VIS"):
        write_features(made(), Cells(), (12, 12), tmp_path / "again", {})


@pytest.mark.parametrize(
    ("file", "left"),
    [("features.npy", left) for left in (None, 0, 30, -2)] + [("cache.json", left) for left in (0, 30, -2)],
)
def test_a_cache_that_is_cut_off_is_to_be_prepared_anew(videos, tmp_path, file, left):
    write_features(videos, Cells(), (6, 6), tmp_path / "out", {"made": "so"}, ["train"])
    path = tmp_path / "out" / "train" / file
    kept = path.read_bytes()[:left]
    path.unlink()
    if left is not None:
        path.write_bytes(kept)
    with pytest.raises(DataFilesError, match=rf"{file}.*: delete .*train and prepare it anew"):
        FeatureFile(str(tmp_path / "out")).dataset("train")


@pytest.mark.parametrize(
    ("file", "told"), [("progress.json", "not valid JSON"), ("features.npy", "no features.npy of")]
)
def test_what_is_resumed_must_be_whole(videos, tmp_path, file, told):
    with pytest.raises(KeyboardInterrupt):
        write_features(videos, Interrupted(), (12, 12), tmp_path / "out", {"made": "so"}, ["train"])
    path = tmp_path / "out" / "train" / file
    path.write_text("{") if file == "progress.json" else path.unlink()
    with pytest.raises(DataFilesError, match=rf"{told}.*delete .* and prepare it anew"):
        write_features(videos, Cells(), (12, 12), tmp_path / "out", {"made": "so"}, ["train"])


def test_splits_of_the_same_videos_share_a_cache_that_keeps_their_names(tmp_path):
    (tmp_path / "films").mkdir()
    for name in ("park", "street"):
        np.save(tmp_path / "films" / f"{name}.npy", np.zeros((4, 12, 12, 3), np.uint8))
    for _ in range(2):
        write_features(VideoFolder(str(tmp_path / "films"), resolution=12), Cells(), (12, 12), tmp_path / "out", {})
    assert {(tmp_path / "out" / split).readlink().name for split in ("val", "test")} == {"train"}
    dataset = FeatureFile(str(tmp_path / "out"), eval_frames=4).dataset("val")
    assert {dataset.clip_name(index) for index in range(2)} == {"park_frame00000", "street_frame00000"}


def test_videos_of_unequal_lengths_and_void_pixels_are_kept(tmp_path):
    rng, masks = np.random.default_rng(0), tmp_path / "videos" / "train" / "masks"
    masks.mkdir(parents=True)
    lengths = [4, 2, 5]
    for video, length in enumerate(lengths):
        frames = rng.integers(0, 256, (length, 12, 12, 3), dtype=np.uint8)
        np.save(tmp_path / "videos" / "train" / f"{video}.npy", frames)
        np.savez(masks / f"{video}.npz", masks=rng.choice([0, 3, 255], (length, 12, 12)).astype(np.uint8))
    data = VideoFolder(str(tmp_path / "videos"), num_frames=5, resolution=12, void=[255])
    with pytest.raises(KeyboardInterrupt):
        write_features(data, Interrupted(), (12, 12), tmp_path / "out", {"made": "so"}, ["train"])
    write_features(data, Cells(), (12, 12), tmp_path / "out", {"made": "so"}, ["train"])
    read, true = (one.stored_videos("train")[0] for one in (FeatureFile(str(tmp_path / "out")), data))
    assert read.lengths.tolist() == lengths
    for video, start, count in ((0, 1, 3), (1, 0, 2), (2, 3, 2)):
        ours, given = (source.read([video], [start], count) for source in (read, true))
        assert torch.equal(ours.frames, given.frames)
        assert torch.equal(ours.masks.long(), given.masks.long())
        assert set(ours.masks.unique().tolist()) == {-1, 0, 3}
        torch.testing.assert_close(ours.features[0].float(), Cells()(given.frames[0] / 255), atol=1e-3, rtol=1e-3)
    assert FeatureFile(str(tmp_path / "out"), num_frames=3).dataset("train").videos.tolist() == [0, 2]
    assert FeatureFile(str(tmp_path / "out")).spec == DataSpec(
        VideoSpec(3, 12, 12), VideoSpec(3, 12, 12), VideoSpec(3, 2, 2)
    )
