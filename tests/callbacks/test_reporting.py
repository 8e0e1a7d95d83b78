"""The end of a run says what came out, where the pictures are, and what to try."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tiny_run import TinyTask, fit, loader, make_trainer

from slotbench.callbacks.evaluation import EvaluationRecord
from slotbench.callbacks.wiring import evaluation_parts
from slotbench.runs.folder import RunFolder
from slotbench.runs.headlines import score_table

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers.*")


def rendered(headline: dict[str, Any], metrics: dict[str, Any]) -> str:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard")
    console.print(score_table([headline], metrics))
    return console.file.getvalue()


GREEN, YELLOW = "\x1b[1;32m", "\x1b[1;33m"


@pytest.mark.parametrize(
    ("score", "higher", "colour"), [(0.8, True, GREEN), (0.6, True, YELLOW), (0.8, False, YELLOW), (0.1, False, GREEN)]
)
def test_a_score_is_green_only_if_it_beats_every_baseline(score: float, higher: bool, colour: str) -> None:
    headline = {"metric": "m", "label": "what", "baselines": {"low": 0.2, "high": 0.7}, "higher_is_better": higher}
    text = rendered(headline, {"m": score})
    assert f"{colour}{score:.3f}" in text.replace(" ", "")
    names = [name for line in text.splitlines() for name in ("low", "high") if name in line]
    assert names == (["high", "low"] if higher else ["low", "high"])


def plain(headlines: list[dict[str, Any]], metrics: dict[str, Any], width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(score_table(headlines, metrics))
    return console.file.getvalue().splitlines()


WIDE = {
    "metric": "val/rollout_mse",
    "label": "error: MSE per pixel, 10 frames ahead",
    "higher_is_better": False,
    "baselines": {"copy the last frame": 0.176, "black": 0.1738, "grey, mean of the context": 0.143},
}


def test_an_oracle_stands_on_a_line_of_its_own_and_does_not_colour_the_score() -> None:
    headline = {**WIDE, "oracles": {"constant velocity": 0.001}}
    assert f"{GREEN}0.0312" in rendered(headline, {"val/rollout_mse": 0.0312}).replace(" ", "")
    lines = plain([headline], {"val/rollout_mse": 0.0312})
    (said,) = [index for index, line in enumerate(lines) if "oracle (knows the simulator)" in line]
    assert "constant velocity" in lines[said + 1]
    assert lines[said + 1].rstrip().endswith("0.001")


def test_without_baselines_a_score_has_beaten_none() -> None:
    text = rendered({"metric": "m", "label": "what", "baselines": {}, "higher_is_better": True}, {"m": 0.9})
    assert "0.900" in text
    assert GREEN not in text


def test_a_score_that_was_not_measured_has_no_row() -> None:
    one, other = ({"metric": name, "label": name, "baselines": {}, "higher_is_better": True} for name in ("a", "b"))
    assert [line.split()[0] for line in plain([one, other], {"b": 0.5})[2:]] == ["b"]


def test_report_has_scores_baselines_pictures_and_commands(
    folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    fit(folder, TinyTask(), max_steps=4)
    out = capsys.readouterr().out
    assert "tiny finished after 4 steps" in out
    assert f"{folder.info['metrics']['val/score']:.3f}" in out
    for name, score in (("always grey", "0.900"), ("always black", "0.700")):
        assert any(name in line and line.rstrip().endswith(score) for line in out.splitlines())
    shown = [Path(line.strip()) for line in out.splitlines() if line.strip().endswith(".png")]
    assert shown == [folder.media / name for name in ("clips_latest.png", "metrics.png", "loss.png")]
    assert all(path.is_file() for path in shown)
    commands = [shlex.split(line) for line in out.splitlines() if line.strip().startswith("slotbench ")]
    assert ["slotbench", "test", str(folder.path)] in commands


def test_a_failed_run_gets_no_report(folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError):
        fit(folder, TinyTask(fail_at=2))
    assert "Try next" not in capsys.readouterr().out


@pytest.mark.parametrize("subcommand", ["validate", "test", "predict"])
def test_evaluation_is_written_beside_the_run_and_leaves_its_record_alone(
    folder: RunFolder, subcommand: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fit(folder, TinyTask(), max_steps=4)
    before = (folder.path / "run.json").read_text(), (folder.path / "metrics.jsonl").read_text()
    for _ in range(2):
        loggers, callbacks = evaluation_parts(folder.path, subcommand)
        trainer = make_trainer(loggers, callbacks)
        checkpoint = str(folder.last_checkpoint())
        task = TinyTask()
        task.eval_window = 6  # of the run's own configuration: no setting names it
        getattr(trainer, subcommand)(task, loader(16), ckpt_path=checkpoint, weights_only=True)
    written = sorted(folder.path.glob(f"{subcommand}-*.json"))
    assert len(written) == 2
    record = json.loads(written[0].read_text())
    assert record["run"] == folder.info["id"]
    assert (record["checkpoint"], record["settings"], record["eval_window"]) == (checkpoint, {}, 6)
    pictures = [f"clip{index:04d}.png" for index in range(16)] if subcommand == "predict" else ["clips.png"]
    # each of the two has a folder of its own, of the name of its record
    for record_file in written:
        assert sorted(path.name for path in (folder.media / record_file.stem).iterdir()) == pictures
    assert ("val/score" in record["metrics"]) == (subcommand != "predict")
    assert str(written[-1]) in capsys.readouterr().out
    assert ((folder.path / "run.json").read_text(), (folder.path / "metrics.jsonl").read_text()) == before


def test_a_failed_evaluation_writes_nothing(folder: RunFolder) -> None:
    class Fails(TinyTask):
        def test_step(self, batch: Any, batch_idx: int) -> None:
            raise RuntimeError("no")

    trainer = make_trainer([], [EvaluationRecord(folder, "test")])
    with pytest.raises(RuntimeError, match="no"):
        trainer.test(Fails(), loader(16))
    assert not list(folder.path.glob("test-*.json"))
