"""DVAE: sizes, the temperature, the two ways from codes to frames, and what is drawn."""

from __future__ import annotations

import math

import pytest
import torch
from slotbench_plugins.tokenizers.dvae import DVAE, gumbel_softmax, unevenness
from torch import nn
from torch.nn import functional as F

from slotbench.interfaces import VideoSpec
from slotbench.nn.parameters import trainable_parameters

FRAME = VideoSpec(channels=3, height=8, width=12)


def dvae(**arguments):
    torch.manual_seed(0)
    return DVAE(FRAME, num_codes=6, channels=8, **arguments).double()


def test_a_code_is_of_four_by_four_pixels_and_the_default_of_steve_has_its_size():
    assert dvae().code_spec == VideoSpec(channels=6, height=2, width=3)
    with torch.device("meta"):
        assert trainable_parameters(DVAE(FRAME, num_codes=4096))["total"] == 680_515


def test_slates_has_a_group_norm_before_every_relu_and_its_size():
    model = dvae(norm="group").eval()
    normed = [model.encoder, model.decoder]
    for layers in normed:
        before = [layers[i - 1] for i, layer in enumerate(layers) if isinstance(layer, nn.ReLU)]
        assert all(isinstance(norm, nn.GroupNorm) and norm.num_groups == 1 for norm in before)
        assert len(before) == {id(model.encoder): 7, id(model.decoder): 9}[id(layers)]
    with torch.device("meta"):
        assert trainable_parameters(DVAE(FRAME, num_codes=1024, norm="group"))["total"] == 285_635
    codes = torch.randint(6, (2, 3, 2, 3))
    one_hot = F.one_hot(codes, 6).movedim(-1, -3).double()
    expected = model.decoder(one_hot.flatten(0, 1)).unflatten(0, (2, 3)).clamp(0, 1)
    torch.testing.assert_close(model.decode(codes), expected)


def test_the_temperature_falls_by_half_a_cosine_and_then_stays():
    model = dvae(first_temperature=1.0, last_temperature=0.2, anneal_steps=100)
    found = []
    for step in (0, 50, 100, 1000):
        model.at_step(step)
        found.append(model.temperature)
    assert found == pytest.approx([1.0, 0.6, 0.2, 0.2])


def test_soft_weights_are_drawn_by_the_logits_and_come_near_to_one_hot():
    torch.manual_seed(0)
    logits = torch.tensor([0.2, 0.3, 0.5]).log()[None, :, None, None].expand(20_000, -1, -1, -1)
    drawn = gumbel_softmax(logits, 0.05)
    shares = F.one_hot(drawn.argmax(1).flatten(), 3).double().mean(0)
    torch.testing.assert_close(shares, torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64), atol=0.015, rtol=0)
    assert drawn.amax(1).mean() > 0.9
    assert gumbel_softmax(logits, 50.0).amax(1).mean() < 0.5


def test_codes_are_drawn_in_training_where_that_is_asked_for():
    frames = torch.rand(1, 4, 3, 8, 12, dtype=torch.float64)
    drawn, likely = dvae(draw_codes=True), dvae()
    assert not torch.equal(drawn.encode(frames), drawn.encode(frames))
    assert torch.equal(likely.encode(frames), likely.encode(frames))
    assert torch.equal(drawn.eval().encode(frames), likely.eval().encode(frames))


def test_the_loss_that_spreads_codes_is_none_for_even_ones_and_largest_for_one_alone():
    even = torch.zeros(2, 6, 2, 3, dtype=torch.float64).log_softmax(1)
    assert unevenness(even) == pytest.approx(0, abs=1e-12)
    alone = torch.full((2, 6, 2, 3), -1000.0, dtype=torch.float64)
    alone[:, 4] = 0
    assert unevenness(alone.log_softmax(1)) == pytest.approx(math.log(6))
    # every cell is sure of its code, and all codes are in use
    sure = torch.full((2, 6, 2, 3), -1000.0, dtype=torch.float64)
    for cell in range(12):  # three of the codes in each frame
        sure[cell // 6, cell // 2, cell % 6 // 3, cell % 3] = 0
    assert unevenness(sure.log_softmax(1)) == pytest.approx(0, abs=1e-12)


def test_codes_spread_where_that_is_asked_for():
    frames = torch.rand(2, 3, 3, 8, 12, dtype=torch.float64)
    assert dvae().train()(frames).losses == {}
    model = dvae(usage_weight=0.5).train()
    (loss,) = model(frames).losses.values()
    assert loss.item() == pytest.approx(0.5 * unevenness(model.logits(frames.flatten(0, 1))).item())
