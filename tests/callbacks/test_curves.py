"""Curves are drawn from the folder alone."""

from __future__ import annotations

from pathlib import Path

import matplotlib.figure
import numpy as np
import pytest
from PIL import Image

from slotbench.callbacks import curves
from slotbench.callbacks.curves import draw_curves
from slotbench.runs.folder import RunFolder

HEADLINE = {"metric": "val/accuracy", "label": "what", "baselines": {"last seen": 0.5, "white": 0.48}}


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


def test_baselines_are_dashed_lines_at_their_scores(folder: RunFolder, figures: dict) -> None:
    fill(folder)
    draw_curves(folder)
    (axis,) = figures["metrics.png"].axes
    assert sorted(line.get_ydata()[0] for line in axis.lines if line.get_linestyle() == "--") == [0.48, 0.5]
    assert sorted(text.get_text() for text in axis.texts) == ["last seen", "white"]
    train, validation = figures["loss.png"].axes[0].lines
    np.testing.assert_allclose(train.get_ydata(), 2.0 / (np.arange(100) + 1))
    assert list(validation.get_xdata()) == list(range(9, 100, 10))


def test_words_that_are_no_numbers_are_left_out(folder: RunFolder) -> None:
    folder.append(0, {"train/loss": float("nan")})
    folder.append(1, {"train/loss": 1.0})
    assert draw_curves(folder) == [folder.media / "loss.png"]
