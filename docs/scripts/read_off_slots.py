"""Says how well place and colour can be read off what a run holds of a frame: tokens, slots, states.

    python docs/scripts/read_off_slots.py RUN [RUN ...]

A run is one of `experiments/moving_sprites.yaml`. Of frame 5 of every clip, a ridge regression tells the brightness in
each of 4 x 4 fields (place), and by how much each colour channel differs from it (colour), from all numbers at once;
R^2 over all fields, on clips that it was not fitted on. 1,024 clips to fit, 512 to choose its penalty, 512 to score.
The scores go to RUN/probe-fields.json, which `slotbench grid pack` keeps.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from slotbench_plugins.cores.rim.slot_inputs import SlotInputs
from torch import Tensor

from slotbench.files import dump_json, write_atomically

FRAME = 5
CLIPS = (1024, 512, 512)
PENALTIES = [10.0**power for power in range(-4, 4)]


def r_squared(features: Tensor, targets: Tensor) -> float:
    """Of the best of `PENALTIES`, chosen on the second part of the clips and scored on the third."""
    (x, x_choice, x_test), (y, y_choice, y_test) = (values.double().split(CLIPS) for values in (features, targets))
    mean, deviation, level = x.mean(0), x.std(0) + 1e-6, y.mean(0)
    x, x_choice, x_test = ((part - mean) / deviation for part in (x, x_choice, x_test))
    gram, cross = x.T @ x / len(x), x.T @ (y - level) / len(x)
    scores = []
    for penalty in PENALTIES:
        weights = torch.linalg.solve(gram + penalty * torch.eye(len(gram), dtype=gram.dtype), cross)
        errors = [
            (part @ weights + level - true).square().sum() for part, true in ((x_choice, y_choice), (x_test, y_test))
        ]
        scores.append((errors[0].item(), 1 - errors[1].item() / (y_test - level).square().sum().item()))
    return min(scores)[1]


@torch.no_grad()
def features_of(task, data) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What can be read, and what is to be told, a row for each clip."""
    read: dict[str, list[Tensor]] = {}
    told: dict[str, list[Tensor]] = {"place": [], "colour": []}
    for stored in data.val_dataloader():
        batch = data.on_after_batch_transfer(stored, 0)
        frames = batch.frames[:, : FRAME + 1]
        tokens = task.encoder(batch)[:, : FRAME + 1]
        parts = {"tokens of the frame": tokens, "states": task.core(tokens).slots}
        if isinstance(task.core, SlotInputs) and task.core.frame_slots is not None:
            parts["slots of the frame"] = task.core.per_step(tokens).slots
        for name, values in parts.items():
            read.setdefault(name, []).append(values[:, FRAME].flatten(1))
        fields = torch.nn.functional.adaptive_avg_pool2d(frames[:, FRAME], 4)
        brightness = fields.mean(1, keepdim=True)
        told["place"].append(brightness.flatten(1))
        told["colour"].append((fields - brightness).flatten(1))
    return {name: torch.cat(parts) for name, parts in read.items()}, {k: torch.cat(v) for k, v in told.items()}


def main() -> int:
    """Scores what each run holds of a frame, prints that, and writes it into the run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run's folder")
    options = parser.parse_args()
    from draw_cores import Run

    for folder in options.runs:
        run = Run(folder)
        run.config["data"]["init_args"]["loader"]["val_size"] = sum(CLIPS)
        read, told = features_of(run.load(), run.data(val_batch_size=64))
        print(folder.name)
        found = {}
        for name, features in read.items():
            found[name] = {what: r_squared(features, targets) for what, targets in told.items()}
            scores = ", ".join(f"{what} {score:.2f}" for what, score in found[name].items())
            print(f"  {name}, {features.shape[1]:,} numbers: {scores}")
        write_atomically(
            folder / "probe-fields.json", dump_json({"step": run.scores["step"], "scores": found}, indent=1)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
