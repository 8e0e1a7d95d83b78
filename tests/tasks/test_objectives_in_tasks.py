"""SlotAutoencoding adds objectives up, gives each its channels, and logs, saves and resumes with them."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from autoencoding_tasks import MeanColours, ball_clips, make_task
from prediction_tasks import batch_of, quiet_trainer
from torch import nn

import slotbench
from slotbench import registry
from slotbench.interfaces import Objective, PartError, Scene
from slotbench.objectives import FeatureSimilarity, Reconstruction, SlotContrast
from slotbench.registry import load

ALL = [Reconstruction, partial(FeatureSimilarity, weight=0.3), partial(SlotContrast, weight=0.5)]
FEATURES = {
    "features": MeanColours,
    "encoder": partial(load("encoders", "MLPEncoder"), dim=16),
    "decoder": partial(load("decoders", "MLPPatchDecoder"), hidden_dim=16),
}


@pytest.fixture
def data():
    return ball_clips()


@pytest.mark.parametrize("more", [{}, FEATURES], ids=["pixels", "features"])
def test_the_loss_is_the_weighted_sum_and_each_has_its_channels(data, more):
    task, batch = make_task(data, objectives=ALL, **more), batch_of(data)
    out = task(batch)
    target, painted = task.read(batch).pixels, out.decoded.reconstruction
    channels, cells = target.shape[2], target.shape[-2] * target.shape[-1]
    assert painted.shape[2] == channels + cells
    terms = [
        task.objectives[name](Scene(out.slots, None, None, target, own))
        for name, own in {
            "reconstruction": painted[:, :, :channels],
            "feature_similarity": painted[:, :, channels:],
            "slot_contrast": None,
        }.items()
    ]
    torch.testing.assert_close(task.loss(out, batch), terms[0] + 0.3 * terms[1] + 0.5 * terms[2])


def test_reconstruction_alone_is_the_loss_without_objectives(data):
    plain, named, batch = make_task(data), make_task(data, objectives=[Reconstruction]), batch_of(data)
    assert plain.state_dict().keys() == {key for key in named.state_dict() if "scores." not in key}
    assert torch.equal(plain.loss(plain(batch), batch), named.loss(named(batch), batch))


def test_terms_are_logged_in_training_and_evaluation(data):
    task, trainer = make_task(data, objectives=[*ALL, Reconstruction]), quiet_trainer(max_steps=1)
    trainer.fit(task, datamodule=data)
    found = {name: float(value) for name, value in trainer.callback_metrics.items()}
    trainer.validate(task, datamodule=data, verbose=False)
    found |= {name: float(value) for name, value in trainer.callback_metrics.items()}
    for stage in ("train", "val"):
        weighted = {"reconstruction": 1, "reconstruction_2": 1, "feature_similarity": 0.3, "slot_contrast": 0.5}
        total = sum(weight * found[f"{stage}/{name}"] for name, weight in weighted.items())
        assert found[f"{stage}/loss"] == pytest.approx(total, rel=1e-5)
    assert task.metric_infos(["slot_contrast"])["slot_contrast"].higher_is_better is False


@pytest.mark.parametrize("objectives", [ALL, [FeatureSimilarity, SlotContrast]], ids=["all", "no image"])
def test_pictures_predictions_and_scores_show_what_is_reconstructed(data, objectives):
    task, batch = make_task(data, objectives=objectives), batch_of(data)
    shows = Reconstruction in objectives
    with torch.no_grad():
        found = task.predict(batch)
        assert task.pictures(batch)
    assert ("frames" in found) is shows
    assert not shows or found["frames"].shape == batch.frames.shape
    trainer = quiet_trainer()
    trainer.validate(task, datamodule=data, verbose=False)
    assert ("val/psnr/frame" in trainer.callback_metrics) is shows
    assert any(score.name == "psnr/frame" for score in task.reported) is shows


@pytest.mark.parametrize("core", registry.names("cores"))
def test_every_core_trains_with_all_objectives(data, core):
    try:
        task = make_task(data, core=load("cores", core), objectives=ALL, **FEATURES)
    except ValueError as error:  # cells of a grid, which this decoder takes for slots
        pytest.skip(str(error))
    task.loss(task(batch_of(data)), batch_of(data)).backward()
    assert all(parameter.grad is None or parameter.grad.isfinite().all() for parameter in task.parameters())
    assert task.decoder.head.weight.grad.abs().sum() > 0


def test_windows_and_streams_are_those_without_objectives(data):
    core = partial(load("cores", "PSB"), num_slots=3, dim=16)
    task, batch = make_task(data, core=core, objectives=ALL, eval_window=2), batch_of(data)
    with torch.no_grad():
        whole = task.evaluate(batch)
        first, state = task.stream(batch.slice_time(0, 2), None)
        second, _ = task.stream(batch.slice_time(2, 5), state)
    pieces = torch.cat([first.slots, second.slots], dim=1)
    torch.testing.assert_close(pieces, whole.slots)


def test_a_saved_task_has_its_objectives_again(data, tmp_path):
    task, batch = (
        make_task(data, objectives=ALL, **FEATURES | {"features": None, "data_spec": data.spec}),
        batch_of(data),
    )
    task.save_pretrained(tmp_path / "model")
    again = slotbench.from_pretrained(tmp_path / "model")
    assert [type(term) for term in again.objectives.values()] == [Reconstruction, FeatureSimilarity, SlotContrast]
    assert again.objectives["feature_similarity"].weight == 0.3
    assert torch.equal(again.loss(again.eval()(batch), batch), task.loss(task(batch), batch))


def test_an_objective_of_ones_own_with_weights_is_trained(data):
    class Guess(Objective):
        def __init__(self, slot_spec, video_spec):
            super().__init__()
            self.map = nn.Linear(slot_spec.dim, 1)

        def forward(self, scene):
            return self.map(scene.slots).square().mean()

    task = make_task(data, objectives=[Reconstruction, Guess])
    trainer = quiet_trainer(max_steps=1)
    before = task.objectives["guess"].map.weight.detach().clone()
    trainer.fit(task, datamodule=data)
    assert not torch.equal(task.objectives["guess"].map.weight, before)


def test_merged_slots_are_scored_as_one(data):
    batch = batch_of(data)
    plain, merging, all_one = (make_task(data, merge_slots=threshold) for threshold in (None, 1.1, -1.1))
    with torch.no_grad():
        expected = plain.evaluate(batch).masks
        assert torch.equal(merging.evaluate(batch).masks, expected)
        merged = all_one.evaluate(batch)
        assert torch.equal(plain.loss(plain(batch), batch), all_one.loss(merged, batch))
    torch.testing.assert_close(merged.masks[:, :, 0], torch.ones_like(merged.masks[:, :, 0]))
    assert not merged.attention[:, :, 1:].any()
    trainer = quiet_trainer()
    trainer.validate(all_one, datamodule=data, verbose=False)
    assert trainer.callback_metrics["val/largest_slot/decoder"] == 1
    assert plain.piece_frames < all_one.piece_frames
    with torch.no_grad():
        assert not all_one.predict(batch)["labels"].any()
        assert plain.predict(batch)["labels"].any()


@pytest.mark.parametrize(
    ("objectives", "message"),
    [([SlotContrast], "none trains the decoder: add Reconstruction"), ([lambda *_: nn.Identity()], "has a Identity")],
)
def test_objectives_that_cannot_be(data, objectives, message):
    with pytest.raises(PartError, match=message):
        make_task(data, objectives=objectives)
