"""LPIPS, FVD and groups in the test of a task: from files that the user gives, and "unavailable" without."""

import io
import statistics
from dataclasses import replace
from functools import partial

import pytest
import torch
from prediction_tasks import batch_of, image_task, quiet_trainer
from rich.console import Console

from slotbench.callbacks.reporting import headline_records
from slotbench.data.balls.bouncing_balls import BouncingBalls
from slotbench.data.base import LoaderOptions
from slotbench.metrics.frames import frame_psnr
from slotbench.metrics.fvd import embed_videos, frechet_distance
from slotbench.pretrained.alexnet import AlexNetFeatures
from slotbench.pretrained.i3d import I3D
from slotbench.pretrained.weights import WeightError
from slotbench.runs.headlines import score_table
from slotbench.tasks.metric_weights import MetricWeights
from slotbench.tasks.rollouts import groups as rollout_groups

HEADS = {f"lin{i}.model.1.weight": width for i, width in enumerate((64, 192, 384, 256, 256))}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Random weights of the right names: AlexNet, the heads, both together, I3D."""
    folder = tmp_path_factory.mktemp("weights")
    torch.manual_seed(0)
    backbone = AlexNetFeatures().state_dict()
    heads = {name: torch.rand(1, width, 1, 1) for name, width in HEADS.items()}
    i3d = I3D().state_dict()
    for name, value in i3d.items():
        if "conv3d.weight" in name:  # of a size that keeps the signal through all layers
            value.normal_(0, (2 / value[0].numel()) ** 0.5)
    parts = {"alexnet": backbone, "heads": heads, "both": backbone | heads, "i3d": i3d}
    for name, state in parts.items():
        torch.save(state, folder / f"{name}.pt")
    return {name: str(folder / f"{name}.pt") for name in parts}


@pytest.fixture
def data():
    return BouncingBalls(
        num_balls=2,
        num_frames=5,
        eval_frames=9,
        resolution=32,
        loader=LoaderOptions(batch_size=3, val_batch_size=2, val_size=2, test_size=5),
    )


@pytest.fixture
def small_videos(monkeypatch):
    """FVD at 32 x 32 pixels."""
    monkeypatch.setattr(rollout_groups, "embed_videos", partial(embed_videos, side=32))


def rolled(task, data):
    """All test clips, and the same with what the task predicts after the context."""
    batches = [data.on_after_batch_transfer(batch, 0) for batch in data.test_dataloader()]
    with torch.no_grad():
        predicted = torch.cat([task.rollout(batch).reconstruction for batch in batches])
    true = torch.cat([batch.frames for batch in batches])
    return torch.cat([true[:, :4], predicted], dim=1), true


def table(task, metrics):
    metrics = {name: float(value) for name, value in metrics.items()}
    console = Console(file=io.StringIO(), width=140)
    console.print(score_table(headline_records(task), metrics))
    return console.file.getvalue()


def test_the_test_has_lpips_and_fvd_from_the_given_files(data, files, small_videos):
    task = image_task(data, lpips=files["both"], fvd=files["i3d"], group_size=2, report_horizons=(2, 5, 7))
    torch.nn.init.normal_(task.decoder.head.weight)
    names = set(task.state_dict())
    quiet_trainer().test(task, data, verbose=False)
    logged = {name: float(value) for name, value in task.trainer.callback_metrics.items()}
    predicted, true = rolled(task, data)

    lpips = MetricWeights(files["alexnet"], files["heads"]).load_lpips()
    distances = lpips(predicted[:, 4:], true[:, 4:])
    assert logged["test/rollout_lpips"] == pytest.approx(distances.mean().item(), rel=1e-4)
    assert logged["test/rollout_lpips/step_03"] == pytest.approx(distances[:, 2].mean().item(), rel=1e-4)
    assert logged["test/baseline/rollout_lpips/black"] > 0

    network = I3D.from_tensors(torch.load(files["i3d"], weights_only=True))
    # short: the context and two frames are fewer than I3D takes, so there is no FVD of these
    assert "test/rollout_fvd/first_2" not in logged
    embedded = [embed_videos(videos, network, side=32) for videos in (predicted, true)]
    groups = [frechet_distance(*(rows[i : i + 2] for rows in embedded)).item() for i in (0, 2)]
    assert logged["test/rollout_fvd"] == pytest.approx(statistics.fmean(groups), rel=1e-3)
    assert logged["test/rollout_fvd/group_std"] == pytest.approx(statistics.stdev(groups), rel=1e-2)
    assert logged["test/rollout_fvd/first_5"] == pytest.approx(logged["test/rollout_fvd"])
    assert "test/rollout_fvd/first_7" not in logged

    # neither the networks nor what they found is part of a checkpoint
    assert set(task.state_dict()) == names
    text = table(task, logged)
    assert "unavailable" not in text
    assert f"{logged['test/rollout_fvd']:.3f}" in text


def test_groups_have_mean_and_spread_of_the_scores(data):
    task = image_task(data, group_size=2, report_horizons=(3,))
    torch.nn.init.normal_(task.decoder.head.weight)
    quiet_trainer().test(task, data, verbose=False)
    logged = task.trainer.callback_metrics
    predicted, true = rolled(task, data)
    psnr = frame_psnr(predicted[:, 4:], true[:, 4:])
    for suffix, length in (("", 5), ("/first_3", 3)):
        groups = [psnr[i : i + 2, :length].mean().item() for i in (0, 2)]  # the fifth clip fills no group
        key = f"test/rollout_psnr{suffix}"
        assert logged[f"{key}/group_mean"].item() == pytest.approx(statistics.fmean(groups), rel=1e-4)
        assert logged[f"{key}/group_std"].item() == pytest.approx(statistics.stdev(groups), rel=1e-3)
    assert (logged["test/rollout_groups"], logged["test/rollout_group_clips"]) == (2, 2)
    one = image_task(data)
    quiet_trainer().test(one, data, verbose=False)
    logged = one.trainer.callback_metrics
    assert (logged["test/rollout_groups"], logged["test/rollout_group_clips"]) == (1, 5)
    assert not any(name.endswith("group_std") for name in logged)
    torch.testing.assert_close(logged["test/rollout_psnr/group_mean"], logged["test/rollout_psnr"])


def test_without_weights_the_report_says_unavailable_and_what_to_give(data):
    task = image_task(data)
    quiet_trainer().validate(task, data, verbose=False)
    logged = task.trainer.callback_metrics
    assert not any("lpips" in name or "fvd" in name or "group" in name for name in logged)
    rows = {line.split(",")[0].split(" (")[0].strip(): line for line in table(task, logged).splitlines()}
    assert "unavailable" in rows["LPIPS"]
    assert "needs --model.metric_weights.lpips FILE" in rows["LPIPS"]
    assert "unavailable" in rows["FVD"]
    assert "needs --model.metric_weights.fvd FILE" in rows["FVD"]


@pytest.mark.parametrize("option", ["lpips", "fvd"])
def test_a_wrong_path_is_refused_before_training(data, option, tmp_path):
    task = image_task(data, **{option: str(tmp_path / "gone.pt")})
    with pytest.raises(
        WeightError, match=r"no weights for (LPIPS|FVD) at .*gone.pt: expected a file with a state dict"
    ):
        quiet_trainer(max_steps=1).fit(task, data)
    assert task.global_step == 0


def test_files_that_lack_something_are_refused_with_its_name(files):
    with pytest.raises(WeightError, match=r"not all of the heads of LPIPS is in .*alexnet.pt: .*lin0.model.1.weight"):
        MetricWeights(files["alexnet"]).load_lpips()
    with pytest.raises(
        WeightError, match=r"not all of the features of AlexNet is in .*i3d.pt and .*heads.pt: .*features.0.weight"
    ):
        MetricWeights(files["i3d"], files["heads"]).load_lpips()
    assert MetricWeights().load_lpips() is None
    assert MetricWeights().load_i3d() is None


def test_what_is_scored_is_the_clip_and_not_the_place_in_a_batch(data):
    found = []
    for size in (1, 5):
        data.loader = replace(data.loader, val_batch_size=size)
        task = image_task(data, group_size=2)
        torch.nn.init.ones_(task.decoder.head.weight)
        quiet_trainer().test(task, data, verbose=False)
        found.append(task.trainer.callback_metrics["test/rollout_mse/group_mean"].item())
    assert found[0] == pytest.approx(found[1], rel=1e-4)
    assert batch_of(data).num_steps == 9
