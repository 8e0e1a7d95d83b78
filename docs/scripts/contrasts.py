"""Tests the comparisons that the verdicts of docs/results.md rest on, from the committed records alone.

    slotbench grid unpack experiments/grids/studies/movi_like.yaml experiments/grids/records/movi_like_study.zip
    python docs/scripts/contrasts.py movi_like [STUDY ...] [--runs_dir DIR]

Prints a table: mean ± standard deviation over seeds of both sides, their difference with its 95 % interval, the p value
of Welch's two-sided t-test, and the same after Holm's correction over all comparisons of the study. A predictor that
learns nothing has one score, and the test beside it is Student's of one sample. Which studies there are, and what they
compare, is in contrasts.yaml; without a name all of those are made whose runs are there.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from slot_identity import read_records

from slotbench.comparison.records import ComparisonError
from slotbench.comparison.sources import read_sources
from slotbench.comparison.statistics import LEVEL, t_quantile, welch

GRIDS = Path(__file__).parents[2] / "experiments" / "grids"
HEAD = "| score | first | second | difference, 95 % interval | p | p, Holm |\n|---|---|---|---:|---:|---:|"


@dataclass(frozen=True)
class Scored:
    """A run: its settings and its scores, by their names."""

    settings: Mapping[str, Any]
    scores: Mapping[str, float]


@dataclass(frozen=True)
class Contrast:
    """A comparison of two sides by one score.

    Attributes:
        score: what is compared.
        names: of the two sides.
        values: of either side, one per seed; of a predictor that learns nothing the one.
        p: two-sided, not corrected.
        holm: the same, corrected.
    """

    score: str
    names: tuple[str, str]
    values: tuple[Sequence[float], Sequence[float]]
    p: float = 1.0
    holm: float = 1.0

    @property
    def difference(self) -> tuple[float, float]:
        """The first mean less the second, and half the width of its 95 % interval (Welch)."""
        means = [statistics.mean(values) for values in self.values]
        parts = [statistics.variance(v) / len(v) if len(v) > 1 else 0.0 for v in self.values]
        squares = sum(p**2 / (len(v) - 1) for p, v in zip(parts, self.values, strict=True) if len(v) > 1)
        freedom = sum(parts) ** 2 / squares if squares else math.inf
        half = t_quantile(1 - LEVEL / 2, freedom) * math.sqrt(sum(parts)) if squares else 0.0
        return means[0] - means[1], half


def contrasts(study: Mapping[str, Any], runs: Sequence[Scored]) -> list[Contrast]:
    """The comparisons of a study, tested.

    Raises:
        ComparisonError: a side has no run, one alone, or none with the score.
    """
    found = []
    for given in study["scores"]:
        for pair in given["pairs"]:
            values = tuple(of_side(study["sides"][name], name, given, runs) for name in pair)
            made = Contrast(given["score"], tuple(pair), values)
            found.append(replace(made, p=p_value(*values)))
    corrected = holm([made.p for made in found])
    return [replace(made, holm=p) for made, p in zip(found, corrected, strict=True)]


def of_side(side: Mapping[str, Any] | str, name: str, given: Mapping[str, Any], runs: Sequence[Scored]) -> list[float]:
    """The scores of a side, one per run; the one score of a predictor that learns nothing."""
    if side == "no change":
        return [0.0]
    wanted = given.get("where", {}) | (side if isinstance(side, dict) else {})
    key = side if isinstance(side, str) else given["metric"]
    chosen = [run for run in runs if all(run.settings.get(setting) == value for setting, value in wanted.items())]
    values = [given.get("times", 1) * run.scores[key] for run in chosen if key in run.scores]
    if not values:
        raise ComparisonError(f"no run of {name} has {key}")
    if isinstance(side, str):
        return values[:1]
    if len(values) == 1:
        raise ComparisonError(f"one run of {name} has {key}; expected two or more, by which a mean is tested")
    return values


def p_value(first: Sequence[float], second: Sequence[float]) -> float:
    """Welch's t-test, two-sided; of one sample where the second side has one score."""
    if len(second) > 1:
        return welch(first, second)
    from scipy.special import stdtr

    error = statistics.stdev(first) / math.sqrt(len(first))
    distance = abs(statistics.mean(first) - second[0])
    return float(2 * stdtr(len(first) - 1, -distance / error)) if error else float(not distance)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction: the smallest times n, the next times n - 1, ..., none below one before it, none above 1."""
    corrected, worst = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        worst = max(worst, min(1.0, (len(p_values) - rank) * p_values[index]))
        corrected[index] = worst
    return corrected


def runs_of(study: Mapping[str, Any], runs_dir: Path) -> list[Scored]:
    """The runs that a study compares, without those that have chosen a learning rate."""
    if "counts" in study:
        return list(slot_counts(GRIDS / "records" / study["counts"]))
    if "identity" in study:
        return identity(GRIDS / "records" / study["identity"])
    runs = read_sources([str(GRIDS / f"{grid}.yaml") for grid in grids_of(study)], runs_dir)
    return [
        Scored(run.settings, run.summary | on_other_clips(Path(run.source)) | probed(Path(run.source))) for run in runs
    ]


def grids_of(study: Mapping[str, Any]) -> list[str]:
    """The grids whose runs a study compares; none where it reads an archive of its own."""
    named = study.get("grid", [])
    return named if isinstance(named, list) else [named]


def on_other_clips(folder: Path) -> dict[str, float]:
    """What `slotbench validate` has written of a run on clips of other lengths: "clips of 12/fg_ari/video"."""
    found = {}
    for path in sorted(folder.glob("validate-*-decoder.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        (frames,) = record["frames"]["lengths"]
        found |= {f"clips of {frames}/{name}": score["mean"] for name, score in record["scores"].items()}
    return found


def probed(folder: Path) -> dict[str, float]:
    """What `slotbench probe`, `read_off_slots.py` and `switch_off.py` have written of a run.

    Such as "color_label/linear", "states/place" and "no communication, change/rollout_mse_sum", the score less that of
    the run as it was trained. Several modules that are switched off one at a time are one mean, "without a module".
    """
    records = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("probe*.json")}
    factors = records.get("probe.json", {}).get("factors", {})
    found = {f"{name}/{head}": one[head] for name, one in factors.items() for head in ("linear", "mlp") if head in one}
    read = records.get("probe-fields.json", {}).get("scores", {})
    found |= {f"{part}/{told}": score for part, scores in read.items() for told, score in scores.items()}
    switched = records.get("probe-switched.json", {}).get("scores", {})
    for score, trained in switched.get("as trained", {}).items():
        changes = {way: scores[score] - trained for way, scores in switched.items()}
        found |= {f"{way}, change/{score}": change for way, change in changes.items()}
        alone = [change for way, change in changes.items() if way.startswith("without module ")]
        found[f"without a module, change/{score}"] = statistics.mean(alone)
    return found


def slot_counts(archive: Path) -> Iterator[Scored]:
    """What `slot_counts.py run` has written of the runs of a grid."""
    with zipfile.ZipFile(archive) as files:
        for name in sorted(files.namelist()):
            record = json.loads(files.read(name))
            data = record["config"]["data"]["init_args"]
            settings = {"aggregation": record["aggregation"], "trained": record["trained_slots"]}
            own, full = record["by_slots"]["own"], record["by_slots"]["full"]
            start = own[str(record["trained_slots"])]["fg_ari"]
            scores = {f"change to {count}": one["fg_ari"] - start for count, one in own.items()}
            for name, curve in (("own", own), ("full set", full)):
                scores |= {f"{name}, {count}": one["fg_ari"] for count, one in curve.items()}
            yield Scored(settings | {"objects": data["num_objects"]}, scores)


def identity(archive: Path) -> list[Scored]:
    """What `slot_identity.py` has written: "circling, 96/hota" of runs, "TRACKER, circling, 96/hota" of trackers."""
    runs: dict[str, dict[str, Any]] = {}
    trackers: dict[str, float] = {}
    for record in read_records(archive):
        start = "" if "run" in record else f"{record.get('name')}, "
        scores = {
            f"{start}{record['camera']}, {length}/{name}": value
            for length, found in record.get("lengths", {}).items()
            for name, value in found.items()
            if value is not None
        }
        if "run" in record:
            runs.setdefault(record["run"], {"core": record["name"], "scores": {}})["scores"] |= scores
        else:
            trackers |= scores
    return [Scored({"model.core": run["core"]}, run["scores"] | trackers) for run in runs.values()]


def rows(found: Sequence[Contrast]) -> list[str]:
    """Lines of a Markdown table."""
    return [
        f"| {one.score} | {side(one, 0)} | {side(one, 1)} | {interval(one)} | {small(one.p)} | {small(one.holm)} |"
        for one in found
    ]


def side(made: Contrast, index: int) -> str:
    """A name, and mean ± standard deviation of its seeds."""
    values, digits = made.values[index], decimals(made)
    spread = f" ± {statistics.stdev(values):.{digits}f} (n = {len(values)})" if len(values) > 1 else ""
    return f"{made.names[index]} {statistics.mean(values):.{digits}f}{spread}"


def interval(made: Contrast) -> str:
    """The difference of the means, and its interval."""
    middle, half = made.difference
    ends = [f"{end:+.{decimals(made)}f}" for end in (middle, middle - half, middle + half)]
    return f"{ends[0]} ({ends[1]} to {ends[2]})"


def decimals(made: Contrast) -> int:
    """Three digits of the larger mean."""
    size = max(abs(statistics.mean(values)) for values in made.values)
    return max(1, 3 - math.ceil(math.log10(size) - 0.1)) if size else 3


def small(p: float) -> str:
    """A p value with two digits behind the point, three below a hundredth."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.01 else f"{p:.2f}"


def table(names: Sequence[str], runs_dir: Path) -> str:
    """The comparisons of the named studies as one Markdown table.

    Raises:
        ComparisonError: the runs of one are not there.
    """
    known = read_studies()
    return "\n".join(
        [HEAD, *(row for name in names for row in rows(contrasts(known[name], runs_of(known[name], runs_dir))))]
    )


def read_studies() -> dict[str, Any]:
    """Every study by its name."""
    import yaml

    return yaml.safe_load((Path(__file__).with_suffix(".yaml")).read_text(encoding="utf-8"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tables; 1 where the runs of a named study are not there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = read_studies()
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=", ".join(known))
    parser.add_argument("--runs_dir", type=Path, default=Path("runs"), help="where the grids are (default: runs)")
    args = parser.parse_args(arguments)
    if unknown := [name for name in args.studies if name not in known]:
        parser.error(f"no study is called {unknown[0]}; there are {', '.join(known)}")
    if args.studies:
        try:
            print(table(args.studies, args.runs_dir))
        except ComparisonError as error:
            print(error, file=sys.stderr)
            return 1
        return 0
    for name in known:
        try:
            print(f"{name}\n\n{table([name], args.runs_dir)}\n")
        except ComparisonError as error:
            print(f"left out: {name}: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
