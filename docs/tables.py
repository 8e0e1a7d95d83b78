"""Makes the tables of docs/results.md again, from runs that are there.

    slotbench grid run experiments/grids/bouncing_balls_cores.yaml --jobs 2     # and so on, for each grid
    python docs/tables.py [--runs_dir DIR] [--check]

A table stands between two comments, the first of which holds the command that makes it:

    <!-- table: slotbench compare experiments/grids/bouncing_balls_cores.yaml -->
    <!-- end of table -->

Tables whose grid has not been run here stay as they are, and are named. With --check nothing is written, and the exit
code is 1 if a table would change.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

PAGE = Path(__file__).parent / "results.md"
TABLE = re.compile(r"(<!-- table: slotbench (compare [^\n]*?) -->\n)(.*?)(<!-- end of table -->)", re.DOTALL)


def main() -> int:
    """Makes every table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs_dir", default="runs", help="where the grids have been run (default: runs)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a table would change")
    args = parser.parse_args()
    text = PAGE.read_text(encoding="utf-8")
    made = TABLE.sub(lambda match: match[1] + table(match[2], args.runs_dir, match[3]) + match[4], text)
    if args.check:
        return int(made != text)
    PAGE.write_text(made, encoding="utf-8")
    return 0


def table(command: str, runs_dir: str, before: str) -> str:
    """What the command prints as Markdown, without its title and itself; as it was, if there are no runs."""
    line = [sys.executable, "-m", "slotbench", *shlex.split(command), "--format", "markdown", "--runs_dir", runs_dir]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"left as it was: slotbench {command}\n{done.stderr}", file=sys.stderr)
        return before
    print(f"made: slotbench {command}")
    parts = done.stdout.strip().split("\n\n")
    kept = "\n\n".join(part for part in parts if not part.startswith(("### ", "    slotbench")))
    # wherever the runs lie here, a reader of the page has them in runs/
    kept = kept.replace(f"{Path(runs_dir)}/", "runs/")
    return "\n" + "\n".join(map(narrow, kept.split("\n"))) + "\n\n"


def narrow(line: str) -> str:
    """A note below a table in lines of the page's width; rows of the table as they are."""
    options = {"width": 120, "subsequent_indent": "  ", "break_long_words": False, "break_on_hyphens": False}
    return textwrap.fill(line, **options) if line.startswith("- ") else line


if __name__ == "__main__":
    sys.exit(main())
