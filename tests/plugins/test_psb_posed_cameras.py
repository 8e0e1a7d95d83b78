"""PSB's models of posed cameras, and its baselines and ablations of them, are made of the parts that there are."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from view_tasks import PosedSpheres, view_task

from slotbench.interfaces import to_unit_range
from slotbench.registry import load

ENCODER = partial(load("encoders", "SLSREncoder"), dim=8, norm_groups=2, num_layers=1)
NERF = partial(load("decoders", "SlotNeRF"), dim=8, num_points=3)
MIXER = partial(load("decoders", "SlotMixerDecoder"), dim=8, num_layers=1)
PSB = partial(load("cores", "PSB"), num_slots=3, dim=8, num_layers=1, bottom_up_heads=4)
CORES = {
    "PSB": PSB,
    "PSB, drawn slots": partial(PSB, slot_init="gaussian"),
    "PSB, joint interaction": partial(PSB, interaction="joint"),
    "SAVi": partial(load("cores", "SAVi"), num_slots=3, dim=8),
    "Slot Attention of each step": partial(load("cores", "SlotAttention"), num_slots=3, dim=8),
}
DECODERS = {
    "NeRF": NERF,
    "NeRF without a static field": partial(NERF, static_field=False, sky=False),
    "NeRF as in uORF, with shadow": partial(NERF, mix="weighted_mean", shadow=True),
    "SlotMixer": MIXER,
}


def batch_of(data: PosedSpheres):
    return to_unit_range(data.dataset("train").clips([0, 1]))


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("decoder", DECODERS)
def test_it_trains_a_step(core, decoder):
    data = PosedSpheres()
    task = view_task(data, encoder=ENCODER, core=CORES[core], decoder=DECODERS[decoder]).train()
    batch = batch_of(data)
    task.training_loss(batch).backward()
    parts = (task.encoder, task.core, task.decoder)
    assert all(any(p.grad is not None and p.grad.any() for p in part.parameters()) for part in parts)


def test_images_in_pieces_have_depth_and_background():
    data = PosedSpheres()
    task = view_task(data, encoder=ENCODER, core=PSB, decoder=NERF, rays_at_once=100)
    batch = batch_of(data).all_views()
    slots = torch.randn(2, batch.num_steps, 3, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        pieces, whole = task.paint(slots, batch), task.decoder(slots, replace(batch, masks=None))
    for name in ("reconstruction", "masks", "depth", "background"):
        torch.testing.assert_close(getattr(pieces, name), getattr(whole, name), rtol=0, atol=1e-5)
