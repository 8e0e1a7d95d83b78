"""Frames of bytes are the same as floats in [0, 1] wherever they enter: encoders, tasks, loops of one's own, stages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from any_task import TASKS, first_batch, small_data, small_task
from prediction_tasks import quiet_trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader

from slotbench import registry
from slotbench.data.base import collate
from slotbench.errors import UserError
from slotbench.figures.painting import paint_frame
from slotbench.interfaces import Encoder, TokenSpec, VideoBatch, VideoSpec, to_unit_range
from slotbench.testing.frame_laws import INPUT, random_batch

pytestmark = pytest.mark.usefixtures("unchecked_shapes")


SUMS = {"VariationalPrediction": 1000, "CodePrediction": 100, "TECO": 100}
"""Upper bounds of losses that are sums over a frame."""


def of_bytes(batch: VideoBatch) -> VideoBatch:
    return replace(batch, frames=(batch.frames.clamp(0, 1) * 255).round().to(torch.uint8))


def as_numbers(found: Any) -> list[Tensor]:
    """Every tensor in what a call returned."""
    if isinstance(found, Tensor):
        return [found]
    if hasattr(found, "__dataclass_fields__"):
        found = vars(found)
    if isinstance(found, dict):
        return [value for part in found.values() for value in as_numbers(part)]
    return [value for part in found for value in as_numbers(part)] if isinstance(found, list | tuple) else []


def assert_same(call: Callable[[VideoBatch], Any], batch: VideoBatch) -> None:
    """A call gives the same for bytes and for floats."""
    found = []
    for given in (batch, to_unit_range(batch)):
        torch.manual_seed(1)
        found.append(as_numbers(call(given)))
    assert found[0]
    for of_bytes, of_floats in zip(*found, strict=True):
        torch.testing.assert_close(of_bytes, of_floats, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", registry.names("encoders"))
def test_an_encoder_gives_equal_tokens_for_bytes_and_floats(name: str) -> None:
    encoder = registry.load("encoders", name)(INPUT).eval()
    batch = of_bytes(random_batch(INPUT))
    with torch.no_grad():
        assert_same(encoder, batch)


class Untouched(Encoder):
    """An encoder of a third party."""

    def __init__(self, spec: VideoSpec) -> None:
        super().__init__()
        self.token_spec = TokenSpec(4, spec.height)
        self.rows = nn.Linear(spec.channels * spec.width, 4)

    def forward(self, batch: VideoBatch) -> Tensor:
        return self.rows(batch.pixels.transpose(2, 3).flatten(3))


def test_an_encoder_of_a_third_party_that_reads_pixels_takes_bytes() -> None:
    part, batch = Untouched(INPUT), of_bytes(random_batch(INPUT))
    assert_same(part, batch)
    assert part(batch).abs().max() < 20
    with pytest.raises(UserError, match=r"frames are of torch\.int64; expected bytes"):
        part(replace(batch, frames=batch.frames.long()))


@pytest.mark.parametrize("name", TASKS)
def test_a_loop_of_ones_own_over_bytes_has_the_same_numbers(name: str) -> None:
    task, batch = small_task(name).train(), of_bytes(first_batch(small_data(name)))
    assert_same(lambda given: task.loss(task(given), given), batch)
    assert_same(task.training_loss, batch)
    task.training_loss(batch).backward()
    task.eval()
    with torch.no_grad():
        assert_same(task.predict, batch)
        assert_same(lambda given: task.loss(task(given), given), batch)


@pytest.mark.parametrize("name", TASKS)
def test_a_plain_loader_of_bytes_scores_as_the_data_module_does(name: str) -> None:
    data, found = small_data(name), []
    clips = [data.dataset("val")[i] for i in range(2)]
    plain = DataLoader(clips, batch_size=2, collate_fn=collate)  # type: ignore[arg-type]
    for given in ({"datamodule": data}, {"dataloaders": plain}):
        task, trainer = small_task(name), quiet_trainer()
        scores = trainer.validate(task, verbose=False, **given)[0]
        found.append({name: value for name, value in scores.items() if "baseline" not in name and "fps" not in name})
    test = trainer.test(task, verbose=False, dataloaders=plain)[0]
    assert test["test/loss"] == pytest.approx(scores["val/loss"])
    assert isinstance(trainer.predict(task, dataloaders=plain), list)
    training = quiet_trainer(max_steps=1)
    training.fit(small_task(name), plain, plain)
    # with bytes for floats it would be as many times as much
    assert training.callback_metrics["train/loss"] < SUMS.get(name, 10)
    by_module, plainly = found  # which knows oracles too
    assert {"val/loss"} <= plainly.keys() <= by_module.keys()
    assert plainly == pytest.approx({name: by_module[name] for name in plainly}, rel=1e-5)


def test_frames_beside_features_stay_bytes() -> None:
    """They are for pictures and scores alone: converting them takes longer than reading the clip."""
    batch = of_bytes(random_batch(INPUT))
    given = replace(batch, features=torch.zeros(*batch.frames.shape[:2], 4, 2, 2))
    assert to_unit_range(given).frames is given.frames
    assert torch.equal(to_unit_range(given).pixels, to_unit_range(batch).frames)


@pytest.mark.parametrize("frames", [200.0, -1.0, float("nan")])
def test_floats_outside_of_the_range_are_refused_where_they_enter(frames: float) -> None:
    wrong = np.full((2, 8, 8, 3), frames, np.float32)
    with pytest.raises(UserError, match=r"frames go from .* expected floats in \[0, 1\], or bytes"):
        VideoBatch.from_numpy(wrong)
    data = small_data("SlotAutoencoding")
    batch = first_batch(data)
    batch = replace(batch, frames=torch.full_like(batch.frames, frames))
    loader = DataLoader([batch], batch_size=1, collate_fn=collate)  # type: ignore[arg-type, list-item]
    for stage, loaders in {"fit": 2, "validate": 1, "test": 1, "predict": 1}.items():
        task, run = small_task("SlotAutoencoding"), getattr(quiet_trainer(max_steps=1), stage)
        with pytest.raises(UserError, match="frames go from"):
            run(task, *[loader] * loaders)


def test_what_overshoots_a_little_and_other_floats_of_the_range_are_taken() -> None:
    for kind in (np.float16, np.float32, np.float64):
        frames = np.linspace(-0.005, 1.005, 2 * 8 * 8 * 3).reshape(2, 8, 8, 3).astype(kind)
        assert VideoBatch.from_numpy(frames).frames.dtype == torch.float32
    assert VideoBatch.from_numpy(np.full((2, 8, 8, 3), 51, np.uint8)).frames.max() == pytest.approx(0.2)


def test_masks_of_a_floating_point_type_are_refused_where_a_batch_enters() -> None:
    batch = first_batch(small_data("SlotAutoencoding"))
    wrong = replace(batch)
    wrong.masks = batch.require("masks") / 255
    with pytest.raises(UserError, match=r"masks of the batch are of torch\.float32; expected integer ids"):
        small_task("SlotAutoencoding").received(wrong)


def test_frames_of_another_size_are_refused_where_a_batch_enters() -> None:
    batch = first_batch(small_data("SlotAutoencoding"))
    with pytest.raises(UserError, match=r"frames of shape .* expected .* data_spec"):
        small_task("SlotAutoencoding").received(replace(batch, frames=batch.frames[..., 1:]))


def test_pixels_are_looked_at_in_the_first_batch_of_a_mode_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading every pixel takes time and has a GPU waited for."""
    task, batch, looked = small_task("SlotAutoencoding"), first_batch(small_data("SlotAutoencoding")), []
    monkeypatch.setattr("slotbench.tasks.part_checks.check_unit_range", looked.append)
    for mode, times in ((False, 1), (False, 1), (True, 2), (True, 2), (False, 2)):
        task.train(mode).received(batch)
        assert len(looked) == times


def test_views_that_are_held_out_are_scaled_too() -> None:
    batch = of_bytes(random_batch(INPUT))
    scaled = to_unit_range(replace(batch, held_out=batch))
    assert scaled.held_out is not None
    assert scaled.held_out.frames.max() <= 1
    floats = to_unit_range(batch)
    assert to_unit_range(floats) is floats


def test_pictures_and_recordings_of_bytes_are_those_of_floats(tmp_path: Path) -> None:
    task, batch = small_task("SlotAutoencoding").eval(), of_bytes(first_batch(small_data("SlotAutoencoding")))
    one = batch.map(lambda value: value[:1])
    shown = []
    for number, given in enumerate((one, to_unit_range(one))):
        recording = task.recording(tmp_path / str(number), one.num_steps)
        with torch.no_grad(), task.deterministic_sampling(given, 0):
            recording.add(given, task.predict(given))
            shown.append({**recording.pictures(), **task.pictures(given)})
        recording.close()
    assert shown[0].keys() == shown[1].keys() != set()
    for name, picture in shown[0].items():
        assert (picture == shown[1][name]).all()
    assert (paint_frame(batch.frames[0, 0]) == paint_frame(to_unit_range(batch).frames[0, 0])).all()
