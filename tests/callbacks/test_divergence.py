"""A training that diverges ends after the same step everywhere, and before it costs a checkpoint."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import yaml
from lightning.pytorch import Callback, Trainer
from tiny_run import TinyTask, fit, loader, make_trainer
from torch.optim.lr_scheduler import ExponentialLR, OneCycleLR

from slotbench.callbacks import divergence
from slotbench.callbacks.divergence import DivergedError, Divergence
from slotbench.runs.checkpoints import find_good
from slotbench.runs.folder import RunFolder
from slotbench.runs.resuming import command_after_divergence

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers.*")


class Diverging(TinyTask):
    """Its loss is infinite in the sixth step."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = super().training_step(batch, batch_idx)
        return loss * float("inf") if self.global_step == 5 else loss


def test_the_step_with_the_bad_loss_is_not_made(folder: RunFolder) -> None:
    task = Diverging()
    with pytest.raises(
        DivergedError, match=r"the training loss is not finite in step 6, at a learning rate of 0.01"
    ) as error:
        fit(folder, task)
    assert error.value.step == 5
    assert all(weight.isfinite().all() for weight in task.parameters())
    assert (folder.state, folder.info["diverged_at"], folder.info["step"]) == ("diverged", 5, 5)


def test_where_looking_means_waiting_it_is_noticed_before_the_next_checkpoint(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(divergence, "_is_at_hand", lambda *_: False)
    with pytest.raises(DivergedError, match="the training loss is not finite in step 6") as error:
        fit(folder, Diverging())
    assert error.value.step == 5
    assert folder.info["step"] == 8  # where a validation was due
    good, problems = find_good(folder.checkpoints)
    assert good is not None
    assert (good.step, problems) == (4, {})


@pytest.mark.parametrize("every", [1, 3])
def test_losses_are_looked_at_every_few_steps(every: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divergence, "_is_at_hand", lambda *_: False)
    trainer = make_trainer([], [Divergence(every)], max_steps=100, limit_val_batches=0)
    with pytest.raises(DivergedError, match="step 6"):
        trainer.fit(Diverging(), loader(), loader(16))
    assert trainer.global_step == 6


def test_weights_that_are_not_finite_are_never_saved(folder: RunFolder) -> None:
    class Spoil(Callback):
        def on_train_batch_end(self, trainer: Trainer, module: TinyTask, *_: Any) -> None:
            if trainer.global_step == 7:
                with torch.no_grad():
                    module.encoder.weight[0, 0] = float("nan")

    class Blind(TinyTask):
        """Its loss does not see the weights."""

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return sum(weight.nan_to_num().square().mean() for weight in self.parameters())

    from slotbench.callbacks.wiring import run_parts

    loggers, callbacks = run_parts(folder, wandb="off", wandb_project="tests", config={})
    trainer = make_trainer(loggers, [Spoil(), *callbacks], max_steps=12, val_check_interval=4)
    with pytest.raises(DivergedError, match="weights are not finite after step 8"):
        trainer.fit(Blind(), loader(), loader(16))
    for path in folder.checkpoints.glob("*.ckpt"):
        saved = torch.load(path, weights_only=True)
        assert saved["global_step"] == 4
        assert all(weight.isfinite().all() for weight in saved["state_dict"].values())


def test_what_to_try_leaves_out_what_is_done_already() -> None:
    trainer = make_trainer([], [Divergence()], max_steps=8, gradient_clip_val=1.0)
    with pytest.raises(DivergedError) as error:
        trainer.fit(Diverging(), loader(), loader(16))
    assert "gradient_clip_val" not in str(error.value)


@pytest.mark.parametrize(("schedule", "key"), [(OneCycleLR, "schedule.max_lr"), (ExponentialLR, "optimizer.lr")])
def test_the_setting_to_try_is_the_one_that_the_rate_follows(
    schedule: Any, key: str, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = {"max_lr": 0.1, "total_steps": 8} if schedule is OneCycleLR else {"gamma": 0.9}

    def configured(task: TinyTask) -> Any:
        optimizer = torch.optim.SGD(task.parameters(), lr=0.01)
        return [optimizer], [{"scheduler": schedule(optimizer, **arguments), "interval": "step"}]

    monkeypatch.setattr(Diverging, "configure_optimizers", configured)
    with pytest.raises(DivergedError, match=rf"a lower learning rate \(--model.{key}\)"):
        make_trainer([], [Divergence()], max_steps=8).fit(Diverging(), loader(), loader(16))
    folder.write_config(yaml.safe_dump({"schedule": {"init_args": arguments}}))
    assert command_after_divergence(folder.path).endswith(f"--allow-changes --model.{key} VALUE")
