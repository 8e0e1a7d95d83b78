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
