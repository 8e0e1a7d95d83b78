"""CodePrediction reads and draws codes of frames, and rolls out without encoding a frame again."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from code_tasks import PATCHES, balls, quiet_trainer

from slotbench.interfaces import DataSpec, PartError, VideoBatch, VideoSpec
from slotbench.metrics.codes.next_codes import NextCodes
from slotbench.registry import load
from slotbench.tasks.codes.chosen_tokenizer import check_stored_codes
from slotbench.tasks.codes.code_prediction import CodePrediction
from slotbench.tasks.rollouts.conditions import Conditions, RolloutOptions
from tests.helpers.rollout_options import grouped


def make_task(spec, **arguments):
    torch.manual_seed(0)
    given = {"tokenizer": PATCHES, "context": 2, "horizon": 3, "data_spec": spec, "short_context": 1}
    return CodePrediction(
        partial(load("encoders", "ResNetEncoder"), depths=(8,), rescale=False, action_dim=4),
        partial(load("cores", "ConvS5"), dim=32),
        partial(load("decoders", "ResNetDecoder"), depths=(32,)),
        **grouped(given | arguments),
    ).eval()


def with_actions(clips=2, steps=6, actions=3):
    """Random frames with random actions, and their spec."""
    generator = torch.Generator().manual_seed(3)
    frame = VideoSpec(1, 16, 16, num_actions=actions)
    chosen = torch.randint(actions, (clips, steps), generator=generator)
    batch = VideoBatch(
        torch.rand(clips, steps, 1, 16, 16, generator=generator),
        torch.arange(steps).repeat(clips, 1),
        actions=torch.nn.functional.one_hot(chosen, actions).float(),
    )
    return batch, DataSpec(frame, frame)


@pytest.fixture
def drawn():
    batch, spec = with_actions()
    task = make_task(spec)
    task.tokenizer.fit(batch.frames.flatten(0, 1))
    return task, batch


def test_it_trains_scores_and_stays_below_what_its_codes_can_show():
    data = balls()
    task = make_task(data.spec, optimizer=partial(torch.optim.Adam, lr=3e-3))
    trainer = quiet_trainer(max_epochs=1, limit_train_batches=30, limit_val_batches=1)
    before = {name: value.clone() for name, value in task.tokenizer.state_dict().items()}
    trainer.fit(task, datamodule=data)
    found = trainer.callback_metrics
    assert not torch.equal(before["codebook"], task.tokenizer.codebook)  # fitted
    assert found["val/loss"] < 16 * math.log(6)
    oracle = found["val/oracle/rollout_mse/frames from their true codes"]
    assert 0 < oracle < found["val/rollout_mse"]


def test_a_roll_out_reads_the_vectors_of_the_codes_that_it_drew(drawn):
    task, batch = drawn
    with torch.no_grad():
        torch.manual_seed(5)
        painted = task.rollout(batch).reconstruction
        own = task.tokenizer.encode(painted)
        codes = torch.cat([task.tokenizer.encode(batch.frames[:, :2]), own], dim=1)
        torch.manual_seed(5)
        logits = task(replace(batch.slice_time(0, 5), codes=codes)).reconstruction
        drawn_again = [task.draw(logits[:, step : step + 1]) for step in range(1, 4)]
    # patches of k-means are encoded as the codes that they are of
    assert torch.equal(torch.cat(drawn_again, dim=1), own)


def test_stored_codes_are_read_in_the_place_of_frames(drawn):
    task, batch = drawn
    codes = task.tokenizer.encode(batch.frames)
    with torch.no_grad():
        expected = task(batch).reconstruction
        stored = task(replace(batch, frames=torch.zeros_like(batch.frames), codes=codes)).reconstruction
    assert torch.equal(stored, expected)


def test_stored_codes_of_another_tokenizer_are_refused(drawn):
    _, spec = with_actions()
    with pytest.raises(PartError, match="the data set stores 7 codes"):
        make_task(replace(spec, input=replace(spec.input, codes=VideoSpec(7, 4, 4))))
    task, batch = drawn
    codes = task.tokenizer.encode(batch.frames)
    check_stored_codes(task.tokenizer, batch)
    check_stored_codes(task.tokenizer, replace(batch, codes=codes))
    codes[0, 0, 0, 0] += 1  # rounding
    check_stored_codes(task.tokenizer, replace(batch, codes=codes))
    with pytest.raises(PartError, match="0 of the 16 cells"):
        check_stored_codes(task.tokenizer, replace(batch, codes=(codes + 2) % 6))


def test_evaluation_encodes_the_frames_of_a_batch_once(drawn):
    task, batch = drawn
    encoded = []
    encode = task.tokenizer.encode
    task.tokenizer.encode = lambda frames: encoded.append(frames.shape[:2]) or encode(frames)
    scores = task.scores_of("val")
    task.trainer = quiet_trainer()
    with torch.no_grad():
        task.score(batch, scores)
    assert encoded == [(2, 6)]
    assert scores.close(keep_references=False)["rollout_mse_short_context"] > 0


def test_frames_after_the_context_are_not_read(drawn):
    task, batch = drawn
    other = replace(batch, frames=torch.cat([batch.frames[:, :2], 1 - batch.frames[:, 2:]], dim=1))
    painted = []
    for clips in (batch, other):
        with torch.no_grad(), task.deterministic_sampling(clips, 0):
            painted.append(task.rollout(clips).reconstruction)
    assert torch.equal(*painted)


def test_masks_of_slots_are_shown_at_the_size_of_frames():
    batch, spec = with_actions()
    task = CodePrediction(
        partial(load("encoders", "CNNEncoder"), dim=16, channels=(8,), kernel_sizes=(3,), strides=(1,)),
        partial(load("cores", "SAVi"), num_slots=3, dim=16),
        partial(load("decoders", "SpatialBroadcastDecoder"), channels=8, broadcast_size=2, output="linear"),
        tokenizer=PATCHES,
        rollout=RolloutOptions(context=2, horizon=3),
        data_spec=spec,
    ).eval()
    task.tokenizer.fit(batch.frames.flatten(0, 1))
    with torch.no_grad():
        assert task.predict(batch)["masks"].shape == (2, 3, 3, 16, 16)
        assert task.pictures(batch)["rollouts"].ndim == 3


@pytest.mark.parametrize(
    ("decoder", "why"),
    [
        (partial(load("decoders", "SpatialBroadcastDecoder"), broadcast_size=2, output="sigmoid"), "logits of codes"),
        (partial(load("decoders", "AutoregressiveTransformer"), dim=16, num_layers=1), "one cell after the other"),
    ],
)
def test_decoders_without_logits_of_all_cells_are_refused(decoder, why):
    _, spec = with_actions()
    with pytest.raises(PartError, match=why):
        CodePrediction(
            partial(load("encoders", "ResNetEncoder"), depths=(8,), rescale=False),
            partial(load("cores", "ConvS5"), dim=32),
            decoder,
            tokenizer=PATCHES,
            data_spec=spec,
        )


def test_the_loss_is_the_cross_entropy_of_smoothed_targets(drawn):
    task, batch = drawn
    output = task(batch)
    codes = task.tokenizer.encode(batch.frames)[:, 1:]
    target = 0.99 * torch.nn.functional.one_hot(codes, 6).float().movedim(-1, 2) + 0.01 / 6
    expected = -(target * output.reconstruction.log_softmax(2)).sum((2, 3, 4)).mean()
    torch.testing.assert_close(task.loss(output, batch), expected)


@pytest.mark.parametrize(("steps", "mask"), [(6, None), (40, None), (6, 3), (40, 35)])
def test_codes_are_scored_where_the_loss_is_beside_the_last_code_that_was_shown(steps, mask):
    batch, spec = with_actions(steps=steps)
    task = make_task(spec, label_smoothing=0.0, loss_sum="mean", frame_mask=mask)
    task.tokenizer.fit(batch.frames.flatten(0, 1))
    task.trainer = quiet_trainer()
    scores = task.scores_of("val")
    with torch.no_grad():
        loss = task.score(batch, scores)
    found = scores.close()
    assert found["cross_entropy"] == pytest.approx(float(loss), rel=1e-5)
    codes = task.tokenizer.encode(batch.frames)
    expected = NextCodes(6)
    for step in range(mask or 1, steps):
        before = codes[:, min(step - 1, (mask or steps) - 1)]
        expected.update(torch.zeros(2, 6, 4, 4), codes[:, step], before)
    for name, value in expected.compute().items():
        assert name == "cross_entropy" or found[name] == pytest.approx(float(value))
    (headline,) = (one for one in task.headlines() if one.metric == "val/cross_entropy")
    assert set(headline.baselines) == {"single_codes", "previous_frame"}
    with torch.no_grad():
        task.score(batch, scores)
    assert not [name for name in scores.close() if name.startswith("baseline/")]  # scored once


def test_at_temperature_0_the_most_likely_codes_are_drawn(drawn):
    task, batch = drawn
    logits = task(batch).reconstruction
    task.temperature = 0.0
    assert torch.equal(task.draw(logits), logits.argmax(2))
    task.temperature = 1.0
    shares = torch.tensor([0.7, 0.2, 0.1]).log()[None, None, :, None, None].expand(1, 400, 3, 4, 4)
    torch.manual_seed(0)
    counted = task.draw(shares).flatten().bincount(minlength=3) / 6400
    torch.testing.assert_close(counted, torch.tensor([0.7, 0.2, 0.1]), atol=0.02, rtol=0)
    task.temperature = 0.5
    counted = task.draw(shares).flatten().bincount(minlength=3) / 6400
    torch.testing.assert_close(counted, torch.tensor([0.49, 0.04, 0.01]) / 0.54, atol=0.02, rtol=0)
    assert task.draw(torch.full_like(shares, float("nan"))).max() < 3  # a diverged model is scored, not broken off


def test_no_gradient_reaches_the_tokenizer_and_it_stays_in_evaluation(drawn):
    task, batch = drawn
    task.train()
    task.training_loss(batch).backward()
    assert not task.tokenizer.training
    assert all(parameter.grad is None for parameter in task.tokenizer.parameters())


class TestCausalMasking:
    def test_hidden_frames_do_not_matter_and_actions_do(self):
        batch, spec = with_actions()
        task = make_task(spec, frame_mask=3)
        task.tokenizer.fit(batch.frames.flatten(0, 1))
        shown = task.conditions.of_evaluation(batch)
        other = replace(shown, frames=torch.cat([shown.frames[:, :3], 1 - shown.frames[:, 3:]], dim=1))
        acted = replace(shown, actions=shown.actions.roll(1, -1))
        with torch.no_grad():
            expected = task(shown).reconstruction
            assert torch.equal(task(other).reconstruction, expected)
            assert not torch.equal(task(acted).reconstruction, expected)

    def test_the_loss_is_of_hidden_frames_alone_where_a_clip_has_actions(self):
        batch, spec = with_actions()
        task = make_task(spec, frame_mask=3, label_smoothing=0.0)
        kept = torch.tensor([True, False])
        shown = task.conditions._shown(batch, kept)
        output = task(shown)
        codes = task.tokenizer.encode(batch.frames)[:, 1:]
        each = torch.nn.functional.cross_entropy(
            output.reconstruction.flatten(0, 1), codes.flatten(0, 1), reduction="none"
        )
        each = each.unflatten(0, (2, 5)).sum((2, 3))
        # step k predicts frame k + 1: the first hidden frame is number 3
        expected = (each[0, 2:].mean() + each[1].mean()) / 2
        torch.testing.assert_close(task.loss(output, shown), expected)

    def test_dropped_actions_are_those_of_whole_clips(self):
        batch, _ = with_actions(clips=200)
        torch.manual_seed(0)
        shown = Conditions(drop_actions=0.5, frame_mask=2).of_training(batch)
        kept = shown.actions.sum((1, 2)) > 0
        assert 70 < int(kept.sum()) < 130
        assert torch.equal(shown.actions[kept], batch.actions[kept])
        assert torch.equal(shown.hidden.any(1), kept)
        assert torch.equal(shown.hidden[kept][0], torch.tensor([False] * 2 + [True] * 4))

    def test_data_without_actions_and_encoders_that_cannot_hide_are_refused(self):
        _, spec = with_actions()
        with pytest.raises(PartError, match="has none"):
            make_task(DataSpec.of_frames(1, 16), frame_mask=3)
        task = make_task(spec)
        with pytest.raises(PartError, match="cannot hide"):
            Conditions(frame_mask=3).check(load("encoders", "CNNEncoder")(spec.input), 3)
        Conditions(frame_mask=3).check(task.encoder, 3)
        Conditions(frame_mask=3).check(None, 3)  # of a task that hides frames itself
        with pytest.raises(ValueError, match="frame_mask"):
            Conditions(frame_mask=0)
