"""Draws how the runs of a grid do on clips longer than those of the training, and what their states and steps cost.

    slotbench test runs/blinking_balls_study/POINT --lengths 1,2,4,8,16      # of each point
    python docs/scripts/draw_lengths.py runs/blinking_balls_study --score colour_accuracy --out docs/assets --name NAME

NAME_lengths.png has the score over the frames of a clip, a line per core at the mean of its runs in a band from the
worst to the best of them, with baselines dotted; the numbers in the state of a clip; and the milliseconds of a frame.
A run counts with its last test that has the score; runs without one are left out, and named.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from draw_cores import Run, draw_curves, figure_of, runs_below, without_what_all_say

COSTS = {"state_numbers": "numbers in the state of a clip", "milliseconds_per_frame": "ms per frame of a clip"}
_QUIET = "#6b7280"


def last_test(run: Run, score: str) -> dict[str, Any] | None:
    """What `--lengths` has written of a run, the newest that has the score at every length."""
    for path in sorted(run.folder.glob("lengths-*-*.json"), reverse=True):
        record = json.loads(path.read_text())
        lengths = record.get("lengths")
        if lengths and all(f"lengths/{one['multiple']}T/{score}" in record["metrics"] for one in lengths):
            return record
    return None


def values(record: dict[str, Any], name: str) -> list[float]:
    """A number of a test at each length, by the name it has in `compare`."""
    return [record["metrics"].get(f"lengths/{one['multiple']}T/{name}", float("nan")) for one in record["lengths"]]


def draw(tests: dict[str, list[dict[str, Any]]], score: str, path: Path) -> None:
    """The score, the state and the time against the frames of a clip."""
    one = next(iter(tests.values()))[0]
    frames = [length["frames"] for length in one["lengths"]]
    figure, axes = figure_of(1 + len(COSTS))
    for axis, name in zip(axes, (score, *COSTS), strict=True):
        draw_curves(axis, {core: [values(test, name) for test in found] for core, found in tests.items()}, frames)
        axis.set_xscale("log", base=2)
        axis.set_xticks(frames, [str(count) for count in frames])
        axis.set_xlabel("frames of a clip", fontsize=9)
        axis.set_title(COSTS.get(name, name.replace("_", " ").replace("/", ", ")), loc="left", fontsize=10)
        if name == "state_numbers":
            axis.set_yscale("log")
        else:
            axis.set_ylim(bottom=min(0, axis.get_ylim()[0]))
    start = f"lengths/{one['lengths'][0]['multiple']}T/baseline/{score}/"
    for key in [key for key in one["metrics"] if key.startswith(start)]:
        # with clips of the same seed, of which shorter ones are the beginning, every run has these alike
        name = key.removeprefix(start)
        level = values(one, f"baseline/{score}/{name}")
        axes[0].plot(frames, level, color=_QUIET, linestyle=":", linewidth=1.2)
        axes[0].text(frames[-1], level[-1], name, fontsize=7, color=_QUIET, ha="right", va="bottom")
    axes[0].axvline(one["training_frames"], color=_QUIET, linewidth=0.8)
    axes[0].legend(fontsize=8, frameon=False)
    figure.savefig(path)


def main() -> int:
    """Draws what has been tested; 1 if nothing has been."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a grid's folder, or another one with runs in it")
    parser.add_argument("--score", required=True, help="such as colour_accuracy, error or fg_ari/video/decoder")
    parser.add_argument("--out", type=Path, default=Path("."), help="folder for the picture")
    parser.add_argument("--name", help="how the picture's name begins (default: the folder's name)")
    args = parser.parse_args()
    tests: dict[str, list[dict[str, Any]]] = {}
    for name, runs in runs_below(args.folder).items():
        for run in runs:
            record = last_test(run, args.score)
            if record is None:
                print(f"{run.folder.name} has not been tested at several lengths: slotbench test RUN --lengths 1,4,16")
            else:
                tests.setdefault(name, []).append(record)
    if not tests:
        print(f"no run below {args.folder} has {args.score} at several lengths", file=sys.stderr)
        return 1
    if len({json.dumps([one["frames"] for one in test["lengths"]]) for found in tests.values() for test in found}) > 1:
        print("the runs were tested at different lengths; test them all with the same --lengths", file=sys.stderr)
        return 1
    args.out.mkdir(parents=True, exist_ok=True)
    short = without_what_all_say(list(tests))
    tests = {short[name]: found for name, found in tests.items()}
    draw(tests, args.score, args.out / f"{args.name or args.folder.resolve().name}_lengths.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
