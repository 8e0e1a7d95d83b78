"""The task predicts, rolls out on its own predictions, and scores beside baselines, as it says."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from prediction_tasks import PatchEncoder, TransformerDecoder, ball_clips, batch_of, make_task, quiet_trainer

from slotbench.data.balls.blinking_balls import BlinkingBalls
from slotbench.data.base import LoaderOptions
from slotbench.figures.rollouts import rollout_video
from slotbench.interfaces import Decoded, VideoBatch, VideoSpec
from slotbench.metrics.frames import frame_mse, frame_psnr, frame_ssim
from slotbench.registry import load, names
from slotbench.tasks.rollouts.scores import RolloutScores


@pytest.fixture
def data():
    return ball_clips()


# a state that is a tuple, a cache of past steps, cells of a grid, and slots that are drawn
@pytest.mark.parametrize("core", ["SlotSSM", "PSB", "ConvLSTM", "SAVi"])
def test_a_rollout_reads_nothing_true_after_the_context(data, core):
    task, batch = make_task(data, core=load("cores", core)), batch_of(data)
    with torch.no_grad():
        torch.manual_seed(1)
        expected = task.rollout(batch).reconstruction
        frames, time = batch.frames.clone(), batch.time.clone()
        frames[:, 4:], time[:, 4:] = torch.rand_like(frames[:, 4:]), 77
        torch.manual_seed(1)
        corrupted = task.rollout(replace(batch, frames=frames, time=time, masks=None, objects={})).reconstruction
        torch.manual_seed(1)
        cut = task.rollout(batch.slice_time(0, 4)).reconstruction
    assert expected.shape == (4, 5, 1, 16, 16)
    assert torch.equal(corrupted, expected)
    assert torch.equal(cut, expected)


@pytest.mark.parametrize("feedback", ["probability", "threshold"])
def test_a_rollout_is_the_parallel_run_over_context_and_own_predictions(data, feedback):
    task = make_task(data, feedback=feedback).double()
    batch = batch_of(data)
    batch = replace(batch, frames=batch.frames.double())
    with torch.no_grad():
        rolled = task.rollout(batch).reconstruction
        own = (rolled > 0.5).double() if feedback == "threshold" else rolled
        fed = torch.cat([batch.frames[:, :4], own[:, :-1]], dim=1)
        whole = task.core(task.encoder(VideoBatch(fed, batch.time[:, :8]))).slots
        expected = task.frames(task.decoder(whole[:, 3:]))
    torch.testing.assert_close(rolled, expected, rtol=0, atol=1e-9)


def test_the_first_predicted_frame_is_the_teacher_forced_one(data):
    task, batch = make_task(data), batch_of(data)
    with torch.no_grad():
        forced = task.frames(task(batch))
        rolled = task.rollout(batch).reconstruction
    torch.testing.assert_close(rolled[:, 0], forced[:, 3])
    assert (rolled[:, 1] - forced[:, 4]).abs().max() > 1e-4  # from here on it sees its own frames


def test_a_prediction_depends_on_no_later_frame(data):
    task, batch = make_task(data), batch_of(data)
    frames = batch.frames.clone()
    frames[:, 5:] = 1 - frames[:, 5:]
    with torch.no_grad():
        before, after = task(batch).reconstruction, task(replace(batch, frames=frames)).reconstruction
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.equal(before[:, 5:], after[:, 5:])


def test_the_loss_compares_prediction_t_with_frame_t_plus_1(data):
    batch = batch_of(data)
    perfect = Decoded((batch.frames[:, 1:] - 0.5) * 60)
    late = Decoded((batch.frames[:, :-1] - 0.5) * 60)
    task = make_task(data)
    assert task.loss(perfect, batch).item() < 1e-6
    assert task.loss(late, batch).item() > 0.1
    squared = make_task(data, loss="mse")
    assert squared.loss(Decoded(batch.frames[:, 1:]), batch).item() == 0.0
    half = Decoded(torch.full_like(batch.frames[:, 1:], 0.5), losses={"extra": torch.tensor(2.0)})
    assert squared.loss(half, batch).item() == pytest.approx(2.25)


def test_training_shifts_the_clock_only_when_asked(data):
    seen = []

    class Watching(PatchEncoder):
        def forward(self, batch):
            seen.append(batch.time[:, 0].tolist())
            return super().forward(batch)

    for offset in (0, 3):
        task = make_task(data, max_time_offset=offset)
        task.encoder = Watching(data.spec.input, dim=16)
        task.log = lambda *args, **kwargs: None
        batch = batch_of(data, "train")
        torch.manual_seed(0)
        for _ in range(20):
            task.training_step(batch, 0)
        starts = {start for starts in seen for start in starts}
        assert starts == set(range(offset + 1))
        seen.clear()


def test_the_scores_are_those_of_the_rollout_over_the_whole_set(data):
    task = make_task(data)
    quiet_trainer().validate(task, data, verbose=False)
    logged = task.trainer.callback_metrics
    predicted, true = [], []
    for batch in data.val_dataloader():
        batch = data.on_after_batch_transfer(batch, 0)
        with torch.no_grad():
            predicted.append(task.rollout(batch).reconstruction)
        true.append(batch.frames[:, 4:9])
    predicted, true = torch.cat(predicted), torch.cat(true)
    assert len(true) == 6  # two batches, the last one short
    functions = {"mse": frame_mse, "psnr": frame_psnr, "ssim": frame_ssim}
    for name, function in functions.items():
        values = function(predicted, true)
        torch.testing.assert_close(logged[f"val/rollout_{name}"], values.mean(), rtol=1e-4, atol=1e-6)
        for step in range(5):
            torch.testing.assert_close(
                logged[f"val/rollout_{name}/step_{step + 1:02d}"], values[:, step].mean(), rtol=1e-4, atol=1e-6
            )
    per_frame = (predicted - true).square().sum(dim=(2, 3, 4)).mean()
    torch.testing.assert_close(logged["val/rollout_mse_per_frame"], per_frame, rtol=1e-4, atol=1e-4)


def test_baselines_are_of_the_same_clips(data):
    task = make_task(data)
    quiet_trainer().validate(task, data, verbose=False)
    frames = torch.cat([data.on_after_batch_transfer(batch, 0).frames for batch in data.val_dataloader()])
    true, logged = frames[:, 4:9], task.trainer.callback_metrics
    copied = frame_mse(frames[:, 3:4].expand_as(true), true).mean()
    torch.testing.assert_close(logged["val/baseline/rollout_mse/copy the last frame"], copied)
    torch.testing.assert_close(logged["val/baseline/rollout_mse/black"], true.square().mean(), rtol=1e-5, atol=1e-7)
    headline = task.headlines()[0]
    assert headline.metric == "val/rollout_mse"
    assert not headline.higher_is_better
    pixels = {"copy the last frame", "black", "grey, mean of the context"}
    assert set(headline.baselines) == pixels
    grey = (frames[:, :4].mean(dim=(1, 3, 4), keepdim=True) - true).square().mean()
    assert headline.baselines["grey, mean of the context"] == pytest.approx(grey.item(), rel=1e-5)
    assert headline.baselines["copy the last frame"] == pytest.approx(copied.item(), rel=1e-5)
    # what knows the balls' true velocities is an oracle
    assert set(headline.oracles) == {"constant velocity", "constant velocity, walls", "simulator"}
    assert logged["val/oracle/rollout_mse/constant velocity"] == pytest.approx(headline.oracles["constant velocity"])
    assert not [name for name in logged if "/baseline/" in name and "velocity" in name]


def test_frames_ahead_are_the_first_ones_with_less_error_than_every_baseline(data):
    task = make_task(data)
    quiet_trainer().validate(task, data, verbose=False)
    logged = task.trainer.callback_metrics
    baselines = [name.rpartition("/")[2] for name in logged if name.startswith("val/baseline/rollout_frames_ahead/")]
    assert set(baselines) == {"copy the last frame", "black", "grey, mean of the context"}
    assert all(logged[f"val/baseline/rollout_frames_ahead/{name}"] == 0 for name in baselines)
    assert logged["val/oracle/rollout_frames_ahead/simulator"] == 5  # the whole horizon
    for prefix, suffix in (("", ""), ("oracle/", "/constant velocity")):
        expected = 0
        for step in range(1, 6):
            at = f"step_{step:02d}"
            lowest = min(logged[f"val/baseline/rollout_mse/{name}/{at}"] for name in baselines)
            if not logged[f"val/{prefix}rollout_mse{suffix}/{at}"] < lowest:
                break
            expected += 1
        assert logged[f"val/{prefix}rollout_frames_ahead{suffix}"] == expected


def test_frames_ahead_are_known_in_later_evaluations_which_score_no_baseline():
    scores = RolloutScores(2, VideoSpec(1, 4, 4))
    true = torch.ones(1, 2, 1, 4, 4)
    model = torch.stack([torch.full((1, 4, 4), 0.9), torch.full((1, 4, 4), 0.1)])[None]
    scores.update([({"": model, "baseline|black": 0 * true + 0.5}, true)])
    assert scores.close()["rollout_frames_ahead"] == 1
    scores.update([({"": true}, true)])
    assert scores.close()["rollout_frames_ahead"] == 2


def test_the_test_also_scores_thresholded_feedback(data):
    task = make_task(data)
    data.sizes["test"] = 4
    quiet_trainer().test(task, data, verbose=False)
    logged = task.trainer.callback_metrics
    assert logged["test/rollout_mse_thresholded"] != logged["test/rollout_mse"]
    assert all(headline.metric.startswith("test/") for headline in task.headlines())


def test_a_video_has_the_baseline_that_is_nearest_to_what_followed(data):
    task, batch = make_task(data), batch_of(data)
    still = replace(batch, frames=batch.frames[:, :1].expand_as(batch.frames))
    dark = replace(batch, frames=torch.cat([batch.frames[:, : task.context], 0 * batch.frames[:, task.context :]], 1))
    for clips, name, simple in ((still, "copy the last frame", still), (dark, "black", dark)):
        with torch.no_grad():
            video, decoded = task.videos(clips)["rollout_1"], task.rollout(clips)
        true = clips.pixels[1, : task.context + task.horizon]
        masks = None if decoded.masks is None else decoded.masks[1]
        beside = (name, simple.pixels[1, task.context : task.context + task.horizon])
        assert np.array_equal(video, rollout_video(true, decoded.reconstruction[1], masks, beside))


def test_pictures_and_plots_are_pictures(data):
    task = make_task(data)
    assert task.plots() == {}
    quiet_trainer().validate(task, data, verbose=False)
    with torch.no_grad():
        pictures = task.pictures(batch_of(data)) | task.plots()
    assert set(pictures) == {"rollouts", "horizon"}
    for picture in pictures.values():
        assert picture.dtype == "uint8"
        assert picture.ndim == 3
        assert picture.shape[2] == 3
        assert picture.std() > 10


@pytest.mark.parametrize("core", names("cores"))
@pytest.mark.parametrize("task", ["VideoPrediction", "LongContextReasoning"])
def test_every_core_trains_two_steps_in_each_task(core, task, data):
    if task == "LongContextReasoning":
        data = BlinkingBalls(
            num_frames=3, patches_per_side=2, num_balls=2, resolution=16, loader=LoaderOptions(batch_size=2, val_size=2)
        )
    torch.manual_seed(0)
    module = load("tasks", task)(
        partial(PatchEncoder, dim=16), load("cores", core), partial(TransformerDecoder, dim=16), data_spec=data.spec
    )
    before = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    quiet_trainer(max_steps=2, limit_val_batches=0).fit(module, data)
    assert module.global_step == 2
    # the first step moves the zero-initialised head, the second one what is before it
    moved = [name for name, parameter in module.core.named_parameters() if not parameter.equal(before[f"core.{name}"])]
    assert moved
    assert all(parameter.isfinite().all() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"horizon": 0}, "horizon is 0; expected a number of frames, at least 1"),
        ({"l1_share": 1.5}, r"l1_share is the weight of the absolute error, in \[0, 1\]; got 1.5"),
        ({"max_time_offset": -1}, "max_time_offset is -1; expected a number of frames, at least 0"),
    ],
)
def test_arguments_that_cannot_be_are_refused(data, arguments, message):
    with pytest.raises(ValueError, match=message):
        make_task(data, **arguments)


def test_clips_too_short_for_the_horizon_are_refused_with_what_to_set(data):
    task = make_task(data, horizon=6)
    with pytest.raises(ValueError, match=r"takes context \+ horizon = 4 \+ 6 frames and the clips have 9: set data"):
        quiet_trainer().validate(task, data, verbose=False)
    with pytest.raises(ValueError, match="needs clips of at least as many, and these have 3"):
        task.rollout(batch_of(data).slice_time(0, 3))


def test_a_prediction_says_which_steps_it_predicted(data):
    task, batch = make_task(data), batch_of(data)
    with torch.no_grad():
        found = task.predict_step(batch, 0)
    assert found["frames"].shape[:2] == found["steps"].shape
    assert found["steps"].tolist() == [[4, 5, 6, 7, 8]] * len(batch)
