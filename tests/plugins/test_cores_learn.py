"""Every core can learn a batch by heart, with encoder and decoder around it: that the parts learn together at all."""

from __future__ import annotations

import pytest
import torch
from slotbench_plugins.decoders.transformer_decoder import TransformerDecoder
from slotbench_plugins.encoders.patch_encoder import PatchEncoder
from torch import nn
from torch.nn import functional as F

from slotbench.data.base import to_unit_range
from slotbench.data.blinking_balls import BlinkingBalls
from slotbench.registry import load, names


@pytest.mark.parametrize("name", names("cores"))
def test_one_batch_of_blinking_balls_can_be_learned_by_heart(name):
    data = BlinkingBalls(num_frames=3, patches_per_side=2, num_balls=2, resolution=32)
    batch = to_unit_range(data.dataset("train").clips(range(2)))
    torch.manual_seed(0)
    encoder = PatchEncoder(data.spec.input)
    core = load("cores", name)(encoder.token_spec)
    decoder = TransformerDecoder(core.slot_spec, data.spec.target)
    model = nn.ModuleList([encoder, core, decoder]).eval()  # dropout, where a core has it, would take longer
    target = batch.target[:, -1].long()

    def loss() -> torch.Tensor:
        last = core(encoder(batch)).slots[:, -1:]
        return F.cross_entropy(decoder(last, batch).reconstruction[:, 0], target)

    # predicting the share of each class, whatever the pixel: what a model knows that has not seen the balls
    shares = target.flatten().bincount(minlength=7) / target.numel()
    floor = -(shares * shares.clamp(min=1e-9).log()).sum().item()
    goal = 0.2 * floor
    assert loss().item() > 5 * goal
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(250):
        optimizer.zero_grad()
        value = loss()
        if value.item() < goal:
            break
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    assert loss().item() < 1.1 * goal
