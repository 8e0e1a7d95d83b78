"""The RIM thesis' training: squared error summed over the frames of a clip, on images that need no squashing."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from prediction_tasks import batch_of, quiet_trainer

from slotbench.data.balls.bouncing_balls import BouncingBalls
from slotbench.data.base import LoaderOptions
from slotbench.interfaces import Decoded
from slotbench.registry import load
from slotbench.tasks.rollouts import rollout
from slotbench.tasks.video_prediction import VideoPrediction
from tests.helpers.rollout_options import grouped

ENCODER = partial(load("encoders", "StridedCNNEncoder"), dim=8, channels=(4, 4), norm="frame", output="flat")
CORE = partial(load("cores", "RIM").thesis, num_slots=3, top_k=3, dim=8)
DECODERS = {
    "CAT": partial(load("decoders", "ConcatenationDecoder"), channels=(4, 4, 4)),
    "BCD": partial(load("decoders", "ComponentDecoder"), channels=(4, 4, 4)),
    "SBD": partial(load("decoders", "SpatialBroadcastDecoder"), channels=4, layer_norm=True, output="sigmoid"),
}


def ball_clips(**arguments):
    """Clips of 20 frames of 16 x 16 pixels."""
    return BouncingBalls(
        num_balls=2,
        num_frames=20,
        eval_frames=20,
        resolution=16,
        loader=LoaderOptions(batch_size=2, val_batch_size=2, val_size=3, train_size=2),
        **arguments,
    )


def thesis_task(data, decoder="SBD", **arguments):
    """Inputs 0 to 9 are true in evaluation, and frames 10 to 19 are scored."""
    torch.manual_seed(0)
    options = grouped({"loss": "mse", "loss_sum": "frames", "context": 10, "horizon": 10} | arguments)
    parts = (ENCODER, CORE, DECODERS[decoder])
    return VideoPrediction(*parts, torch.optim.Adam, data_spec=data.spec, **options).eval()


@pytest.mark.parametrize("decoder", DECODERS)
def test_the_loss_is_the_sum_of_19_means_over_frames(decoder):
    data = ball_clips()
    task, batch = thesis_task(data, decoder), batch_of(data)
    with torch.no_grad():
        decoded = task(batch)
        found = task.loss(decoded, batch).item()
    painted = decoded.reconstruction
    assert painted.shape[1] == 19
    expected = sum(((painted[:, t] - batch.frames[:, t + 1]) ** 2).mean().item() for t in range(19))
    assert found == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(task.frames(decoded), painted)
    extra = Decoded(painted, losses={"own": torch.tensor(2.0)})
    assert task.loss(extra, batch).item() == pytest.approx(expected + 2, rel=1e-5)


class WithATermOfItsOwn(DECODERS["CAT"].func):
    """Its term is the mean of the squared slots."""

    def forward(self, slots, batch=None):
        return replace(super().forward(slots, batch), losses={"own": 100 * slots.square().mean()})


def test_an_evaluation_in_pieces_sums_the_same_frames(monkeypatch):
    data, found = ball_clips(), []
    for piece in (32, 6):
        monkeypatch.setattr(rollout, "PIECE", piece)
        monkeypatch.setitem(DECODERS, "CAT", WithATermOfItsOwn)
        task = thesis_task(data, "CAT")
        quiet_trainer().validate(task, data, verbose=False)
        found.append(float(task.trainer.callback_metrics["val/loss"]))
    assert found[1] == pytest.approx(found[0], rel=1e-4)
    assert found[0] > 1


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("loss", ["bce", "l1_l2"])
def test_an_image_that_is_squashed_already_is_not_squashed_again(decoder, loss):
    with pytest.raises(ValueError, match=rf"bounds its image to \[0, 1\].*loss='{loss}' squashes it again: set loss"):
        thesis_task(ball_clips(), decoder, loss=loss)
