"""Two processes whose parts are compiled train as two whose parts are not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from counted_graphs import CountedGraphs
from forked import Forked
from lightning.pytorch import Callback
from two_processes import PROCESSES, Stop, autoencoding, bouncing_balls, meet, part, trainer_for, weights

from slotbench.callbacks.compiled_parts import CompiledParts, CompileMode

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*does not have many workers.*"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch.*"),
]
STEPS = 4


class Losses(Callback):
    """Of this process's clips."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, *rest: Any) -> None:
        self.seen.append(float(outputs["loss"]))


def train(folder: Path, mode: CompileMode, stops: tuple[int, ...], *callbacks: Callback) -> dict[str, Any]:
    """Slots that are drawn, trained in as many goes as there are stops; a validation comes after the second step."""
    losses, checkpoint = Losses(), None
    for stop in stops:
        data = bouncing_balls(2, frames=2)
        task = autoencoding(data)
        settings: dict[str, Any] = {"max_steps": STEPS, "val_check_interval": 2, "check_val_every_n_epoch": None}
        trainer = trainer_for(PROCESSES, CompiledParts(mode), losses, Stop(stop), *callbacks, **settings)
        trainer.fit(task, datamodule=data, ckpt_path=checkpoint)
        checkpoint = str(folder / "last.ckpt")
        trainer.save_checkpoint(checkpoint)
    return {"weights": weights(task), "losses": losses.seen}


def work(rank: int, folder: str) -> None:
    """With a stand-in for the compiler, which changes no value."""
    meet(rank, folder)
    graphs = CountedGraphs(setattr)
    found: dict[str, Any] = {"off": train(Path(folder), "off", (STEPS,)), "none": list(graphs.modes)}
    found["graphs"] = train(Path(folder), "graphs", (2, STEPS), graphs)
    part(rank, folder, found | {"modes": graphs.modes, "after": graphs.after_steps, "val": graphs.run["val"]})


def work_with_inductor(rank: int, folder: str) -> None:
    """With the compiler itself."""
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    meet(rank, folder)
    part(rank, folder, {mode: train(Path(folder), mode, (STEPS,)) for mode in ("off", "on")})


def found_by(function: Any, folder: Path) -> list[dict[str, Any]]:
    """What each of two processes has found."""
    for process in [Forked(function, rank, str(folder)) for rank in range(PROCESSES)]:
        process.output(timeout=900)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(PROCESSES)]


def test_each_process_compiles_and_a_resumed_training_has_the_losses_and_weights_of_one_as_written(tmp_path):
    for found in found_by(work, tmp_path):
        assert found["none"] == []
        assert found["modes"] == ["reduce-overhead"] * 3 * 2, "encoder, core and decoder, in both goes"
        first, second, third, fourth = found["after"]
        assert first == 0, "the first step runs as written"
        assert second >= 3
        assert third == second, "the first step after resuming, too"
        assert fourth >= third + 3
        assert found["val"] == 0
        assert found["graphs"]["losses"] == pytest.approx(found["off"]["losses"], rel=1e-6)
        for name, value in found["off"]["weights"].items():
            torch.testing.assert_close(found["graphs"]["weights"][name], value)


def test_inductor_trains_two_processes_as_the_parts_as_written(tmp_path):
    both = found_by(work_with_inductor, tmp_path)
    for found in both:
        assert found["on"]["losses"] == pytest.approx(found["off"]["losses"], rel=1e-3)
    for name, value in both[0]["on"]["weights"].items():
        assert torch.equal(value, both[1]["on"]["weights"][name]), name
