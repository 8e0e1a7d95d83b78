"""Exports a finished run as a model that comes with slotbench (docs/trained_models.md), in 16 bits, with its clips.

    slotbench test RUN --half
    python docs/scripts/ship_model.py RUN NAME [--clips]

The model is written to slotbench/models/NAME. With `--clips` it brings those that `slotbench demo` shows where the
simulator, an extra, is not installed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from slotbench.commands.demo import CLIPS, FRAMES, SEED
from slotbench.models.clips import new_clips
from slotbench.models.export import export_run

MODELS = Path(__file__).parents[2] / "slotbench" / "models"


def main() -> None:
    """Writes the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("name")
    parser.add_argument("--clips", action="store_true")
    given = parser.parse_args()
    record = export_run(given.run, MODELS / given.name, half=True)
    evaluation = record["evaluation"]
    if (evaluation["split"], evaluation["weights"]) != ("test", "float16"):
        parser.error(f"the card has no test of the rounded weights: slotbench test {given.run} --half")
    if given.clips:
        clips = new_clips(MODELS / given.name, CLIPS, SEED)
        clips = clips.slice_time(0, min(FRAMES, clips.num_steps))
        frames = (clips.frames * 255).round().to(torch.uint8).movedim(2, -1)
        masks = clips.require("masks").to(torch.uint8)
        np.savez_compressed(MODELS / given.name / "clips.npz", frames=frames.numpy(), masks=masks.numpy())


if __name__ == "__main__":
    main()
