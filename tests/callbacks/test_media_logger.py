"""Pictures appear, stay few, and taking them changes nothing."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lightning.pytorch import Callback
from PIL import Image
from tiny_run import TinyTask, fit, loader, make_trainer

from slotbench.callbacks import media
from slotbench.callbacks.media import can_encode_mp4
from slotbench.callbacks.media_logger import MediaLogger, _thin_out
from slotbench.interfaces import VideoBatch
from slotbench.runs.folder import RunFolder

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers.*")


def one(folder: RunFolder, subcommand: str) -> Path:
    """The folder of the only evaluation that there was."""
    (found,) = folder.media.glob(f"{subcommand}-*")
    return found


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.png"))


def test_every_validation_makes_a_picture_of_the_first_clips(folder: RunFolder) -> None:
    trainer = make_trainer([], [MediaLogger(folder, num_clips=3)], max_steps=4, val_check_interval=2)
    trainer.fit(TinyTask(), loader(), loader(16))
    assert names(folder.media) == [
        "clips_latest.png",
        "clips_step0000000.png",
        "clips_step0000002.png",
        "clips_step0000004.png",
    ]
    with Image.open(folder.media / "clips_latest.png") as picture:
        assert picture.size == (4 * 3, 4)
    assert len(list(folder.media.iterdir())) == 4


@given(steps=st.lists(st.integers(0, 10**6), min_size=1, max_size=60, unique=True))
def test_kept_are_the_first_the_newest_and_one_per_doubling(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int]
) -> None:
    steps.sort()
    path = tmp_path_factory.mktemp("media")
    (path / "other_step0000003.png").touch()
    for step in steps:
        (path / f"clips_step{step:07d}.png").touch()
        _thin_out(path, "clips", ".png")
    kept = [int(name[-11:-4]) for name in names(path) if name.startswith("clips")]
    assert kept[0] == steps[0]
    assert kept[-1] == steps[-1]
    assert len(kept) <= steps[-1].bit_length() + 2
    assert {step.bit_length() for step in kept} == {step.bit_length() for step in steps}
    assert "other_step0000003.png" in names(path)


class Seen(Callback):
    def __init__(self) -> None:
        self.losses: list[float] = []

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.losses.append(float(outputs["loss"]))


class Noisy(TinyTask):
    def training_step(self, batch: VideoBatch, batch_idx: int) -> torch.Tensor:
        return self._loss(batch) * (1 + torch.rand(()))


def test_taking_pictures_does_not_change_the_training(folder: RunFolder) -> None:
    runs = []
    for callbacks in ([], [MediaLogger(folder)]):
        torch.manual_seed(0)
        seen = Seen()
        make_trainer([], [*callbacks, seen], max_steps=4, val_check_interval=2).fit(Noisy(), loader(), loader(16))
        runs.append(seen.losses)
    assert runs[0] == runs[1]


@pytest.mark.parametrize("subcommand", ["validate", "test"])
def test_evaluation_has_a_folder_of_its_own(folder: RunFolder, subcommand: str) -> None:
    trainer = make_trainer([], [MediaLogger(folder)])
    for count in (1, 2):  # within the same second
        getattr(trainer, subcommand)(TinyTask(), loader(16))
        assert names(folder.media) == []
        made = sorted(folder.media.glob(f"{subcommand}-*"))
        assert [names(place) for place in made] == [["clips.png"]] * count


class Wrong(TinyTask):
    def pictures(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        return {"clips": np.zeros((3, 4, 4))}


def test_a_wrong_picture_is_found_before_training(folder: RunFolder) -> None:
    trainer = make_trainer([], [MediaLogger(folder)], max_steps=4)
    with pytest.raises(
        TypeError, match=r'picture \'clips\' is float64 \(3, 4, 4\); expected .* uint8 "height width 3"'
    ):
        trainer.fit(Wrong(), loader(), loader(16))
    assert trainer.global_step == 0


class Slashed(TinyTask):
    def pictures(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        return {"slots/decoder masks": np.zeros((3, 4, 3), np.uint8)}


def test_a_name_with_a_slash_stays_in_the_folder(folder: RunFolder) -> None:
    make_trainer([], [MediaLogger(folder)]).validate(Slashed(), loader(16))
    assert names(one(folder, "validate")) == ["slots-decoder-masks.png"]


class Filming(TinyTask):
    def videos(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        torch.rand(1)
        video = np.zeros((3, 4, 5, 3), np.uint8)
        video[:, 0, :, 0] = [[10], [20], [30]]
        video[:, 1, 0, 1] = len(batch)
        return {"clips": video}


def gifs(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.gif"))


def test_videos_lie_beside_the_pictures_and_are_thinned_out_likewise(folder: RunFolder) -> None:
    trainer = make_trainer([], [MediaLogger(folder, num_clips=3)], max_steps=8, val_check_interval=1)
    trainer.fit(Filming(), loader(), loader(16))
    steps = ["0000000", "0000001", "0000002", "0000004", "0000008"]
    assert gifs(folder.media) == ["clips_latest.gif", *(f"clips_step{step}.gif" for step in steps)]
    assert [name.replace("png", "gif") for name in names(folder.media)] == gifs(folder.media)
    with Image.open(folder.media / "clips_latest.gif") as video:
        assert video.n_frames == 3
        assert video.size == (5 * 64, 4 * 64)
        for frame in range(3):
            video.seek(frame)
            pixels = np.asarray(video.convert("RGB"))[::64, ::64]
            assert pixels[0].tolist() == [[10 * (frame + 1), 0, 0]] * 5
            assert pixels[1, 0].tolist() == [0, 3, 0]


def test_making_videos_does_not_change_the_training(folder: RunFolder) -> None:
    class NoisyFilming(Filming):
        training_step = Noisy.training_step

    runs = []
    for callbacks in ([], [MediaLogger(folder)]):
        torch.manual_seed(0)
        seen = Seen()
        task = NoisyFilming()
        make_trainer([], [*callbacks, seen], max_steps=4, val_check_interval=2).fit(task, loader(), loader(16))
        runs.append(seen.losses)
    assert runs[0] == runs[1]


@pytest.mark.parametrize("subcommand", ["validate", "test"])
def test_videos_of_an_evaluation_lie_in_its_folder(folder: RunFolder, subcommand: str) -> None:
    getattr(make_trainer([], [MediaLogger(folder)]), subcommand)(Filming(), loader(16))
    assert gifs(folder.media) == []
    assert gifs(one(folder, subcommand)) == ["clips.gif"]


@pytest.mark.skipif(not can_encode_mp4(), reason="PyAV is not installed")
def test_an_mp4_lies_beside_every_gif(folder: RunFolder) -> None:
    trainer = make_trainer([], [MediaLogger(folder, num_clips=3)], max_steps=8, val_check_interval=1)
    trainer.fit(Filming(), loader(), loader(16))
    trainer.test(Filming(), loader(16))
    for place in (folder.media, one(folder, "test")):
        assert sorted(path.stem for path in place.glob("*.mp4")) == [Path(name).stem for name in gifs(place)] != []
    assert (folder.media / "clips_latest.mp4").read_bytes()[4:8] == b"ftyp"
    assert not list(folder.path.rglob("*.partial"))


def test_without_pyav_there_are_gifs_alone(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media, "can_encode_mp4", lambda: False)
    make_trainer([], [MediaLogger(folder)]).test(Filming(), loader(16))
    assert sorted(path.name for path in one(folder, "test").iterdir()) == ["clips.gif", "clips.png"]


class Still(TinyTask):
    def videos(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        return {"clips": np.zeros((4, 4, 3), np.uint8)}


def test_a_wrong_video_is_found_before_training(folder: RunFolder) -> None:
    with pytest.raises(
        TypeError, match=r'video \'clips\' is uint8 \(4, 4, 3\); expected .* uint8 "time height width 3"'
    ):
        make_trainer([], [MediaLogger(folder)], max_steps=4).fit(Still(), loader(), loader(16))


def test_wandb_gets_the_videos(folder: RunFolder) -> None:
    fit(folder, Filming(), wandb="offline", max_steps=3, val_check_interval=2)
    sent = sorted(folder.path.glob("wandb/offline-run-*/files/media/videos/videos/clips_*.gif"))
    assert len(sent) == 3  # before the training, after two steps, and at the end
    latest = (folder.media / "clips_latest.gif").read_bytes()
    assert all(path.read_bytes() == latest for path in sent)


class Framed(TinyTask):
    def pictures(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        return {"clips": np.full((3, 4, 3), self.global_step, np.uint8)}


def contents(folder: RunFolder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.media.iterdir()}


def test_a_full_disk_ends_no_training_and_leaves_the_same_pictures(
    folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def train(into: RunFolder) -> None:
        trainer = make_trainer([], [MediaLogger(into)], max_steps=8, val_check_interval=1)
        trainer.fit(Framed(), loader(), loader(16))
        assert trainer.global_step == 8

    calm = RunFolder.create(tmp_path / "calm")
    train(calm)
    real, calls = media.write_atomically, [0]

    def write(path: Path, content: bytes) -> None:
        calls[0] += 1
        if calls[0] in (1, 3, 4, 9):  # the last is that of step 8 itself
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, content)

    monkeypatch.setattr(media, "write_atomically", write)
    train(folder)
    assert calls[0] > 9
    assert contents(folder) == contents(calm)
    assert capsys.readouterr().err.count("the training goes on") == 1


def test_pictures_that_could_not_be_written_are_kept_for_the_resumed_run(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = MediaLogger(folder)
    with monkeypatch.context() as patched:
        patched.setattr(media, "write_atomically", refuse)
        make_trainer([], [before], max_steps=2, val_check_interval=2).fit(Framed(), loader(), loader(16))
    assert contents(folder) == {}
    after = MediaLogger(folder)
    after.load_state_dict(before.state_dict())
    make_trainer([], [after], max_steps=2, val_check_interval=2).fit(Framed(), loader(), loader(16))
    assert "clips_step0000002.png" in contents(folder)
    assert after.state_dict() == {}


class Breaking(TinyTask):
    def pictures(self, batch: VideoBatch) -> dict[str, np.ndarray]:
        if self.global_step > 1:
            raise RuntimeError("no picture of this")
        return {}


def test_a_task_that_cannot_draw_ends_no_training(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    trainer = make_trainer([], [MediaLogger(folder)], max_steps=4, val_check_interval=1)
    trainer.fit(Breaking(), loader(), loader(16))
    assert trainer.global_step == 4
    assert capsys.readouterr().err.count("no picture of this") == 1
