"""Small tasks of predicting frames, and what it takes to try them."""

from functools import partial

import lightning
import torch

from slotbench.data.balls.bouncing_balls import BouncingBalls
from slotbench.data.base import LoaderOptions
from slotbench.registry import load
from slotbench.tasks.video_prediction import VideoPrediction
from tests.helpers.rollout_options import grouped

PatchEncoder, SlotSSM = load("encoders", "PatchEncoder"), load("cores", "SlotSSM")
TransformerDecoder = load("decoders", "TransformerDecoder")


def ball_clips():
    """Two balls in clips of 5 and of 9 frames of 16 x 16 pixels."""
    return BouncingBalls(
        num_balls=2,
        num_frames=5,
        eval_frames=9,
        resolution=16,
        loader=LoaderOptions(batch_size=3, val_batch_size=4, val_size=6),
    )


def batch_of(data, split="val"):
    """The first batch of a split, with frames in [0, 1]."""
    loader = data.val_dataloader() if split == "val" else data.train_dataloader()
    return data.on_after_batch_transfer(next(iter(loader)), 0)


def make_task(data, core=None, **arguments):
    """A small SlotSSM, or another core, between patches and a transformer."""
    torch.manual_seed(0)
    core = core or partial(SlotSSM, num_slots=3, dim=16, num_layers=1, num_heads=2, encoder_layers=1, state_dim=4)
    task = VideoPrediction(
        partial(PatchEncoder, dim=16),
        core,
        partial(TransformerDecoder, dim=16, num_layers=1, num_heads=2),
        optimizer=partial(torch.optim.AdamW, lr=1e-3),
        data_spec=data.spec,
        **grouped({"context": 4, "horizon": 5} | arguments),
    )
    # the head starts at zero, which would hide every difference
    torch.nn.init.normal_(task.decoder.head.weight)
    return task.eval()


def quiet_trainer(**arguments):
    """A trainer that writes nothing."""
    return lightning.Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        **arguments,
    )


def image_task(data, **arguments):
    """A task on a grid of cells, trained as the ConvS5 models are."""
    torch.manual_seed(0)
    return VideoPrediction(
        partial(load("encoders", "ResNetEncoder"), depths=(4, 8)),
        partial(load("cores", "ConvLSTM"), dim=8, num_layers=1),
        partial(load("decoders", "ResNetDecoder"), depths=(4, 8)),
        optimizer=partial(torch.optim.AdamW, lr=1e-3, weight_decay=1e-5),
        data_spec=data.spec,
        **grouped({"context": 4, "horizon": 5, "loss": "l1_l2"} | arguments),
    ).eval()
