"""Scores on groups of pixels that the data names, and the control that reads the end of the context alone."""

import math
from functools import partial

import pytest
import torch
from prediction_tasks import quiet_trainer

from slotbench.data.base import LoaderOptions, to_unit_range
from slotbench.data.maze.maze import Maze
from slotbench.interfaces import VideoSpec
from slotbench.registry import load
from slotbench.tasks.rollouts.scores import RolloutScores
from slotbench.tasks.video_prediction import VideoPrediction
from tests.helpers.rollout_options import grouped


def maze(**arguments):
    loader = LoaderOptions(batch_size=2, val_batch_size=2, val_size=4, test_size=4, train_size=4)
    return Maze(rooms=2, num_frames=60, eval_frames=60, resolution=8, loader=loader, **arguments)


def make_task(data, **arguments):
    torch.manual_seed(0)
    return VideoPrediction(
        partial(load("encoders", "ResNetEncoder"), depths=(8, 8), action_dim=4),
        partial(load("cores", "ConvS5"), dim=32),
        partial(load("decoders", "ResNetDecoder"), depths=(32, 32)),
        **grouped({"loss": "mse", "context": 40, "horizon": 20, "data_spec": data.spec} | arguments),
    )


def test_the_pooled_error_is_of_the_chosen_pixels_of_all_clips() -> None:
    torch.manual_seed(0)
    true, model, black = (torch.rand(3, 6, 3, 8, 8) for _ in range(3))
    chosen = torch.rand(3, 6, 8, 8) < 0.3
    scores = RolloutScores(6, VideoSpec(3, 8, 8))
    shown = {"": model, "baseline|black": black, "short_context": black}
    for clips in (slice(0, 1), slice(1, 3)):
        parts = (slice(0, 4), slice(4, 6))
        pieces = (({k: v[clips, at] for k, v in shown.items()}, true[clips, at]) for at in parts)
        scores.update(pieces, pixels={"old": chosen[clips]})
    found = scores.compute()
    for name, frames in {"rollout_{}/old": model, "baseline/rollout_{}/old/black": black}.items():
        expected = float((frames - true).square().mean(2)[chosen].mean())
        assert found[name.format("mse")] == pytest.approx(expected, rel=1e-6)
        assert found[name.format("psnr")] == pytest.approx(-10 * math.log10(expected), rel=1e-6)
    assert found["rollout_mse_short_context/old"] == found["baseline/rollout_mse/old/black"]
    assert scores.pixel_groups == ("old",)


def test_long_memory_is_what_was_in_view_before_the_last_frames_of_the_context() -> None:
    data = maze()
    batch = data.dataset("val").clips([0, 1])
    surfaces = batch.objects["surfaces"].long()
    chosen = data.pixel_groups(batch, 40, 20)["long_memory"]
    for clip in range(2):
        early, late = (set(surfaces[clip, part].unique().tolist()) for part in (slice(0, 8), slice(8, 40)))
        expected = [
            [[s >= 0 and s in early - late for s in row] for row in frame] for frame in surfaces[clip, 40:].tolist()
        ]
        assert chosen[clip].tolist() == expected
    assert "long_memory" not in data.pixel_groups(batch, 32, 20)


def test_pixels_are_grouped_by_the_frames_since_the_context_showed_their_surface() -> None:
    data = Maze(rooms=3, eval_frames=200, resolution=4, loader=LoaderOptions(val_size=2))
    batch = data.dataset("val").clips([0, 1])
    groups = data.pixel_groups(batch, 120, 80)
    bins = {
        "1-8": (1, 8),
        "9-16": (9, 16),
        "17-32": (17, 32),
        "33-64": (33, 64),
        "65-128": (65, 128),
        "129+": (129, 999),
    }
    found = set()
    for clip, surfaces in enumerate(batch.objects["surfaces"].tolist()):
        shown = [{surface for row in frame for surface in row} for frame in surfaces]
        for step, frame in enumerate(surfaces[120:]):
            for row, col in ((row, col) for row in range(4) for col in range(4)):
                before = [time for time in range(120) if frame[row][col] in shown[time]]
                expected = set()
                if frame[row][col] >= 0:
                    age = 120 + step - before[-1] if before else None
                    expected = {f"unseen_{name}" for name, (low, high) in bins.items() if age and low <= age <= high}
                    expected |= {"long_memory"} if before and before[-1] < 88 else set()
                    expected |= set() if before else {"never_seen"}
                assert {name for name, chosen in groups.items() if chosen[clip, step, row, col]} == expected
                found |= expected
    assert found == set(groups)


def test_the_error_by_age_is_a_curve_and_no_headline() -> None:
    data = maze(conditioning="pose")
    task = make_task(data, short_context=32, frame_mask=40)
    trainer = quiet_trainer()
    trainer.validate(task, datamodule=data, verbose=False)
    found = {name: float(value) for name, value in trainer.callback_metrics.items()}
    curves = task.scores_of("val").over_absence()
    oracles = {
        f"oracle: {name}" for name in data.oracle_predictions(to_unit_range(data.dataset("val").clips([0])), 40, 20)
    }
    assert set(curves) == {"model", "short context"} | oracles
    for whose, first, logged in (
        ("model", math.inf, "rollout_mse/never_seen"),
        ("model", 17, "rollout_mse/unseen_17-32"),
        ("short context", 33, "rollout_mse_short_context/unseen_33-64"),
        ("oracle: geometry alone", 1, "oracle/rollout_mse/unseen_1-8/geometry alone"),
    ):
        assert curves[whose][first] == pytest.approx(found[f"val/{logged}"], rel=1e-5)
    known = curves["oracle: colours of the context"]
    assert [age for age, error in known.items() if error] == [math.inf]
    assert set(task.plots()) == {"horizon", "absence"}
    assert not [one.metric for one in task.headlines() if "seen" in one.metric]


def test_a_validation_logs_them_with_baselines_oracles_and_the_control() -> None:
    data = maze(conditioning="pose")
    task = make_task(data, short_context=32, frame_mask=40)
    trainer = quiet_trainer()
    trainer.validate(task, datamodule=data, verbose=False)
    found = trainer.callback_metrics
    for name in ("", "_short_context"):
        assert math.isfinite(found[f"val/rollout_psnr{name}/long_memory"])
    assert found["val/oracle/rollout_psnr/long_memory/colours of the context"] == 100
    low, mean = "colours of the last 32 frames", "mean frame of the context"
    assert found[f"val/oracle/rollout_psnr/long_memory/{low}"] < 20
    assert f"val/baseline/rollout_psnr/long_memory/{mean}" in found
    (headline,) = (one for one in task.headlines() if one.metric == "val/rollout_psnr/long_memory")
    assert mean in headline.baselines
    assert "colours of the context" in headline.oracles
    info = task.metric_infos(["rollout_psnr/long_memory"])["rollout_psnr/long_memory"]
    assert info.higher_is_better is True


@pytest.mark.parametrize("mask", [None, 40])
def test_the_control_is_the_roll_out_of_a_clip_that_begins_late(mask) -> None:
    data = maze()
    task = make_task(data, short_context=5, frame_mask=mask).eval()
    trainer = quiet_trainer()
    trainer.validate(task, datamodule=data, verbose=False)
    batch = to_unit_range(data.dataset("val").clips([0, 1, 2, 3]))
    with torch.no_grad():
        shown = task.conditions.of_evaluation(batch).slice_time(35, 60)
        rolled = task.rollout(shown, 5, 20).reconstruction
    expected = (rolled - batch.frames[:, 40:]).square().mean()
    assert float(trainer.callback_metrics["val/rollout_mse_short_context"]) == pytest.approx(float(expected), rel=1e-5)


def test_pictures_of_a_roll_out_in_a_maze_have_its_maps() -> None:
    data = maze()
    task = make_task(data).eval()
    with torch.no_grad():
        found = task.pictures(to_unit_range(data.dataset("val").clips([0, 1])))
    assert set(found) == {"rollouts", "maze"}
    assert found["maze"].dtype == "uint8"
    assert found["maze"].std() > 10
