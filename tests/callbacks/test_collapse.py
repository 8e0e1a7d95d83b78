"""A model that has collapsed is said so once, with what to try; a healthy one is left in peace."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule
from tiny_run import loader, make_trainer
from torch import Tensor, nn

from slotbench.callbacks.collapse import Collapse, largest_share, prediction_spread, slots_apart
from slotbench.interfaces import CoreOutput, Decoded, Reporter, SlotSpec, VideoBatch

pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers.*", "ignore:.*val_dataloader.*")

BATCH, STEPS, SLOTS = 8, 8, 3


class Core(nn.Module):
    """Slots that are alike or apart."""

    def __init__(self, apart: float, slots: int = SLOTS) -> None:
        super().__init__()
        self.slot_spec = SlotSpec(slots, 5)
        self.apart = apart

    def forward(self, frames: Tensor) -> CoreOutput:
        batch, time = frames.shape[:2]
        slots = torch.ones(batch, time, self.slot_spec.num_slots, 5)
        return CoreOutput(slots + self.apart * torch.randn_like(slots), None, None)


class Decoder(nn.Module):
    """Frames that follow the true ones or are their mean, and masks of which one slot has everything or its part."""

    def __init__(self, follows: float, largest: float) -> None:
        super().__init__()
        self.follows, self.largest = follows, largest

    def forward(self, slots: Tensor, frames: Tensor) -> Decoded:
        mean = frames.mean(dim=(0, 1), keepdim=True)
        masks = torch.full((*slots.shape[:3], 4, 4), (1 - self.largest) / (slots.shape[2] - 1 or 1))
        masks[:, :, 0] = self.largest
        return Decoded(mean + self.follows * (frames - mean), masks)


class Task(LightningModule, Reporter):
    total_steps = 20

    def __init__(
        self,
        apart: float = 1.0,
        follows: float = 1.0,
        largest: float = 0.4,
        slots: int = SLOTS,
    ) -> None:
        super().__init__()
        self.core, self.decoder = Core(apart, slots), Decoder(follows, largest)
        self.weight = nn.Parameter(torch.zeros(1))

    def training_step(self, batch: VideoBatch, batch_idx: int) -> Tensor:
        return self.weight.square().sum()

    def validation_step(self, batch: VideoBatch, batch_idx: int) -> None:
        out = self.core(batch.frames)
        self.decoder(out.slots, batch.frames)
        # a second call, as of a roll-out, which is not looked at
        self.decoder(torch.ones_like(out.slots), torch.zeros_like(batch.frames))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def trained(task: Task, callback: Callback | None = None, **settings: Any) -> None:
    settings = {"max_steps": 20, "val_check_interval": 2, "enable_progress_bar": False, **settings}
    make_trainer([], [callback or Collapse()], **settings).fit(task, loader(256), loader(16))


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ({"apart": 1e-3}, "all slots are alike"),
        ({"largest": 0.999}, "one slot has everything"),
        ({"follows": 0.001}, "the prediction is the same whatever is seen"),
    ],
)
def test_a_collapse_is_said_once(task, words, capsys):
    trained(Task(**task))
    said = [line for line in capsys.readouterr().out.splitlines() if "collapse alarm" in line]
    assert len(said) == 1
    assert words in said[0]
    assert "; try " in said[0]
    # a fifth of 20 steps, then two validations in a row, two steps apart
    assert "at step 6:" in said[0]


def test_a_model_that_does_what_it_should_is_left_in_peace(capsys):
    trained(Task())
    assert "collapse" not in capsys.readouterr().out


def test_a_passing_phase_is_no_collapse(capsys):
    class Recovers(Callback):
        def on_validation_start(self, trainer, pl_module):
            pl_module.core.apart = 1e-3 if trainer.global_step % 4 else 1.0

    task = Task(apart=1e-3)
    make = make_trainer([], [Recovers(), Collapse()], max_steps=20, val_check_interval=2, enable_progress_bar=False)
    make.fit(task, loader(256), loader(16))
    assert "collapse" not in capsys.readouterr().out


def test_one_slot_is_neither_alike_nor_too_large(capsys):
    trained(Task(apart=0.0, largest=1.0, slots=1))
    assert "collapse" not in capsys.readouterr().out


def test_nothing_is_left_hooked_and_few_batches_are_looked_at():
    task, seen = Task(), []
    task.core.register_forward_hook(lambda *_: seen.append(1))

    class Counting(Collapse):
        def _measure(self, *given):
            seen.append(0)
            super()._measure(*given)

    trained(task, Counting(batches=1), max_steps=2, val_check_interval=2)
    assert seen.count(0) == 2  # core and decoder, the first call of each
    assert len(task.core._forward_hooks) == 1
    assert not task.decoder._forward_hooks


def test_slots_are_apart_by_what_they_do_not_have_in_common():
    common, own = torch.randn(4, 6, 1, 16), torch.randn(4, 6, 3, 16)
    own = own - own.mean(dim=2, keepdim=True)
    assert slots_apart(common.expand(-1, -1, 3, -1)) == pytest.approx(0, abs=1e-6)
    assert slots_apart(own) == pytest.approx(1, abs=1e-6)
    assert slots_apart(7 * own) == pytest.approx(slots_apart(own))


def test_the_largest_share_is_that_of_a_clip_whichever_slot_has_it():
    shares = torch.zeros(2, 3, 4, 5, 5)
    shares[0, :, 1], shares[1, :, 3] = 1.0, 1.0
    assert largest_share(shares) == 1.0
    assert largest_share(torch.full((2, 3, 4, 7), 0.25)) == pytest.approx(0.25)
    # a slot that has all of one frame and none of the next shares the clip
    shares = torch.zeros(1, 2, 2, 5)
    shares[0, 0, 0], shares[0, 1, 1] = 1.0, 1.0
    assert largest_share(shares) == pytest.approx(0.5)


def test_a_prediction_spreads_in_units_of_its_power():
    frames = torch.rand(4, 5, 3, 8, 8)
    mean = frames.mean(dim=(0, 1), keepdim=True)
    assert prediction_spread(frames - mean) == pytest.approx(1)
    assert prediction_spread(mean.expand_as(frames)) == pytest.approx(0, abs=1e-6)
    assert prediction_spread(7 * frames) == pytest.approx(prediction_spread(frames), rel=1e-4)
