"""Canaries for Lightning's private names: each says what breaks if a new version no longer has the name."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.cli import LightningCLI
from lightning.pytorch.loggers import WandbLogger
from torch.utils.data import DataLoader

import slotbench
from slotbench.lightning_compat import evaluate_with_ordinary_tensors

SOURCE = Path(slotbench.__file__).parent
NAMES = {
    "_batches_that_stepped": "rows of a finished training that is made longer have the number of the step before",
    "_signal_connector": "Ctrl-C and SIGTERM do not end a training after its step",
    "_combined_loader_states_to_load": "a resumed run reads its epoch from the beginning",
    "_data_fetcher": "a resumed run reads its epoch from the beginning",
    "_load_combined_loader_states": "a resumed run reads its epoch from the beginning",
    "_parser": "a refused configuration is not explained, and config.yaml cannot be written",
    "_parse_ckpt_path": "the settings in a checkpoint are laid over those that the user gave",
    "_set_seed": "`slotbench show` and `load_run` seed the caller's random generators",
    "_run_subcommand": "`slotbench show` and `load_run` run the command",
    "_wandb_init": "wandb warns of an argument in every run",
    "_experiment": "a W&B run is not closed with how the training ended",
}


def trainer_with_loops() -> Trainer:
    return Trainer(accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False)


OWNERS: dict[str, Any] = {
    "_signal_connector": trainer_with_loops,
    "_batches_that_stepped": lambda: trainer_with_loops().fit_loop.epoch_loop,
    **dict.fromkeys(
        ("_combined_loader_states_to_load", "_data_fetcher", "_load_combined_loader_states"),
        lambda: trainer_with_loops().fit_loop,
    ),
    **dict.fromkeys(("_parser", "_parse_ckpt_path", "_set_seed", "_run_subcommand"), lambda: LightningCLI),
    **dict.fromkeys(("_wandb_init", "_experiment"), lambda: WandbLogger(offline=True)),
}


@pytest.mark.parametrize("name", NAMES)
def test_lightning_still_has_the_name(name: str) -> None:
    known = f"lightning {lightning.__version__} has no {name} where slotbench looks for it: {NAMES[name]}"
    assert hasattr(OWNERS[name](), name), known


def test_a_trainer_still_looks_at_the_flag_that_ends_it_after_a_step() -> None:
    trainer = trainer_with_loops()
    assert trainer.received_sigterm is False
    trainer._signal_connector.received_sigterm = True
    assert trainer.received_sigterm is True, f"lightning {lightning.__version__}: {NAMES['_signal_connector']}"


def test_the_cli_still_asks_its_hooks() -> None:
    made = inspect.getsource(LightningCLI.__init__)
    for name in ("_parse_ckpt_path", "_set_seed", "_run_subcommand"):
        assert f"self.{name}(" in made, f"lightning {lightning.__version__} calls no {name}: {NAMES[name]}"


@pytest.mark.parametrize("stage", ["validate", "test", "predict"])
def test_an_evaluation_can_be_had_without_inference_mode(stage: str) -> None:
    seen: list[bool] = []

    class Looks(LightningModule):
        def setup(self, stage: str) -> None:
            evaluate_with_ordinary_tensors(self.trainer)

        def validation_step(self, batch: torch.Tensor, batch_idx: int) -> dict[str, int]:
            seen.extend((torch.is_inference_mode_enabled(), torch.is_grad_enabled()))
            return {}

        test_step = predict_step = validation_step

    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = Trainer(accelerator="cpu", **quiet)  # type: ignore[arg-type]
    getattr(trainer, stage)(Looks(), DataLoader(torch.zeros(1, 1)))  # type: ignore[arg-type]
    assert seen == [False, False], "the loops no longer look at inference_mode once setup has been called"


def test_no_other_file_uses_a_private_name_of_lightning() -> None:
    ours = {"_parser"}  # an attribute of our own classes too
    for file in SOURCE.rglob("*.py"):
        if file.name == "lightning_compat.py":
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lightning"):
                private = [alias.name for alias in node.names if alias.name.startswith("_")]
                assert private == [], f"{file} imports {private}: it belongs into lightning_compat.py"
            if isinstance(node, ast.Attribute) and node.attr in set(NAMES) - ours:
                pytest.fail(f"{file}:{node.lineno} uses {node.attr}: it belongs into lightning_compat.py")
