"""Tests the comparisons that the verdicts of docs/results.md rest on, from the records in experiments/grids/records.

    python docs/contrasts.py [STUDY ...] [--out docs/results/contrasts.csv]

Prints or writes a row a comparison: mean and standard deviation over seeds of both sides, their difference with its
95 % interval, the p value of Welch's two-sided t-test, and the same after Holm's correction over all comparisons of the
study. A predictor that learns nothing has one score, and the test beside it is Student's of one sample. Which studies
there are, and what they compare, is in contrasts.yaml.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from scipy.stats import ttest_1samp, ttest_ind
from tables import RECORDS, baselines, read_records

from slotbench.comparison.statistics import holm

STUDIES = Path(__file__).with_suffix(".yaml")


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints or writes the comparisons."""
    known = yaml.safe_load(STUDIES.read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=f"default: all of them; {', '.join(known)}")
    parser.add_argument("--out", type=Path, help="a CSV file")
    args = parser.parse_args(arguments)
    if unknown := [name for name in args.studies if name not in known]:
        parser.error(f"no study is called {unknown[0]}; there are {', '.join(known)}")
    made = pd.concat([contrasts(name, known[name]) for name in args.studies or known])
    if args.out:
        made.to_csv(args.out, index=False, float_format="%.5g")
    else:
        print(made.to_string(index=False, float_format="%.4g"))
    return 0


def contrasts(name: str, study: Mapping[str, Any]) -> pd.DataFrame:
    """The comparisons of a study, tested."""
    runs = runs_of(study)
    rows = []
    models = [name for name, side in study["sides"].items() if isinstance(side, dict)]
    asked = [
        ({**given, "metric": metric}, score, number if len(given["metrics"]) > 1 else None)
        for given in study["scores"]
        for number, (score, metric) in enumerate(given["metrics"].items())
    ]
    families = []
    for given, score, family in asked:
        for pair in combinations(models, 2) if given["pairs"] == "all" else given["pairs"]:
            first, second = (of_side(study["sides"][side], given, runs) for side in pair)
            if len(first) < 2 or not len(second):
                raise SystemExit(f"{name}: {' or '.join(pair)} has too few runs with {given['metric']}")
            single = len(second) == 1
            test = ttest_1samp(first, second.iloc[0]) if single else ttest_ind(first, second, equal_var=False)
            interval = test.confidence_interval()
            shift = second.iloc[0] if single else 0.0
            row = {"study": name, "score": score}
            for place, side, values in zip(("first", "second"), pair, (first, second), strict=True):
                row |= {place: side, f"{place}_mean": values.mean(), f"{place}_std": values.std()}
                row[f"{place}_n"] = len(values)
            row |= {"difference": first.mean() - second.mean(), "low": interval.low - shift}
            rows.append(row | {"high": interval.high - shift, "p": test.pvalue})
            families.append(family)
    found, family = pd.DataFrame(rows), pd.Series(families, dtype=float)
    each = [found["p"][family.isna() | (family == number)] for number in family.dropna().unique()] or [found["p"]]
    corrected = pd.concat(map(holm, each))
    return found.assign(p_holm=corrected.groupby(level=0).max())


def of_side(side: Mapping[str, Any] | str, given: Mapping[str, Any], runs: pd.DataFrame) -> pd.Series:
    """The scores of a side, one a run; the one score of a predictor that learns nothing."""
    if side == "no change":
        return pd.Series([0.0])
    if side == "strongest baseline":
        return pd.Series([max(baselines(runs, given["metric"])[0].values())])
    for key, value in (given.get("where", {}) | (side if isinstance(side, dict) else {})).items():
        typed = json.dumps(int(value) if isinstance(value, float) and value.is_integer() else value).strip('"')
        runs = runs[runs[key].isna() if value is None else runs[key].astype(str) == typed]
    values = given.get("times", 1) * runs[side if isinstance(side, str) else given["metric"]].dropna()
    return values.iloc[:1] if isinstance(side, str) else values


def runs_of(study: Mapping[str, Any]) -> pd.DataFrame:
    """The runs that a study compares, a row each, without those that have chosen a learning rate."""
    if "counts" in study:
        return slot_counts(study["counts"])
    if "identity" in study:
        return identity(study["identity"])
    named = study["records"] if isinstance(study["records"], list) else [study["records"]]
    runs = pd.concat([read_records(name) for name in named], ignore_index=True)
    return runs[runs["reported"]]


def slot_counts(name: str) -> pd.DataFrame:
    """Runs with other slots than in training: "ari, own, 7", "ari, full set, 7", and the change from their own."""
    scores = pd.read_csv(RECORDS / name, dtype={"num_objects": str})
    runs = ["run", "aggregation", "trained_slots", "num_objects"]
    parts = []
    for score in ("fg_ari", "ari", "miou"):
        wide = scores.pivot_table(index=runs, columns=["set", "slots"], values=score)
        own = wide["own"]
        trained = [own.loc[index, index[2]] for index in own.index]
        parts.append(own.sub(trained, axis=0).add_prefix(f"{score}, change to "))
        wide.columns = [f"{score}, {name}, {slots}" for name, slots in wide.columns]
        parts.append(wide)
    frame = pd.concat(parts, axis=1).reset_index()
    return frame.rename(columns={"trained_slots": "trained", "num_objects": "objects"})


def identity(name: str) -> pd.DataFrame:
    """Runs on long clips, "circling, 96/hota", and in every row the trackers, "TRACKER, circling, 96/hota"."""
    scores = pd.read_csv(RECORDS / name)
    columns = list(scores.columns[scores.columns.get_loc("frames") + 1 :])
    about = ["name", "run", "training_frames", "way", "window"]
    long = scores.melt([*about, "camera", "frames"], columns).dropna(subset="value")
    long["score"] = long["camera"] + ", " + long["frames"].astype(str) + "/" + long["variable"]
    is_run = long["run"].notna()
    runs = long[is_run].fillna({"window": math.inf}).astype({"training_frames": int})
    runs = runs.pivot_table(index=about, columns="score", values="value")
    trackers = long[~is_run]
    beside = dict(zip(trackers["name"] + ", " + trackers["score"], trackers["value"], strict=True))
    runs = runs.reset_index().rename(columns={"name": "model.core"})
    return runs.join(pd.DataFrame(beside, index=runs.index))


if __name__ == "__main__":
    sys.exit(main())
