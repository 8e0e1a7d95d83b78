"""Kernels agree with their reference, and are timed in turns."""

from __future__ import annotations

import pytest

from slotbench import ops
from slotbench.bench.ops import error_of, measure
from slotbench.cli import run
from slotbench.ops.dispatch import KERNELS


@pytest.mark.parametrize("op", KERNELS)
def test_every_kernel_that_runs_here_is_near_the_reference(op):
    for kernel, refusal in ops.available_kernels(op, "cpu").items():
        if refusal is None:
            assert error_of(op, kernel, "cpu") < 1e-4


def test_kernels_are_timed(monkeypatch, capsys):
    monkeypatch.setitem(__import__("slotbench.bench.ops", fromlist=["SIZES"]).SIZES, "linear_scan", ((1, 4, 8),))
    names = [found["kernel"] for found in measure(["linear_scan"], "cpu", 0.001)]
    assert names == [kernel for kernel, why in ops.available_kernels("linear_scan", "cpu").items() if why is None]
    assert run(["bench", "ops", "linear_scna"]) == 2
    assert "did you mean linear_scan?" in capsys.readouterr().err
