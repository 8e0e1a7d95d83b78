"""Decoders: whole ones, their first layers and biases, and two ways to sample codes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import grad
from torch.nn import functional

from slotbench.bench.contests import Contest, Way
from slotbench.interfaces import SlotSpec, VideoBatch, VideoSpec
from slotbench.registry import load

CLIPS, FRAMES, SLOTS, DIM, IMAGE = 4, 3, 7, 64, 32  # experiments/movi_like.yaml: 84 slot images
BROADCAST: dict[str, dict[str, int]] = {
    "light (movi_like)": {"channels": 16, "num_layers": 1, "output_kernel": 4},
    "defaults": {},
    "64 channels": {"channels": 64},
}
# channels and layer
BIASES = {
    "16 to 16 channels, doubles": (16, 1),
    "64 to 64 channels, doubles": (64, 1),
    "16 to 4 channels, last": (16, -1),
}
# decoder, frames, modules, width, side of the image, channels
THESIS: dict[str, tuple[Any, ...]] = {
    "components, moving_sprites": ("ComponentDecoder", 160, 4, 64, 32, (16, 8, 8)),
    "one image, moving_sprites": ("ConcatenationDecoder", 160, 4, 64, 32, (32, 16, 8)),
    "components, the thesis": ("ComponentDecoder", 20, 6, 100, 64, (64, 32, 16)),
    "one image, the thesis": ("ConcatenationDecoder", 20, 6, 100, 64, (64, 32, 16)),
}
# decoders of rays with their defaults, by what grows: 12 time steps, the rays of each, slots, and points of a ray
STEPS, TOGETHER = 12, 32
RAYS: dict[str, tuple[str, tuple[dict[str, int], ...]]] = {
    "SlotMixerDecoder, rays": ("SlotMixerDecoder", tuple({"rays": n, "slots": 6} for n in (64, 256, 1024))),
    "SlotMixerDecoder, slots": ("SlotMixerDecoder", tuple({"rays": 256, "slots": n} for n in (3, 6, 12))),
    "SlotNeRF, rays": ("SlotNeRF", tuple({"rays": n, "slots": 6, "points": 24} for n in (16, 64, 256))),
    "SlotNeRF, slots": ("SlotNeRF", tuple({"rays": 64, "slots": n, "points": 24} for n in (3, 6, 12))),
    "SlotNeRF, points": ("SlotNeRF", tuple({"rays": 64, "slots": 6, "points": n} for n in (12, 24, 48))),
}
# side of the grid of codes, frames, codes, slots, width, layers: experiments/movi_like_textured.yaml, and
# experiments/paper/movi_e_steve.yaml
CODES = {
    "small, 64 cells, 4 frames": (8, 4, 64, 7, 64, 3),
    "small, 256 cells, 1 frame": (16, 1, 64, 7, 64, 3),
    "small, 256 cells, 16 frames": (16, 16, 64, 7, 64, 3),
    "STEVE's, 256 cells, 1 frame": (16, 1, 4096, 15, 192, 8),
}


def broadcast_decoder(quick: bool) -> Iterator[Contest]:
    """Whole decoders and their first layers; then where the gradient of a layer's bias is summed."""
    most = 1 if quick else None
    for name, arguments in list(BROADCAST.items())[:most]:
        for part in ("whole", "first layer"):
            ways = partial(_first_layer_ways, arguments, part)
            yield Contest(f"{name}, {part}", ways, "convolution", group="first layer")
    for name, layer in list(BIASES.items())[:most]:
        yield Contest(name, partial(_bias_ways, *layer), "in the convolution", group="gradient of the bias")


def _broadcast_decoder(**arguments: int) -> Any:
    torch.manual_seed(0)
    return load("decoders", "SpatialBroadcastDecoder")(SlotSpec(SLOTS, DIM), VideoSpec(3, IMAGE, IMAGE), **arguments)


def _decoded(decoder: Any, slots: Tensor) -> tuple[Tensor, ...]:
    """Gradients of a decoder, whole, down to the slots."""
    return grad(decoder(slots).reconstruction.square().mean(), [slots, *decoder.parameters()])


def _slots(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).requires_grad_()


def _first_layer_ways(arguments: dict[str, int], part: str) -> dict[str, Way]:
    """The first layer as a matrix product, and as a convolution over grids that are written down."""
    slots, ours = _slots(CLIPS, FRAMES, SLOTS, DIM), _broadcast_decoder(**arguments)
    plain = deepcopy(ours)
    # an identity, but for any norm the decoder writes the grids down
    plain.grid_norm = nn.Sequential()

    def run(decoder: Any) -> tuple[Tensor, ...]:
        if part == "whole":
            return _decoded(decoder, slots)
        weights = [*decoder.convs[0].parameters(), *decoder.position.parameters()]
        return grad(decoder.first_layer(slots).square().mean(), [slots, *weights])

    return {"convolution": partial(run, plain), "matrix product": partial(run, ours)}


def _bias_ways(channels: int, layer: int) -> dict[str, Way]:
    """Forward and backward of one layer of a decoder on a channels-last image per slot."""
    decoder = _broadcast_decoder(channels=channels)
    conv, own = decoder.convs[layer], import_module(type(decoder).__module__).conv_transpose
    side = IMAGE // conv.stride[0]
    images = torch.randn(CLIPS * FRAMES * SLOTS, channels, side, side).contiguous(memory_format=torch.channels_last)
    images.requires_grad_()
    outer = torch.randn_like(conv(images))

    def added_after() -> Tensor:
        arguments = (conv.stride, conv.padding, conv.output_padding)
        return functional.conv_transpose2d(images, conv.weight, None, *arguments).add_(conv.bias[:, None, None])

    def both(forward: Callable[[], Tensor]) -> tuple[Tensor, ...]:
        return grad(forward(), [images, conv.weight, conv.bias], outer)

    return {
        "in the convolution": partial(both, lambda: conv(images)),
        "of an addition after it": partial(both, added_after),
        "a sum of its own": partial(both, lambda: own(conv, images)),
    }


def upsampled_conv(quick: bool) -> list[Contest]:
    """One contest per decoder of the RIM thesis and size, whole, down to the gradient of the slots."""
    ways = ("step by step", "at the small size")

    return [
        Contest(
            name,
            partial(_thesis_ways, kind, frames, modules, *sizes),
            ways[0],
            memory=ways,
            small=partial(_thesis_ways, kind, 1, 1, *sizes),
        )
        for name, (kind, frames, modules, *sizes) in list(THESIS.items())[: 1 if quick else None]
    ]


def _thesis_ways(kind: str, frames: int, modules: int, width: int, side: int, channels: Any) -> dict[str, Way]:
    slots = _slots(1, frames, modules, width)
    torch.manual_seed(0)
    fast: Any = load("decoders", kind)(SlotSpec(modules, width), VideoSpec(3, side, side), channels=channels)
    plain = deepcopy(fast)
    for conv in plain.layers.convs:
        conv.forward = conv.reference
    return {"step by step": partial(_decoded, plain, slots), "at the small size": partial(_decoded, fast, slots)}


def ray_decoders(quick: bool) -> Iterator[Contest]:
    """A training step down to the slots, the same without gradients, and that a few rays at a time."""
    ways = ("painted", f"painted, {TOGETHER} rays at once", "training step")
    for group, (kind, cases) in RAYS.items():
        grows = group.split(", ")[1]
        for sizes in cases[: 1 if quick else None]:
            yield Contest(
                f"{kind}: {', '.join(f'{number} {name}' for name, number in sizes.items())}",
                partial(_ray_ways, kind, **sizes),
                "painted",
                memory=ways,
                small=partial(_ray_ways, kind, **{**sizes, "rays": 2}),
                amount=STEPS * sizes["rays"],
                unit="rays",
                size=float(sizes[grows]),
                group=group,
            )


def _ray_ways(kind: str, rays: int, slots: int, **points: int) -> dict[str, Way]:
    torch.manual_seed(0)
    arguments = {f"num_{name}": number for name, number in points.items()}
    decoder: Any = load("decoders", kind)(SlotSpec(slots, DIM), VideoSpec(3, IMAGE, IMAGE), **arguments)
    given, directions = _slots(1, STEPS, slots, DIM), functional.normalize(torch.randn(1, STEPS, 1, 3, 1, rays), dim=3)
    time = torch.arange(STEPS)[None]
    batch = VideoBatch(torch.rand_like(directions), time, rays=torch.cat([-8 * directions, directions], dim=3))

    def painted(at_once: int) -> Tensor:
        decoder.eval()
        parts = [replace(batch, frames=one, rays=two) for one, two in zip(*_pieces(batch, at_once), strict=True)]
        with torch.no_grad():
            return torch.cat([decoder(given, part).reconstruction for part in parts], dim=-1)

    def trained() -> tuple[Tensor, ...]:
        decoder.train()
        loss = decoder(given, batch).reconstruction.square().mean()
        return grad(loss, [given, *decoder.parameters()])

    ways = (partial(painted, rays), partial(painted, TOGETHER), trained)
    return dict(zip(("painted", f"painted, {TOGETHER} rays at once", "training step"), ways, strict=True))


def _pieces(batch: VideoBatch, at_once: int) -> list[tuple[Tensor, ...]]:
    return [values.split(at_once, dim=-1) for values in (batch.frames, batch.require("rays"))]


def code_sampling(quick: bool) -> list[Contest]:
    """By the size of the decoder, the number of codes of a frame, and the frames at once."""
    cases = list(CODES.items())[: 1 if quick else None]
    return [Contest(name, partial(_sampling_ways, *sizes), "prefix") for name, sizes in cases]


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
