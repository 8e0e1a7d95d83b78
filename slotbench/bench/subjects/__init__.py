"""What `slotbench bench NAME` can measure: one module per subject, imported when it is named.

A module has a one-line docstring, `SUBJECT`, and `contests(quick, ...)`, whose further parameters are options of the
command (`--config FILE` for `config`).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slotbench.bench.contest import Contest

__all__ = ["SUBJECTS", "Subject", "load_subject"]

SUBJECTS = {
    "selective_scan": "kernels of Mamba's scan, forward and backward",
    "ssd": "kernels of Mamba-2's scan beside Mamba's",
    "linear_scan": "kernels of the complex linear scan (ConvS5, S5) beside the bound of memory traffic",
    "frame_conv": "norm, activation and convolution of a few frames: prepared for many calls against torch",
    "group_norm": "GroupNorm with the activation after it, compiled against torch (ConvS5, ResNet)",
    "temporal_attention": "attention over the slots of all earlier steps, fused against written out",
    "cross_attention": "slots that read tokens: with keys and values of the tokens, and without",
    "inverted_attention": "slots that compete for tokens: with keys, without, without weights; sums over time",
    "recurrent_cores": "SlotRNN and RIM against torch.nn.GRU over the same slots",
    "modular_cores": "RIM, OCRIM and SCOFF against a GRU of equal state on the same tokens",
    "slot_attention": "a training step of SAVi: directly, and through inverted attention",
    "broadcast_decoder": "first layer of the broadcast decoder as a matrix product against a convolution",
    "upsampled_conv": "a convolution of an upsampled image (BCD, CAT), made at the small size against step by step",
    "code_sampling": "codes of a frame sampled one by one, with kept keys and values against whole passes",
    "video_models": "ConvS5, ConvLSTM and frame transformers against length: training and sampling",
    "training_step": "parts of one training step of an experiment (--config FILE)",
    "segmentation_metrics": "object-discovery metrics against scikit-learn",
    "scoring": "slotbench score on folders of masks against scikit-learn and scipy",
    "simulators": "clips of the simulated data sets, by kernel and through the loader",
    "movi_like": "videos of MOViLike, made and read back",
    "grids": "what a grid adds to running its points by hand; the status of many",
    "comparison": "slotbench compare on many long runs",
}
"""Name of every subject but the cores, and what it measures."""


@dataclass(frozen=True)
class Subject:
    """What a module of this folder measures.

    Attributes:
        title: heading of its tables.
        case: what tells its contests apart: the heading of the first column.
        contests: the contests, small ones if its first argument (quick) is true.
        rounds: how often each way takes its turn, unless the command says otherwise.
        note: a sentence under the tables.
    """

    title: str
    case: str
    contests: Callable[..., Iterable[Contest]]
    rounds: int = 7
    note: str = ""


def load_subject(name: str) -> Subject:
    """The subject of a name in `SUBJECTS`."""
    subject: Subject = importlib.import_module(f"{__name__}.{name}").SUBJECT
    return subject
