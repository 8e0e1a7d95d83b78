"""Contests of sampling: cases by the size of the decoder, the number of codes of a frame, and the frames at once."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from slotbench.bench.contest import Contest, Way
from slotbench.bench.subjects import Subject
from slotbench.interfaces import SlotSpec, VideoSpec
from slotbench.registry import load

__all__ = ["SUBJECT"]

SMALL = {"dim": 64, "num_layers": 3, "codes": 64, "slots": 7}  # experiments/movi_like_textured.yaml
PUBLIC = {"dim": 192, "num_layers": 8, "codes": 4096, "slots": 15}  # experiments/paper/movi_e_steve.yaml
CASES: dict[str, dict[str, int]] = {
    "small, 64 cells, 4 frames": SMALL | {"side": 8, "frames": 4},
    "small, 256 cells, 1 frame": SMALL | {"side": 16, "frames": 1},
    "small, 256 cells, 16 frames": SMALL | {"side": 16, "frames": 16},
    "STEVE's, 256 cells, 1 frame": PUBLIC | {"side": 16, "frames": 1},
}


def contests(quick: bool) -> Iterator[Contest]:
    """A contest per case."""
    for name, sizes in list(CASES.items())[: 1 if quick else None]:
        yield Contest(name, partial(_ways, **sizes), "prefix")


def _ways(side: int, frames: int, codes: int, slots: int, dim: int, num_layers: int) -> dict[str, Way]:
    torch.manual_seed(0)
    grid = VideoSpec(channels=codes, height=side, width=side)
    decoder: Any = load("decoders", "AutoregressiveTransformer")(SlotSpec(slots, dim), grid, dim, num_layers)
    decoder.eval()
    given = torch.randn(1, frames, slots, dim)
    return {
        "prefix": lambda: decoder.sample_by_prefix(given),
        "kept keys and values": lambda: decoder.sample(given)[0],
    }


SUBJECT = Subject("codes sampled greedily, one frame's cells after the other, float32", "decoder", contests, rounds=3)
