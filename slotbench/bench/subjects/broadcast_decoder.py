"""The broadcast decoder: its first layer as a matrix product, and where the gradient of a layer's bias is summed.

The first layer stands against a convolution over grids that are written down. The gradient of the bias is the
convolution's, that of an addition after it, or a sum of its own, which is what the decoder has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from slotbench.bench.contest import Contest, Way
from slotbench.bench.subjects import Subject
from slotbench.interfaces import SlotSpec, VideoSpec
from slotbench.registry import load

__all__ = ["SUBJECT"]

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


def contests(quick: bool) -> Iterator[Contest]:
    """The whole decoder and its first layer, per decoder; then single layers."""
    for name, arguments in list(DECODERS.items())[: 1 if quick else None]:
        for part in ("whole", "first layer"):
            yield Contest(
                f"{name}, {part}",
                lambda arguments=arguments, part=part: _ways(arguments)[part],  # type: ignore[misc]
                "convolution",
                group="first layer",
            )
    for name, arguments in list(LAYERS.items())[: 1 if quick else None]:
        yield Contest(name, partial(_bias_ways, **arguments), "in the convolution", group="gradient of the bias")


def _bias_ways(channels: int, layer: int = 1) -> dict[str, Way]:
    """Forward and backward of one layer of a decoder on a channels-last image per slot."""
    torch.manual_seed(0)
    frame = VideoSpec(channels=3, height=SIDE, width=SIDE)
    decoder: Any = load("decoders", "SpatialBroadcastDecoder")(SlotSpec(SLOTS, DIM), frame, channels=channels)
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


def _ways(arguments: dict[str, int]) -> dict[str, dict[str, Way]]:
    slots = torch.randn(CLIPS, FRAMES, SLOTS, DIM, generator=torch.Generator().manual_seed(0)).requires_grad_()
    torch.manual_seed(0)
    frame = VideoSpec(channels=3, height=SIDE, width=SIDE)
    ours: Any = load("decoders", "SpatialBroadcastDecoder")(SlotSpec(SLOTS, DIM), frame, **arguments)
    plain = deepcopy(ours)
    # does nothing, but the decoder cannot know that and writes the grids down for it, as for any norm
    plain.grid_norm = nn.Sequential()

    def whole(decoder: Any) -> tuple[Tensor, ...]:
        loss = decoder(slots).reconstruction.square().mean()
        return torch.autograd.grad(loss, [slots, *decoder.parameters()])

    def first_layer(decoder: Any) -> tuple[Tensor, ...]:
        weights = [*decoder.convs[0].parameters(), *decoder.position.parameters()]
        return torch.autograd.grad(decoder.first_layer(slots).square().mean(), [slots, *weights])

    return {
        name: {"convolution": lambda part=part: part(plain), "matrix product": lambda part=part: part(ours)}  # type: ignore[misc]
        for name, part in (("whole", whole), ("first layer", first_layer))
    }


SUBJECT = Subject(
    f"broadcast decoder, {CLIPS * FRAMES * SLOTS} slot images of {SIDE} x {SIDE}, forward + backward, float32",
    "decoder, part",
    contests,
    rounds=20,
)
