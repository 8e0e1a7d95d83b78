"""The parts together learn a few pictures and clips by heart: minutes, and so not in every run of the tests."""

from functools import partial

import pytest
import torch

from slotbench.interfaces import DataSpec, VideoBatch, VideoSpec
from slotbench.registry import load
from slotbench.tasks.slot_autoencoding import SlotAutoencoding

SIDE = 32
FRAME = VideoSpec(channels=3, height=SIDE, width=SIDE)
pytestmark = pytest.mark.slow


def squares(clips, frames):
    """Two or three coloured squares per clip on grey, each moving on a straight line."""
    generator = torch.Generator().manual_seed(0)
    video = torch.full((clips, frames, 3, SIDE, SIDE), 0.5)
    for clip in video:
        for _ in range(int(torch.randint(2, 4, (), generator=generator))):
            colour = torch.rand(3, 1, 1, generator=generator)
            side = int(torch.randint(6, 11, (), generator=generator))
            row, col = torch.randint(0, SIDE - side - 5, (2,), generator=generator).tolist()
            down, right = torch.randint(0, 2, (2,), generator=generator).tolist()
            for t, frame in enumerate(clip):
                top, left = row + t * down, col + t * right
                frame[:, top : top + side, left : left + side] = colour
    return VideoBatch(frames=video, time=torch.arange(frames).repeat(clips, 1))


def learn(core, batch, steps):
    """Loss before the first step and after the last, as a pair."""
    torch.manual_seed(0)
    task = SlotAutoencoding(
        partial(load("encoders", "CNNEncoder"), dim=32, channels=(16, 16), kernel_sizes=(5, 3), strides=(2, 1)),
        core,
        partial(load("decoders", "SpatialBroadcastDecoder"), channels=16, num_layers=1, output_kernel=4),
        data_spec=DataSpec(FRAME, FRAME),
    )
    optimizer = torch.optim.Adam(task.parameters(), lr=3e-3)
    losses = []
    for _ in range(steps):
        loss = task.loss(task(batch), batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(task.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses[0], sum(losses[-10:]) / 10


@pytest.mark.parametrize("aggregation", ["WeightedMean", "WeightedSum", "BatchScaled", "LayerNormAggregation"])
def test_slot_attention_learns_eight_pictures_with_every_way_to_normalise(aggregation):
    core = partial(
        load("cores", "SlotAttention"),
        num_slots=4,
        dim=32,
        slot_init="gaussian",
        aggregation=load("aggregations", aggregation),
    )
    before, after = learn(core, squares(8, 1), steps=500)
    assert after < before / 5


@pytest.mark.parametrize("core", ["SAVi", "PSB", "OCSlotSSM"])
def test_video_cores_learn_four_clips(core):
    before, after = learn(partial(load("cores", core), num_slots=4, dim=32), squares(4, 6), steps=500)
    assert after < before / 10
