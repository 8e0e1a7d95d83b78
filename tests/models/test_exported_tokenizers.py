"""A task of codes is exported with the tokenizer that it reads its frames by."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from code_tasks import balls, code_task, frame_task, quiet_trainer

import slotbench
from slotbench.errors import FileError
from slotbench.models.export import export_checkpoint
from slotbench.runs.checkpoints import load_checkpoint


def saved(task: torch.nn.Module, path: Path) -> Path:
    trainer = quiet_trainer()
    trainer.strategy.connect(task)
    trainer.save_checkpoint(path)
    return path


def test_the_tokenizer_comes_along_and_is_read_from_the_folder_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = balls()
    tokenizer = saved(frame_task(data), tmp_path / "tokenizer.ckpt")
    task = code_task(data, tokenizer=None, tokenizer_run=tokenizer.name)
    held = load_checkpoint(saved(task, tmp_path / "task.ckpt"))
    folder = tmp_path / "model"
    folder.mkdir()
    monkeypatch.chdir("/")
    export_checkpoint(folder, type(task), held, tmp_path / "task.ckpt", str(tmp_path))
    tokenizer.unlink()
    read = slotbench.from_pretrained(folder)
    assert all(torch.equal(value, read.state_dict()[name]) for name, value in task.state_dict().items())
    assert not any(value.requires_grad for value in read.tokenizer.parameters())
    again = code_task(data, tokenizer=None, tokenizer_run=str(folder / "tokenizer"))
    assert all(map(torch.equal, again.tokenizer.state_dict().values(), task.tokenizer.state_dict().values()))
    with pytest.raises(FileError, match="holds no tokenizer"):
        code_task(data, tokenizer=None, tokenizer_run=str(folder))
