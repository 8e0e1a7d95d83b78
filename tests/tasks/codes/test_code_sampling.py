"""A roll-out of codes by a recurrent core does the same work for each frame, and reads no earlier one again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from laptop_codes import LAPTOP, clip_of, laptop_task
from torch import Tensor, nn

from slotbench.bench.flops import count_flops
from slotbench.interfaces import VideoBatch, map_state

CONTEXT, HORIZON = 3, 6
RECURRENT = [name for name in LAPTOP if "Transformer" not in name]


def watched(part: nn.Module, seen: list[int]) -> None:
    """Notes how many steps each call of a part is given."""

    def note(given: Any) -> None:
        seen.append((given.frames if isinstance(given, VideoBatch) else given).shape[1])

    part.register_forward_pre_hook(lambda _, given: note(given[0]))


def rolled(name: str) -> tuple[list[int], list[int], list[int | None]]:
    """Steps given to encoder and core, numbers in the state and operations, of the frames after the first one."""
    task = laptop_task(name)
    given: list[int] = []
    sizes: list[int] = []

    def measure(out: Any) -> None:
        numbers: list[int] = []

        def note(value: Tensor) -> Tensor:
            numbers.append(value.numel())
            return value

        map_state(note, out.state)
        sizes.append(sum(numbers))

    watched(task.encoder, given)
    watched(task.core, given)
    with torch.no_grad():
        batch = clip_of(task, CONTEXT + HORIZON)
        steps = task.rollout_steps(batch, CONTEXT, HORIZON, watch=measure)
        for _ in range(2):
            next(steps)
        given.clear()
        work = [count_flops(lambda: next(steps), task) for _ in range(HORIZON - 2)]
    return given, sizes[1:], work


@pytest.mark.parametrize("name", RECURRENT)
def test_a_predicted_frame_costs_the_same_however_long_ago_the_context_was(name):
    given, sizes, work = rolled(name)
    assert set(given) == {1}
    assert len(sizes) == HORIZON - 1
    assert len(set(sizes)) == 1
    assert None not in work
    assert len(set(work)) == 1


@pytest.mark.parametrize("name", sorted(set(LAPTOP) - set(RECURRENT)))
def test_a_transformer_keeps_more_with_each_frame_and_reads_none_again(name):
    given, sizes, work = rolled(name)
    assert set(given) == {1}
    assert sizes == sorted(set(sizes))
    assert None not in work
    assert work == sorted(set(work))
