"""A metric of object discovery from outside: one class and one call, and it shows everywhere with its direction."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from jaxtyping import Integer
from tiny_discovery import tiny_discovery, train
from torch import Tensor

from slotbench.cli import run
from slotbench.comparison.run_folders import read_run_folder
from slotbench.comparison.table import compare
from slotbench.metrics.mask_metrics import MASK_METRICS, MaskMetric, add_mask_metric
from slotbench.metrics.segmentation import SegmentationMetric

CONFIG = tiny_discovery(eval_frames=2, baseline_clips=2)
PURITY = "pixels in a slot of one object: purity per video"
IMPURITY = "accuracy lost to mixed slots"


class Purity(SegmentationMetric):
    """Share of the pixels that belong to the true segment with the most pixels in their slot."""

    def score(self, table: Integer[Tensor, "samples true predicted"]) -> tuple[Tensor, Tensor]:
        pixels = table.sum((-2, -1))
        return table.amax(-2).sum(-1) / pixels.clamp(min=1), pixels > 0


class Impurity(Purity):
    """The rest, whose name has a word that sounds like the other direction."""

    higher_is_better = False

    def score(self, table: Integer[Tensor, "samples true predicted"]) -> tuple[Tensor, Tensor]:
        value, defined = super().score(table)
        return 1 - value, defined


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory):
    """Runs of two seeds with both metrics, the folder of all runs, and what the last one printed."""
    folder = tmp_path_factory.mktemp("own")
    known = dict(MASK_METRICS)
    add_mask_metric(MaskMetric("purity", "purity", Purity, PURITY))
    add_mask_metric(MaskMetric("accuracy_lost", "accuracy lost", Impurity, IMPURITY))
    for seed in ("0", "1"):
        train(CONFIG, folder / "runs" / f"seed{seed}", "--seed_everything", seed)
    yield folder / "runs"
    MASK_METRICS.clear()
    MASK_METRICS.update(known)


def test_the_report_the_table_and_the_page_have_them_with_their_directions(trained, tmp_path, capsys):
    assert run(["fit", "--config", str(trained.parent / "tiny.yaml"), "--run_dir", str(tmp_path / "again")]) == 0
    report = capsys.readouterr().out
    assert "purity per video" in report.replace("\n", " ")
    assert IMPURITY in report

    found = compare([read_run_folder(path) for path in sorted(trained.iterdir())])
    by_name = {metric.name: metric for metric in found.metrics}
    assert by_name["val/purity/video/decoder"].label == PURITY
    assert by_name["val/purity/video/decoder"].higher_is_better is True
    assert by_name["val/accuracy_lost/video/decoder"].higher_is_better is False
    assert by_name["val/purity/video/decoder"].baselines.keys() >= {"one slot", "stripes"}
    # no headline, and so by the record alone
    (attention,) = compare([read_run_folder(trained / "seed0")], metrics=["accuracy_lost/frame/attention"]).metrics
    assert attention.higher_is_better is False
    assert attention.baselines.keys() >= {"one slot", "stripes"}

    page = tmp_path / "page.html"
    assert run(["compare", str(trained), "--html", str(page), "--format", "markdown"]) == 0
    table = capsys.readouterr().out
    assert f"{PURITY} ↑" in table
    assert f"{IMPURITY} ↓" in table
    assert PURITY in page.read_text()


def test_score_and_lengths_print_them_with_their_directions(trained, tmp_path, capsys):
    for name in ("masks", "truth"):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "a.npy", np.array([[[0, 1], [1, 1]]], np.uint8))
    capsys.readouterr()
    assert run(["score", str(tmp_path / "masks"), "--truth", str(tmp_path / "truth"), "--no-baselines"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "purity per video ↑ 1.000" in printed
    assert "accuracy lost per frame ↓ 0.000" in printed
    assert run(["test", str(trained / "seed0"), "--lengths", "1,2", "--clips", "2"]) == 0
    printed = capsys.readouterr().out
    assert "purity per video, decoder ↑" in printed
    assert "accuracy lost per frame, attention ↓" in printed
    (lost,) = compare([read_run_folder(trained / "seed0")], metrics=["lengths/2T/accuracy_lost/video/decoder"]).metrics
    assert lost.higher_is_better is False


def test_every_logged_score_of_a_run_is_declared(trained):
    record = json.loads((trained / "seed0/run.json").read_text())
    names = {name.removeprefix("val/") for name in record["metrics"] if name.startswith("val/")}
    assert names - record["metric_infos"].keys() == set()
    assert record["metric_infos"]["baseline/miou/video/stripes"]["of"] == "miou/video"


def test_a_name_that_would_not_be_read_back_is_refused():
    with pytest.raises(ValueError, match="letters, digits and underscores"):
        add_mask_metric(MaskMetric("a/b", "", Purity))


def test_the_values_are_those_of_the_class():
    metric = Purity("frame")
    metric.update(torch.tensor([[[[0, 0, 1, 1]]]]), torch.tensor([[[[0, 1, 1, 1]]]]))
    assert float(metric.compute()) == pytest.approx(0.75)
