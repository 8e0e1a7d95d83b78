"""Prediction by a prior: the bound that is minimised, what a roll-out reads, its samples, and what it learns."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from prediction_tasks import ball_clips, batch_of, quiet_trainer
from torch.distributions import Normal

from slotbench.interfaces import PartError
from slotbench.registry import load
from slotbench.tasks.optimisation import ConstantRate
from slotbench.tasks.variational_prediction import VariationalPrediction
from tests.helpers.rollout_options import grouped

ENCODER = partial(
    load("encoders", "StridedCNNEncoder"), channels=(8, 16), output="flat", head="none", norm="none", padding=0
)
CORE = partial(load("cores", "CWVAE"), num_levels=2, factor=3, dim=32, latent_dim=8, feature_dim=32)
DECODER = partial(load("decoders", "TransposedConvDecoder"), channels=(32, 16))


@pytest.fixture
def data():
    return ball_clips()


def make_task(data, **arguments):
    torch.manual_seed(0)
    parts = {"encoder": ENCODER, "core": CORE, "decoder": DECODER, "schedule": lambda made, _: ConstantRate(made, None)}
    optimizer = partial(torch.optim.Adam, lr=2e-3, eps=1e-4)
    given = grouped(parts | {"optimizer": optimizer, "context": 4, "horizon": 5} | arguments)
    return VariationalPrediction(data_spec=data.spec, **given).eval()


def rolled(task, batch, **arguments):
    with torch.no_grad(), task.deterministic_sampling(batch, 0):
        return task.rollout(batch, **arguments).reconstruction


@pytest.mark.parametrize("deviation", [1.0, 0.3])
def test_the_loss_is_the_negative_bound_per_frame(data, deviation):
    task, batch = make_task(data, deviation=deviation), batch_of(data)
    with task.deterministic_sampling(batch, 0), torch.no_grad():
        output = task(batch)
    with task.deterministic_sampling(batch, 0), torch.no_grad():
        read = task.core(task.encoder(batch))
    torch.testing.assert_close(output.reconstruction, task.decoder(read.slots).reconstruction)
    likelihood = Normal(output.reconstruction, deviation).log_prob(batch.frames).sum(dim=(2, 3, 4)).mean()
    assert read.losses["kl"] > 0
    torch.testing.assert_close(task.loss(output, batch), read.losses["kl"] - likelihood)


@pytest.mark.parametrize("context", [1, 3, 4, 6])
def test_a_rollout_reads_nothing_true_after_the_context(data, context):
    task, batch = make_task(data, context=context, horizon=3), batch_of(data)
    expected = rolled(task, batch)
    frames, time = batch.frames.clone(), batch.time.clone()
    frames[:, context:], time[:, context:] = torch.rand_like(frames[:, context:]), 77
    assert expected.shape == (4, 3, 1, 16, 16)
    assert torch.equal(rolled(task, replace(batch, frames=frames, time=time, masks=None, objects={})), expected)
    assert torch.equal(rolled(task, batch.slice_time(0, context)), expected)
    frames = batch.frames.clone()
    frames[:, context - 1] = 1 - frames[:, context - 1]
    assert (rolled(task, replace(batch, frames=frames)) - expected).abs().max() > 1e-5


def test_a_rollout_is_the_posterior_and_then_the_prior(data):
    task, batch = make_task(data), batch_of(data)
    with torch.no_grad(), task.deterministic_sampling(batch, 0):
        state = task.core(task.encoder(batch.slice_time(0, 4))).state
        expected = task.frames(task.decoder(task.core.imagine(state, 5).slots))
    torch.testing.assert_close(rolled(task, batch), expected)
    torch.testing.assert_close(rolled(task, batch, horizon=2), expected[:, :2])
    assert expected.min() >= 0


def test_samples_are_of_a_clip_and_otherwise_of_the_seed(data):
    task, batch = make_task(data), batch_of(data)
    some = batch.map(lambda value: value[1:3])
    torch.testing.assert_close(rolled(task, some), rolled(task, batch)[1:3])

    def drawn(seed):
        torch.manual_seed(seed)
        with torch.no_grad():
            return task.rollout(batch).reconstruction

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


def test_every_parameter_has_a_gradient(data):
    task, batch = make_task(data).train(), batch_of(data)
    task.training_loss(batch).backward()
    assert not [name for name, value in task.named_parameters() if value.grad is None or not value.grad.any()]


def test_a_score_of_each_step_stands_beside_baselines(data):
    task, trainer = make_task(data, report_horizons=(2,)), quiet_trainer()
    scores = trainer.validate(task, data, verbose=False)[0]
    assert {"val/loss", "val/rollout_mse", "val/rollout_mse/first_2", "val/rollout_psnr", "val/rollout_ssim"} <= {
        *scores
    }
    first = task.headlines()[0]
    assert (first.metric, first.higher_is_better) == ("val/rollout_mse/first_2", False)
    black = "val/baseline/rollout_mse/black/first_2"
    assert first.baselines["black"] == pytest.approx(float(scores[black]))
    assert task.pictures(batch_of(data))["rollouts"].ndim >= 3


def test_a_core_without_a_prior_is_refused(data):
    with pytest.raises(PartError, match="expected a GenerativeCore, such as CWVAE; got SlotSSM"):
        make_task(data, core=load("cores", "SlotSSM"), decoder=load("decoders", "SpatialBroadcastDecoder"))


def test_clips_shorter_than_the_context_are_refused(data):
    with pytest.raises(ValueError, match="4 context frames needs clips of at least as many, and these have 3"):
        make_task(data).rollout(batch_of(data).slice_time(0, 3))
