"""The task reads, decodes, weighs and scores as it says."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from prediction_tasks import quiet_trainer

from slotbench.data.balls.blinking_balls import BlinkingBalls
from slotbench.data.base import LoaderOptions
from slotbench.metrics.balls import last_colours_seen
from slotbench.registry import load
from slotbench.tasks.long_context_reasoning import LongContextReasoning
from slotbench.tasks.optimisation import WarmupCosine

PatchEncoder, SlotSSM = load("encoders", "PatchEncoder"), load("cores", "SlotSSM")
TransformerDecoder = load("decoders", "TransformerDecoder")


@pytest.fixture
def data():
    return BlinkingBalls(
        num_frames=4,
        patches_per_side=2,
        num_balls=2,
        resolution=16,
        loader=LoaderOptions(batch_size=3, val_batch_size=3, val_size=6),
    )


@pytest.fixture
def batch(data):
    return data.on_after_batch_transfer(next(iter(data.train_dataloader())), 0)


def make_task(data, *, perturb_head=True, **arguments):
    torch.manual_seed(0)
    task = LongContextReasoning(
        partial(PatchEncoder, dim=16),
        partial(SlotSSM, num_slots=3, dim=16, num_layers=1, num_heads=2, encoder_layers=1, state_dim=4),
        partial(TransformerDecoder, num_layers=1, num_heads=2),
        optimizer=partial(torch.optim.AdamW, lr=1e-3, weight_decay=0.1),
        schedule=WarmupCosine,
        data_spec=data.spec,
        **arguments,
    )
    if perturb_head:  # the head starts at zero, which would hide every difference
        torch.nn.init.normal_(task.decoder.head.weight)
    return task


@pytest.mark.parametrize("chunk_steps", [1, 3, 4, 5, 100])
def test_reading_in_chunks_gives_what_reading_at_once_gives(data, batch, chunk_steps):
    batch = replace(batch, frames=batch.frames.double())
    whole = make_task(data).eval().double()(batch).reconstruction
    parts = make_task(data, chunk_steps=chunk_steps).eval().double()(batch).reconstruction
    assert whole.shape == (3, 3, 7, 16, 16)
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-10)


def test_the_last_target_is_the_same_with_and_without_the_earlier_ones(data, batch):
    task = make_task(data)
    every, last = task.eval()(batch), task.train()(batch)
    assert last.reconstruction.shape[1] == 1
    torch.testing.assert_close(every.reconstruction[:, -1:], last.reconstruction)


def test_an_earlier_answer_does_not_depend_on_later_frames(data, batch):
    task = make_task(data).eval()
    before = task(batch).reconstruction
    frames = batch.frames.clone()
    frames[:, 8:] = torch.rand_like(frames[:, 8:])  # the third context frame of three
    after = task(replace(batch, frames=frames)).reconstruction
    assert torch.equal(before[:, :2], after[:, :2])
    assert not torch.allclose(before[:, 2], after[:, 2])


@pytest.mark.parametrize("truncate", [False, True])
def test_truncation_stops_the_gradient_between_chunks(data, batch, truncate):
    task = make_task(data, chunk_steps=4, truncate_gradient=truncate)
    frames = batch.frames.clone().requires_grad_()
    task.loss(task(replace(batch, frames=frames)), batch).backward()
    reached = frames.grad.abs().sum((0, 2, 3, 4)) > 0
    assert reached[8:].all()
    assert bool(reached[:4].any()) is not truncate


def test_the_loss_is_cross_entropy_over_the_last_target_or_with_dense_targets_over_all(data, batch):
    task = make_task(data)
    decoded = task.train()(batch)
    log_probability = decoded.reconstruction[:, 0].log_softmax(1)
    by_hand = -log_probability.gather(1, batch.target[:, -1:].long()).mean()
    torch.testing.assert_close(task.loss(decoded, batch), by_hand)
    summed = make_task(data, loss_reduction="sum")
    torch.testing.assert_close(summed.loss(decoded, batch), by_hand * 16 * 16)
    every, dense = task.eval()(batch), make_task(data, dense_targets=True)
    torch.testing.assert_close(task.loss(every, batch), by_hand)
    torch.testing.assert_close(dense.eval().loss(every, batch), by_hand)
    entropy = -every.reconstruction.log_softmax(2).gather(2, batch.target[:, :, None].long())
    torch.testing.assert_close(dense.train().loss(every, batch), entropy.mean())


def test_class_weights_go_to_one_between_the_two_shares(data, monkeypatch):
    task = make_task(data, class_weights=[1.0, 4.0, 6.0, 6.0, 6.0, 6.0, 6.0], anneal=(0.2, 0.4))
    for progress, expected in [(0.0, 4.0), (0.2, 4.0), (0.3, 2.5), (0.4, 1.0), (1.0, 1.0)]:
        monkeypatch.setattr(LongContextReasoning, "progress", progress)
        assert task.weights_now()[1] == pytest.approx(expected)
        assert task.weights_now()[0] == 1


def test_a_short_fit_learns_scores_and_logs_baselines_once(data):
    task = make_task(data, dense_targets=True)
    logged = []
    task.log_dict = lambda values: logged.append(values)
    quiet_trainer(max_steps=4, val_check_interval=2, check_val_every_n_epoch=None).fit(task, data)
    assert len(logged) == 2
    first, second = ({name for name in values if "baseline/" in name} for values in logged)
    assert "val/baseline/colour_accuracy/last colour seen" in first
    assert not second
    assert {"val/ball_iou", "val/colour_accuracy/context_3"} <= set(logged[1])
    headlines = {headline.metric: headline for headline in task.headlines()}
    assert set(headlines["val/ball_iou"].baselines) == {"copy the last mask", "everything background"}
    assert 0 < headlines["val/colour_accuracy"].baselines["last colour seen"] < 1


def test_init_from_starts_from_another_runs_weights_and_says_what_matched(data, tmp_path, capsys):
    source = make_task(data)
    torch.save({"state_dict": source.state_dict()}, tmp_path / "weights.ckpt")
    other = BlinkingBalls(
        num_frames=4,
        patches_per_side=1,
        num_balls=2,
        resolution=16,
        loader=LoaderOptions(batch_size=3, val_batch_size=3, val_size=3),
    )
    task = make_task(other, init_from=str(tmp_path / "weights.ckpt"))
    torch.nn.init.zeros_(task.decoder.head.weight)
    trainer = quiet_trainer(max_steps=1, limit_val_batches=0)
    task.trainer = trainer
    task.setup("fit")
    # no weight's shape depends on how the frames are cut up
    assert torch.equal(task.decoder.head.weight, source.decoder.head.weight)
    report = capsys.readouterr().out
    assert "taken over" in report
    assert len(task.weight_report.loaded) == len(source.state_dict())


def test_pictures_show_context_target_prediction_baseline_and_slots(data, batch):
    task = make_task(data)
    sheet = task.pictures(batch)["predictions"]
    assert sheet.dtype == "uint8"
    assert sheet.ndim == 3
    assert 7 * 96 < sheet.shape[1] < 8 * 96  # three context frames, target, prediction, last colour seen, slots
    videos = task.videos(batch)
    assert len(videos) == len(batch)
    video, side = videos["prediction_0"], 128
    assert video.shape[2] == 5 * (side + 1) + 1
    answer = (video != video[:1]).any((1, 2, 3)).nonzero()[0][-1]
    baseline = video[answer, -side - 1 : -1, 1 + 3 * (side + 1) :][:, :side]
    palette = torch.tensor(data.spec.target.palette, dtype=torch.uint8)
    expected = palette[last_colours_seen(batch)[0]].numpy()
    assert (baseline == expected.repeat(side // len(expected), 0).repeat(side // len(expected), 1)).all()
