"""`load_run`: a recorded run is built again in Python, with its weights, and what is wrong is a sentence."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from tiny_configs import COMPONENTS, tiny_config
from tiny_discovery import train

import slotbench
from slotbench import registry
from slotbench.config.jsonargparse_compat import EXCHANGED, parser_unchanged
from slotbench.config.run_loading import LoadedRun, load_run
from slotbench.errors import UserError
from slotbench.runs.checkpoints import link, load_checkpoint


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, tiny_components: Path) -> Path:
    return train(tiny_config(), tmp_path_factory.mktemp("loaded") / "runs" / "tiny", "--plugin", str(tiny_components))


@pytest.fixture(scope="module")
def loaded(trained: Path) -> LoadedRun:
    return load_run(trained, "last", plugins=[COMPONENTS])


def test_a_run_is_built_again_with_the_weights_of_its_checkpoint(trained: Path, loaded: LoadedRun) -> None:
    held = load_checkpoint(trained / "checkpoints" / "last.ckpt")["state_dict"]
    assert loaded.step == 2
    assert not loaded.task.training
    for name, weight in loaded.task.state_dict().items():
        assert torch.equal(weight, held[name]), name


def test_the_task_is_moved_to_a_device(trained: Path) -> None:
    task, _ = slotbench.load_run(trained, plugins=[COMPONENTS], device="meta")
    assert {weight.device.type for weight in task.parameters()} == {"meta"}


def test_settings_are_laid_over_those_of_the_run(trained: Path, loaded: LoadedRun) -> None:
    other = load_run(trained, changes={"data.loader.val_batch_size": 1, "data.size": 6}, plugins=[COMPONENTS])
    assert loaded.data.val_dataloader().batch_size == 64
    assert other.data.spec.input.height == 6
    assert other.data.val_dataloader().batch_size == 1


def test_the_best_checkpoint_is_found(trained: Path) -> None:
    checkpoints = trained / "checkpoints"
    link(checkpoints / "last.ckpt", checkpoints / "best.ckpt")
    found = load_run(str(trained), "best", plugins=[str(COMPONENTS)])
    assert found.checkpoint == checkpoints / "best.ckpt"


def test_a_recorded_plugin_file_is_named_and_not_run(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_registered", {})
    with pytest.raises(UserError, match=r"plugins=\['.*cli_components.py'\]  \(only if you trust"):
        load_run(trained)
    assert registry.kinds_of("TinyCore") == []


def test_other_parsers_of_the_process_are_left_alone(trained: Path) -> None:
    with parser_unchanged():
        before = [(owner, name, getattr(owner, name)) for owner, name, *_ in EXCHANGED]
        load_run(trained, plugins=[COMPONENTS])
        assert all(getattr(owner, name) is held for owner, name, held in before)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"path": "nowhere"}, "nowhere"),
        ({"checkpoint": "bset"}, "no checkpoint bset"),
        ({"changes": {"data.loader.bach_size": 1}}, "did you mean loader.batch_size"),
        ({"changes": {"model.core": "TinyCoer"}}, "did you mean TinyCore"),
        ({"changes": {"model.core.num_slots": 2.5}}, "num_slots"),
        ({"changes": {"model.core.dim": 16}}, "core.linear.weight has the shape"),
        ({"plugins": ["nowhere.py"]}, "nowhere.py"),
        ({"allow_import": ["not a path"]}, "not a path"),
    ],
)
def test_what_cannot_be_loaded_is_a_sentence(trained: Path, arguments: dict, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        load_run(**{"path": trained, "plugins": [COMPONENTS], **copy.deepcopy(arguments)})
