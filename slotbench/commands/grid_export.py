"""`slotbench grid export FILE --to wandb-sweep|github-matrix`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import yaml

from slotbench.commands.grid_opening import Parser, open_grid
from slotbench.commands.options import split_options
from slotbench.errors import UserError
from slotbench.grids.exports import MATRIX_LIMIT, github_matrix, reason_for_points, wandb_sweep

__all__ = ["main"]

_USAGE = """Usage: slotbench grid export FILE --to wandb-sweep|github-matrix [--out FILE] [settings for all points]

wandb-sweep     a sweep of Weights & Biases, for `wandb sweep`: one parameter per axis. Where that cannot say what the
                grid says (zip, list, exclude, configuration files, null, a list or a mapping as a value, a key within
                another), one parameter `point`, and agents run `slotbench grid point FILE --point ID`.
github-matrix   the matrix of a job of GitHub Actions: {"include": [{"point": ..., "arguments": ...}, ...]}, at most 256

  --out FILE              where to write it (default: print it)
  --wandb_project NAME    of the sweep (default: slotbench)

Examples:
  slotbench grid export experiments/grids/nightly.yaml --to wandb-sweep --out sweep.yaml
  wandb sweep sweep.yaml
  echo "matrix=$(slotbench grid export experiments/grids/nightly.yaml --to github-matrix)" >> "$GITHUB_OUTPUT"
  # then, in the job: slotbench fit ${{ matrix.arguments }}"""


def main(action: str, arguments: list[str]) -> int:
    """Prints or writes what the other program reads."""
    if "--help" in arguments or "-h" in arguments:
        print(_USAGE)
        return 0
    parser = Parser(action)
    parser.add_argument("--to", choices=["wandb-sweep", "github-matrix"], required=True)
    parser.add_argument("--out", type=Path)
    given, rest = parser.parse_known_args(arguments)
    opened = open_grid(action, rest, remember=False)
    if given.to == "github-matrix":
        if len(opened.grid.points) > MATRIX_LIMIT:
            raise UserError(
                f"{opened.grid.file.path} has {len(opened.grid.points)} points; GitHub takes {MATRIX_LIMIT} in a matrix"
            )
        text = json.dumps(github_matrix(opened.grid))
    else:
        sweep = wandb_sweep(opened.grid, split_options(rest)[0].wandb_project, opened.typed_each_time)
        text = yaml.safe_dump(sweep, sort_keys=False, allow_unicode=True, width=1000).rstrip()
        if (reason := reason_for_points(opened.grid)) is not None:
            print(f"as a list of points: {reason}", file=sys.stderr)
    if given.out is None:
        print(text)
    else:
        given.out.write_text(text + "\n", encoding="utf-8")
        print(f"written: {given.out}")
    return 0
