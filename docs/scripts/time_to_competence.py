"""Says after how many steps and operations the cores of a study first reach a named competence, from its records.

    slotbench grid unpack experiments/grids/cater_like_cores.yaml experiments/grids/records/cater_like_cores.zip
    python docs/scripts/time_to_competence.py positions [NAME ...] [--runs_dir DIR]

Prints a table for each name. A competence is reached at the first validation whose score is as good; what lies between
that one and the one before it is not known, and both are given. A seed that never reaches it counts as later than its
budget. Operations of a step are those of step_flops.json, which `--count` counts anew on the configurations of the runs
(a minute for each core).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contrasts import GRIDS

from slotbench.comparison.last_quarter import SETTLED, gain_of_last_quarter
from slotbench.comparison.records import ComparisonError, Metric, RunRecord
from slotbench.comparison.sources import read_sources

FLOPS = Path(__file__).with_name("step_flops.json")
HEAD = (
    "| core | GFLOP a step | steps, mean of seeds | steps, median seed | TFLOP, mean of seeds | at the end |\n"
    "|---|---:|---:|---:|---:|---:|"
)
VALIDATIONS = 2000
GREY = "val/baseline/rollout_mse/grey, mean of the context/first_8"
VELOCITY = "val/oracle/rollout_mse/constant velocity/first_8"
NAMES = {"SingleStateSSM": "one state", "FrameTransformer": "Transformer"}


@dataclass(frozen=True)
class Study:
    """Trainings of several cores, and what counts as competence.

    Attributes:
        grid: whose reported runs are compared.
        steps: experiment by whose name the operations of a step are stored; the cores' sizes are the same in it.
        metric: the score.
        level: of competence, a number; or the mean of what these predictors score, by their keys.
        where: settings of the runs.
    """

    grid: str
    steps: str
    metric: Metric
    level: float | tuple[str, ...]
    where: Mapping[str, Any] = field(default_factory=dict)

    def competence(self, run: RunRecord) -> float:
        """The score that counts as competence."""
        return self.level if isinstance(self.level, float) else statistics.mean(run.summary[key] for key in self.level)

    def is_reached(self, value: float, level: float) -> bool:
        """Whether a score is as good."""
        return value >= level if self.metric.higher_is_better else value <= level


COLOURS = Metric("val/colour_accuracy", "colour accuracy", higher_is_better=True)
ERROR = Metric("val/rollout_mse/first_8", "error of 8 frames", higher_is_better=False)
SNITCH = Metric("val/top1/covered_moved", "Top-1, covered and moved", higher_is_better=True)
SHORT, LONG = {"data.rule": "earliest"}, {"data.patches_per_side": 1}
STUDIES = {
    "colours": Study("studies/blinking_balls_long", "blinking_balls", COLOURS, 0.9, LONG),
    "colours_short": Study("studies/blinking_balls", "blinking_balls", COLOURS, 0.9, SHORT),
    "balls": Study("studies/bouncing_balls", "bouncing_balls", ERROR, (GREY, VELOCITY)),
    "balls_long": Study("bouncing_balls_longer", "bouncing_balls", ERROR, (VELOCITY,)),
    "positions": Study("cater_like_cores", "cater_like", SNITCH, ("val/baseline/top1/covered_moved/any cone",)),
}


@dataclass(frozen=True)
class Reached:
    """Validations between which a competence is reached.

    Attributes:
        after: the last one without it, in steps; 0 before the first.
        by: the first one with it; infinite where there is none.
    """

    after: int
    by: float

    def told(self, scale: float = 1.0, digits: int = 0) -> str:
        """Both ends, in other units."""
        low, high = (f"{scale * end:,.{digits}f}" for end in (self.after, self.by))
        return f"> {low}" if math.isinf(self.by) else f"{low} to {high}" if self.after else f"≤ {high}"


def first_reached(steps: Sequence[int], values: Sequence[float], level: float, study: Study) -> Reached:
    """Where a curve first reaches a level.

    Args:
        steps: of the validations, done by then, ascending.
        values: their scores.
        level: of competence.
        study: says which direction is better.
    """
    before = 0
    for step, value in zip(steps, values, strict=True):
        if study.is_reached(value, level):
            return Reached(before, step)
        before = step
    return Reached(before, math.inf)


def curve_of(run: RunRecord, metric: Metric) -> tuple[list[int], list[float]]:
    """Steps done by each validation, and its score."""
    steps, values = run.curves(VALIDATIONS)[metric.logged]
    return [int(step) + 1 for step in steps], [float(value) for value in values]


def mean_curve(runs: Sequence[RunRecord], metric: Metric) -> tuple[list[int], list[float]]:
    """The mean over seeds at each validation.

    Raises:
        ComparisonError: the seeds have other validations.
    """
    curves = [curve_of(run, metric) for run in runs]
    if any(steps != curves[0][0] for steps, _ in curves):
        raise ComparisonError(f"the seeds of {name_of(runs[0])} have validations after other steps")
    return curves[0][0], [statistics.mean(values) for values in zip(*(values for _, values in curves), strict=True)]


def name_of(run: RunRecord) -> str:
    """What a core is called; one state has two sizes."""
    core = run.settings["model.core"]
    as_large = core == "SingleStateSSM" and run.settings.get("model.core.state_dim") == 111
    return NAMES.get(core, core) + (", as large" if as_large else "")


def runs_of(study: Study, runs_dir: Path) -> dict[str, list[RunRecord]]:
    """The reported runs of a study by the name of their core.

    Raises:
        ComparisonError: the runs are not there.
    """
    found: dict[str, list[RunRecord]] = {}
    for run in read_sources([str(GRIDS / f"{study.grid}.yaml")], runs_dir):
        if all(run.settings.get(key) == value for key, value in study.where.items()):
            found.setdefault(name_of(run), []).append(run)
    return found


def rows(study: Study, found: Mapping[str, Sequence[RunRecord]]) -> list[str]:
    """Lines of a Markdown table, the fewest operations first, and then the best at the end."""
    flops = flops_of(study)
    made = []
    for name, runs in found.items():
        level = study.competence(runs[0])
        whole = first_reached(*mean_curve(runs, study.metric), level, study)
        seeds = sorted(
            (first_reached(*curve_of(run, study.metric), level, study) for run in runs),
            key=lambda one: (one.by, one.after),
        )
        middle, reach = seeds[(len(seeds) - 1) // 2], sum(math.isfinite(one.by) for one in seeds)
        last = [curve_of(run, study.metric)[1][-1] for run in runs]
        shown = f"{statistics.mean(last):.3f} ± {statistics.stdev(last):.3f}"
        gains = [gain for run in runs if (gain := gain_of_last_quarter(run, study.metric)) is not None]
        gain = statistics.median(gains)
        shown += f", gains {100 * gain:.0f} %" if gain >= SETTLED else ""
        cells = [name, f"{1e-9 * flops[name]:.2f}", whole.told(), f"{middle.told()} ({reach} of {len(runs)})"]
        cells += [whole.told(1e-12 * flops[name], 1), shown]
        better = -1 if study.metric.higher_is_better else 1
        order = (whole.by * flops[name], better * statistics.mean(last))
        made.append((order, f"| {' | '.join(cells)} |"))
    return [line for _, line in sorted(made)]


def flops_of(study: Study) -> dict[str, int]:
    """Operations of a step of each core."""
    stored = json.loads(FLOPS.read_text(encoding="utf-8"))[study.steps]
    return {name: sum(counts.values()) for name, counts in stored.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tables; 1 where the runs of a named study are not there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="+", metavar="NAME", choices=STUDIES, help=", ".join(STUDIES))
    parser.add_argument("--runs_dir", type=Path, default=Path("runs"), help="where the grids are (default: runs)")
    args = parser.parse_args(arguments)
    studies = [STUDIES[name] for name in args.studies]
    try:
        print("\n\n".join("\n".join([HEAD, *rows(one, runs_of(one, args.runs_dir))]) for one in studies))
    except ComparisonError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
