"""Training steps with compiled parts are those of the parts as written."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
from counted_graphs import CountedGraphs
from lightning.pytorch import Callback, Trainer

import slotbench
from slotbench.callbacks.compiled_parts import CompiledParts
from slotbench.interfaces import VideoSpec

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*", "ignore:.*val_dataloader.*"),
    # torch's own, of its compiler's modules
    pytest.mark.filterwarnings("ignore:.*torch._prims_common.check:FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*"),
]

FRAME = VideoSpec(channels=3, height=8, width=8)


def make_task() -> Any:
    torch.manual_seed(0)
    encoder = slotbench.build("CNNEncoder", FRAME, dim=8, channels=[4], kernel_sizes=[3], strides=[2])
    core = slotbench.build("SAVi", encoder.token_spec, num_slots=2, dim=8, num_iterations=1, slot_init="gaussian")
    decoder = slotbench.build(
        "SpatialBroadcastDecoder", core.slot_spec, FRAME, channels=4, num_layers=1, kernel_size=3, output_kernel=3
    )
    # Adam's first steps are as long where a gradient is nothing but rounding
    sgd = functools.partial(torch.optim.SGD, lr=0.1)
    return slotbench.build("SlotAutoencoding", encoder=encoder, core=core, decoder=decoder, optimizer=sgd)


def trained(mode: str | None, *callbacks: Callback, precision: Any = "32-true", accumulate: int = 1) -> dict[str, Any]:
    """Weights after four steps, with a validation after the second one."""
    task = make_task()
    data = slotbench.build(
        "MovingSprites", resolution=8, num_frames=2, eval_frames=3, loader={"batch_size": 2, "val_size": 2}
    )
    trainer = Trainer(
        max_steps=4,
        val_check_interval=2,
        check_val_every_n_epoch=None,
        num_sanity_val_steps=0,
        precision=precision,
        accumulate_grad_batches=accumulate,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[*([CompiledParts(mode)] if mode else []), *callbacks],  # type: ignore[arg-type]
    )
    torch.manual_seed(1)
    trainer.fit(task, data)
    return copy.deepcopy(task).state_dict()


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "of_torch"), [("on", "default"), ("graphs", "reduce-overhead")])
def test_training_steps_are_compiled_and_validation_is_not(mode, of_torch, monkeypatch):
    graphs = CountedGraphs(monkeypatch.setattr)
    weights = trained(mode, graphs)
    assert graphs.modes == [of_torch] * 3  # encoder, core, decoder
    assert graphs.run["train"] >= 3 * 3  # the first step checks the parts
    assert graphs.run["val"] == 0
    assert graphs.marked == (4 if mode == "graphs" else 0)
    as_written = trained(None)
    assert weights.keys() == as_written.keys()
    for name, value in as_written.items():
        torch.testing.assert_close(weights[name], value, msg=lambda text, name=name: f"{name}: {text}")


def test_off_compiles_nothing_and_another_word_is_refused(monkeypatch):
    graphs = CountedGraphs(monkeypatch.setattr)
    trained("off", graphs)
    assert not graphs.modes
    with pytest.raises(ValueError, match="compile is 'yes'; expected one of off, on, graphs"):
        CompiledParts("yes")  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_inductor_trains_as_the_parts_as_written(precision, accumulate):
    as_written = trained(None, precision=precision, accumulate=accumulate)
    tolerance = {"rtol": 1e-3, "atol": 1e-4} if precision == "32-true" else {"rtol": 5e-2, "atol": 5e-3}
    for name, value in trained("on", precision=precision, accumulate=accumulate).items():
        torch.testing.assert_close(value, as_written[name], **tolerance)
