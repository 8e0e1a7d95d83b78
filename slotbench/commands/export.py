"""`slotbench export RUN --out FOLDER`: a run's trained model as a folder to hand on."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from slotbench.commands.arguments import Parser, split_and_load
from slotbench.errors import UserError, lines
from slotbench.runs.checkpoint_choice import DEFAULT

__all__ = ["USAGE", "main"]

USAGE = """Usage: slotbench export RUN --out FOLDER [--checkpoint last|best|FILE] [--half] [--plugin FILE]

Writes the trained model of a run: its weights (model.safetensors), what they are built into (config.json), the
configuration and the record of the training (config.yaml, record.json), the evaluation records of its masks, and a
model card with its scores beside baselines (README.md). The scores are those of the newest slotbench test of the
weights, or else those of the validation of the training. slotbench.from_pretrained("FOLDER") reads the folder.

  --out FOLDER                 where to write; a folder that is not there yet
  --checkpoint last|best|FILE  whose weights: the newest (default), the best in validation, or a file's
  --half                       round 32-bit weights to 16 bits, half the size; slotbench test RUN --half scores them

Look through config.yaml, record.json and README.md before you publish the folder: they have the settings and the
command of the training, your paths among them."""


def main(command: str, arguments: list[str]) -> int:
    """Exports the run that is named first."""
    if not arguments or arguments[0].startswith("-"):
        raise UserError(lines("export needs a run", example="slotbench export runs/NAME/ID --out FOLDER"))
    run, *rest = arguments
    options, rest = split_and_load(rest)
    given = _parser().parse_args(rest)
    # everything above answers before torch is imported
    from slotbench.models.export import export_run

    record = export_run(run, given.out, options.checkpoint or DEFAULT, options.half)
    evaluation = record["evaluation"]
    size = (given.out / "model.safetensors").stat().st_size
    print(f"{given.out}: {record['task']} at step {record['step']:,}, {size / 1e6:.1f} MB in {record['weights']}")
    if evaluation is None:
        print(f"no scores: slotbench test {shlex.quote(run)} measures them, then export again")
    else:
        print(f"scores: {evaluation['split']} split; the model card is {given.out / 'README.md'}")
    print(f"to use it: slotbench.from_pretrained({str(given.out)!r})")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser("slotbench export")
    parser.add_argument("--out", type=Path, required=True)
    return parser
