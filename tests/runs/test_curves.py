"""Curves are drawn from the folder alone."""

from __future__ import annotations

from pathlib import Path

import matplotlib.figure
import numpy as np
import pytest
from PIL import Image

from slotbench.runs import curves
from slotbench.runs.curves import draw_curves
from slotbench.runs.folder import RunFolder

HEADLINE = {"metric": "val/accuracy", "label": "what", "floors": {"last seen": 0.5, "white": 0.48}}


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> dict[str, matplotlib.figure.Figure]:
    """The figures that were saved, by file name."""
    kept = {}
    save = curves._save

    def keep(figure: matplotlib.figure.Figure, path: Path) -> Path:
        kept[path.name] = figure
        return save(figure, path)

    monkeypatch.setattr(curves, "_save", keep)
    return kept


def fill(folder: RunFolder) -> None:
    folder.update(headlines=[HEADLINE])
    for step in range(100):
        folder.append(step, {"train/loss": 2.0 / (step + 1)})
        if step % 10 == 9:
            folder.append(step, {"val/accuracy": step / 100, "val/loss": 2.5 / (step + 1)})


def test_a_run_without_lines_has_no_pictures(folder: RunFolder) -> None:
    assert draw_curves(folder) == []
    assert list(folder.media.iterdir()) == []


def test_loss_and_metrics_become_pictures_and_nothing_else_is_left(folder: RunFolder) -> None:
    fill(folder)
    drawn = draw_curves(folder)
    assert drawn == [folder.media / "loss.png", folder.media / "metrics.png"]
    assert sorted(folder.media.iterdir()) == sorted(drawn)
    for path in drawn:
        with Image.open(path) as image:
            picture = np.asarray(image.convert("RGB"))
        assert picture.shape[0] > 300
        assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 10


def test_floors_are_labelled_dashed_lines_at_their_scores(folder: RunFolder, figures: dict) -> None:
    fill(folder)
    draw_curves(folder)
    (axis,) = figures["metrics.png"].axes
    dashed = [line.get_ydata()[0] for line in axis.lines if line.get_linestyle() == "--"]
    texts = sorted(text.get_text() for text in axis.texts)
    assert sorted(dashed) == [0.48, 0.5]
    assert texts == ["last seen 0.50", "this run 0.990", "white 0.48"]
    assert axis.get_title(loc="left") == "what"
    heights = sorted(text.xy[1] for text in axis.texts)
    assert min(np.diff(heights)) > 0.04


def test_raw_and_smoothed_training_loss_and_validation_loss_are_there(folder: RunFolder, figures: dict) -> None:
    fill(folder)
    draw_curves(folder)
    raw, smooth, validation = figures["loss.png"].axes[0].lines
    np.testing.assert_allclose(raw.get_ydata(), 2.0 / (np.arange(100) + 1))
    assert smooth.get_ydata()[0] < raw.get_ydata()[0]
    assert list(validation.get_xdata()) == list(range(9, 100, 10))
    assert figures["loss.png"].axes[0].get_yscale() == "log"


def test_non_finite_losses_are_left_out_of_the_smoothed_curve(folder: RunFolder, figures: dict) -> None:
    for step in range(50):
        folder.append(step, {"train/loss": float("nan") if step == 20 else 1.0})
    draw_curves(folder)
    _, smooth = figures["loss.png"].axes[0].lines
    np.testing.assert_array_equal(smooth.get_ydata(), np.ones(50))


def test_metric_beyond_one_is_not_cut_off(folder: RunFolder, figures: dict) -> None:
    folder.update(headlines=[HEADLINE | {"floors": {}}])
    for step in range(3):
        folder.append(step, {"val/accuracy": 30.0 + step})
    draw_curves(folder)
    low, high = figures["metrics.png"].axes[0].get_ylim()
    assert low < 30
    assert high > 32


@pytest.mark.parametrize("heights", [[0.0, 0.0, 0.0], [0.1, 0.11, 0.9], [0.98, 0.99, 1.0]])
def test_labels_keep_their_distance_and_stay_inside(heights: list[float]) -> None:
    out = curves._spread(heights, gap=0.05, top=1.0)
    assert min(np.diff(out)) >= 0.05 - 1e-12
    assert max(out) <= 1.0
