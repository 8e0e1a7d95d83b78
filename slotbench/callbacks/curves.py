"""Loss and metrics over the steps of a run, drawn as images while it trains."""

from __future__ import annotations

import io
import math
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.trainer.states import TrainerFn
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from slotbench.files import make_folder, write_atomically
from slotbench.runs.folder import RESULT, RunFolder
from slotbench.runs.oracles import split_references
from slotbench.runs.run_info import Headline, RunInfo
from slotbench.text import one_line

__all__ = ["CurveWriter", "draw_curves", "draw_missing_curves"]

_LINE, _SECOND, _BASELINE, _ORACLE, _INK, _QUIET = "#2563eb", "#d97706", "#dc2626", "#15803d", "#1f2937", "#9ca3af"
# panels side by side
_ACROSS = 3
# of a panel's height that the run's own curve keeps, however far away a baseline is
_OWN_SHARE = 0.25


def draw_curves(folder: RunFolder) -> list[Path]:
    """Draws `media/loss.png` (training loss, raw and smoothed, and validation loss) and `media/metrics.png`.

    The metrics are the headlines in the run's record, each in a panel with a scale of its own, with baselines as dashed
    lines and oracles as dotted ones. Those that would press the curve flat are named at the edge instead.

    Args:
        folder: a run, finished or not.

    Returns:
        The pictures that were drawn; a picture that would be empty is not.
    """
    history = folder.history()
    info = folder.info
    drawn = []
    train, validation = _series(history, "train/loss"), _series(history, "val/loss")
    if len(train[0]) or len(validation[0]):
        figure, axes = _figure(1)
        _draw_loss(axes[0], train, validation)
        axes[0].set_title(_title(info), loc="left", fontsize=9, color=_QUIET, parse_math=False)
        drawn.append(_save(figure, folder.media / "loss.png"))
    shown = [(headline, _series(history, headline["metric"])) for headline in info.get("headlines", [])]
    shown = [(headline, series) for headline, series in shown if len(series[0])]
    if shown:
        figure, axes = _figure(len(shown))
        for axis, (headline, series) in zip(axes, shown, strict=True):
            _draw_metric(axis, headline, series)
        drawn.append(_save(figure, folder.media / "metrics.png"))
    return drawn


def draw_missing_curves(folder: RunFolder) -> list[Path]:
    """Draws the curves of a run that has ended, if its result is newer than they are; returns what was drawn.

    A folder that cannot be written, or curves that cannot be drawn, is reported on stderr.
    """
    try:
        drawn, ended = folder.media / "loss.png", folder.path / RESULT
        if drawn.is_file() and drawn.stat().st_mtime >= ended.stat().st_mtime:
            return []
        return draw_curves(folder)
    except Exception as error:
        print(one_line(f"warning: could not draw the curves of {folder.path}: {error}", 500), file=sys.stderr)
        return []


def _series(history: list[dict[str, Any]], name: str) -> tuple[np.ndarray, np.ndarray]:
    rows = [(row["step"], row[name]) for row in history if isinstance(row.get(name), int | float)]
    steps, values = (np.array(column, dtype=float) for column in zip(*rows, strict=True)) if rows else ([], [])
    return np.asarray(steps), np.asarray(values)


def _figure(count: int) -> tuple[Figure, list[Axes]]:
    across = min(count, _ACROSS)
    down = -(-count // across)
    figure = Figure(figsize=(6.4 if count == 1 else 5.2 * across, 3.8 * down), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(down, across, squeeze=False).flat)
    for empty in axes[count:]:
        empty.set_visible(False)
    axes = axes[:count]
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.spines[["left", "bottom"]].set_color(_QUIET)
        axis.tick_params(colors=_INK, labelsize=8)
        axis.grid(axis="y", color="#e5e7eb", linewidth=0.8)
        axis.set_axisbelow(True)
        axis.set_xlabel("step", color=_INK, fontsize=9)
        axis.xaxis.set_major_formatter(lambda step, _: f"{step / 1000:g}k" if step >= 1000 else f"{step:g}")
    return figure, axes


def _draw_loss(axis: Axes, train: tuple[np.ndarray, np.ndarray], validation: tuple[np.ndarray, np.ndarray]) -> None:
    steps, values = train
    if len(steps):
        axis.plot(steps, values, color=_LINE, alpha=0.25, linewidth=0.8)
        axis.plot(steps, _smooth(values), color=_LINE, linewidth=1.8, label="training (smoothed)")
    if len(validation[0]):
        axis.plot(*validation, color=_SECOND, linewidth=1.8, marker="o", markersize=3, label="validation")
    everything = np.concatenate([values, validation[1]])
    everything = everything[np.isfinite(everything)]
    if len(everything) and everything.min() > 0 and everything.max() > 20 * everything.min():
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_ylabel("loss", color=_INK, fontsize=9)
    axis.legend(frameon=False, fontsize=8)


def _draw_metric(axis: Axes, headline: Headline, series: tuple[np.ndarray, np.ndarray]) -> None:
    steps, values = series
    axis.plot(steps, values, color=_LINE, linewidth=1.8, marker="o" if len(steps) < 40 else "", markersize=3.5)
    title = one_line(headline.get("label") or headline["metric"], limit=80)
    axis.set_title(title, loc="left", fontsize=10, color=_INK, fontweight="bold", parse_math=False)
    finite = values[np.isfinite(values)]
    baselines, oracles = split_references(headline)
    lines = [(score, name, _BASELINE, "--") for name, score in baselines.items() if math.isfinite(score)]
    lines += [(score, f"oracle: {name}", _ORACLE, ":") for name, score in oracles.items() if math.isfinite(score)]
    low, high = _frame(finite.tolist(), [score for score, *_ in lines])
    room = 0.05 * (high - low)
    low, high = low - room, high + room
    axis.set_ylim(low, high)
    decimals = max(0, 1 - math.floor(math.log10(high - low)))
    # the labels stand to the right of the frame, where no curve can cross them
    labels = []
    for score, name, colour, style in lines:
        text = f"{one_line(name, limit=60)} {_digits(score, decimals)}"
        if low <= score <= high:
            axis.axhline(score, color=colour, linestyle=style, linewidth=1, alpha=0.7)
            labels.append((score, text, colour, "normal"))
        else:
            edge, arrow = (high, "↑") if score > high else (low, "↓")
            labels.append((edge, f"{arrow} {text}", colour, "normal"))
    labels += [(finite[-1], f"this run {_digits(finite[-1], decimals + 1)}", _LINE, "bold")] if len(finite) else []
    labels.sort(key=lambda label: label[0])
    heights = _spread([label[0] for label in labels], gap=1.1 * room, top=high)
    for (_, text, colour, weight), height in zip(labels, heights, strict=True):
        axis.annotate(
            text,
            (1, height),
            xycoords=("axes fraction", "data"),
            xytext=(4, 0),
            textcoords="offset points",
            color=colour,
            fontsize=7.5,
            fontweight=weight,
            va="center",
            annotation_clip=False,
            parse_math=False,
        )


def _frame(own: list[float], beside: list[float]) -> tuple[float, float]:
    """Limits of an axis: all scores of the run, and references as long as they leave these room.

    The nearest of the others come first; what would leave the run's own less than a quarter of the height stays out.
    """
    if not own:
        own, beside = beside[:1] or [0.5], beside[1:]
    low, high = min(own), max(own)
    # a curve of a single point, or a flat one, has no height to keep room for
    span = (high - low) or 0.1 * max(abs(high), max(map(abs, beside), default=0.0)) or 1.0
    for score in sorted(beside, key=lambda score: max(low - score, score - high)):
        widened = max(high, score) - min(low, score)
        if widened <= span / _OWN_SHARE:
            low, high = min(low, score), max(high, score)
    if high - low < span:
        middle = (low + high) / 2
        low, high = middle - span / 2, middle + span / 2
    return low, high


def _digits(score: float, decimals: int) -> str:
    """A number with some decimals, more where a small one would vanish."""
    return f"{score:.2g}" if 0 < abs(score) < 10.0 ** (1 - decimals) / 2 else f"{score:.{decimals}f}"


def _smooth(values: np.ndarray) -> np.ndarray:
    """Mean over the surrounding fortieth of the curve, centred so that it does not lag, of the finite values."""
    half = max(1, len(values) // 80)
    finite = np.isfinite(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(finite, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(finite)])
    positions = np.arange(len(values))
    start, stop = np.maximum(positions - half, 0), np.minimum(positions + half + 1, len(values))
    number = counts[stop] - counts[start]
    return np.where(number > 0, (sums[stop] - sums[start]) / np.maximum(number, 1), np.nan)


def _spread(heights: list[float], gap: float, top: float) -> list[float]:
    """Heights of labels, ascending, moved apart where they would lie on one another, none above `top`."""
    out: list[float] = []
    for height in heights:
        out.append(max(height, out[-1] + gap) if out else height)
    for index in reversed(range(len(out))):
        ceiling = out[index + 1] - gap if index + 1 < len(out) else top
        out[index] = min(out[index], ceiling)
    return out


def _title(info: RunInfo) -> str:
    return one_line(f"{info.get('name', '')} {info.get('id', '')}", limit=100)


def _save(figure: Figure, path: Path) -> Path:
    content = io.BytesIO()
    figure.savefig(content, format="png")
    make_folder(path.parent)
    write_atomically(path, content.getvalue())
    return path


class CurveWriter(Callback):
    """Draws the curves at the end, on interruption, and after a validation as long as that costs next to nothing.

    At the end that is once the result is written.

    Args:
        folder: the run.
        share: largest share of the running time that drawing between validations may take.
    """

    def __init__(self, folder: RunFolder, share: int | float = 0.02) -> None:
        self._folder = folder
        self._share = share
        self._cost = 0.5  # seconds; a guess until measured
        self._drawn_at = time.monotonic()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draws if the last drawing is long enough ago."""
        if trainer.state.fn != TrainerFn.FITTING or trainer.sanity_checking:
            return
        if self._cost < min(1.0, self._share * (time.monotonic() - self._drawn_at)):
            self._draw(trainer)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draws."""
        self._draw(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Draws what there is."""
        if trainer.state.fn == TrainerFn.FITTING:
            self._draw(trainer)

    def _draw(self, trainer: Trainer) -> None:
        if not trainer.is_global_zero:
            return
        start = time.monotonic()
        try:
            draw_curves(self._folder)
        except Exception as error:  # a picture must neither end a run nor hide why it ended
            warnings.warn(f"could not draw the curves of {self._folder.path}: {error}", stacklevel=2)
        self._drawn_at = time.monotonic()
        self._cost = self._drawn_at - start
