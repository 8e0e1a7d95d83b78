"""A roll-out prepares its core once, and follows its weights where they change."""

from __future__ import annotations

from functools import partial

import torch
from slotbench_plugins.cores.conv_s5 import ConvS5, ConvStateSpace
from slotbench_plugins.decoders.resnet_decoder import ResNetDecoder
from slotbench_plugins.encoders.resnet_encoder import ResNetEncoder

from slotbench.interfaces import DataSpec, VideoBatch, VideoSpec
from slotbench.tasks.video_prediction import VideoPrediction

FRAME = VideoSpec(1, 8, 8)


def task() -> VideoPrediction:
    torch.manual_seed(0)
    depths = (8, 16)
    return VideoPrediction(
        partial(ResNetEncoder, depths=depths),
        partial(ConvS5, dim=32, state_dim=8),
        partial(ResNetDecoder, depths=depths),
        data_spec=DataSpec(FRAME, FRAME),
    ).eval()


def clip() -> VideoBatch:
    frames = torch.rand(2, 4, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    return VideoBatch(frames, torch.arange(4).expand(2, -1))


def by_hand(model: VideoPrediction, batch: VideoBatch, horizon: int):
    """The roll-out by calls of the core itself."""
    out = model.core(model.encoder(batch))
    for step in range(horizon):
        frame = model.frames(model.decoder(out.slots[:, -1:]))
        yield frame
        out = model.core(model.encoder(VideoBatch(frame, torch.full((2, 1), 4 + step))), out.state)


@torch.no_grad()
def test_a_rollout_is_the_core_step_by_step_and_computes_its_kernels_once(monkeypatch):
    model, calls = task(), []
    compute = ConvStateSpace.kernels
    monkeypatch.setattr(ConvStateSpace, "kernels", lambda self: calls.append(self) or compute(self))
    frames = [step.reconstruction for step in model.rollout_steps(clip(), 4, 6)]
    torch.testing.assert_close(frames, list(by_hand(model, clip(), 6)), rtol=1e-4, atol=1e-5)
    assert len(calls) == 2


def test_a_rollout_that_is_held_up_by_a_training_step_goes_on_with_the_new_weights():
    model, other = task(), task()
    steps, expected = model.rollout_steps(clip(), 4, 4), by_hand(other, clip(), 4)
    for count in range(4):
        with torch.no_grad():
            torch.testing.assert_close(next(steps).reconstruction, next(expected), rtol=1e-4, atol=1e-5)
        if count == 1:
            for trained in (model, other):
                optimiser = torch.optim.SGD(trained.core.parameters(), lr=0.05)
                trained.training_loss(clip()).backward()
                optimiser.step()


def doubles() -> tuple[VideoPrediction, VideoBatch]:
    return task().double(), clip().map(lambda value: value.double() if value.is_floating_point() else value)


@torch.no_grad()
def test_prepared_parts_do_what_the_parts_do_whichever_parameter_changes():
    model, batch = doubles()
    encode, decode = model.encoder.prepared(), model.decoder.prepared()
    slots = model.core(model.encoder(batch)).slots
    changes = [None, *model.encoder.parameters(), *model.decoder.parameters()]
    for parameter in changes:
        if parameter is not None:
            parameter.mul_(1.5).add_(0.1)
        torch.testing.assert_close(encode(batch), model.encoder(batch), rtol=1e-9, atol=1e-9)
        found, expected = decode(slots).reconstruction, model.decoder(slots).reconstruction
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_prepared_core_follows_every_parameter_by_itself():
    model, batch = doubles()
    one_step, tokens = model.core.prepared(), model.encoder(batch)[:, :1]
    for parameter in (None, *model.core.parameters()):
        if parameter is not None:
            parameter.mul_(1.1)
        found, expected = one_step(tokens, None).slots, model.core(tokens).slots
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_prepared_parts_keep_their_gradients():
    model = task()
    tokens = model.encoder.prepared()(clip())
    model.decoder.prepared()(model.core.prepared()(tokens, None).slots).reconstruction.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
