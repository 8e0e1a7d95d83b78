"""Classification of clips: what is read and decoded, what is minimised, and what a fine-tuned run leaves alone."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import lightning
import numpy as np
import pytest
import torch

from slotbench.data.balls.blinking_balls import BlinkingBalls
from slotbench.data.base import LoaderOptions, to_unit_range
from slotbench.data.cater_like.cater_like import CATERLike
from slotbench.evaluation import ClipChoice, ProbeError, ProbeSettings, probe_task
from slotbench.interfaces import VideoBatch
from slotbench.registry import load
from slotbench.tasks.clip_classification import ClipClassification
from slotbench.tasks.slot_autoencoding import SlotAutoencoding

MLPEncoder = partial(load("encoders", "MLPEncoder"), dim=16, norm="none")
PatchEncoder = partial(load("encoders", "PatchEncoder"), dim=16, patch_size=8)
SlotSSM = partial(load("cores", "SlotSSM"), num_slots=3, dim=16, num_layers=1, encoder_layers=1)
ClassTokenDecoder = partial(load("decoders", "ClassTokenDecoder"), num_layers=1)


def quiet_trainer(**settings: object) -> lightning.Trainer:
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return lightning.Trainer(accelerator="cpu", **(quiet | {"num_sanity_val_steps": 0} | settings))  # type: ignore[arg-type]


def data_of(observation: str = "objects", **arguments: object) -> CATERLike:
    loader = LoaderOptions(batch_size=4, val_batch_size=3, val_size=5, test_size=2)
    few = {"num_objects": (3, 3), "grid": 3, "resolution": 16, "samples_per_side": 1, "video_frames": 40}
    return CATERLike(observation, **(few | {"num_frames": 5, "loader": loader} | arguments))  # type: ignore[arg-type]


def task_of(data: CATERLike, **arguments: object) -> ClipClassification:
    torch.manual_seed(0)
    encoder = MLPEncoder if data.observation == "objects" else PatchEncoder
    return ClipClassification(encoder, SlotSSM, ClassTokenDecoder, data_spec=data.spec, **arguments)  # type: ignore[arg-type]


def batch_of(data: CATERLike, count: int = 4) -> VideoBatch:
    return to_unit_range(data.dataset("train").clips(range(count)))  # type: ignore[attr-defined]


def test_the_label_is_read_from_the_slots_of_the_last_step() -> None:
    data = data_of()
    task, batch = task_of(data, dense_targets=True), batch_of(data)
    every, last = task(batch).reconstruction, task.eval()(batch).reconstruction
    assert every.shape == (4, 5, 9, 1, 1)
    torch.testing.assert_close(last, every[:, -1:])
    changed = to_unit_range(batch)
    changed.features = batch.require("features").clone()
    changed.features[:, -1] = 0.5
    assert not torch.allclose(task(changed).reconstruction, last)
    torch.testing.assert_close(task.train()(changed).reconstruction[:, :-1], every[:, :-1])


def test_objects_are_read_where_the_data_brings_them_and_frames_elsewhere() -> None:
    for observation, field, other in (("objects", "features", "frames"), ("images", "frames", "features")):
        data = data_of(observation)
        task, batch = task_of(data).eval(), batch_of(data)
        before = task(batch).reconstruction
        if getattr(batch, other) is not None:
            setattr(batch, other, torch.rand(getattr(batch, other).shape))
            assert torch.equal(task(batch).reconstruction, before)
        setattr(batch, field, torch.rand_like(getattr(batch, field)))
        assert not torch.equal(task(batch).reconstruction, before)


def test_losses_are_the_cross_entropy_of_the_last_label_or_of_all() -> None:
    data = data_of()
    batch = batch_of(data)
    labels = batch.require("target").flatten(1)
    plain, dense = (task_of(data, dense_targets=all_of_them) for all_of_them in (False, True))
    logits = dense(batch).reconstruction.flatten(2)
    entropy = -logits.log_softmax(2).gather(2, labels[..., None])[..., 0]
    torch.testing.assert_close(plain.training_loss(batch), entropy[:, -1].mean())
    torch.testing.assert_close(dense.training_loss(batch), entropy.mean())
    assert torch.equal(dense.eval().score(batch, dense.scores_of("val")), plain.loss(plain(batch), batch))


def test_it_trains_and_reports_groups_beside_their_baselines() -> None:
    data = data_of()
    task = task_of(data, dense_targets=True)
    trainer = quiet_trainer(max_steps=3, val_check_interval=3, check_val_every_n_epoch=None)
    trainer.fit(task, data)
    found = {headline.metric: headline for headline in task.headlines()}
    assert list(found) == [
        *("val/top1", "val/top1/covered_moved", "val/top1/covered_still", "val/top1/free", "val/l1", "val/loss")
    ]
    assert found["val/top1"].baselines.keys() == {"uniform", "best constant", "last uncovered", "any cone"}
    assert found["val/top1"].baselines["uniform"] == pytest.approx(1 / 9)
    assert found["val/top1/free"].baselines["last uncovered"] == 1.0
    assert not found["val/l1"].higher_is_better
    (sheet,) = task.pictures(batch_of(data, 2)).values()
    assert sheet.ndim == 3
    assert sheet.shape[0] > 2 * 96
    predicted = task.predict(batch_of(data, 2))
    assert predicted["classes"].tolist() == predicted["probabilities"].argmax(1).tolist()


def test_fine_tuning_takes_over_encoder_and_core_and_leaves_what_is_frozen(tmp_path: Path) -> None:
    data = data_of("images")
    pretrained = task_of(data)
    with torch.no_grad():
        for parameter in pretrained.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    trainer = quiet_trainer(max_steps=1, limit_val_batches=0)
    trainer.fit(pretrained, data)
    trainer.save_checkpoint(tmp_path / "it.ckpt")
    for frozen, kept in (("encoder", {"encoder"}), ("encoder and core", {"encoder", "core"}), ("nothing", set())):
        task = task_of(data, frozen=frozen, init_from=str(tmp_path / "it.ckpt"))
        quiet_trainer(max_steps=2, limit_val_batches=0).fit(task, data)
        assert task.weight_report is not None
        assert any(name.startswith("core.") for name in task.weight_report.loaded)
        for part in ("encoder", "core", "decoder"):
            ours, theirs = (list(getattr(model, part).parameters()) for model in (task, pretrained))
            same = all(torch.equal(*pair) for pair in zip(ours, theirs, strict=True))
            assert same == (part in kept), (frozen, part)


def test_top1_is_drawn_against_the_frames_since_the_snitch_was_seen() -> None:
    data = data_of()
    task = task_of(data)
    assert task.plots() == {}
    batch = batch_of(data)
    batch.objects["frames_since_seen"] = torch.tensor([0, 3, 30, 500])
    with torch.no_grad():
        task.score(batch, task.scores_of("val"))
    task.scores_of("val").close()
    (chart,) = task.plots().values()
    assert chart.dtype == np.uint8
    assert chart.shape[2] == 3
    assert (chart == 255).mean() > 0.5


def test_the_position_of_the_snitch_while_it_is_visible_is_probed_in_the_slots() -> None:
    data = data_of(loader=LoaderOptions(batch_size=16, val_batch_size=16, train_size=64, val_size=32, test_size=32))
    task = task_of(data)
    choice = ClipChoice(fit_clips=64, clips=32, rows=(0,), split="val")
    report = probe_task(task, data, choice, ProbeSettings(match="position", heads=("linear",)))
    (positions,) = [score for score in report.scores if score.factor.name == "positions"]
    # a row per frame in which it is to be seen; what a cone covers is in no image of the plan
    seen = [(clips.require("masks") == 1).any(-1).any(-1) for clips in data.val_dataloader()]
    covered = [clips.objects["snitch_state"] >= 2 for clips in data.val_dataloader()]
    assert positions.scored == sum(int(found.sum()) for found in seen)
    assert not any((found & hidden).any() for found, hidden in zip(seen, covered, strict=True))
    assert positions.heads["linear"] > positions.baselines["mean"]
    # the features have no place in the frames, and this decoder has no masks
    with pytest.raises(ProbeError, match="no slots that compete for a grid of tokens"):
        probe_task(task, data, ClipChoice(split="val", masks="attention"), ProbeSettings())


def test_what_is_no_label_is_refused() -> None:
    with pytest.raises(ValueError, match="target of one pixel"):
        ClipClassification(
            PatchEncoder, SlotSSM, ClassTokenDecoder, data_spec=BlinkingBalls(resolution=16, patches_per_side=1).spec
        )


def test_a_pretrained_autoencoders_names_are_those_that_are_taken_over(tmp_path: Path) -> None:
    frames = data_of("images", target="frames", sampling="window")
    assert batch_of(frames).target is None
    decoder = partial(load("decoders", "SpatialBroadcastDecoder"), channels=4, num_layers=1, broadcast_size=8)
    auto = SlotAutoencoding(PatchEncoder, SlotSSM, decoder, baseline_clips=0, data_spec=frames.spec)
    trainer = quiet_trainer(max_steps=1, limit_val_batches=0)
    trainer.fit(auto, frames)
    trainer.save_checkpoint(tmp_path / "auto.ckpt")
    data = data_of("images")
    task = task_of(data, init_from=str(tmp_path / "auto.ckpt"))
    quiet_trainer(max_steps=1, limit_val_batches=0).fit(task, data)
    assert task.weight_report is not None
    parts = {name for name in task.state_dict() if name.startswith(("encoder.", "core."))}
    assert parts <= set(task.weight_report.loaded)
