"""Small tasks of codes, and what it takes to try them."""

from functools import partial

import torch
from lightning.pytorch import Trainer

from slotbench.data.balls.bouncing_balls import BouncingBalls
from slotbench.data.base import LoaderOptions
from slotbench.registry import load
from slotbench.tasks.codes.code_autoencoding import CodeAutoencoding
from slotbench.tasks.codes.frame_tokenization import FrameTokenization

TINY_DVAE = partial(load("tokenizers", "DVAE"), num_codes=6, channels=4, anneal_steps=4)
PATCHES = partial(load("tokenizers", "PatchKMeans"), num_codes=6, fit_frames=12)


def balls(**arguments):
    """Two balls in clips of 3 and of 5 frames of 16 x 16 pixels."""
    sizes = {"num_frames": 3, "eval_frames": 5, "resolution": 16}
    loader = LoaderOptions(batch_size=3, val_batch_size=4, val_size=6, test_size=4)
    return BouncingBalls(num_balls=2, **sizes | arguments, loader=loader)


def quiet_trainer(**arguments):
    """A trainer that writes nothing."""
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    return Trainer(accelerator="cpu", num_sanity_val_steps=0, **quiet | arguments)


def frame_task(data, tokenizer=TINY_DVAE, **arguments):
    """A tokenizer alone."""
    torch.manual_seed(0)
    return FrameTokenization(tokenizer, data_spec=data.spec, baseline_frames=12, **arguments)


def code_task(data, core="SAVi", tokenizer=PATCHES, **arguments):
    """Slots that predict the codes of fitted patches, or of another tokenizer."""
    torch.manual_seed(0)
    given = {
        "decoder": partial(load("decoders", "AutoregressiveTransformer"), dim=16, num_layers=1),
        "tokenizer": tokenizer,
        "optimizer": partial(torch.optim.Adam, lr=1e-3),
        "data_spec": data.spec,
    }
    return CodeAutoencoding(
        partial(load("encoders", "CNNEncoder"), dim=16, channels=(8,), kernel_sizes=(3,), strides=(2,)),
        partial(load("cores", core), num_slots=3, dim=16),
        **given | arguments,
    )
