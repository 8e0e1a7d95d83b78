"""Makes the tables of docs/results.md and docs/results/*.md again, from runs that are there.

    slotbench grid run experiments/grids/bouncing_balls_cores.yaml --jobs 2     # or grid unpack, for each grid
    python docs/tables.py [--runs_dir DIR] [--check] [PAGE ...]

A table stands between two comments, the first of which holds the command that makes it; a second one may choose some of
its columns, by their heads or as NAME = HEAD:

    <!-- table: slotbench compare experiments/grids/bouncing_balls_cores.yaml -->
    <!-- columns: core | lr | error of the 5th frame = rollout_mse/step_05 ↓ | seeds -->
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

DOCS = Path(__file__).parent
PAGES = [DOCS / "results.md", *sorted((DOCS / "results").glob("*.md"))]
TABLE = re.compile(
    r"(<!-- table: (?P<command>(?:slotbench compare|python docs/scripts/(?:contrasts|slot_identity|time_to_competence)"
    r"\.py)[^\n]*?) -->\n"
    r"(?:<!-- columns: (?P<columns>[^\n]*) -->\n)?)(?P<before>.*?)(<!-- end of table -->)",
    re.DOTALL,
)


def main() -> int:
    """Makes every table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, default=PAGES, metavar="PAGE", help="default: all of them")
    parser.add_argument("--runs_dir", default="runs", help="where the grids have been run (default: runs)")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a table would change")
    args = parser.parse_args()
    changed = False
    for page in args.pages:
        text = page.read_text(encoding="utf-8")
        made = remade(text, args.runs_dir)
        changed |= made != text
        if not args.check:
            page.write_text(made, encoding="utf-8")
    return int(args.check and changed)


def remade(text: str, runs_dir: str) -> str:
    """A page with its tables made again."""

    def make(match: re.Match[str]) -> str:
        return match[1] + table(match["command"], runs_dir, match["before"], match["columns"]) + match[5]

    return TABLE.sub(make, text)


def table(command: str, runs_dir: str, before: str, columns: str | None = None) -> str:
    """What the command prints as Markdown, without its title and itself; as it was, if there are no runs."""
    program, *arguments = shlex.split(command)
    if program == "slotbench":
        arguments = ["-m", "slotbench", *arguments, "--format", "markdown"]
    line = [sys.executable, *arguments]
    if "slot_identity" not in arguments[0]:  # its records are no runs
        line += ["--runs_dir", runs_dir]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"left as it was: {command}\n{done.stderr}", file=sys.stderr)
        return before
    print(f"made: {command}")
    parts = done.stdout.strip().split("\n\n")
    kept = [part for part in parts if not part.startswith(("### ", "    slotbench"))]
    if columns:
        kept = [chosen(part, columns) if part.startswith("|") else telling(part) for part in kept]
    # wherever the runs lie here, a reader of the page has them in runs/
    text = "\n\n".join(filter(None, kept)).replace(f"{Path(runs_dir)}/", "runs/")
    return "\n" + "\n".join(map(narrow, text.split("\n"))) + "\n\n"


def chosen(text: str, columns: str) -> str:
    """Some columns of a Markdown table, under other names if these are given; without rows that say nothing there.

    Raises:
        SystemExit: the table has no such column.
    """
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.split("\n")]
    rows[1] = text.split("\n")[1].strip("|").split("|")
    heads = [column.rpartition(" = ") for column in columns.split(" | ")]
    for *_, head in heads:
        if head not in rows[0]:
            raise SystemExit(f"the table has no column {head!r}; it has {', '.join(rows[0])}")
    places = [rows[0].index(head) for *_, head in heads]
    kept = [[row[place] for place in places] for row in rows]
    kept[0] = [name or head for name, _, head in heads]
    # a baseline has a name, and no score in these columns
    lines = [row for number, row in enumerate(kept) if number < 2 or any(row[1:])]
    return "\n".join("|".join(["", *row, ""]) if row is kept[1] else f"| {' | '.join(row)} |" for row in lines)


def telling(notes: str) -> str:
    """The notes without those on columns that were not chosen, and on what a page says of its settings itself."""
    said = ("- success:", "- with model", "- model.optimizer.lr was chosen", "- not counted as differences")
    return "\n".join(line for line in notes.split("\n") if not line.startswith(said))


def narrow(line: str) -> str:
    """A note below a table in lines of the page's width; rows of the table as they are."""
    options = {"width": 120, "subsequent_indent": "  ", "break_long_words": False, "break_on_hyphens": False}
    return textwrap.fill(line, **options) if line.startswith("- ") else line


if __name__ == "__main__":
    sys.exit(main())
