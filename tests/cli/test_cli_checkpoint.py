"""A checkpoint rebuilds its task, and reading it can run no code."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from slotbench.cli import run
from slotbench.interfaces import DataSpec, VideoSpec


@pytest.fixture
def checkpoint(workspace, tiny_components) -> Path:
    options = ["--plugin", str(tiny_components), "--model.core", "OtherCore", "--model.core.heads", "4"]
    assert run(["fit", "--config", "tiny.yaml", *options]) == 0
    (path,) = Path("runs").rglob("last.ckpt")
    return path


def test_hyperparameters_are_plain_data(checkpoint):
    stored = torch.load(checkpoint, weights_only=True)["hyper_parameters"]
    assert stored["core"]["init_args"] == {"num_slots": 3, "heads": 4, "mode": "a"}
    assert stored["data_spec"]["input"]["channels"] == 3
    assert "optimizer_states" in torch.load(checkpoint, weights_only=True)


def test_task_is_rebuilt_with_its_parts_sizes_and_weights(checkpoint):
    import cli_components

    task = cli_components.TinyTask.load_from_checkpoint(checkpoint, weights_only=True)
    assert task.data_spec == DataSpec(VideoSpec(3, 4, 4), VideoSpec(3, 4, 4))
    assert type(task.core) is cli_components.OtherCore
    assert task.core.heads == 4
    stored = torch.load(checkpoint, weights_only=True)["state_dict"]
    assert all(torch.equal(value, stored[name]) for name, value in task.state_dict().items())


def test_task_that_was_built_in_python_stores_nothing_unsafe(workspace, tiny_components, tmp_path):
    from lightning.pytorch import Trainer

    from slotbench import registry

    registry.load_file(tiny_components)
    import cli_components

    data = cli_components.TinyData()
    task = cli_components.TinyTask(data_spec=data.spec)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(accelerator="cpu", max_steps=1, enable_checkpointing=False, **quiet)
    trainer.fit(task, data)
    trainer.save_checkpoint(tmp_path / "by_hand.ckpt", weights_only=False)
    torch.load(tmp_path / "by_hand.ckpt", weights_only=True)
