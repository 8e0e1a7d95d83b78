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


def test_baselines_are_labelled_dashed_lines_at_their_scores(folder: RunFolder, figures: dict) -> None:
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
    folder.update(headlines=[HEADLINE | {"baselines": {}}])
    for step in range(3):
        folder.append(step, {"val/accuracy": 30.0 + step})
    draw_curves(folder)
    low, high = figures["metrics.png"].axes[0].get_ylim()
    assert low < 30
    assert high > 32


def test_every_score_has_a_scale_of_its_own(folder: RunFolder, figures: dict) -> None:
    scores = {"val/mse": (0.04, 0.03, 0.02), "val/psnr": (14.0, 15.0, 17.0), "val/ari": (0.1, 0.5, 0.8)}
    folder.update(headlines=[{"metric": name, "label": name, "baselines": {}} for name in scores])
    for step in range(3):
        folder.append(step, {name: values[step] for name, values in scores.items()})
    draw_curves(folder)
    for axis, values in zip(figures["metrics.png"].axes, scores.values(), strict=True):
        low, high = axis.get_ylim()
        assert low < min(values) < max(values) < high
        assert max(values) - min(values) > 0.8 * (high - low)


def test_a_far_baseline_is_named_at_the_edge_and_does_not_press_the_curve_flat(
    folder: RunFolder, figures: dict
) -> None:
    baselines = {"near": 0.05, "far": 9.0, "constant velocity": 0.001}
    folder.update(headlines=[{"metric": "val/mse", "label": "error", "baselines": baselines}])
    for step in range(10):
        folder.append(step, {"val/mse": 0.04 - 0.002 * step})
    draw_curves(folder)
    (axis,) = figures["metrics.png"].axes
    low, high = axis.get_ylim()
    assert 0.2 * (high - low) < 0.018
    assert high < 1
    texts = [text.get_text() for text in axis.texts]
    assert any(text.startswith("↑ far 9.0") for text in texts)
    assert any(text.startswith("oracle: constant velocity") for text in texts)
    assert {line.get_linestyle() for line in axis.lines} == {"-", "--", ":"}


def test_names_with_mathematics_and_escapes_are_drawn_as_they_are(folder: RunFolder, figures: dict) -> None:
    headline = {"metric": "val/a", "label": r"$\frac{$ \input{x}", "baselines": {"$x_": 0.1}}
    folder.update(headlines=[headline], name="$y^")
    folder.append(0, {"val/a": 0.2, "train/loss": 1.0})
    assert len(draw_curves(folder)) == 2
    assert figures["metrics.png"].axes[0].get_title(loc="left") == r"$\frac{$ \input{x}"


def test_many_scores_are_drawn_in_rows_of_three(folder: RunFolder, figures: dict) -> None:
    folder.update(headlines=[{"metric": f"val/{n}", "label": f"score {n}", "baselines": {}} for n in range(7)])
    for step in range(2):
        folder.append(step, {f"val/{n}": n + step for n in range(7)})
    draw_curves(folder)
    figure = figures["metrics.png"]
    assert sum(axis.get_visible() for axis in figure.axes) == 7
    assert figure.get_size_inches()[0] < 17


@pytest.mark.parametrize("heights", [[0.0, 0.0, 0.0], [0.1, 0.11, 0.9], [0.98, 0.99, 1.0]])
def test_labels_keep_their_distance_and_stay_inside(heights: list[float]) -> None:
    out = curves._spread(heights, gap=0.05, top=1.0)
    assert min(np.diff(out)) >= 0.05 - 1e-12
    assert max(out) <= 1.0
