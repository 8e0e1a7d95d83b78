"""`slotbench test RUN --lengths`: what it prints and writes, what compare makes of it, and what it refuses."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import yaml
from rich.console import Console
from tiny_discovery import tiny_discovery, train

from slotbench.cli import run
from slotbench.comparison.run_folders import read_run_folder
from slotbench.comparison.table import compare
from slotbench.data.balls.bouncing_balls import BouncingBalls
from slotbench.evaluation.lengths import AtLength
from slotbench.evaluation.tables import print_lengths
from slotbench.files import read_json

EXPERIMENT = tiny_discovery(steps=1, clips=(2, 5))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(EXPERIMENT, tmp_path_factory.mktemp("long") / "runs" / "tiny")


def test_every_length_is_printed_written_and_compared(trained, capsys):
    assert run(["test", str(trained), "--lengths", "4,1", "--clips", "3"]) == 0
    printed = capsys.readouterr().out
    assert "1 T = 2" in printed
    assert "4 T = 8" in printed
    assert "MOTA, decoder" in printed
    (file,) = (path for path in trained.glob("lengths-*.json") if path.stem.count("-") == 2)
    written = json.loads(file.read_text())
    assert [(one["multiple"], one["frames"], one["state_numbers"]) for one in written["lengths"]] == [
        (1, 2, 24),
        (4, 8, 24),
    ]
    assert (written["clips"], written["training_frames"]) == (3, 2)
    record = read_json(trained / f"{file.stem}-4T-decoder.json")
    assert record["frames"]["lengths"] == {"8": 3}
    assert record["clips"]["scored"] == len(record["scores"]["miou/video"]["values"]) == 3
    found = compare([read_run_folder(trained)], metrics=["lengths/*/mota/decoder", "lengths/4T/state_numbers"])
    means = {name: cell.mean for name, cell in found.rows[0].cells.items()}
    assert means == {
        "lengths/1T/mota/decoder": written["metrics"]["lengths/1T/mota/decoder"],
        "lengths/4T/mota/decoder": record["scores"]["mota"]["mean"],
        "lengths/4T/state_numbers": 24,
    }
    assert read_run_folder(trained).scored_by["lengths/4T/mota/decoder"].rules["frames"] == "8"


def test_answers_stand_beside_their_baselines_and_are_compared(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("SLOTBENCH_RUN_DIR", "")
    parts = {
        "encoder": {"class_path": "PatchEncoder", "init_args": {"dim": 8, "patch_size": 8}},
        "core": {"class_path": "SlotSSM", "init_args": {"num_slots": 3, "dim": 8}},
        "decoder": {"class_path": "TransformerDecoder", "init_args": {"dim": 8, "patch_size": 8}},
    }
    sizes = {"num_balls": 2, "num_frames": 3, "resolution": 16, "patches_per_side": 1}
    loader = EXPERIMENT["data"]["init_args"]["loader"]
    data = {"class_path": "BlinkingBalls", "init_args": {**sizes, "loader": loader}}
    experiment = {**EXPERIMENT, "model": {"class_path": "LongContextReasoning", "init_args": parts}, "data": data}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(experiment))
    path = tmp_path / "runs" / "tiny"
    assert run(["fit", "--config", str(tmp_path / "tiny.yaml"), "--run_dir", str(path)]) == 0
    capsys.readouterr()
    assert run(["test", str(path), "--lengths", "1,4", "--clips", "4"]) == 0
    printed = capsys.readouterr().out
    assert "4 T = 12" in printed
    assert "what: colour accuracy, coloured balls" in printed
    assert "baseline: last colour seen" in printed
    (file,) = path.glob("lengths-*.json")
    written = json.loads(file.read_text())
    assert written["clips"] == 4
    found = compare([read_run_folder(path)], metrics=["lengths/*/colour_accuracy"])
    means = {name: cell.mean for name, cell in found.rows[0].cells.items()}
    expected = [f"lengths/{multiple}T/colour_accuracy" for multiple in (1, 4)]
    assert means == {name: written["metrics"][name] for name in expected}
    for metric, multiple in zip(found.metrics, (1, 4), strict=True):
        last = written["metrics"][f"lengths/{multiple}T/baseline/colour_accuracy/last colour seen"]
        assert metric.baselines["last colour seen"] == last
        assert set(metric.baselines) >= {"last colour seen", "everything white"}


def test_numbers_are_whole_where_the_terminal_is_narrow():
    console = Console(width=80, record=True, file=io.StringIO())
    found = [
        AtLength(
            multiple=multiple,
            frames=6 * multiple,
            answers={"iou": 0.25, "baseline/iou/copy the last mask of the clip": 0.125},
            state_numbers=155_041 * multiple,
        )
        for multiple in (1, 2, 4, 8, 16)
    ]
    print_lengths(found, 0, "long", {"iou": "a score with a name that is longer than its column"}, console)
    printed = console.export_text()
    assert "…" not in printed
    for word in ("1 T = 6", "16 T = 96", "2,480,656", "0.250", "0.125"):
        assert word in printed
    words = " ".join(line.split("  ")[0].strip() for line in printed.splitlines())
    assert "longer than its column" in words


def test_lengths_that_the_data_has_not_are_left_out_with_a_sentence(trained, capsys, monkeypatch):
    monkeypatch.setattr(BouncingBalls, "max_eval_frames", lambda data, split: 5)
    assert run(["validate", str(trained), "--lengths", "1,2,4", "--clips", "1"]) == 0
    printed = capsys.readouterr().out
    assert "4 T is left out: 8 frames, and the val videos of BouncingBalls have 5" in printed
    assert "2 T = 4" in printed
    assert "4 T = 8" not in printed


@pytest.mark.parametrize(
    ("most", "arguments", "said"),
    [
        (None, ["--lengths", "1,x"], "--lengths is 1,x; expected multiples of the training's frames"),
        (None, ["--lengths", "0"], "--lengths is 0; expected multiples"),
        (None, ["--lengths", "1", "--clips", "0"], "--clips is 0; expected 1 or more"),
        (1, ["--lengths", "1"], "none of the lengths can be measured: T is 2 frames"),
        (0, ["--lengths", "1"], "BouncingBalls has no longer clips than those of the training"),
    ],
)
def test_what_cannot_be_measured_is_said_in_a_sentence(trained, capsys, monkeypatch, most, arguments, said):
    monkeypatch.setattr(BouncingBalls, "max_eval_frames", lambda data, split: most)
    assert run(["test", str(trained), *arguments]) == 2
    assert said in " ".join(capsys.readouterr().err.split())


def test_the_help_says_what_is_measured(capsys):
    assert run(["test", "--lengths", "--help"]) == 0
    assert "--lengths K,K,..." in capsys.readouterr().out
