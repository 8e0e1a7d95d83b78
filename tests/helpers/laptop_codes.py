"""Models of codes of the ConvS5 paper at laptop size, with a stand-in for the VQ-GAN."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from slotbench.interfaces import DataSpec, Tokenized, Tokenizer, VideoBatch, VideoSpec
from slotbench.nn.mask_git import MaskGit
from slotbench.registry import load

WIDTH, LAYERS = 64, 2
CORES: dict[str, dict[str, Any]] = {
    "ConvS5": {"dim": WIDTH, "state_dim": WIDTH, "num_layers": LAYERS, "clip_eigs": False},
    "S5": {"dim": WIDTH, "state_dim": WIDTH, "num_layers": LAYERS, "clip_eigs": False},
    "FrameTransformer": {"dim": WIDTH, "num_layers": LAYERS},
}
LAPTOP = {f"{before}{core}": core for before in ("", "TECO-") for core in CORES}


class Codes(Tokenizer):
    """A table of code vectors; the frames that it paints are blank."""

    def __init__(self, video_spec: VideoSpec, num_codes: int = 128, dim: int = 256):
        super().__init__()
        self.frame, self.code_spec = video_spec, VideoSpec(num_codes, 16, 16)
        self.register_buffer("codebook", torch.randn(num_codes, dim))

    def forward(self, frames: Tensor) -> Tokenized:
        raise TypeError("clips come with their codes, and no frame is read")

    def decode(self, codes: Tensor) -> Tensor:
        return self.codebook.new_zeros(*codes.shape[:2], self.frame.channels, self.frame.height, self.frame.width)


def laptop_task(name: str) -> Any:
    """A model of `LAPTOP`, in evaluation."""
    torch.manual_seed(0)
    core, teco = LAPTOP[name], name.startswith("TECO-")
    sizes = {"depths": (32, WIDTH), "blocks": 2} if teco else {"depths": (32,), "blocks": 1, "action_dim": 16}
    more: dict[str, Any] = {}
    if teco:
        prior = partial(MaskGit, dim=WIDTH, num_layers=LAYERS, num_heads=8, code_dim=32)
        more = {"prior": prior, "latent_dim": 32, "num_latent_codes": 128}
    frame = VideoSpec(3, 64, 64, 6)
    return load("tasks", "TECO" if teco else "CodePrediction")(
        partial(load("encoders", "ResNetEncoder"), **sizes, rescale=False),
        partial(load("cores", core), **CORES[core], **({} if core == "ConvS5" else {"patch": 16 >> teco})),
        partial(load("decoders", "ResNetDecoder"), depths=(32, WIDTH)[not teco :], blocks=4),
        tokenizer=Codes,
        data_spec=DataSpec(frame, frame),
        **more,
    ).eval()


def clip_of(task: Any, length: int) -> VideoBatch:
    """A clip of blank frames with random codes and actions."""
    frame, codes = task.data_spec.input, task.tokenizer.code_spec
    frames = torch.zeros(1, length, frame.channels, frame.height, frame.width)
    batch = VideoBatch(frames, torch.arange(length)[None])
    actions = one_hot(torch.randint(frame.num_actions, (1, length)), frame.num_actions).float()
    found = torch.randint(codes.channels, (1, length, codes.height, codes.width))
    return replace(batch, actions=actions, codes=found)
