"""Draws how the trainings of a grid went, from its records alone: the last scores, the loss, the gradients.

    slotbench grid run experiments/grids/studies/movi_like_lengths.yaml --jobs 2      # or slotbench grid unpack
    python docs/scripts/draw_training.py runs/movi_like_lengths_study --out docs/assets --name movi_like_lengths

NAME_scores.png has a dot per run, a bar at the mean of a variant and the best baseline, for the first three headlines
of the runs, or those of --scores, with --attention for these scores of the core's attention; NAME_loss.png the
validation loss over the updates, a line per run, in a panel for each core; NAME_gradients.png the norm of the gradients
before clipping, where runs have logged it. With --over-updates SCORE, NAME_updates.png has that headline over the
updates, variants in one panel beside their best baseline: who learns it, and when.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from draw_cores import Run, draw_band, figure_of, runs_below, without_what_all_say

GRADIENT = "train/gradient_norm"
MOST_SCORES = 3
BUDGET = ("max_steps", "val_check_interval")
"""Axes that say how long is trained; a panel is called by them only where no other axis differs."""
_QUIET = "#6b7280"
_LINE = "#111827"


def in_order(name: str) -> list:
    """A key that sorts 3 before 12."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def told(name: str) -> str:
    """A variant's name as one says it."""
    return re.sub(r"num_frames (\d+)", r"\1 frames", name.replace("-", " ")).replace("_", " ")


def colours(count: int) -> list:
    """As many colours as there are variants."""
    from slotbench.figures.painting import SLOT_COLOURS

    return [SLOT_COLOURS[index % len(SLOT_COLOURS)] / 255 for index in range(count)]


def tidy(axis, title: str) -> None:
    """No frame but two sides, a title, a faint grid."""
    axis.set_title(title, loc="left", fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.2)


def of_attention(headline: dict) -> dict:
    """The headline of the decoder's masks as one of the attention's, which has the same baselines."""
    key, label = headline["metric"], headline["label"]
    return headline | {"metric": key.replace("/decoder", "/attention"), "label": f"attention, {label}"}


def chosen(headlines: list[dict], names: Sequence[str]) -> list[dict]:
    """The headlines of these names, in their order; without names the first of all.

    Raises:
        SystemExit: a name that no headline has.
    """
    known = {headline["metric"].partition("/")[2]: headline for headline in headlines}
    for name in names:
        if name not in known:
            raise SystemExit(f"the runs have no headline {name!r}; they have {', '.join(known)}")
    return [known[name] for name in names] or headlines[:MOST_SCORES]


def best_baseline(headline: dict) -> str:
    """The name of the baseline that is hardest to beat."""
    known = headline["baselines"]
    return (max if headline["higher_is_better"] else min)(known, key=known.get)


def draw_scores(runs: dict[str, list[Run]], path: Path, names: Sequence[str] = (), attention: bool = False) -> None:
    """Variants from top to bottom, a dot per run, and a dotted line at the best baseline."""
    headlines = chosen(next(iter(runs.values()))[0].info["headlines"], names)
    if attention:
        headlines = [of_attention(headline) for headline in headlines]
    figure, axes = figure_of(len(headlines))
    for column, (axis, headline) in enumerate(zip(axes, headlines, strict=True)):
        key, known = headline["metric"], headline["baselines"]
        for row, (found, colour) in enumerate(zip(runs.values(), colours(len(runs)), strict=True)):
            values = [run.scores[key] for run in found if key in run.scores]
            axis.plot(values, [row] * len(values), "o", color=colour, alpha=0.75, markersize=6)
            if values:
                axis.plot([statistics.mean(values)] * 2, [row - 0.3, row + 0.3], color=_LINE, linewidth=1.6)
        if known:
            best = best_baseline(headline)
            axis.axvline(known[best], color=_QUIET, linestyle=":", linewidth=1.4)
            axis.text(known[best], len(runs) - 0.45, f"{best} ", fontsize=7.5, color=_QUIET, ha="right", va="bottom")
        axis.set_yticks(range(len(runs)), [told(name) for name in runs] if column == 0 else [])
        axis.set_ylim(len(runs) - 0.4, -0.6)
        axis.set_xlim(left=min(0, axis.get_xlim()[0]) if axis.dataLim.x0 < 0 else 0)
        tidy(axis, headline["label"])
    figure.savefig(path)


def draw_curves(runs: dict[str, list[Run]], path: Path, key: str, name: str, logarithmic: bool) -> None:
    """A panel per core, every run a line in its variant's colour; one scale for all panels."""
    panels: dict[str, list[str]] = {}
    for variant, found in runs.items():
        panels.setdefault(found[0].core, []).append(variant)
    if len(panels) == 1:
        panels = {name: list(runs)}
    figure, axes = figure_of(len(panels))
    lows, highs = [], []
    for axis, (title, variants) in zip(axes, panels.items(), strict=True):
        for variant, colour in zip(variants, colours(len(variants)), strict=True):
            for number, run in enumerate(runs[variant]):
                rows = [row for row in run.rows if key in row]
                label = told(variant.removeprefix(f"{title}, ")) if number == 0 else None
                steps, values = [row["step"] + 1 for row in rows], [row[key] for row in rows]
                axis.plot(steps, values, color=colour, linewidth=1.3, alpha=0.8, label=label)
                lows, highs = [*lows, *values], [*highs, *values]
        axis.set_xlabel("updates", fontsize=9)
        axis.legend(fontsize=8, frameon=False)
        tidy(axis, f"{title}: {name}" if len(panels) > 1 else name)
    for axis in axes:
        if logarithmic:
            axis.set_yscale("log")
            axis.set_ylim(0.8 * min(lows), 1.25 * max(highs))
        else:
            axis.set_ylim(0, 1.05 * max(highs))
    figure.savefig(path)


def panel_of(name: str) -> tuple[str, str]:
    """A variant's name and the panel it belongs to: "PSB" and "num_frames 3" of "PSB, num_frames 3"."""
    variant, *others = name.split(", ")
    telling = [part for part in others if not part.startswith(BUDGET)]
    return variant, ", ".join(telling or others)


def draw_over_updates(runs: dict[str, list[Run]], path: Path, score: str) -> None:
    """A panel per value of the other axes, a line per variant: the mean of its runs, in a band from worst to best."""
    panels: dict[str, dict[str, list[Run]]] = {}
    for name, found in runs.items():
        variant, panel = panel_of(name)
        panels.setdefault(panel, {})[variant] = found
    panels = dict(sorted(panels.items(), key=lambda pair: in_order(pair[0])))
    variants = list(dict.fromkeys(variant for panel in panels.values() for variant in panel))
    colour_of = dict(zip(variants, colours(len(variants)), strict=True))
    figure, axes = figure_of(len(panels))
    for axis, (panel, of_panel) in zip(axes, panels.items(), strict=True):
        (headline,) = chosen(next(iter(of_panel.values()))[0].info["headlines"], [score])
        key, known = headline["metric"], headline["baselines"]
        for variant, found in of_panel.items():
            by_step: dict[int, list[float]] = {}
            for row in (row for run in found for row in run.rows if key in row):
                by_step.setdefault(row["step"] + 1, []).append(row[key])
            draw_band(axis, list(by_step), list(by_step.values()), colour_of[variant], told(variant))
        if known:
            best = best_baseline(headline)
            axis.axhline(known[best], color=_QUIET, linestyle=":", linewidth=1.4, label=best)
        axis.set_ylim(bottom=0)
        axis.set_xlabel("updates", fontsize=9)
        axis.legend(fontsize=8, frameon=False)
        tidy(axis, f"{headline['label']}; {told(panel)}" if panel else headline["label"])
    figure.savefig(path)


def main() -> int:
    """Draws what the records have; 1 if no run has finished."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a grid's folder, or another one with runs in it")
    parser.add_argument("--out", type=Path, default=Path("."), help="folder for the pictures")
    parser.add_argument("--name", help="how the pictures' names begin (default: the folder's name)")
    parser.add_argument("--scores", nargs="+", default=[], metavar="NAME", help="headlines, such as rollout_ssim")
    parser.add_argument("--attention", action="store_true", help="scores of the core's attention, not the decoder's")
    parser.add_argument("--over-updates", metavar="SCORE", help="a headline to draw over the updates, too")
    args = parser.parse_args()
    runs = runs_below(args.folder)
    if not runs:
        print(f"no finished run below {args.folder}", file=sys.stderr)
        return 1
    runs = dict(sorted(runs.items(), key=lambda pair: in_order(pair[0])))
    short = without_what_all_say(list(runs))
    runs = {short[name]: found for name, found in runs.items()}
    args.out.mkdir(parents=True, exist_ok=True)
    start = args.out / (args.name or args.folder.resolve().name)
    draw_scores(runs, Path(f"{start}_scores.png"), args.scores, args.attention)
    if args.over_updates:
        draw_over_updates(runs, Path(f"{start}_updates.png"), args.over_updates)
    draw_curves(runs, Path(f"{start}_loss.png"), "val/loss", "validation loss", logarithmic=False)
    logged = {name: [run for run in found if any(GRADIENT in row for row in run.rows)] for name, found in runs.items()}
    logged = {name: found for name, found in logged.items() if found}
    if logged:
        name = "norm of the gradients, before clipping"
        draw_curves(logged, Path(f"{start}_gradients.png"), GRADIENT, name, logarithmic=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
