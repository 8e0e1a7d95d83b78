"""Whose weights are evaluated: the newest, the best or a file's; what does not fit, and what is damaged, is said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from tiny_configs import tiny_config
from tiny_discovery import train

from slotbench.cli import run


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, tiny_components: Path) -> Path:
    """A run with `last.ckpt` and `best.ckpt`, copied for each test."""
    return train(tiny_config(), tmp_path_factory.mktemp("trained") / "runs" / "tiny", "--plugin", str(tiny_components))


@pytest.fixture
def path(trained: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "run"
    shutil.copytree(trained, copy)
    best, last = copy / "checkpoints" / "best.ckpt", copy / "checkpoints" / "last.ckpt"
    content = torch.load(last, weights_only=True)
    best.unlink(missing_ok=True)
    torch.save(content, best)
    # as a run that was recorded before checksums were; these tests write checkpoints of their own
    (copy / "checkpoints" / "checksums.json").unlink(missing_ok=True)
    return copy


@pytest.fixture
def evaluate(path: Path, tiny_components: Path, capsys: pytest.CaptureFixture[str]):
    def make(command: str, *arguments: str) -> tuple[int, str, str]:
        """Exit code, what was said on stderr, and the name of the checkpoint that the record has."""
        capsys.readouterr()
        code = run([command, str(path), "--plugin", str(tiny_components), *arguments])
        records = sorted(path.glob(f"{command}-*.json"), key=lambda record: record.stat().st_mtime_ns)
        used = Path(json.loads(records[-1].read_text())["checkpoint"]).name if records else ""
        return code, " ".join(capsys.readouterr().err.split()), used

    return make


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("command", ["validate", "test", "predict"])
def test_the_newest_checkpoint_is_evaluated_unless_the_best_or_a_file_is_asked_for(command: str, path: Path, evaluate):
    other = path.parent / "other.ckpt"
    shutil.copy(path / "checkpoints" / "best.ckpt", other)
    assert evaluate(command)[::2] == (0, "last.ckpt")
    assert evaluate(command, "--checkpoint", "best")[::2] == (0, "best.ckpt")
    assert evaluate(command, f"--checkpoint={other}")[::2] == (0, "other.ckpt")


@pytest.mark.parametrize("command", ["test", "probe"])
def test_a_cut_checkpoint_is_named_with_the_whole_one_beside_it(command: str, path: Path, evaluate):
    cut(path / "checkpoints" / "last.ckpt")
    code, said, _ = evaluate(command)
    assert code == 2
    assert f"{path}/checkpoints/last.ckpt is damaged or cut off" in said
    assert f"there: {path}/checkpoints/best.ckpt" in said
    assert f"type: slotbench {command} {path} --checkpoint" in said
    cut(path / "checkpoints" / "best.ckpt")
    code, said, _ = evaluate(command, "--checkpoint", "best")
    assert code == 2
    assert "best.ckpt is damaged or cut off" in said


def test_a_flipped_bit_in_a_checkpoint_is_found(path: Path, evaluate):
    best = path / "checkpoints" / "best.ckpt"
    values = torch.load(best, weights_only=True)["state_dict"]["core.linear.weight"].numpy().tobytes()
    content = bytearray(best.read_bytes())
    content[content.index(values) + 3] ^= 1
    best.write_bytes(content)
    code, said, _ = evaluate("test", "--checkpoint", "best")
    assert code == 2
    assert "best.ckpt is damaged" in said


def test_another_core_than_the_checkpoints_is_named_with_the_one_that_it_has(path: Path, evaluate):
    last = path / "checkpoints" / "last.ckpt"
    content = torch.load(last, weights_only=True)
    content["state_dict"]["core.more"] = torch.zeros(2)
    torch.save(content, last)
    code, said, _ = evaluate("test", "--model.core", "OtherCore")
    assert code == 2
    assert "the checkpoint has the core TinyCore, and the configuration names OtherCore" in said
    assert "core.more" not in said
    code, said, _ = evaluate("test")
    assert code == 2
    assert "core.more only in the checkpoint" in said


def test_a_file_is_evaluated_without_a_run(path: Path, workspace: Path, tiny_components: Path) -> None:
    file = str(path / "checkpoints" / "best.ckpt")
    arguments = ["--config", "tiny.yaml", "--plugin", str(tiny_components), "--checkpoint", file]
    assert run(["test", *arguments]) == 0
