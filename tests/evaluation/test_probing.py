"""Probing recovers what made-up slots know, finds nothing in slots that know nothing, and says what it left out."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from made_up_clips import World

from slotbench.evaluation.probe_clips import Clips
from slotbench.evaluation.probe_factors import choose_factors
from slotbench.evaluation.probing import ProbeReport, ProbeSettings, probe

LINEAR = ProbeSettings(heads=("linear",))
BY_POSITION = ProbeSettings(match="position", heads=("linear",))


def report_of(fit: Clips, test: Clips, settings: ProbeSettings = LINEAR) -> ProbeReport:
    return probe(fit, test, choose_factors(fit.labels), settings)


def heads_of(report: ProbeReport, head: str = "linear") -> dict[str, float]:
    return {score.factor.name: score.heads[head] for score in report.scores}


def noise_for(clips: Clips, seed: int) -> Clips:
    generator = torch.Generator().manual_seed(seed)
    tables = torch.randint(1, 50, clips.tables.shape, generator=generator)
    return replace(clips, slots=torch.randn(clips.slots.shape, generator=generator), tables=tables)


@pytest.mark.parametrize("settings", [LINEAR, BY_POSITION], ids=["masks", "position"])
@pytest.mark.parametrize("scope", ["video", "frame"])
def test_labels_in_slots_of_any_order_are_recovered(settings: ProbeSettings, scope: str) -> None:
    (fit, _), (test, _) = World().clips_of(0), World().clips_of(1)
    found = heads_of(report_of(fit, test, replace(settings, scope=scope)))
    assert found["positions"] > 0.99
    assert found["color"] > 0.99
    assert found["shape_label"] > 0.99


def test_matching_by_position_makes_up_a_score_of_its_own_and_the_baseline_shows_it() -> None:
    world = World(clips=300, frames=6)
    fit, test = (noise_for(world.clips_of(part)[0], part) for part in (0, 1))
    scores = {score.factor.name: score for score in report_of(fit, test, BY_POSITION).scores}
    positions = scores["positions"]
    assert positions.heads["linear"] > 0.05
    assert positions.baselines["other clips"] == pytest.approx(positions.heads["linear"], abs=0.05)
    assert scores["color"].heads["linear"] <= 0.05


def test_baselines_are_the_most_frequent_class_and_the_mean() -> None:
    (fit, _), (test, _) = World(clips=8, objects=1).clips_of(0), World(clips=4, objects=1).clips_of(1)
    fit.labels["shape_label"][:] = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2]).view(8, 1, 1, 1)
    fit.labels["shape_label"][0] = 2  # now 2 is the most frequent
    test.labels["shape_label"][:] = torch.tensor([2, 0, 0, 1]).view(4, 1, 1, 1)
    scores = {score.factor.name: score for score in report_of(fit, test).scores}
    assert scores["shape_label"].baselines["prior"] == pytest.approx(0.25)
    guess, true = fit.labels["color"].mean((0, 1, 2)).double(), test.labels["color"].flatten(0, 2).double()
    r2 = 1 - (true - guess).square().sum(0) / (true - true.mean(0)).square().sum(0)
    assert scores["color"].baselines["mean"] == pytest.approx(float(r2.mean()), abs=1e-5)
    assert scores["color"].baselines["mean"] <= 0


def test_the_mask_baseline_reads_what_the_shape_of_the_mask_tells() -> None:
    parts = []
    for part in (0, 1):
        clips, order = World().clips_of(part)
        at = order[:, None, :, None].expand(-1, clips.slots.shape[1], -1, 2)
        centres = clips.shapes[..., :2].scatter(2, at, clips.labels["positions"])
        parts.append(replace(clips, shapes=torch.cat([centres, clips.shapes[..., 2:]], -1)))
    scores = {score.factor.name: score for score in report_of(*parts).scores}
    assert scores["positions"].baselines["mask"] > 0.999
    assert scores["color"].baselines["mask"] < 0.1


def test_invisible_objects_are_neither_fitted_to_nor_scored() -> None:
    (fit, _), (test, _) = World().clips_of(0), World().clips_of(1)
    for clips in (fit, test):
        clips.visible[:, :2, 0] = False
        clips.tables[:, :2, 1] = 0
        clips.labels["positions"][:, :2, 0] = 1e6  # would spoil everything
    report = report_of(fit, test)
    score = next(score for score in report.scores if score.factor.name == "positions")
    assert score.heads["linear"] > 0.99
    assert (score.fitted, score.scored) == (60 * (4 * 3 - 2), 60 * (4 * 3 - 2))
    assert report.matching["test"]["rows"] == score.scored


def test_labels_that_say_nothing_are_left_out_by_name() -> None:
    (fit, _), (test, _) = World().clips_of(0), World().clips_of(1)
    for clips in (fit, test):
        clips.labels["scale"] = torch.full_like(clips.labels["color"][..., :1], 0.7)
        clips.labels["size_label"] = torch.full_like(clips.labels["shape_label"], 4)
        clips.labels["material_label"] = torch.full_like(clips.labels["shape_label"], -1)
    report = report_of(fit, test)
    assert report.left_out == {
        "scale": "does not vary",
        "size_label": "has a single class",
        "material_label": "has no class",
    }


def test_a_class_that_was_never_fitted_is_wrong_and_one_without_number_is_no_row() -> None:
    (fit, _), (test, _) = World().clips_of(0), World().clips_of(1)
    test.labels["shape_label"][:30] = 99
    test.labels["shape_label"][30:40] = -1
    score = next(score for score in report_of(fit, test).scores if score.factor.name == "shape_label")
    assert score.scored == 50 * 4 * 3
    assert score.heads["linear"] == pytest.approx(20 / 50, abs=0.01)
