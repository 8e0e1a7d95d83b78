"""Prediction with the frames that were read decoded beside it: the loss, and whom it teaches."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch.nn import functional as F

from slotbench.data.base import LoaderOptions
from slotbench.data.sprites.moving_sprites import MovingSprites
from slotbench.interfaces import PartError, SlotSpec
from slotbench.nn.slot_init import drawn_by_clip
from slotbench.registry import load
from slotbench.tasks.rollouts.rollout import forced_loss
from slotbench.tasks.video_prediction import VideoPrediction

SHARE, WIDTH = 0.3, 6


def sprites():
    loader = LoaderOptions(batch_size=3, val_batch_size=3, val_size=3)
    return MovingSprites(num_frames=5, eval_frames=5, resolution=16, loader=loader)


def task(**arguments):
    torch.manual_seed(0)
    sizes = {"num_slots": 3, "dim": 8, "num_inputs": 2, "slot_dim": WIDTH, "slot_mlp_dim": 8, "head_dim": 5}
    core = arguments.pop("core", partial(load("cores", "OCRIM"), **sizes))
    return VideoPrediction(
        partial(load("encoders", "PatchEncoder"), dim=8, patch_size=4),
        core,
        partial(load("decoders", "SpatialBroadcastDecoder"), channels=4, output="sigmoid"),
        loss="mse",
        data_spec=sprites().spec,
        **({"context": 3, "horizon": 2, "reconstruct_share": SHARE} | arguments),
    ).eval()


def batch():
    data = sprites()
    return data.on_after_batch_transfer(next(iter(data.val_dataloader())), 0)


@pytest.mark.parametrize("loss_sum", ["pixels", "frames"])
def test_the_loss_is_that_of_the_prediction_and_that_of_the_frames_that_are_read(loss_sum) -> None:
    clips, model = batch(), task(loss_sum=loss_sum)
    frames = clips.frames
    with torch.no_grad(), model.deterministic_sampling(clips, 0):
        output = model.core(model.encoder(clips.slice_time(0, 4)))
        predicted = F.mse_loss(model.decoder(output.slots).reconstruction, frames[:, 1:])
        current = F.mse_loss(model.decoder(output.frame_slots).reconstruction, frames[:, :-1])
    with torch.no_grad(), model.deterministic_sampling(clips, 0):
        whole = model.training_loss(clips)
    expected = ((1 - SHARE) * predicted + SHARE * current) * (4 if loss_sum == "frames" else 1)
    torch.testing.assert_close(whole, expected)
    assert abs(predicted - current) > 1e-4


@pytest.mark.parametrize("loss_sum", ["pixels", "frames"])
def test_evaluation_has_the_same_loss_in_pieces(loss_sum, monkeypatch) -> None:
    monkeypatch.setattr("slotbench.tasks.rollouts.rollout.PIECE", 3)
    clips, model = batch(), task(loss_sum=loss_sum)
    with torch.no_grad(), model.deterministic_sampling(clips, 0):
        found = forced_loss((model.encoder, model.core), model.decode, model.loss, clips, model.sums_frames)
    with torch.no_grad(), model.deterministic_sampling(clips, 0):
        torch.testing.assert_close(found, model.training_loss(clips))


def test_the_reconstruction_teaches_encoder_slots_and_decoder_but_no_module() -> None:
    clips, model = batch(), task()
    output = model(clips)
    assert output.current.masks.shape[2] == 2
    assert output.masks.shape[2] == 3
    F.mse_loss(output.current.reconstruction, clips.frames[:, :-1]).backward()
    taught = {name for name, value in model.named_parameters() if value.grad is not None and value.grad.any()}
    assert {name.split(".")[0] for name in taught} == {"encoder", "core", "decoder"}
    assert any(name.startswith("core.encoder.corrector") for name in taught)
    assert not [name for name in taught if name.startswith(("core.units", "core.input_attention", "core.head"))]


def test_without_it_nothing_changes_and_no_head_is_needed() -> None:
    clips, painted = batch(), []
    for model in (task(), task(reconstruct_share=0.0)):
        with torch.no_grad(), model.deterministic_sampling(clips, 0):
            painted.append(model(clips))
    torch.testing.assert_close(painted[0].reconstruction, painted[1].reconstruction)
    assert not hasattr(painted[1], "current")


def test_the_head_makes_slots_as_wide_as_those_of_a_frame_and_leaves_the_states_alone() -> None:
    model, bare = task().core, task(reconstruct_share=0.0).core
    bare.head, bare.slot_spec = None, SlotSpec(3, 8)
    tokens = torch.randn(2, 4, 16, 8)
    with torch.no_grad(), drawn_by_clip(range(2)):
        headed, states = model(tokens), bare(tokens)
    assert (model.slot_spec.num_slots, model.slot_spec.dim) == (3, WIDTH)
    torch.testing.assert_close(headed.slots, model.head(states.slots))
    torch.testing.assert_close(headed.state.hidden, states.state.hidden)
    assert headed.frame_slots.shape == (2, 4, 2, WIDTH)


@pytest.mark.parametrize(
    ("core", "message"),
    [
        (partial(load("cores", "SlotRNN"), num_slots=3, dim=8, num_heads=2, encoder_layers=1), "no CoreOutput.frame"),
        (partial(load("cores", "OCRIM"), num_slots=3, dim=8, num_inputs=2, slot_dim=WIDTH), "6 wide and its own 8"),
        (partial(load("cores", "OCRIM"), num_slots=3, dim=8, num_inputs=None), "set model.reconstruct_share to 0"),
    ],
)
def test_a_core_without_slots_that_the_decoder_can_read_is_refused(core, message) -> None:
    model = task(core=core)
    with pytest.raises(PartError, match=message):
        model.training_loss(batch())


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_a_share_that_leaves_no_prediction_is_refused(share) -> None:
    with pytest.raises(ValueError, match="from 0 to below 1"):
        task(reconstruct_share=share)
