"""Pictures appear, stay few, and taking them changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from lightning.pytorch import Callback
from PIL import Image
from tiny_run import TinyTask, fit, loader, make_trainer

from slotbench.callbacks import media_logger
from slotbench.callbacks.media_logger import MediaLogger, _thin_out

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers.*")


def names(folder):
    return sorted(path.name for path in folder.glob("*.png"))


def test_every_validation_makes_a_picture_of_the_first_clips(folder):
    trainer = make_trainer([], [MediaLogger(folder, num_clips=3)], max_steps=4, val_check_interval=2)
    trainer.fit(TinyTask(), loader(), loader(16))
    steps = [f"clips_step000000{step}.png" for step in (0, 2, 4)]
    assert names(folder.media) == ["clips_latest.png", *steps]
    with Image.open(folder.media / "clips_latest.png") as picture:
        assert picture.size == (4 * 3, 4)


@given(steps=st.lists(st.integers(0, 10**6), min_size=1, max_size=60, unique=True))
def test_kept_are_the_first_the_newest_and_one_per_doubling(tmp_path_factory, steps):
    steps.sort()
    path = tmp_path_factory.mktemp("media")
    (path / "other_step0000003.png").touch()
    for step in steps:
        (path / f"clips_step{step:07d}.png").touch()
        _thin_out(path, "clips", ".png")
    kept = [int(name[-11:-4]) for name in names(path) if name.startswith("clips")]
    assert (kept[0], kept[-1]) == (steps[0], steps[-1])
    assert len(kept) <= steps[-1].bit_length() + 2
    assert {step.bit_length() for step in kept} == {step.bit_length() for step in steps}
    assert "other_step0000003.png" in names(path)


class Noisy(TinyTask):
    def training_step(self, batch, batch_idx):
        return self._loss(batch) * (1 + torch.rand(()))


def test_pictures_change_no_random_number(folder):
    losses = []
    for callbacks in ([], [MediaLogger(folder)]):
        torch.manual_seed(0)
        seen = []

        class Seen(Callback):
            def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx, seen=seen):
                seen.append(float(outputs["loss"]))

        trainer = make_trainer([], [*callbacks, Seen()], max_steps=6, val_check_interval=2)
        trainer.fit(Noisy(), loader(), loader(16))
        losses.append(seen)
    assert losses[0] == losses[1]


def test_a_picture_that_fails_is_said_once_and_ends_no_training(folder, capsys):
    class Late(TinyTask):
        def pictures(self, batch):
            if self.global_step:
                raise ValueError("no paint")
            return super().pictures(batch)

    fit(folder, Late(), max_steps=8, val_check_interval=2)
    assert folder.state == "finished"
    assert capsys.readouterr().err.count("warning: no picture (no paint); the training goes on") == 1


def test_a_picture_of_the_wrong_kind_ends_it_before_the_first_step(folder):
    class Wrong(TinyTask):
        def pictures(self, batch):
            return {"clips": np.zeros((4, 4, 3))}

    with pytest.raises(TypeError, match="picture 'clips' is"):
        fit(folder, Wrong(), max_steps=2)


def test_a_full_disk_ends_no_training(folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(media_logger, "write_image", full)
    fit(folder, TinyTask(), max_steps=2)
    assert folder.state == "finished"
