"""Decoders with the fast and the plain way of their layers, and codes that are sampled one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from slotbench.bench.subjects import Subject
from slotbench.bench.timing import Contest, Way
from slotbench.interfaces import SlotSpec, VideoSpec
from slotbench.registry import load

__all__ = ["SUBJECTS"]

# --- broadcast decoder

CLIPS, FRAMES, SLOTS, DIM, SIDE = 4, 3, 7, 64, 32  # experiments/movi_like.yaml: 84 slot images
DECODERS: dict[str, dict[str, int]] = {
    "light (movi_like)": {"channels": 16, "num_layers": 1, "output_kernel": 4},
    "defaults": {},
    "64 channels": {"channels": 64},
}
LAYERS: dict[str, dict[str, int]] = {
    "16 to 16 channels, doubles": {"channels": 16},
    "64 to 64 channels, doubles": {"channels": 64},
    "16 to 4 channels, last": {"channels": 16, "layer": -1},
}


def _broadcast(quick: bool) -> Iterator[Contest]:
    """Whole decoders and their first layers; then where the gradient of a layer's bias is summed."""
    most = 1 if quick else None
    for name, arguments in list(DECODERS.items())[:most]:
        for part in ("whole", "first layer"):
            ways = partial(_first_layer_ways, arguments, part)
            yield Contest(f"{name}, {part}", ways, "convolution", group="first layer")
    for name, arguments in list(LAYERS.items())[:most]:
        yield Contest(name, partial(_bias_ways, **arguments), "in the convolution", group="gradient of the bias")


def _broadcast_decoder(**arguments: int) -> Any:
    torch.manual_seed(0)
    frame = VideoSpec(channels=3, height=SIDE, width=SIDE)
    return load("decoders", "SpatialBroadcastDecoder")(SlotSpec(SLOTS, DIM), frame, **arguments)


def _first_layer_ways(arguments: dict[str, int], part: str) -> dict[str, Way]:
    """The first layer as a matrix product, and as a convolution over grids that are written down."""
    slots = torch.randn(CLIPS, FRAMES, SLOTS, DIM, generator=torch.Generator().manual_seed(0)).requires_grad_()
    ours = _broadcast_decoder(**arguments)
    plain = deepcopy(ours)
    # an identity, but for any norm the decoder writes the grids down
    plain.grid_norm = nn.Sequential()

    def whole(decoder: Any) -> tuple[Tensor, ...]:
        loss = decoder(slots).reconstruction.square().mean()
        return torch.autograd.grad(loss, [slots, *decoder.parameters()])

    def first_layer(decoder: Any) -> tuple[Tensor, ...]:
        weights = [*decoder.convs[0].parameters(), *decoder.position.parameters()]
        return torch.autograd.grad(decoder.first_layer(slots).square().mean(), [slots, *weights])

    run = whole if part == "whole" else first_layer
    return {"convolution": partial(run, plain), "matrix product": partial(run, ours)}


def _bias_ways(channels: int, layer: int = 1) -> dict[str, Way]:
    """Forward and backward of one layer of a decoder on a channels-last image per slot."""
    decoder = _broadcast_decoder(channels=channels)
    conv, own = decoder.convs[layer], import_module(type(decoder).__module__).conv_transpose
    side = SIDE // conv.stride[0]
    images = torch.randn(CLIPS * FRAMES * SLOTS, channels, side, side).contiguous(memory_format=torch.channels_last)
    images.requires_grad_()
    gradient = torch.randn_like(conv(images))

    def added_after() -> Tensor:
        arguments = (conv.stride, conv.padding, conv.output_padding)
        return functional.conv_transpose2d(images, conv.weight, None, *arguments).add_(conv.bias[:, None, None])

    def both_passes(forward: Callable[[], Tensor]) -> tuple[Tensor, ...]:
        return torch.autograd.grad(forward(), [images, conv.weight, conv.bias], gradient)

    return {
        "in the convolution": partial(both_passes, lambda: conv(images)),
        "of an addition after it": partial(both_passes, added_after),
        "a sum of its own": partial(both_passes, lambda: own(conv, images)),
    }


# --- decoders of the RIM thesis

# decoder, frames, modules, width, side of the image, channels
THESIS: dict[str, tuple[str, int, int, int, int, tuple[int, ...]]] = {
    "components, moving_sprites": ("ComponentDecoder", 160, 4, 64, 32, (16, 8, 8)),
    "one image, moving_sprites": ("ConcatenationDecoder", 160, 4, 64, 32, (32, 16, 8)),
    "components, the thesis": ("ComponentDecoder", 20, 6, 100, 64, (64, 32, 16)),
    "one image, the thesis": ("ConcatenationDecoder", 20, 6, 100, 64, (64, 32, 16)),
}
STEP_BY_STEP, SMALL = "step by step", "at the small size"


def _upsampled(quick: bool) -> Iterator[Contest]:
    """One contest per decoder and size, whole, down to the gradient of the slots."""
    for name, (kind, frames, modules, width, side, channels) in list(THESIS.items())[: 1 if quick else None]:
        sizes: dict[str, Any] = {"width": width, "side": side, "channels": channels}
        ways, small = (partial(_thesis_ways, kind, *count, **sizes) for count in ((frames, modules), (1, 1)))
        yield Contest(name, ways, STEP_BY_STEP, memory=(STEP_BY_STEP, SMALL), small=small)


def _thesis_ways(kind: str, frames: int, modules: int, width: int, side: int, channels: Any) -> dict[str, Way]:
    slots = torch.randn(1, frames, modules, width, generator=torch.Generator().manual_seed(0)).requires_grad_()

    def build() -> Any:
        torch.manual_seed(0)
        return load("decoders", kind)(SlotSpec(modules, width), VideoSpec(3, side, side), channels=channels)

    def run(decoder: Any) -> tuple[Tensor, ...]:
        loss = decoder(slots).reconstruction.square().mean()
        return torch.autograd.grad(loss, [slots, *decoder.parameters()])

    plain, fast = build(), build()
    for conv in plain.layers.convs:
        conv.forward = conv.reference
    return {STEP_BY_STEP: partial(run, plain), SMALL: partial(run, fast)}


# --- codes

LAPTOP = {"dim": 64, "num_layers": 3, "codes": 64, "slots": 7}  # experiments/movi_like_textured.yaml
PUBLIC = {"dim": 192, "num_layers": 8, "codes": 4096, "slots": 15}  # experiments/paper/movi_e_steve.yaml
CODES: dict[str, dict[str, int]] = {
    "small, 64 cells, 4 frames": LAPTOP | {"side": 8, "frames": 4},
    "small, 256 cells, 1 frame": LAPTOP | {"side": 16, "frames": 1},
    "small, 256 cells, 16 frames": LAPTOP | {"side": 16, "frames": 16},
    "STEVE's, 256 cells, 1 frame": PUBLIC | {"side": 16, "frames": 1},
}


def _sampling(quick: bool) -> Iterator[Contest]:
    """By the size of the decoder, the number of codes of a frame, and the frames at once."""
    for name, sizes in list(CODES.items())[: 1 if quick else None]:
        yield Contest(name, partial(_sampling_ways, **sizes), "prefix")


def _sampling_ways(side: int, frames: int, codes: int, slots: int, dim: int, num_layers: int) -> dict[str, Way]:
    torch.manual_seed(0)
    grid = VideoSpec(channels=codes, height=side, width=side)
    decoder: Any = load("decoders", "AutoregressiveTransformer")(SlotSpec(slots, dim), grid, dim, num_layers)
    decoder.eval()
    given = torch.randn(1, frames, slots, dim)
    return {
        "prefix": lambda: decoder.sample_by_prefix(given),
        "kept keys and values": lambda: decoder.sample(given)[0],
    }


SUBJECTS = {
    "broadcast_decoder": Subject(
        f"broadcast decoder, {CLIPS * FRAMES * SLOTS} slot images of {SIDE} x {SIDE}, forward + backward, float32",
        "decoder, part",
        _broadcast,
        rounds=20,
    ),
    "upsampled_conv": Subject(
        "decoders of the RIM thesis, forward + backward, float32", "decoder, setting", _upsampled, rounds=15
    ),
    "code_sampling": Subject(
        "codes sampled greedily, one frame's cells after the other, float32", "decoder", _sampling, rounds=3
    ),
}
