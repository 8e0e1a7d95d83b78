"""Metrics from outside, one of masks and one of predicted frames: a class each in a plugin file, and runs log them."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from tiny_discovery import tiny_discovery, train

from slotbench import registry
from slotbench.cli import run
from slotbench.comparison.sources import read_sources
from slotbench.comparison.table import compare

PLUGIN = '''
from slotbench.metric_info import MetricInfo
from slotbench.metrics import FrameMetric, SegmentationMetric
from slotbench.registry import register


@register("metrics")
class Purity(SegmentationMetric):
    """Share of the pixels that belong to the true segment with the most pixels in their slot."""

    info = MetricInfo("purity", "purity", True)
    headline = "pixels in a slot of one object: purity per video"

    def score(self, table):
        pixels = table.sum((-2, -1))
        return table.amax(-2).sum(-1) / pixels.clamp(min=1), pixels > 0


@register("metrics")
class WorstPixel(FrameMetric):
    """Largest error of a frame; the name has a word that sounds like the other direction."""

    info = MetricInfo("accuracy_lost", "largest error of a pixel", False)

    @staticmethod
    def score(predicted, true):
        return (predicted - true).abs().flatten(-3).amax(-1)
'''


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory):
    """A file with both metrics, which no other test has registered."""
    file = tmp_path_factory.mktemp("own") / "own_metrics.py"
    file.write_text(PLUGIN)
    before = dict(registry._registered)
    yield file
    registry._registered.clear()
    registry._registered.update(before)


@pytest.fixture(scope="module")
def trained(plugin: Path) -> Path:
    config = tiny_discovery(eval_frames=2, baseline_clips=2)
    return train(config, plugin.parent / "runs" / "masks", "--plugin", str(plugin))


def test_a_metric_of_masks_is_in_the_scores_beside_baselines_and_in_the_table(trained, capsys):
    logged = json.loads((trained / "result.json").read_text())["metrics"]
    for name in ("val/purity/video/decoder", "val/purity/frame/attention", "val/baseline/purity/video/one slot"):
        assert 0 < logged[name] <= 1, name
    assert logged["val/accuracy_lost/frame"] > 0
    (purity, lost) = compare(
        read_sources([str(trained)]), metrics=["purity/video/decoder", "accuracy_lost/frame"]
    ).columns
    assert (purity.label, purity.higher_is_better) == ("pixels in a slot of one object: purity per video", True)
    assert purity.baselines.keys() >= {"one slot", "stripes"}
    assert lost.higher_is_better is False


def test_every_logged_score_of_a_run_is_declared(trained):
    record = json.loads((trained / "run.json").read_text())
    names = {name.removeprefix("val/") for name in record["metrics"] if name.startswith("val/")}
    assert names - record["metric_infos"].keys() == set()
    assert record["metric_infos"]["baseline/miou/video/stripes"]["of"] == "miou/video"


def test_a_metric_of_frames_is_in_the_scores_of_a_roll_out(plugin):
    config = deepcopy(tiny_discovery(eval_frames=4))
    config["model"]["class_path"] = "VideoPrediction"
    del config["model"]["init_args"]["baseline_clips"]
    config["model"]["init_args"] |= {"rollout": {"context": 2, "horizon": 2}}
    path = train(config, plugin.parent / "runs" / "frames", "--plugin", str(plugin))
    logged = json.loads((path / "result.json").read_text())["metrics"]
    assert 0 < logged["val/rollout_accuracy_lost"] <= 1
    assert logged["val/rollout_accuracy_lost/step_02"] > 0
    baselines = {name for name in logged if name.startswith("val/baseline/rollout_accuracy_lost/")}
    infos = json.loads((path / "run.json").read_text())["metric_infos"]
    assert baselines
    assert all(infos[name.removeprefix("val/")]["higher_is_better"] is False for name in baselines)


def test_score_and_lengths_have_them(trained, tmp_path, capsys):
    for name in ("masks", "truth"):
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "a.npy", np.array([[[0, 1], [1, 1]]], np.uint8))
    capsys.readouterr()
    assert run(["score", str(tmp_path / "masks"), "--truth", str(tmp_path / "truth"), "--no-baselines"]) == 0
    assert "purity per video ↑ 1.000" in " ".join(capsys.readouterr().out.split())
    assert run(["test", str(trained), "--lengths", "1", "--clips", "2"]) == 0
    assert "purity per video, decoder ↑" in capsys.readouterr().out
