"""What `predict` writes: pictures and arrays of every video, in a folder of its own each time."""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_run import TinyTask, make_trainer
from torch.utils.data import DataLoader, Dataset

from slotbench.callbacks.media import write_video
from slotbench.callbacks.prediction_writer import PredictionWriter
from slotbench.data.base import collate
from slotbench.errors import UserError
from slotbench.interfaces import DescribedClips, VideoBatch, View
from slotbench.runs.evaluation_place import EvaluationPlace
from slotbench.runs.folder import RunFolder

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers.*")


def writer(folder: RunFolder, **options: Any) -> PredictionWriter:
    return PredictionWriter(EvaluationPlace(folder, "predict"), **options)


def newest(folder: RunFolder) -> Path:
    return max(folder.media.glob("predict-*"), key=lambda path: path.stat().st_mtime_ns)


def names(folder: Path, suffix: str = ".png") -> list[str]:
    return sorted(path.name for path in folder.glob(f"*{suffix}"))


def gifs(folder: Path) -> list[str]:
    return names(folder, ".gif")


class Filming(TinyTask):
    def videos(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        return {"clips": np.zeros((3, 4, 5, 3), np.uint8)}


class Shown(Filming):
    """Shows the first value of the clips that it is given."""

    def pictures(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        torch.rand(1)
        return {"clips": (255 * batch.frames[:, 0, 0, :1, :1]).round().byte().expand(-1, 1, 3).numpy()}


class Named(Dataset[VideoBatch], DescribedClips):
    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> VideoBatch:
        return VideoBatch(torch.full((1, 8, 3, 4, 4), index / 255), torch.arange(8)[None])

    def clip_name(self, index: int) -> str | None:
        return None if index == 2 else f"my walk/{index}"


def named_loader(size: int) -> DataLoader:
    return DataLoader(Named(size), batch_size=4, collate_fn=collate)


def test_predict_shows_every_clip_of_every_batch_by_name(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    make_trainer([], [writer(folder)]).predict(Shown(), named_loader(6))
    media = newest(folder)
    titles = [f"clip000{i}" + ("" if i == 2 else f"_my-walk-{i}") for i in range(6)]
    assert names(media) == [f"{title}.png" for title in titles]
    assert gifs(media) == [f"{title}.gif" for title in titles]
    assert names(folder.media) == []
    for index, title in enumerate(titles):
        with Image.open(media / f"{title}.png") as picture:
            assert np.asarray(picture).tolist() == [[[index] * 3]]
    assert "have none" not in capsys.readouterr().out


class Predicting(TinyTask):
    """Gives what `--save` takes: two slots, of which the second one wins in the first clip."""

    def predict_step(self, batch: VideoBatch, batch_idx: int) -> dict[str, torch.Tensor]:  # type: ignore[override]
        masks = torch.zeros(len(batch), 8, 2, 4, 4)
        masks[:, :, 0] = 0.25
        masks[0, :, 0], masks[0, :, 1] = 0.0, 1.0
        slots = torch.arange(8.0)[None, :, None, None].expand(len(batch), 8, 2, 5)
        frames = torch.ones(len(batch), 8, 3, 4, 4)
        return {"slots": slots, "masks": masks, "attention": masks.flip(2), "frames": frames}


def test_what_is_saved_says_its_axes_its_frames_and_its_source(folder: RunFolder) -> None:
    save = ("slots", "masks", "attention", "soft_masks", "reconstruction")
    make_trainer([], [writer(folder, save=save)]).predict(Predicting(), named_loader(3))
    place = newest(folder)
    assert names(place, ".npz") == ["clip0000_my-walk-0.npz", "clip0001_my-walk-1.npz", "clip0002.npz"]
    with np.load(place / "clip0000_my-walk-0.npz") as found:
        shapes = {name: (found[name].dtype.name, found[name].shape) for name in (*save, "frame")}
        assert shapes == {
            "slots": ("float32", (8, 2, 5)),
            "masks": ("uint8", (8, 4, 4)),
            "attention": ("uint8", (8, 4, 4)),
            "soft_masks": ("float16", (8, 2, 4, 4)),
            "reconstruction": ("uint8", (8, 3, 4, 4)),
            "frame": ("int64", (8,)),
        }
        assert (found["masks"] == 1).all()
        assert (found["attention"] == 0).all()
        assert (found["reconstruction"] == 255).all()
        assert found["slots"][:, 0, 0].tolist() == found["frame"].tolist() == list(range(8))
        assert json.loads(str(found["about"]))["run"] == str(folder.path)
        assert "clip 0" in str(found["source"])


class OfVideos(Named):
    """Clips of one video that say so, two frames apart."""

    frame_stride = 2

    def __getitem__(self, index: int) -> VideoBatch:
        batch = super().__getitem__(index)
        return replace(batch, objects={"video": torch.tensor([7]), "first_frame": torch.tensor([16 * index])})

    def video_origin(self, video: int) -> str | None:
        return f"videos/{video}.mp4"

    def video_name(self, video: int) -> str | None:
        return f"walk {video}"

    def view(self, video: int) -> View | None:
        return View((20, 40), (0, 10, 20, 20))


def test_clips_of_a_video_say_which_and_what_they_show_of_it(folder: RunFolder) -> None:
    clips = DataLoader(OfVideos(2), batch_size=4, collate_fn=collate)
    make_trainer([], [writer(folder, save=("masks",))]).predict(Predicting(), clips)
    for index in range(2):
        with np.load(newest(folder) / f"clip000{index}_my-walk-{index}.npz") as found:
            assert (str(found["video"]), found["view"].tolist()) == ("walk 7", [20, 40, 0, 10, 20, 20])
            assert found["frame"].tolist() == list(range(16 * index, 16 * index + 16, 2))
            assert str(found["source"]) == "videos/7.mp4"


def test_a_long_video_is_written_without_being_held(tmp_path: Path) -> None:
    chunks = []

    def frames() -> Iterator[np.ndarray]:
        for _ in range(20):
            chunk = np.zeros((32, 4, 5, 3), np.uint8)
            chunks.append(weakref.ref(chunk))
            yield from chunk
            # those before have gone, though some of their frames are in the GIF
            assert sum(held() is not None for held in chunks) <= 2

    write_video(tmp_path / "long", frames(), 640)
    assert (tmp_path / "long.gif").is_file()


def test_frames_are_those_that_the_task_says_it_predicted(folder: RunFolder) -> None:
    class Later(Predicting):
        def predict_step(self, batch: VideoBatch, batch_idx: int) -> dict[str, torch.Tensor]:  # type: ignore[override]
            return {"frames": torch.ones(len(batch), 2, 3, 4, 4), "steps": torch.tensor([[3, 4]]).expand(len(batch), 2)}

    make_trainer([], [writer(folder, save=("reconstruction",))]).predict(Later(), named_loader(1))
    with np.load(newest(folder) / "clip0000_my-walk-0.npz") as found:
        assert found["frame"].tolist() == [3, 4]


def test_what_a_task_does_not_give_is_refused_with_what_it_gives(folder: RunFolder) -> None:
    class Bare(Predicting):
        def predict_step(self, batch: VideoBatch, batch_idx: int) -> dict[str, torch.Tensor]:  # type: ignore[override]
            return {"slots": torch.zeros(len(batch), 8, 2, 5)}

    with pytest.raises(UserError, match=r"Bare gives no masks to save(.|\n)*available: slots"):
        make_trainer([], [writer(folder, save=("slots", "masks"))]).predict(Bare(), named_loader(3))
