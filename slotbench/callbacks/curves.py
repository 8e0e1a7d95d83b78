"""Loss and headline metrics over the steps of a run, drawn as images while it trains."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch import Callback, LightningModule, Trainer
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from slotbench.io import open_atomically
from slotbench.runs.folder import RESULT, RunFolder
from slotbench.runs.oracles import split_references

__all__ = ["CurveWriter", "draw_curves", "draw_missing_curves"]


def draw_curves(folder: RunFolder) -> list[Path]:
    """Draws `media/loss.png` and `media/metrics.png`, the headlines with baselines dashed and oracles dotted.

    Args:
        folder: a run, finished or not.

    Returns:
        The pictures; one that would be empty is not drawn.
    """
    history, drawn = folder.history(), []
    losses = {name: _series(history, f"{name}/loss") for name in ("train", "val")}
    if any(len(steps) for steps, _ in losses.values()):
        figure, (axis,) = _figure(1)
        for name, (steps, values) in losses.items():
            axis.plot(steps, values, label=name, linewidth=1 if name == "train" else 1.8)
        values = np.concatenate([values for _, values in losses.values()])
        if (values > 0).all() and values.max() > 20 * values.min():
            axis.set_yscale("log")
        axis.set_title("loss", loc="left")
        axis.legend(frameon=False)
        drawn.append(_save(figure, folder.media / "loss.png"))
    headlines = [(one, _series(history, one["metric"])) for one in folder.info.get("headlines", [])]
    headlines = [(one, series) for one, series in headlines if len(series[0])]
    if headlines:
        figure, axes = _figure(len(headlines))
        for axis, (headline, (steps, values)) in zip(axes, headlines, strict=True):
            axis.plot(steps, values, marker="o", markersize=3, label="this run")
            for references, style in zip(split_references(headline), ("--", ":"), strict=True):
                for name, score in references.items():
                    axis.axhline(score, linestyle=style, color="#9ca3af", linewidth=1)
                    axis.annotate(name, (1, score), xycoords=("axes fraction", "data"), fontsize=7, parse_math=False)
            axis.set_title(headline.get("label") or headline["metric"], loc="left", fontsize=10, parse_math=False)
        drawn.append(_save(figure, folder.media / "metrics.png"))
    return drawn


def draw_missing_curves(folder: RunFolder) -> list[Path]:
    """Draws the curves of a run that has ended, if its result is newer than they are; what goes wrong is a warning."""
    try:
        drawn, ended = folder.media / "loss.png", folder.path / RESULT
        if drawn.is_file() and drawn.stat().st_mtime >= ended.stat().st_mtime:
            return []
        return draw_curves(folder)
    except Exception as error:
        print(f"warning: could not draw the curves of {folder.path}: {error}", file=sys.stderr)
        return []


def _series(history: list[dict[str, Any]], name: str) -> tuple[np.ndarray, np.ndarray]:
    rows = [(row["step"], row[name]) for row in history if isinstance(row.get(name), int | float)]
    table = np.array(rows, dtype=float).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _figure(count: int) -> tuple[Figure, list[Axes]]:
    across = min(count, 3)
    down = -(-count // across)
    figure = Figure(figsize=(5.5 * across, 3.8 * down), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(down, across, squeeze=False).flat)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_xlabel("step")
    for empty in axes[count:]:
        empty.set_visible(False)
    return figure, axes[:count]


def _save(figure: Figure, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_atomically(path) as file:
        figure.savefig(file, format="png")
    return path


class CurveWriter(Callback):
    """Draws the curves at the end, on interruption, and after a validation where that costs next to nothing.

    Args:
        folder: the run.
        share: largest share of the running time that drawing between validations may take.
    """

    def __init__(self, folder: RunFolder, share: float = 0.02) -> None:
        self._folder, self._share = folder, share
        self._cost, self._drawn_at = 0.5, time.monotonic()  # seconds; a guess until measured

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draws if the last drawing is long enough ago."""
        is_cheap = self._cost < min(1.0, self._share * (time.monotonic() - self._drawn_at))
        if is_cheap and trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._draw(trainer)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Draws."""
        self._draw(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Draws what there is."""
        if trainer.state.fn == "fit":
            self._draw(trainer)

    def _draw(self, trainer: Trainer) -> None:
        if trainer.is_global_zero:
            start = time.monotonic()
            try:
                draw_curves(self._folder)
            except Exception as error:  # a picture must neither end a run nor hide why it ended
                print(f"warning: could not draw the curves of {self._folder.path}: {error}", file=sys.stderr)
            self._drawn_at = time.monotonic()
            self._cost = self._drawn_at - start
