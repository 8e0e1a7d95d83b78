"""The subjects of `slotbench bench NAME`: one table; a subject's module is imported when the subject is named.

To add a subject, add it here and write the function of its name in its module, which makes the contests: small ones if
its first argument (`quick`) is true; further parameters are options of the command (`--config FILE` for `config`).
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any, NamedTuple

__all__ = ["SUBJECTS", "Subject", "contests_of"]


class Subject(NamedTuple):
    """What a subject measures.

    Attributes:
        module: of this folder.
        what: it measures: for the help, and the heading of its tables.
        case: what tells its contests apart: the heading of the first column.
        rounds: how often each way takes its turn by default.
    """

    module: str
    what: str
    case: str
    rounds: int = 7


SUBJECTS = {
    "selective_scan": Subject("ops", "kernels of Mamba's scan, forward and backward", "batch, time, inner, state", 5),
    "ssd": Subject("ops", "kernels of Mamba-2's scan beside Mamba's", "batch, time, heads, head_dim, state", 5),
    "linear_scan": Subject(
        "ops",
        "kernels of the complex linear scan (ConvS5, S5) beside the bound of memory traffic",
        "batch, time, rows, cols, states",
    ),
    "frame_conv": Subject(
        "ops",
        "norm, activation and convolution of a few frames: prepared for many calls, or torch's; 20 calls a turn",
        "frames x in x out x side",
    ),
    "group_norm": Subject(
        "ops",
        "GroupNorm with the activation after it, compiled against torch (ConvS5, ResNet); 20 calls a turn",
        "frames x channels x rows x columns",
    ),
    "temporal_attention": Subject(
        "ops", "attention over the slots of all earlier steps, fused against written out", "batch, steps, slots"
    ),
    "cross_attention": Subject(
        "ops",
        "slots that read tokens: with keys and values of the tokens, and without",
        "frames, tokens, slots, width",
    ),
    "inverted_attention": Subject(
        "ops",
        "slots that compete for tokens: with keys, without, without weights",
        "work, batch, steps, tokens",
    ),
    "slot_attention": Subject(
        "ops", "a training step of SAVi by the kernel of inverted attention", "tokens, width, slots", 11
    ),
    "recurrent_cores": Subject(
        "models", "SlotRNN and RIM against torch.nn.GRU over the same slots", "batch, steps, slots, width", 11
    ),
    "modular_cores": Subject(
        "models",
        "RIM, OCRIM and SCOFF against a GRU of equal state on the same tokens",
        "batch, tokens, width of a module",
    ),
    "video_models": Subject(
        "models", "ConvS5, ConvLSTM and frame transformers against length: training and sampling", "length", 3
    ),
    "code_models": Subject(
        "codes",
        "models of codes (ConvS5, S5, Transformer, TECO): roll-outs; steps and frames at the ConvS5 paper's sizes",
        "model",
        3,
    ),
    "broadcast_decoder": Subject(
        "decoders", "first layer of the broadcast decoder: a matrix product, or a convolution", "decoder, part", 20
    ),
    "upsampled_conv": Subject(
        "decoders",
        "a convolution of an upsampled image (BCD, CAT): at the small size or step by step",
        "decoder, setting",
        15,
    ),
    "code_sampling": Subject(
        "decoders", "codes of a frame sampled one by one: kept keys and values, or whole passes", "decoder", 3
    ),
    "ray_decoders": Subject(
        "decoders", "decoders of rays (SlotMixerDecoder, SlotNeRF): by rays of a step, slots and points", "decoder", 5
    ),
    "training_step": Subject("models", "parts of one training step of an experiment (--config FILE)", "experiment", 20),
    "segmentation_metrics": Subject("metrics", "object-discovery metrics against scikit-learn", "input", 3),
    "scoring": Subject("metrics", "slotbench score on folders of masks against scikit-learn and scipy", "input", 3),
    "simulators": Subject(
        "simulators",
        "batches of the simulated data sets on a core, and the training steps on a GPU that 8 workers feed",
        "experiment",
        9,
    ),
    "movi_like": Subject("programs", "videos of MOViLike, made and read back; one a turn", "videos", 15),
    "grids": Subject("programs", "overhead of a grid over running its points by hand; the status of many", "grid", 3),
    "comparison": Subject("programs", "slotbench compare on many long runs", "runs", 3),
}
"""Every subject but the cores and the GPU."""


def contests_of(name: str, quick: bool, **options: Any) -> Iterable[Any]:
    """The contests (`slotbench.bench.contests.Contest`) of a name in `SUBJECTS`."""
    module = import_module(f"{__name__}.{SUBJECTS[name].module}")
    found: Iterable[Any] = getattr(module, name)(quick, **options)
    return found
