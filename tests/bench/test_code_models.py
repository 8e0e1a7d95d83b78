"""The models of `slotbench bench code_models` are those of the experiments, and its ways do the same work."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from slotbench.bench.subjects import codes
from slotbench.nn.parameters import trainable_parameters
from slotbench.yaml_files import read_yaml

PAPER = Path(__file__).parents[2] / "experiments" / "paper"


@pytest.mark.parametrize(
    ("name", "expected"), [("moving_mnist_600_convs5", 21_681_411), ("dmlab_teco_transformer", 173_088_944)]
)
def test_the_papers_models_are_those_of_the_experiments(name, expected):
    assert all((PAPER / f"{one}.yaml").is_file() for one in codes.PAPER)
    with torch.device("meta"):
        task = codes.task_of(read_yaml(PAPER / f"{name}.yaml"))
    assert name in codes.PAPER
    assert trainable_parameters(task)["total"] == expected


@pytest.mark.parametrize("name", ["FrameTransformer", "TECO-FrameTransformer"])
def test_a_core_that_runs_over_all_frames_again_has_the_slots_of_one_with_a_memory(name):
    found = []
    for change in (lambda task: task, codes.without_memory):
        task, outputs = change(codes.laptop_task(name)), []
        batch = codes.clip_of(task, 6)
        torch.manual_seed(1)
        with torch.no_grad():
            assert len(list(task.rollout_steps(batch, 2, 4, watch=lambda out, all=outputs: all.append(out.slots)))) == 4
        found.append(torch.cat(outputs, dim=1))
    assert found[0].shape[1] == 5
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


def test_a_roll_out_that_has_too_few_frames_left_is_no_time():
    assert codes.timed(iter(range(3)), 3).seconds >= 0
    with pytest.raises(ValueError, match="2 of 3 frames"):
        codes.timed(iter(range(2)), 3)
