"""`slotbench probe`: a run that has been trained for two steps is probed, and what cannot be probed is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_discovery import tiny_discovery, train

from slotbench.cli import run
from slotbench.data.balls.bouncing_balls import BouncingBalls
from slotbench.runs.folder import RunFolder

EXPERIMENT = tiny_discovery(clips=(8, 12))
QUICK = ["--fit-clips", "10", "--head", "linear"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(EXPERIMENT, tmp_path_factory.mktemp("probed") / "runs" / "tiny")


def results(path: Path) -> dict:
    return json.loads((path / "probe.json").read_text())


def test_a_run_is_probed_and_the_numbers_are_printed_and_written(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["probe", str(trained), "--fit-clips", "10"]) == 0
    printed = capsys.readouterr().out
    assert f"wrote {trained / 'probe.json'}" in printed
    found = results(trained)
    assert set(found["factors"]) == {"positions", "velocities", "radii", "masses"}
    for name, factor in found["factors"].items():
        assert factor["metric"] == "r2"
        assert set(factor["baselines"]) == {"mean", "mask"}
        (line,) = [line for line in printed.splitlines() if line.startswith(name)]
        assert f"{factor['linear']:.3f}" in line
        assert f"{factor['mlp']:.3f}" in line
    assert found["matching"]["test"]["clips"] == 12
    assert found["matching"]["test"]["objects"] == 24
    assert found["step"] == 2
    assert found["run"] == trained.name
    assert found["settings"] == {"fit-clips": "10"}


def test_a_probe_repeats(trained: Path) -> None:
    first, second = ([run(["probe", str(trained), *QUICK]), results(trained)["factors"]] for _ in range(2))
    assert first == second


def test_clips_to_fit_to_are_as_long_as_those_that_are_scored_unless_said_otherwise(trained: Path) -> None:
    assert run(["probe", str(trained), *QUICK]) == 0
    assert results(trained)["matching"]["fit"]["frames"] == 3
    assert run(["probe", str(trained), *QUICK, "--data.num_frames", "2"]) == 0
    assert results(trained)["matching"]["fit"]["frames"] == 2
    assert results(trained)["matching"]["fit"]["clips"] == 10


def test_matching_by_position_has_the_baseline_of_other_clips(trained: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "found.json"
    arguments = ["--match", "position", "--restarts", "2", "--checkpoint", "best", "--out", str(out)]
    assert run(["probe", str(trained), *QUICK, *arguments]) == 0
    found = json.loads(out.read_text())
    assert set(found["factors"]["positions"]["baselines"]) == {"mean", "other clips"}
    assert found["matching"]["fit"]["matched_by"] == "positions"
    assert len(found["matching"]["fit"]["errors"]) == 2
    assert found["checkpoint"].endswith("best.ckpt")


def test_attention_can_say_what_a_slot_covers_and_numbers_can_be_classes(trained: Path) -> None:
    assert run(["probe", str(trained), *QUICK, "--masks", "attention", "--categorical", "masses"]) == 0
    found = results(trained)
    assert found["factors"]["masses"]["metric"] == "accuracy"
    assert 0.3 < found["factors"]["masses"]["baselines"]["prior"] < 0.8
    assert found["arguments"]["masks"] == "attention"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--clips", "0"], "argument --clips: 0 is too small; expected 1 or more"),
        (["--fit-split", "val", "--split", "val"], "--fit-split and --split are both val"),
        (["--object", "-1"], "--object -1: rows are counted from 0"),
        (["--object", "7"], "cannot be probed: the data has 2 objects, 0 to 1, and 7 is asked for"),
        (["--matchh", "masks"], "probe has no argument --matchh; did you mean --match?"),
        (["--match", "luck"], "invalid choice: 'luck'"),
        (["--model.core", "PSB"], "probe has no argument --model.core"),
        (["--checkpoint", "lost.ckpt"], "no checkpoint lost.ckpt there:"),
        (["--data.num_bals", "3"], "num_bals"),
        (["--data.resolution", "32"], "does not fit the model"),
        (["--continuous", "mood"], "cannot be probed: the data has no mood of its objects; it has masses"),
    ],
)
def test_what_cannot_be_done_is_said(
    trained: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (trained / "probe.json").unlink(missing_ok=True)
    assert run(["probe", str(trained), *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (trained / "probe.json").exists()


def test_clips_that_the_heads_were_fitted_to_are_not_scored(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(BouncingBalls, "test_dataloader", BouncingBalls.val_dataloader)
    assert run(["probe", str(trained), *QUICK, "--fit-split", "val"]) == 2
    assert "8 of the 8 test clips are also among the val clips" in " ".join(capsys.readouterr().err.split())


def test_a_run_must_be_there_with_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["probe"]) == 2
    assert "arguments are required: RUN" in capsys.readouterr().err
    assert run(["probe", str(tmp_path / "nowhere")]) == 2
    assert "no run folder at" in capsys.readouterr().err
    empty = RunFolder.create(tmp_path, "empty").path
    assert run(["probe", str(empty)]) == 2
    assert "has no checkpoint yet" in " ".join(capsys.readouterr().err.split())


def test_a_task_without_slots_cannot_be_probed(
    workspace: Path, tiny_components: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = ["--plugin", str(tiny_components)]
    assert run(["fit", "--config", "tiny.yaml", *plugin]) == 0
    (path,) = Path("runs/tiny").iterdir()
    assert run(["probe", str(path), *plugin]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "cannot be probed: TinyTask does not give the slots of every frame" in error
    assert "SlotAutoencoding" in error
