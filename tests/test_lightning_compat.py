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
from lightning.pytorch.loops import fit_loop, training_epoch_loop
from torch.utils.data import DataLoader

import slotbench
from slotbench.lightning_compat import evaluate_with_ordinary_tensors, restore_loader_position, run_validation

SOURCE = Path(slotbench.__file__).parent
NAMES = {
    "_FitLoop": "the final weights are not validated, and a run that was killed at its last step has no end",
    "_TrainingEpochLoop": "the final weights are not validated after the last step",
    "_should_check_val_fx": "the final weights are not validated after the last step",
    "_should_accumulate": "a final validation may come between the batches of one step",
    "_num_ready_batches_reached": "the final validation of a training of so many epochs comes late, or never",
    "_batches_that_stepped": "the scores of a final validation are filed under the step after the last",
    "_logger_connector": "a final validation has the first validation's logging cleared",
    "_first_loop_iter": "a final validation has the first validation's logging cleared",
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
    "_FitLoop": lambda: fit_loop,
    "_TrainingEpochLoop": lambda: training_epoch_loop,
    "_first_loop_iter": lambda: trainer_with_loops()._logger_connector,
    **dict.fromkeys(("_logger_connector", "_signal_connector"), trainer_with_loops),
    **dict.fromkeys(
        ("_should_check_val_fx", "_should_accumulate", "_num_ready_batches_reached", "_batches_that_stepped"),
        lambda: trainer_with_loops().fit_loop.epoch_loop,
    ),
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


class Counting(LightningModule):
    """Counts its validations."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.validations = 0

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.optimizers().step()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.validations += 1

    def on_train_batch_end(self, *_: Any) -> None:
        restore_loader_position(self.trainer)  # nothing to restore: nothing happens

    def on_train_end(self) -> None:
        run_validation(self.trainer)

    def configure_optimizers(self) -> Any:
        import torch

        return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)


@pytest.mark.filterwarnings("ignore")
def test_a_validation_can_be_run_from_within_a_training() -> None:
    task = Counting()
    settings: dict[str, Any] = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False}
    trainer = Trainer(max_steps=2, limit_val_batches=1, num_sanity_val_steps=0, enable_progress_bar=False, **settings)
    trainer.fit(task, DataLoader([0.0] * 8), DataLoader([0.0]))
    assert task.validations == 1
    assert trainer.state.finished


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
