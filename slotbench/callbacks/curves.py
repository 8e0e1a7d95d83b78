"""Loss and headline metrics over the steps of a run, drawn as images while it trains."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch import Callback, LightningModule, Trainer
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from slotbench.io import open_atomically
from slotbench.runs.folder import RunFolder
from slotbench.runs.headlines import split_references

__all__ = ["CurveWriter", "draw_curves"]


def draw_curves(folder: RunFolder) -> list[Path]:
    """Draws `media/loss.png` and `media/metrics.png`, the headlines with baselines dashed and oracles dotted."""
    history, drawn = folder.history(), []
    losses = {name: _series(history, f"{name}/loss") for name in ("train", "val")}
    if any(len(series) for series in losses.values()):
        figure, (axis,) = _figure(1)
        for name, series in losses.items():
            axis.plot(*series.T, label=name, linewidth=1 if name == "train" else 1.8)
        values = np.concatenate([series[:, 1] for series in losses.values()])
        if (values > 0).all() and values.max() > 20 * values.min():
            axis.set_yscale("log")
        axis.set_title("loss", loc="left")
        axis.legend(frameon=False)
        drawn.append(_save(figure, folder.media / "loss.png"))
    headlines = [(one, _series(history, one["metric"])) for one in folder.info.get("headlines", [])]
    if headlines := [(one, series) for one, series in headlines if len(series)]:
        figure, axes = _figure(len(headlines))
        for axis, (headline, series) in zip(axes, headlines, strict=False):
            axis.plot(*series.T, marker="o", markersize=3, label="this run")
            for references, style in zip(split_references(headline), ("--", ":"), strict=True):
                for name, score in references.items():
                    axis.axhline(score, linestyle=style, color="#9ca3af", linewidth=1)
                    axis.annotate(name, (1, score), xycoords=("axes fraction", "data"), fontsize=7, parse_math=False)
            axis.set_title(headline.get("label") or headline["metric"], loc="left", fontsize=10, parse_math=False)
        drawn.append(_save(figure, folder.media / "metrics.png"))
    return drawn


def _series(history: list[dict[str, Any]], name: str) -> np.ndarray:
    """Steps and values: "rows 2"."""
    rows = [(row["step"], row[name]) for row in history if isinstance(row.get(name), int | float)]
    return np.array(rows, dtype=float).reshape(-1, 2)


def _figure(count: int) -> tuple[Figure, list[Axes]]:
    across = min(count, 3)
    down = -(-count // across)
    figure = Figure(figsize=(5.5 * across, 3.8 * down), dpi=120, layout="constrained")
    axes = list(figure.subplots(down, across, squeeze=False).flat)
    for number, axis in enumerate(axes):
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_xlabel("step")
        axis.set_visible(number < count)
    return figure, axes


def _save(figure: Figure, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open_atomically(path) as file:
        figure.savefig(file, format="png")
    return path


class CurveWriter(Callback):
    """Draws the curves at the end, on interruption, and after a validation if a minute has passed since the last."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder, self._drawn_at = folder, time.monotonic()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn == "fit" and time.monotonic() - self._drawn_at > 60:
            self._draw(trainer)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        self._draw(trainer)

    on_exception = on_fit_end  # type: ignore[assignment]

    def _draw(self, trainer: Trainer) -> None:
        if trainer.is_global_zero and trainer.state.fn == "fit":
            try:
                draw_curves(self._folder)
            except Exception as error:  # a picture must neither end a run nor hide why it ended
                print(f"warning: could not draw the curves of {self._folder.path}: {error}", file=sys.stderr)
            self._drawn_at = time.monotonic()
