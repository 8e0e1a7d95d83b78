"""The task predicts, rolls out on its own predictions, and scores beside floors, as it says."""

from dataclasses import replace
from functools import partial

import lightning
import pytest
import torch

from slotbench.data.blinking_balls import BlinkingBalls
from slotbench.data.bouncing_balls import BouncingBalls
from slotbench.interfaces import DataSpec, Decoded, VideoBatch
from slotbench.metrics.frames import frame_mse, frame_psnr, frame_ssim
from slotbench.registry import load, names
from slotbench.tasks import video_prediction
from slotbench.tasks.frame_losses import frame_loss, truncate_to_bytes
from slotbench.tasks.rollout_scores import summarise
from slotbench.tasks.schedule import WarmupStepsCosine
from slotbench.tasks.video_prediction import VideoPrediction

PatchEncoder, SlotSSM = load("encoders", "PatchEncoder"), load("cores", "SlotSSM")
TransformerDecoder = load("decoders", "TransformerDecoder")


@pytest.fixture
def data():
    return BouncingBalls(
        num_balls=2, num_frames=5, eval_frames=9, resolution=16, batch_size=3, val_batch_size=4, val_size=6
    )


def batch_of(data, split="val"):
    loader = data.val_dataloader() if split == "val" else data.train_dataloader()
    return data.on_after_batch_transfer(next(iter(loader)), 0)


def make_task(data, core=None, **arguments):
    torch.manual_seed(0)
    core = core or partial(SlotSSM, num_slots=3, dim=16, num_layers=1, num_heads=2, encoder_layers=1, state_dim=4)
    task = VideoPrediction(
        partial(PatchEncoder, dim=16),
        core,
        partial(TransformerDecoder, dim=16, num_layers=1, num_heads=2),
        optimizer=partial(torch.optim.AdamW, lr=1e-3),
        data_spec=data.spec,
        **({"context": 4, "horizon": 5} | arguments),
    )
    # the head starts at zero, which would hide every difference
    torch.nn.init.normal_(task.decoder.head.weight)
    return task.eval()


def quiet_trainer(**arguments):
    return lightning.Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        **arguments,
    )


@pytest.mark.parametrize("core", names("cores"))
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


def test_a_rollout_does_read_the_context(data):
    task, batch = make_task(data), batch_of(data)
    frames = batch.frames.clone()
    frames[:, 0] = 1 - frames[:, 0]
    with torch.no_grad():
        before, after = task.rollout(batch), task.rollout(replace(batch, frames=frames))
    assert (before.reconstruction - after.reconstruction).abs().max() > 1e-4


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


def test_floors_are_of_the_same_clips(data):
    task = make_task(data)
    quiet_trainer().validate(task, data, verbose=False)
    frames = torch.cat([data.on_after_batch_transfer(batch, 0).frames for batch in data.val_dataloader()])
    true, logged = frames[:, 4:9], task.trainer.callback_metrics
    copied = frame_mse(frames[:, 3:4].expand_as(true), true).mean()
    torch.testing.assert_close(logged["val/floor/rollout_mse/copy the last frame"], copied)
    torch.testing.assert_close(logged["val/floor/rollout_mse/black"], true.square().mean(), rtol=1e-5, atol=1e-7)
    headline = task.headlines()[0]
    assert headline.metric == "val/rollout_mse"
    assert not headline.higher_is_better
    pixels = {"copy the last frame", "black", "grey, mean of the context"}
    assert set(headline.floors) == pixels | {"constant velocity", "constant velocity, walls"}
    grey = (frames[:, :4].mean(dim=(1, 3, 4), keepdim=True) - true).square().mean()
    assert headline.floors["grey, mean of the context"] == pytest.approx(grey.item(), rel=1e-5)
    assert headline.floors["copy the last frame"] == pytest.approx(copied.item(), rel=1e-5)


def test_the_test_also_scores_thresholded_feedback(data):
    task = make_task(data)
    data.sizes["test"] = 4
    quiet_trainer().test(task, data, verbose=False)
    logged = task.trainer.callback_metrics
    assert logged["test/rollout_mse_thresholded"] != logged["test/rollout_mse"]
    assert all(headline.metric.startswith("test/") for headline in task.headlines())


def test_small_frames_have_no_ssim(data):
    small = BouncingBalls(num_balls=1, eval_frames=9, resolution=8, val_batch_size=2, val_size=2)
    task = make_task(small)
    quiet_trainer().validate(task, small, verbose=False)
    assert [headline.metric for headline in task.headlines()] == ["val/rollout_mse", "val/rollout_psnr"]


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
        data = BlinkingBalls(num_frames=3, patches_per_side=2, num_balls=2, resolution=16, batch_size=2, val_size=2)
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
        ({"max_time_offset": -1}, "max_time_offset is -1; expected a number of frames, at least 0"),
    ],
)
def test_arguments_that_cannot_be_are_refused(data, arguments, message):
    with pytest.raises(ValueError, match=message):
        make_task(data, **arguments)


def test_patches_are_refused():
    data = BlinkingBalls(num_frames=3, patches_per_side=2, num_balls=2, resolution=16)
    with pytest.raises(ValueError, match="choose a data set of whole frames, for example BouncingBalls"):
        make_task(data)


def test_clips_too_short_for_the_horizon_are_refused_with_what_to_set(data):
    task = make_task(data, horizon=6)
    with pytest.raises(ValueError, match=r"takes context \+ horizon = 4 \+ 6 frames and the clips have 9: set data"):
        quiet_trainer().validate(task, data, verbose=False)
    with pytest.raises(ValueError, match="needs clips of at least as many, and these have 3"):
        task.rollout(batch_of(data).slice_time(0, 3))


def image_task(data, **arguments):
    """A task on a grid of cells, trained as the ConvS5 models are."""
    torch.manual_seed(0)
    return VideoPrediction(
        partial(load("encoders", "ResNetEncoder"), depths=(4, 8)),
        partial(load("cores", "ConvLSTM"), dim=8, num_layers=1),
        partial(load("decoders", "ResNetDecoder"), depths=(4, 8)),
        optimizer=partial(torch.optim.AdamW, lr=1e-3, weight_decay=1e-5),
        data_spec=data.spec,
        **({"context": 4, "horizon": 5, "loss": "l1_l2"} | arguments),
    ).eval()


def test_l1_l2_compares_tanh_with_frames_in_minus_one_to_one(data):
    batch = batch_of(data)
    true = batch.frames[:, 1:]
    assert set(true.unique().tolist()) == {0.0, 1.0}
    error = 0.25
    # off by a quarter everywhere, towards the middle
    painted = torch.atanh((2 * true - 1) * (1 - error))
    for share in (0.5, 0.2):
        expected = share * error + (1 - share) * error**2
        task = image_task(data, l1_share=share)
        assert task.loss(Decoded(painted), batch).item() == pytest.approx(expected, rel=1e-4)
        # a row has 16 pixels of one channel
        rows = image_task(data, l1_share=share, loss_sum="rows")
        assert rows.loss(Decoded(painted), batch).item() == pytest.approx(16 * expected, rel=1e-4)
    expected_frames = (true - 0.5) * (1 - error) + 0.5
    torch.testing.assert_close(image_task(data).frames(Decoded(painted)), expected_frames)


def test_the_sum_over_rows_counts_channels():
    painted, true = torch.zeros(1, 2, 3, 4, 6), torch.full((1, 2, 3, 4, 6), 0.75)
    assert frame_loss(painted, true, "l1_l2").item() == pytest.approx(0.375)
    assert frame_loss(painted, true, "l1_l2", loss_sum="rows").item() == pytest.approx(0.375 * 18)
    assert frame_loss(painted, true, "mse", loss_sum="rows").item() == pytest.approx(0.5625 * 18)


def test_bytes_survive_truncation_and_everything_else_goes_down():
    grey = torch.arange(256).reshape(16, 16)
    for dtype in (torch.float32, torch.float64):
        exact = grey.to(dtype) / 255
        assert torch.equal(truncate_to_bytes(exact), exact)
        assert torch.equal(truncate_to_bytes(exact + 0.9 / 255)[:15], exact[:15])


def test_scores_of_truncated_frames_are_those_of_bytes(data):
    task = image_task(data, quantise=True)
    torch.nn.init.normal_(task.decoder.head.weight)
    data.sizes["val"] = 4
    quiet_trainer().validate(task, data, verbose=False)
    batch = batch_of(data)
    with torch.no_grad():
        rolled = task.rollout(batch).reconstruction
    true, logged = batch.frames[:, 4:9], task.trainer.callback_metrics
    stored = (rolled * 255).to(torch.uint8).float() / 255
    for name, function in {"mse": frame_mse, "psnr": frame_psnr, "ssim": frame_ssim}.items():
        torch.testing.assert_close(logged[f"val/rollout_{name}"], function(stored, true).mean(), rtol=1e-5, atol=1e-7)
    assert (frame_psnr(stored, true).mean() - frame_psnr(rolled, true).mean()).abs() > 1e-3
    copied = frame_mse(batch.frames[:, 3:4].expand_as(true), true).mean()
    torch.testing.assert_close(logged["val/floor/rollout_mse/copy the last frame"], copied)


def test_an_evaluation_in_pieces_is_the_evaluation_at_once(monkeypatch):
    data = BouncingBalls(num_balls=2, eval_frames=16, resolution=16, val_batch_size=3, val_size=5)
    found = []
    for piece in (32, 3):
        monkeypatch.setattr(video_prediction, "_PIECE", piece)
        task = make_task(data, context=7, horizon=9)
        quiet_trainer().validate(task, data, verbose=False)
        found.append(dict(task.trainer.callback_metrics))
    assert found[0].keys() == found[1].keys()
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, rtol=2e-4, atol=1e-5, msg=lambda text, name=name: name + text)
    frames = torch.cat([data.on_after_batch_transfer(batch, 0).frames for batch in data.val_dataloader()])
    with torch.no_grad():
        batch = VideoBatch(frames, torch.arange(16).expand(5, -1))
        expected = task.loss(task(batch), batch)
    torch.testing.assert_close(found[1]["val/loss"], expected, rtol=1e-4, atol=1e-5)


def test_a_rollout_predicts_no_further_than_it_is_asked(data):
    task, batch = make_task(data), batch_of(data)
    calls = []
    decoder = task.decoder.forward
    task.decoder.forward = lambda slots, batch=None: calls.append(slots.shape[1]) or decoder(slots, batch)
    with torch.no_grad():
        steps = task.rollout_steps(batch, horizon=1000)
        assert calls == []
        frames = [next(steps).reconstruction for _ in range(3)]
    assert calls == [1, 1, 1]
    assert torch.equal(torch.cat(frames, dim=1), task.rollout(batch, horizon=3).reconstruction.detach())


def test_long_curves_are_thinned_and_first_frames_averaged():
    curve = [float(step) for step in range(1, 1201)]
    logged = dict(summarise({"psnr": curve}, "rollout_", means_until=(400, 800, 5000)))
    assert logged.pop("rollout_psnr") == pytest.approx(600.5)
    assert logged.pop("rollout_psnr/first_400") == pytest.approx(200.5)
    assert logged.pop("rollout_psnr/first_800") == pytest.approx(400.5)
    steps = {name: value for name, value in logged.items() if name.startswith("rollout_psnr/step_")}
    assert steps == logged
    assert len(steps) == 101
    assert [*steps][0] == "rollout_psnr/step_0001"
    assert [*steps][-1] == "rollout_psnr/step_1200"
    assert all(float(name[-4:]) == value for name, value in steps.items())


def test_first_frames_of_the_horizon_are_reported_on_request(data):
    task = image_task(data, report_horizons=(2, 5, 6))
    quiet_trainer().validate(task, data, verbose=False)
    logged = task.trainer.callback_metrics
    steps = [logged[f"val/rollout_ssim/step_0{step}"] for step in (1, 2)]
    torch.testing.assert_close(logged["val/rollout_ssim/first_2"], sum(steps) / 2)
    torch.testing.assert_close(logged["val/rollout_ssim/first_5"], logged["val/rollout_ssim"])
    assert "val/floor/rollout_mse/black/first_2" in logged
    assert not any("first_6" in name for name in logged)


def test_only_the_test_tells_how_fast_it_samples(data):
    task = image_task(data)
    data.sizes["test"] = 3
    quiet_trainer().validate(task, data, verbose=False)
    assert "val/sampling_fps" not in task.trainer.callback_metrics
    assert (task._sampled_frames, task._sampling_seconds) == (0, 0.0)
    quiet_trainer().test(task, data, verbose=False)
    assert task.trainer.callback_metrics["test/sampling_fps"] > 0


def test_the_speed_counts_the_frames_of_all_clips_and_the_seconds_of_predicting(data, monkeypatch):
    task, batch = image_task(data), batch_of(data)
    ticks = iter(range(100))
    monkeypatch.setattr(task, "_now", lambda: float(next(ticks)))
    monkeypatch.setattr(video_prediction, "_PIECE", 2)
    with torch.no_grad():
        pieces = list(task._pieces(batch))
    assert [at for at, _ in pieces] == [slice(0, 2), slice(2, 4), slice(4, 5)]
    assert task._sampled_frames == 4 * 5
    assert task._sampling_seconds == 3.0  # one tick a piece, and what lies between pieces is not counted


def test_given_actions_lead_from_frame_to_frame_in_a_rollout(data):
    spec = replace(data.spec.input, num_actions=3)
    torch.manual_seed(0)
    task = VideoPrediction(
        partial(load("encoders", "ResNetEncoder"), depths=(4, 8), action_dim=2),
        partial(load("cores", "ConvLSTM"), dim=8, num_layers=1),
        partial(load("decoders", "ResNetDecoder"), depths=(4, 8)),
        loss="l1_l2",
        context=4,
        horizon=5,
        data_spec=DataSpec(spec, spec),
    ).eval()
    batch = batch_of(data)
    actions = torch.nn.functional.one_hot(torch.arange(9) % 3, 3).float().expand(4, -1, -1)
    other = actions.clone()
    other[:, 5] = 0  # masked: what leads from frame 5 to frame 6 is not told
    with torch.no_grad():
        before = task.rollout(replace(batch, actions=actions)).reconstruction
        after = task.rollout(replace(batch, actions=other)).reconstruction
    changed = (before - after).abs().amax(dim=(0, 2, 3, 4)) > 0
    assert changed.tolist() == [False, False, True, True, True]  # frames 4, 5, 6, 7, 8


@pytest.mark.parametrize(("decay", "groups"), [("matrices", [1e-5, 0.0]), ("all", [1e-5])])
def test_weight_decay_is_for_matrices_or_for_all(data, decay, groups):
    task = image_task(data, decay=decay, schedule=partial(WarmupStepsCosine, warmup_steps=2))
    quiet_trainer(max_steps=1, limit_val_batches=0).fit(task, data)
    found = task.trainer.optimizers[0].param_groups
    assert [group["weight_decay"] for group in found] == groups
    assert sum(len(group["params"]) for group in found) == len(list(task.parameters()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"loss": "l1"}, "no loss named 'l1'; choose one of bce, mse, l1_l2"),
        ({"loss_sum": "all"}, "no loss_sum named 'all'; choose one of pixels, rows"),
        ({"l1_share": 1.5}, r"the weight of the absolute error, in \[0, 1\]; got 1.5"),
        ({"decay": "none"}, "no decay named 'none'; choose one of matrices, all"),
    ],
)
def test_options_that_there_are_not_are_refused(data, arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        image_task(data, **arguments)
