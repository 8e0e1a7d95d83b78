"""Parameter groups for weight decay: each trained parameter in one group, and only unmarked matrices decay."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from slotbench.nn.parameters import decay_groups, one_group, without_decay


@pytest.fixture
def parameters() -> dict[str, nn.Parameter]:
    found = {
        "matrix": nn.Parameter(torch.zeros(2, 3)),
        "kernel": nn.Parameter(torch.zeros(2, 3, 1, 1)),
        "bias": nn.Parameter(torch.zeros(3)),
        "scale": nn.Parameter(torch.zeros(())),
        "positions": without_decay(nn.Parameter(torch.zeros(4, 3))),
        "frozen": nn.Parameter(torch.zeros(2, 2), requires_grad=False),
    }
    return found


def names(group: dict, parameters: dict[str, nn.Parameter]) -> set[str]:
    return {name for name, parameter in parameters.items() if any(parameter is other for other in group["params"])}


def test_matrices_decay_and_everything_else_that_is_trained_does_not(parameters):
    matrices, rest = decay_groups(iter(parameters.values()))
    assert names(matrices, parameters) == {"matrix", "kernel"}
    assert "weight_decay" not in matrices  # the optimiser's
    assert names(rest, parameters) == {"bias", "scale", "positions"}
    assert rest["weight_decay"] == 0


@pytest.mark.parametrize(("kept", "decays"), [("matrix", True), ("bias", False)])
def test_a_group_without_parameters_is_left_out(parameters, kept, decays):
    (group,) = decay_groups([parameters[kept], parameters["frozen"]])
    assert names(group, parameters) == {kept}
    assert ("weight_decay" in group) != decays


def test_one_group_has_everything_that_is_trained(parameters):
    (group,) = one_group(list(parameters.values()))
    assert names(group, parameters) == parameters.keys() - {"frozen"}
    assert "weight_decay" not in group
