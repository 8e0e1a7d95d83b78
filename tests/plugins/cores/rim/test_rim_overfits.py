"""GRU, RIM and OC-RIM between the thesis' encoders and decoders learn two clips by heart."""

from functools import partial

import pytest
import torch

from slotbench.data.base import LoaderOptions
from slotbench.registry import load
from slotbench.tasks.video_prediction import VideoPrediction

ENCODER = partial(load("encoders", "StridedCNNEncoder"), dim=32, channels=(8, 16), padding=0, norm="frame")
CAT = partial(load("decoders", "ConcatenationDecoder"), channels=(32, 16, 8))
BCD = partial(load("decoders", "ComponentDecoder"), channels=(16, 16, 8))
SBD = partial(
    load("decoders", "SpatialBroadcastDecoder"),
    channels=16,
    kernel_size=(5, 5),
    layer_norm=True,
    output="sigmoid",
    positions="ramps",
)
RIM = {"num_slots": 4, "dim": 32, "initial": "zeros", "input_dropout": 0.0, "communication_dropout": 0.0}
SLOTS = {"num_inputs": 3, "slot_dim": 32, "slot_iterations": 2, "slot_mlp_dim": 64}
MODELS = {
    "GRU": (partial(ENCODER, output="flat"), partial(load("cores", "GRU"), dim=128), CAT),
    "RIM": (partial(ENCODER, output="flat"), partial(load("cores", "RIM"), num_inputs=None, top_k=3, **RIM), CAT),
    "OC-RIM, SBD": (partial(ENCODER, output="map"), partial(load("cores", "OCRIM"), **RIM, **SLOTS), SBD),
    "OC-RIM, BCD": (partial(ENCODER, output="map"), partial(load("cores", "OCRIM"), **RIM, **SLOTS), BCD),
}


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_two_clips_are_learned_by_heart(model):
    data = load("datasets", "MovingSprites")(
        resolution=32, num_frames=8, colours=("red",), loader=LoaderOptions(batch_size=2, train_size=2)
    )
    batch = data.on_after_batch_transfer(next(iter(data.train_dataloader())), 0)
    torch.manual_seed(0)
    task = VideoPrediction(*MODELS[model], loss="mse", loss_sum="frames", data_spec=data.spec)
    optimizer = torch.optim.Adam(task.parameters(), lr=3e-3)
    losses = []
    for _ in range(300):
        loss = task.training_loss(batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(task.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    black = 7 * batch.frames[:, 1:].square().mean().item()
    assert sum(losses[-10:]) / 10 < 0.1 * losses[0]
    assert sum(losses[-10:]) / 10 < 0.15 * black
