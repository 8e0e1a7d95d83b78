"""Writes the runs of a grid as the records of a study, a line a run.

    python docs/scripts/records.py experiments/grids/studies/NAME.yaml --out experiments/grids/records/NAME.csv

Facts of the runs, the settings in which they differ or that `--keep` names, and the scores of their validation. Runs
that have not ended are left out. A file that is there keeps its columns, and its runs but for those with the same grid
and point.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from slotbench.comparison.settings import choose_keys
from slotbench.comparison.sources import read_sources
from slotbench.comparison.table import compare

SEED = "seed_everything"


def main() -> None:
    """Writes the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("grid", help="a grid file, or the folder of its runs")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--keep", nargs="*", default=[], help="settings beside those in which runs differ")
    parser.add_argument("--chosen-on", nargs="*", default=[], help="seeds that are not reported")
    parser.add_argument("--runs_dir", type=Path, default=Path("runs"))
    given = parser.parse_args()
    runs = read_sources([given.grid], given.runs_dir)
    runs = runs.chosen(runs.facts["state"] == "finished")
    compare(runs)  # finds the gains
    keys = [key for key in dict.fromkeys([*choose_keys(runs.settings).shown, *given.keep]) if key != SEED]
    facts, scores = runs.facts, runs.scores[[name for name in runs.scores if name.startswith(("val/", "train/"))]]
    known = {
        "grid": facts["group"],
        "point": [point.rpartition("/")[2] for point in runs.runs],
        "seed": runs.settings[SEED],
        "reported": ~runs.settings[SEED].isin(given.chosen_on),
        "state": facts["state"],
        "steps": facts["step"],
        "hours": (facts["seconds"].astype(float) / 3600).round(4),
        "seconds_per_step": facts["seconds_per_step"],
        "parameters": facts["parameters"],
        "gain_in_last_quarter": facts["gain_in_last_quarter"].astype(float).round(4),
    }
    made = pd.concat([pd.DataFrame(known), runs.settings[keys], scores.dropna(axis=1, how="all")], axis=1)
    if given.out.is_file():
        before = pd.read_csv(given.out)
        made = pd.concat([before, made[made.columns.intersection(before.columns)]], ignore_index=True)
        made = made.drop_duplicates(["grid", "point"], keep="last")
    made.to_csv(given.out, index=False)
    print(f"{given.out}: {len(made)} runs, by {', '.join(keys)}")


if __name__ == "__main__":
    main()
