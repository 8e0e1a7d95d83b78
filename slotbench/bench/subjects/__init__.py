"""The subjects of `slotbench bench NAME`: several subjects per module, imported when one of them is named.

A module has a dictionary `SUBJECTS` of what it measures by name. To add a subject, add it there and to the table below.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from slotbench.bench.timing import Contest, Way

__all__ = ["SUBJECTS", "Subject", "by_shape", "load_subject"]

_SUBJECTS: dict[str, tuple[str, str]] = {
    "selective_scan": ("kernels", "kernels of Mamba's scan, forward and backward"),
    "ssd": ("kernels", "kernels of Mamba-2's scan beside Mamba's"),
    "linear_scan": ("kernels", "kernels of the complex linear scan (ConvS5, S5) beside the bound of memory traffic"),
    "frame_conv": ("kernels", "norm, activation and convolution of a few frames: prepared for many calls, or torch's"),
    "group_norm": ("kernels", "GroupNorm with the activation after it, compiled against torch (ConvS5, ResNet)"),
    "temporal_attention": ("attention", "attention over the slots of all earlier steps, fused against written out"),
    "cross_attention": ("attention", "slots that read tokens: with keys and values of the tokens, and without"),
    "inverted_attention": ("inverted_attention", "slots that compete for tokens: with keys, without, without weights"),
    "slot_attention": ("slot_attention", "a training step of SAVi: directly, and through inverted attention"),
    "recurrent_cores": ("cores", "SlotRNN and RIM against torch.nn.GRU over the same slots"),
    "modular_cores": ("cores", "RIM, OCRIM and SCOFF against a GRU of equal state on the same tokens"),
    "video_models": ("cores", "ConvS5, ConvLSTM and frame transformers against length: training and sampling"),
    "broadcast_decoder": ("decoders", "first layer of the broadcast decoder: a matrix product, or a convolution"),
    "upsampled_conv": (
        "decoders",
        "a convolution of an upsampled image (BCD, CAT): at the small size or step by step",
    ),
    "code_sampling": ("decoders", "codes of a frame sampled one by one: kept keys and values, or whole passes"),
    "training_step": ("training_step", "parts of one training step of an experiment (--config FILE)"),
    "segmentation_metrics": ("metrics", "object-discovery metrics against scikit-learn"),
    "scoring": ("metrics", "slotbench score on folders of masks against scikit-learn and scipy"),
    "simulators": ("data", "clips of the simulated data sets, by kernel and through the loader"),
    "movi_like": ("data", "videos of MOViLike, made and read back"),
    "grids": ("commands", "overhead of a grid over running its points by hand; the status of many"),
    "comparison": ("commands", "slotbench compare on many long runs"),
}

SUBJECTS = {name: what for name, (_, what) in _SUBJECTS.items()}
"""Every subject but the cores and the GPU, and what it measures."""


@dataclass(frozen=True)
class Subject:
    """What a subject measures.

    Attributes:
        title: heading of its tables.
        case: what tells its contests apart: the heading of the first column.
        contests: the contests, small ones if its first argument (quick) is true; further parameters are options of the
            command (`--config FILE` for `config`).
        rounds: how often each way takes its turn by default.
        note: a sentence under the tables.
    """

    title: str
    case: str
    contests: Callable[..., Iterable[Contest]]
    rounds: int = 7
    note: str = ""


def load_subject(name: str) -> Subject:
    """The subject of a name in `SUBJECTS`."""
    found: Subject = importlib.import_module(f"{__name__}.{_SUBJECTS[name][0]}").SUBJECTS[name]
    return found


def by_shape(
    shapes: Iterable[tuple[int, ...]],
    ways: Callable[[tuple[int, ...]], Mapping[str, Way]],
    base: str,
    small: Callable[[tuple[int, ...]], tuple[int, ...]] | None = None,
    **fields: Any,
) -> list[Contest]:
    """A contest per shape, which is its label.

    Args:
        shapes: of the inputs.
        ways: makes the ways for a shape.
        base: the way that ratios are relative to.
        small: a shape that is quick to run and compiles the same; needed where memory is measured.
        **fields: further fields of the contests, such as `memory`, `rare` and `group`.
    """
    return [
        Contest(
            ", ".join(map(str, shape)),
            partial(ways, shape),
            base,
            small=None if small is None else partial(ways, small(shape)),
            **fields,
        )
        for shape in shapes
    ]
