from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from scan_inputs import scan_inputs
from torch import nn

from slotbench.nn.mamba import MambaBlock
from slotbench.nn.mamba2 import Mamba2Block
from slotbench.ops import (
    KernelError,
    available_kernels,
    causal_conv1d,
    chosen_kernels,
    dispatch,
    linear_scan,
    selective_scan,
    set_kernel,
)


@pytest.fixture
def nothing_chosen(monkeypatch):
    monkeypatch.setattr(dispatch, "_chosen", {})


@pytest.fixture
def inputs():
    return {name: value.detach() for name, value in scan_inputs(1, 3, 2, 2).items()}


def test_auto_takes_the_compiled_kernel_on_the_cpu_and_says_so_once(nothing_chosen, inputs, caplog):
    with caplog.at_level(logging.INFO, logger="slotbench.ops"):
        selective_scan(**inputs)
        selective_scan(**inputs)
    assert [record.getMessage() for record in caplog.records] == ["selective_scan on cpu runs kernel 'numba'"]
    assert chosen_kernels() == {"selective_scan": "numba"}


def test_auto_falls_back_to_torch_where_numba_fails_and_logs_the_reason(nothing_chosen, inputs, monkeypatch, caplog):
    monkeypatch.setattr(dispatch, "_numba_failure", lambda: "numba does not work here (broken): pip install numba")
    with caplog.at_level(logging.INFO, logger="slotbench.ops"):
        selective_scan(**inputs)
    assert "runs kernel 'torch'; not numba: it" in caplog.text
    assert "broken" in caplog.text


def test_every_module_that_numba_compiles_is_tried():
    root = Path(dispatch.__file__).parent
    drivers = {path for path in root.rglob("*.py") if "_driver: Any = njit(" in path.read_text("utf-8")}
    assert drivers == {root / f"{module.replace('.', '/')}.py" for module in dispatch._NUMBA_MODULES}


def test_a_named_kernel_that_fails_is_an_error_and_never_another_kernel(nothing_chosen, inputs, monkeypatch):
    monkeypatch.setattr(dispatch, "_numba_failure", lambda: "numba does not work here (broken): pip install numba")
    with pytest.raises(RuntimeError, match=r"kernel 'numba' of selective_scan cannot run.*pip install numba"):
        selective_scan(**inputs, kernel="numba")
    assert chosen_kernels() == {}


def test_an_unknown_kernel_lists_those_there_are(inputs):
    with pytest.raises(ValueError, match="'cuda'; use 'auto' or one of reference, torch, numba, mamba_ssm"):
        selective_scan(**inputs, kernel="cuda")
    with pytest.raises(ValueError, match="no op named 'scan'"):
        available_kernels("scan")


def test_triton_is_refused_for_what_it_cannot_do(inputs, monkeypatch):
    monkeypatch.setattr(dispatch, "_why_not", lambda op, kernel, device: None)
    x, few, many = torch.zeros(1, 2, 3), torch.zeros(3, 1), torch.zeros(3, 1025)
    B = torch.zeros(1, 2, 1025)
    refusals = {
        "computes in float32 and an input is float64": lambda: selective_scan(**inputs, kernel="triton"),
        "no exact zero-order hold": lambda: selective_scan(**inputs, exact_zoh=True, kernel="triton"),
        "at most 1024 states and A has 1025": lambda: selective_scan(x, x, many, B, B, kernel="triton"),
        "2, 3 or 4 taps and these have 1": lambda: causal_conv1d(x, few, kernel="causal_conv1d"),
        "an input is complex128": lambda: linear_scan(x.cdouble(), x[0, 0].cdouble(), kernel="triton"),
    }
    for reason, call in refusals.items():
        with pytest.raises(KernelError, match=rf"{reason}.*: use kernel='torch'"):
            call()


def test_set_kernel_reaches_every_block_and_refuses_unknown_names():
    model = nn.Sequential(MambaBlock(16), nn.Linear(16, 16), nn.ModuleDict({"inner": MambaBlock(16)}))
    assert set_kernel(model, "reference") == 2
    assert {module.kernel for module in model.modules() if isinstance(module, MambaBlock)} == {"reference"}
    with pytest.raises(ValueError, match="no kernel is named 'fast'"):
        set_kernel(model, "fast")


def test_set_kernel_leaves_a_block_alone_whose_op_has_no_kernel_of_the_name():
    model = nn.ModuleList([MambaBlock(16), Mamba2Block(16)])
    assert set_kernel(model, "numba") == 2
    assert set_kernel(model, "triton") == 1  # `ssd` has none
    assert [block.kernel for block in model] == ["triton", "numba"]


def test_available_kernels_gives_a_reason_for_each_that_does_not_run():
    reasons = available_kernels("causal_conv1d", torch.device("cpu"))
    assert [name for name, reason in reasons.items() if reason is None] == ["reference", "torch", "numba"]
    assert "CUDA" in str(reasons["causal_conv1d"])
