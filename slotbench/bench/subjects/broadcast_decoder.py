"""First layer of the broadcast decoder as a matrix product, against a convolution over grids that are written down."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from slotbench.bench.contest import Contest, Way
from slotbench.bench.subjects import Subject
from slotbench.interfaces import SlotSpec, VideoSpec
from slotbench.nn.broadcast_conv import broadcast_conv_transpose
from slotbench.registry import load

__all__ = ["SUBJECT"]

CLIPS, FRAMES, SLOTS, DIM, SIDE = 4, 3, 7, 64, 32  # experiments/movi_like.yaml: 84 slot images
DECODERS: dict[str, dict[str, int]] = {
    "light (movi_like)": {"channels": 16, "num_layers": 1, "output_kernel": 4},
    "defaults": {},
    "64 channels": {"channels": 64},
}


def contests(quick: bool) -> Iterator[Contest]:
    """The whole decoder and its first layer, per decoder."""
    for name, arguments in list(DECODERS.items())[: 1 if quick else None]:
        for part in ("whole", "first layer"):
            yield Contest(
                f"{name}, {part}",
                lambda arguments=arguments, part=part: _ways(arguments)[part],  # type: ignore[misc]
                "convolution",
            )


def _ways(arguments: dict[str, int]) -> dict[str, dict[str, Way]]:
    slots = torch.randn(CLIPS, FRAMES, SLOTS, DIM, generator=torch.Generator().manual_seed(0)).requires_grad_()
    torch.manual_seed(0)
    frame = VideoSpec(channels=3, height=SIDE, width=SIDE)
    ours: Any = load("decoders", "SpatialBroadcastDecoder")(SlotSpec(SLOTS, DIM), frame, **arguments)
    plain = deepcopy(ours)
    # does nothing, but the decoder cannot know that and writes the grids down for it, as for any norm
    plain.grid_norm = nn.Sequential()
    conv, position = ours.convs[0], ours.position

    def whole(decoder: nn.Module) -> tuple[Tensor, ...]:
        loss = decoder(slots).reconstruction.square().mean()
        return torch.autograd.grad(loss, [slots, *decoder.parameters()])

    def first_layer(images: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(images.square().mean(), [slots, *conv.parameters(), *position.parameters()])

    def convolved() -> Tensor:
        grids = slots.flatten(0, 2)[:, :, None, None] + position()
        images: Tensor = conv(grids.contiguous(memory_format=torch.channels_last))
        return images

    return {
        "whole": {"convolution": lambda: whole(plain), "matrix product": lambda: whole(ours)},
        "first layer": {
            "convolution": lambda: first_layer(convolved()),
            "matrix product": lambda: first_layer(broadcast_conv_transpose(conv, slots.flatten(0, 2), position())),
        },
    }


SUBJECT = Subject(
    f"broadcast decoder, {CLIPS * FRAMES * SLOTS} slot images of {SIDE} x {SIDE}, forward + backward, float32",
    "decoder, part",
    contests,
    rounds=20,
)
