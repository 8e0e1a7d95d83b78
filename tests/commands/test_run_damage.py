"""What of a run folder can be damaged: checkpoints, metrics, records; read again, each is a sentence or is mended."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
import torch
from ended_runs import copy, fit, interrupt_before_the_result, validated
from lightning.pytorch import Trainer

from slotbench.callbacks import evaluation
from slotbench.callbacks.run_checkpoint import CheckpointFile
from slotbench.cli import run
from slotbench.runs import checkpoints
from slotbench.runs.folder import RunFolder

pytestmark = [pytest.mark.filterwarnings("ignore:.*does not have many workers.*"), pytest.mark.usefixtures("here")]


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def test_one_flipped_bit_is_refused_wherever_weights_are_read(whole: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = copy(whole, "flipped")
    last = Path(name) / "checkpoints" / "last.ckpt"
    best = Path(name) / "checkpoints" / "best.ckpt"
    content = best.read_bytes()
    best.unlink()
    best.write_bytes(content)  # another file than last.ckpt
    flip_a_bit(last)
    commands = [["validate", name], ["test", name], ["predict", name], ["probe", name]]
    for command in [*commands, ["fit", "--config", "c.yaml", "--model.init_from", name]]:
        capsys.readouterr()
        assert run(command) == 2, command
        error = capsys.readouterr().err
        assert str(last) in error
        assert "is not as it was written" in error
        assert str(best) in error  # what else is there
        assert "Traceback" not in error
    interrupt_before_the_result(name)
    assert run(["fit", "--resume", name]) == 0
    assert f"{last} is no good: it is not as it was written" in " ".join(capsys.readouterr().err.split())


def test_a_run_of_an_earlier_version_has_no_checksums_and_is_read_as_before(whole: str) -> None:
    name = copy(whole, "earlier")
    checkpoints_ = Path(name) / "checkpoints"
    (checkpoints_ / "checksums.json").unlink()
    assert run(["test", name]) == 0
    (Path(name) / "result.json").unlink()
    more = ["--allow-changes", "--trainer.max_steps", "7"]
    assert run(["fit", "--resume", name, *more]) == 0
    for path in checkpoints_.glob("*.ckpt"):
        checkpoints.verify_checkpoint(path)
    assert (checkpoints_ / "checksums.json").is_file()


def test_best_is_put_in_its_place_where_a_kill_came_before(whole: str) -> None:
    name = copy(whole, "linkless")
    folder = RunFolder.open(name)
    last = torch.load(folder.checkpoints / "last.ckpt", weights_only=True)
    last["callbacks"]["RunCheckpoint"]["best_step"] = last["global_step"]
    (folder.checkpoints / "checksums.json").unlink()
    (folder.checkpoints / "last.ckpt").unlink()
    torch.save(last, folder.checkpoints / "last.ckpt")
    torch.save({**last, "global_step": 4}, folder.checkpoints / "stale.ckpt")
    os.replace(folder.checkpoints / "stale.ckpt", folder.checkpoints / "best.ckpt")
    interrupt_before_the_result(name)
    assert run(["fit", "--resume", name]) == 0
    assert torch.load(folder.checkpoints / "best.ckpt", weights_only=True)["global_step"] == 6


def test_one_bad_line_of_the_metrics_is_left_out_and_named(whole: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = copy(whole, "bad_line")
    metrics = Path(name) / "metrics.jsonl"
    lines = metrics.read_text().splitlines()
    lines[1] = lines[1][:10]
    lines.insert(3, "[" * 100_000)
    lines.insert(4, '{"step": 2, "x": ' + "9" * 10_000 + "}")
    lines.insert(5, '{"train/loss": 2}')
    metrics.write_text("\n".join(lines) + "\n")
    interrupt_before_the_result(name)
    capsys.readouterr()
    assert run(["fit", "--resume", name]) == 0
    error = capsys.readouterr().err
    for number in (2, 4, 5, 6):
        assert error.count(f"{metrics}, line {number},") == 1
    assert validated(name) == [4, 6]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"{",
        b'{"id": "a", "state": "finished", "versions": 3}',
        b'{"headlines": [1]}',
        b"[" * 9999,
    ],
)
@pytest.mark.parametrize("command", [["fit", "--resume"], ["test"], ["probe"]], ids=lambda command: command[0])
def test_a_damaged_record_is_one_sentence(
    place: Path, command: list[str], content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("damaged").mkdir(exist_ok=True)
    Path("damaged/run.json").write_bytes(content)
    assert run([*command, "damaged"]) == 2
    error = capsys.readouterr().err
    assert "damaged/run.json" in error
    assert "Traceback" not in error


@pytest.mark.parametrize("content", [b"\xff", b"a: [", b"a: &x [*x]", b"[" * 5000])
def test_a_damaged_configuration_of_a_run_is_one_sentence(
    whole: str, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    name = f"configuration_{abs(hash(content))}"
    copy(whole, name)
    (Path(name) / "config.yaml").write_bytes(content)
    assert fit(name) == 2
    assert f"{name}/config.yaml" in capsys.readouterr().err


def test_an_evaluation_is_not_lost_with_the_record_that_it_belongs_to(
    whole: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = copy(whole, "record_lost")
    evaluate = Trainer._run_stage

    def damage(self: Trainer) -> object:
        done = evaluate(self)
        (Path(name) / "run.json").write_text("{")
        return done

    monkeypatch.setattr(Trainer, "_run_stage", damage)
    assert run(["test", name]) == 0
    (written,) = Path(name).glob("test-*.json")
    assert json.loads(written.read_text())["metrics"]["test/loss"] > 0


def test_what_may_not_be_written_is_a_sentence_and_the_scores_are_seen(
    whole: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "the file")

    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "write_atomically", refuse)
        assert run(["test", whole]) == 2
    said = capsys.readouterr()
    assert "test cannot continue: Permission denied: the file" in said.err
    assert "undefined" in said.out
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "create_at", refuse)
        assert fit("refused") == 2
    assert "fit cannot continue: Permission denied: the file" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        patch.setattr(CheckpointFile, "save_checkpoint", refuse)
        assert fit("half_refused") == 1
    error = " ".join(capsys.readouterr().err.split())
    assert "half_refused failed: Permission denied (the file); its last checkpoint is as it was" in error


# --- left-overs ------------------------------------------------------------------------------------------------------


def test_what_killed_processes_left_is_removed_by_who_comes_next(whole: str) -> None:
    name = copy(whole, "littered")
    interrupt_before_the_result(name)
    litter = [".run.json.123.partial", "checkpoints/.last.ckpt.partial", "media/.loss.png.partial"]
    for path in litter:
        (Path(name) / path).write_text("half")
    half_made = Path("runs/run/.20250102-030405-abcd")
    for path in (half_made, Path("runs/run/.git")):
        path.mkdir(parents=True)
        (path / "run.json").write_text("{}")
        os.utime(path, (1, 1))
    assert run(["fit", "--resume", name]) == 0
    assert [path for path in litter if (Path(name) / path).exists()] == []
    RunFolder.create("runs", "run")
    assert not half_made.exists()
    assert Path("runs/run/.git").exists()  # nobody knows whose it is
