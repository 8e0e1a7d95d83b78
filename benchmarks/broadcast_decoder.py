"""What the broadcast decoder gains by its first layer as a matrix product: `python benchmarks/broadcast_decoder.py`.

Forward and backward of `SpatialBroadcastDecoder`, and of its first layer alone, with that layer as it is
(`slotbench/nn/broadcast_conv.py`) and as a convolution over grids that are written down, on one thread. The two take
turns, and a ratio is of one turn; the table shows medians, and the smallest and the largest ratio. Time is the
processor's, so that a busy machine counts for less.

    python benchmarks/broadcast_decoder.py [--turns 20] [--quick] [--out results.json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from time import process_time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from slotbench.interfaces import SlotSpec, VideoSpec
from slotbench.nn.broadcast_conv import broadcast_conv_transpose
from slotbench.registry import load
from slotbench.runs.provenance import processor

CLIPS, FRAMES, SLOTS, DIM, SIDE = 4, 3, 7, 64, 32  # experiments/movi_like.yaml: 84 slot pictures
DECODERS = {
    "light (movi_like)": {"channels": 16, "num_layers": 1, "output_kernel": 4},
    "defaults": {},
    "64 channels": {"channels": 64},
}


Step = Callable[[], Tensor]


def whole(decoder: nn.Module, slots: Tensor) -> Step:
    """Forward and backward of a decoder as in training, down to the slots; it returns the gradient of these."""

    def step() -> Tensor:
        loss = decoder(slots).reconstruction.square().mean()
        return torch.autograd.grad(loss, [slots, *decoder.parameters()])[0]

    return step


def first_layer(decoder: nn.Module, slots: Tensor, *, plain: bool) -> Step:
    """The same of the first convolution, with the positions that are added to the slots before it."""
    conv, position = decoder.convs[0], decoder.position

    def step() -> Tensor:
        vectors = slots.flatten(0, 2)
        if plain:
            grids = vectors[:, :, None, None] + position()
            images = conv(grids.contiguous(memory_format=torch.channels_last))
        else:
            images = broadcast_conv_transpose(conv, vectors, position())
        return torch.autograd.grad(images.square().mean(), [slots, *conv.parameters(), *position.parameters()])[0]

    return step


def cases(arguments: dict[str, int], slots: Tensor) -> dict[str, tuple[Step, Step]]:
    """(plain, ours) of the whole decoder and of its first layer, with the same weights."""
    torch.manual_seed(0)
    frame = VideoSpec(channels=3, height=SIDE, width=SIDE)
    ours = load("decoders", "SpatialBroadcastDecoder")(SlotSpec(SLOTS, DIM), frame, **arguments)
    plain = deepcopy(ours)
    # does nothing, but the decoder cannot know that and writes the grids down for it, as for any norm
    plain.grid_norm = nn.Sequential()
    return {
        "whole": (whole(plain, slots), whole(ours, slots)),
        "first layer": (first_layer(ours, slots, plain=True), first_layer(ours, slots, plain=False)),
    }


def timed(step: Step) -> float:
    """Milliseconds of processor time."""
    begin = process_time()
    step()
    return 1e3 * (process_time() - begin)


def compare(plain: Step, ours: Step, turns: int) -> dict[str, float]:
    gradients = plain(), ours()  # touches the memory, too
    times = [(timed(plain), timed(ours)) for _ in range(turns)]
    ratios = [slow / fast for slow, fast in times]
    return {
        "plain_ms": statistics.median(slow for slow, _ in times),
        "ms": statistics.median(fast for _, fast in times),
        "ratio": statistics.median(ratios),
        "smallest_ratio": min(ratios),
        "largest_ratio": max(ratios),
        "relative_difference": float((gradients[0] - gradients[1]).norm() / gradients[0].norm()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="two turns, to see that it runs")
    parser.add_argument("--out", type=Path, help="write the numbers to this JSON file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    machine = f"{processor()}, 1 thread, torch {torch.__version__}"
    pictures = CLIPS * FRAMES * SLOTS
    table = Table(title=f"{pictures} slot pictures of {SIDE} x {SIDE}, forward + backward, float32\n{machine}")
    for heading in ("decoder", "part", "plain ms", "ms", "ratio", "smallest", "largest", "difference"):
        table.add_column(heading, justify="left" if heading in ("decoder", "part") else "right")
    results = {}
    slots = torch.randn(CLIPS, FRAMES, SLOTS, DIM, generator=torch.Generator().manual_seed(0)).requires_grad_()
    for name, arguments in DECODERS.items():
        for part, (plain, ours) in cases(arguments, slots).items():
            numbers = compare(plain, ours, 2 if options.quick else options.turns)
            results[f"{name}, {part}"] = numbers
            table.add_row(name, part, *(f"{value:.3g}" for value in numbers.values()))
    Console().print(table)
    if options.out is not None:
        options.out.write_text(json.dumps({"machine": machine, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
