"""`slotbench grid test FILE`: `slotbench test` for every reported point that is done and has not been tested."""

from __future__ import annotations

import subprocess
import sys

from slotbench.commands.arguments import Parser
from slotbench.commands.grid.opening import open_grid
from slotbench.errors import UserError
from slotbench.files import regular_files
from slotbench.grids.choosing import choose
from slotbench.text import one_line

__all__ = ["USAGE", "main"]

USAGE = """Usage: slotbench grid test FILE [--only WHAT ...] [--threads N]

Runs `slotbench test` for every point that is done and has not been tested, one after the other; points that only
choose a learning rate are left out. What a study reports is then scored on clips by which nothing was chosen:
  slotbench grid test experiments/grids/bouncing_balls_slots.yaml
  slotbench compare experiments/grids/bouncing_balls_slots.yaml --metrics test/loss

  --only WHAT ...   points whose id is like WHAT (core=RIM*), or KEY=VALUE
  --threads N       of each test
  --runs_dir DIR    folder of all runs (default: runs)
  --name NAME       the grid's folder there (default: the file's name)

Exit code 1 if a reported point is not done, or its test has failed."""


def main(action: str, arguments: list[str]) -> int:
    """Tests the points; 0 if all reported ones have been tested."""
    parser = Parser(f"slotbench grid {action}")
    parser.add_argument("--only", action="append", nargs="+", default=[])
    given, rest = parser.parse_known_args(arguments)
    opened = open_grid(action, rest)
    words = [word for words in given.only for word in words]
    reported = [point for point in choose(opened.grid, words) if point.stage != "choose"]
    if not reported:
        raise UserError(f"{opened.folder.path} has no reported points yet; slotbench grid run {rest[0]} first")
    options = [*opened.typed_each_time, *(["--threads", str(opened.threads)] if opened.threads else [])]
    missing = failed = 0
    for number, point in enumerate(reported, 1):
        folder = opened.folder.point(point.id)
        if folder.ended() != "done":
            missing += 1
        elif not regular_files(folder.path, "test-*.json"):
            print(f"{number} of {len(reported)}  {one_line(point.id, 120)}", flush=True)
            command = [sys.executable, "-P", "-m", "slotbench", "test", str(folder.path), *options]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            if done.returncode:
                failed += 1
                print(f"  failed: {one_line(done.stdout.decode(errors='replace').strip(), 400)}", file=sys.stderr)
    tested = len(reported) - missing - failed
    print(f"{opened.folder.path}: {tested} of {len(reported)} reported points tested, {missing} not done")
    return int(bool(missing or failed))
