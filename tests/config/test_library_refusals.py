"""What Lightning and torch refuse is a sentence that names the setting and leaves no folder; our mistakes are not."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tiny_configs import tiny_components, workspace

from slotbench.cli import run
from slotbench.tasks.task import Task

__all__ = ["tiny_components", "workspace"]

APPEND = "--trainer.callbacks+"
REFUSED = [
    (["--trainer.check_val_every_n_epoch", "1", "--trainer.val_check_interval", "100"], "trainer.val_check_interval"),
    (["--trainer.val_check_interval", "0"], "trainer.val_check_interval"),
    (["--trainer.check_val_every_n_epoch", "0"], "trainer.check_val_every_n_epoch"),
    (["--trainer.accumulate_grad_batches", "0"], "trainer.accumulate_grad_batches"),
    (["--trainer.gradient_clip_val", "-1"], "trainer.gradient_clip_val"),
    (["--trainer.limit_train_batches", "1.5"], "trainer.limit_train_batches"),
    (["--trainer.limit_train_batches", "0.01"], "trainer.limit_train_batches"),
    (["--trainer.limit_val_batches", "0.01"], "trainer.limit_val_batches"),
    (["--trainer.max_time", "garbage"], "trainer.max_time"),
    (["--trainer.devices", "-2"], "trainer.devices"),
    (["--trainer.devices", "9999"], "trainer.devices"),
    (["--trainer.accelerator", "tpu"], "Requirement 'torch_xla"),
    (["--trainer.precision", "transformer-engine"], "transformer_engine"),
    (["--trainer.precision", "bf16-true"], "trainer.precision"),
    (["--trainer.strategy", "nonsense"], "trainer.strategy"),
    (["--trainer.profiler", "nonsense"], "trainer.profiler"),
    (["--trainer.barebones", "true"], "trainer.barebones"),
    (["--seed_everything", "-1"], "seed_everything"),
    ([APPEND, "BatchSizeFinder"], "BatchSizeFinder changes the batch size"),
    ([APPEND, "StochasticWeightAveraging", "--trainer.callbacks.swa_lrs", "0.1"], "StochasticWeightAveraging puts"),
    ([APPEND, "BackboneFinetuning"], "BackboneFinetuning trains the attribute backbone"),
    (
        [APPEND, "EMAWeightAveraging", "--trainer.callbacks.update_starting_at_epoch", "3"],
        "averages from the first step on",
    ),
    ([APPEND, "EMAWeightAveraging", "--trainer.callbacks.decay", "2"], "trainer.callbacks, EMAWeightAveraging"),
    ([APPEND, "RichModelSummary", "--trainer.callbacks.max_depth", "-3"], "max_depth"),
    (["--model.optimizer", "SparseAdam"], "SparseAdam cannot take a step"),
    (["--model.optimizer.fused", "true", "--model.optimizer.foreach", "true"], "`fused` and `foreach`"),
    (["--model.schedule", "ReduceLROnPlateau"], "ReduceLROnPlateau waits for a score"),
    (["--model.schedule", "lightning.pytorch.cli.ReduceLROnPlateau"], "available: ConstantLR, ConstantRate"),
    (["--model.schedule", "LambdaLR"], "LambdaLR takes a function"),
    (["--model.schedule", "StepLR"], "StepLR needs step_size"),
    (["--model.schedule", "CyclicLR"], "CyclicLR needs base_lr"),
]


@pytest.fixture
def fit(workspace, tiny_components, capsys):
    def call(*arguments: str) -> tuple[int, str]:
        code = run(["fit", "--config", "tiny.yaml", "--plugin", str(tiny_components), "--run_dir", "run", *arguments])
        return code, " ".join(capsys.readouterr().err.split())

    return call


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("arguments", "said"), REFUSED, ids=[" ".join(row[0]) for row in REFUSED])
def test_a_setting_that_lightning_or_torch_refuses_is_a_sentence_and_leaves_no_folder(arguments, said, fit):
    code, error = fit(*arguments)
    assert code == 2
    assert said in error
    assert "Traceback" not in error
    # what has taken a step is a run
    assert not Path("run").exists() or "take a step" in error


@pytest.mark.parametrize("kind", [ValueError, RuntimeError, TypeError])
@pytest.mark.parametrize("where", ["training_step", "configure_optimizers", "setup"])
def test_a_mistake_of_a_task_keeps_its_traceback(where, kind, fit, tiny_components, monkeypatch):
    def mistaken(self, *arguments):
        raise kind("a mistake of ours")

    monkeypatch.setattr(Task, where, mistaken)
    if where == "training_step":
        monkeypatch.setattr(Task, "on_train_batch_start", mistaken)
    with pytest.raises(kind, match="a mistake of ours"):
        fit()


def test_a_wrong_call_of_lightning_in_a_task_keeps_its_traceback(fit, monkeypatch):
    # Lightning itself raises, and it is no setting that is wrong
    monkeypatch.setattr(Task, "on_train_batch_start", lambda self, *batch: self.log("a", {"not": "a number"}))
    with pytest.raises(ValueError, match=r"self\.log"):
        fit()


def test_schedules_of_torch_are_set_in_files_and_on_the_command_line_and_their_length_is_open(fit):
    config = yaml.safe_load(Path("tiny.yaml").read_text())
    config["model"]["init_args"]["schedule"] = {
        "class_path": "torch.optim.lr_scheduler.CosineAnnealingLR",
        "init_args": {"eta_min": 0.1},
    }
    Path("tiny.yaml").write_text(yaml.safe_dump(config))
    assert fit("--trainer.callbacks+", "Timer", "--trainer.callbacks.duration", "01:00:00:00")[0] == 0
    said = yaml.safe_load(Path("run/config.yaml").read_text())["model"]["init_args"]["schedule"]["init_args"]
    assert said == {"T_max": None, "eta_min": 0.1, "last_epoch": -1}
    code, error = fit("--run_dir", "other", "--model.schedule", "StepLR", "--model.schedule.step_size", "2")
    assert (code, error.count("refuse")) == (0, 0)
    said = yaml.safe_load(Path("other/config.yaml").read_text())["model"]["init_args"]["schedule"]["init_args"]
    assert said == {"step_size": 2, "gamma": 0.1, "last_epoch": -1}
