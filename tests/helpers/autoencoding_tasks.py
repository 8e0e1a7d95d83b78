"""Small tasks of taking clips apart, and what it takes to try them."""

from functools import partial

import torch
from torch.nn import functional as F

from slotbench.data.balls.bouncing_balls import BouncingBalls
from slotbench.data.base import LoaderOptions
from slotbench.interfaces import VideoSpec
from slotbench.pretrained.feature_extractor import FeatureExtractor
from slotbench.registry import load
from slotbench.tasks.slot_autoencoding import SlotAutoencoding

CNNEncoder, SAVi = load("encoders", "CNNEncoder"), load("cores", "SAVi")
SpatialBroadcastDecoder = load("decoders", "SpatialBroadcastDecoder")


def ball_clips(**arguments):
    """Two balls in clips of 3 and of 5 frames of 16 x 16 pixels."""
    sizes = {"num_frames": 3, "eval_frames": 5, "resolution": 16}
    return BouncingBalls(
        num_balls=2, **sizes | arguments, loader=LoaderOptions(batch_size=3, val_batch_size=4, val_size=6, test_size=4)
    )


def make_task(data, core=None, decoder=None, encoder=None, **arguments):
    """A small SAVi, or another core, between convolutions and a broadcast decoder."""
    torch.manual_seed(0)
    return SlotAutoencoding(
        encoder or partial(CNNEncoder, dim=16, channels=(8,), kernel_sizes=(3,), strides=(2,)),
        core or partial(SAVi, num_slots=3, dim=16, mlp_ratio=1),
        decoder or partial(SpatialBroadcastDecoder, channels=4, initial_rgb=0.5),
        optimizer=partial(torch.optim.Adam, lr=1e-3),
        **({"data_spec": data.spec} | arguments),
    ).eval()


class MeanColours(FeatureExtractor):
    """Stands in for a trained network: means over patches of 4 pixels, and their squares."""

    def __init__(self, video_spec):
        super().__init__(torch.nn.Conv2d(1, 1, 1))
        self.resolution = video_spec.height
        self.spec = VideoSpec(
            channels=2 * video_spec.channels, height=video_spec.height // 4, width=video_spec.width // 4
        )

    def extract(self, images):
        means = F.avg_pool2d(images, 4)
        return torch.cat([means, means**2], dim=1)
