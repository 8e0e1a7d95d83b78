"""The trial of a kernel before its first use on a GPU, and what `auto` makes of it, on machines without one."""

from __future__ import annotations

import sys

import pytest
import torch

from slotbench.ops import available_kernels, causal_conv1d, dispatch, linear_scan, selective_scan, ssd
from slotbench.ops._cuda import trial
from slotbench.ops._cuda.trial import trial_failure
from slotbench.ops.dispatch import automatic_kernel, choose_kernel
from slotbench.ops.inverted_attention.competition import Competition
from slotbench.ops.inverted_attention.streamed import streamed_sums

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
OPS = ("selective_scan", "ssd", "causal_conv1d", "linear_scan", "inverted_attention")


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch):
    remembering = (dispatch._triton_failure, dispatch._trial_failure)
    for function in remembering:
        function.cache_clear()
    monkeypatch.setattr(dispatch, "_chosen", {})
    yield
    for function in remembering:
        function.cache_clear()


@pytest.fixture
def gpu_with(monkeypatch):
    """Makes it look as though there were a GPU on which these kernels can be imported, and these fail their trial."""

    def make(imported: set[str], failing: set[str] = frozenset()) -> None:
        def import_failure(op: str, kernel: str) -> str | None:
            return None if kernel in imported else f"needs {kernel}"

        def failure(op: str, run: str, device: torch.device) -> str | None:
            return "failed a small trial (RuntimeError: no kernel image)" if run in failing else None

        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(dispatch, "_import_failure", import_failure)
        monkeypatch.setattr(dispatch, "_kernel_function", lambda op, kernel: kernel)
        monkeypatch.setattr(dispatch, "trial_failure", failure)

    return make


@pytest.mark.parametrize("op", OPS)
def test_a_kernel_that_computes_the_equation_passes(op):
    equation, _ = trial._EXAMPLES[op]()
    assert trial_failure(op, equation, CPU) is None


def test_the_equations_are_those_of_the_ops():
    runs = {
        "selective_scan": lambda *x: selective_scan(*x[:5], state=x[5], kernel="reference"),
        "ssd": lambda *x: ssd(*x[:5], state=x[5], kernel="reference"),
        "causal_conv1d": lambda *x: causal_conv1d(*x, activation="silu", kernel="reference")[:1],
        "linear_scan": lambda drive, decay, state: linear_scan(drive, decay[0, 0], state, kernel="reference"),
        "inverted_attention": lambda *x: streamed_sums(*x, None, Competition(across_heads=False), 0.1),
    }
    assert {op: trial_failure(op, run, CPU) for op, run in runs.items()} == dict.fromkeys(OPS)


@pytest.mark.parametrize("op", OPS)
def test_a_kernel_that_is_off_is_refused_with_its_error(op):
    equation, _ = trial._EXAMPLES[op]()
    reason = trial_failure(op, lambda *x: tuple(1.1 * y for y in equation(*x)), CPU)
    assert reason == "was off by 1e-01 of the largest value in a small trial"


def test_a_kernel_whose_gradient_alone_is_off_is_refused():
    equation, _ = trial._EXAMPLES["causal_conv1d"]()
    reason = trial_failure(
        "causal_conv1d", lambda x, weight, bias: equation(x, weight.detach() + 0 * weight, bias), CPU
    )
    assert "was off by 1e+00" in str(reason)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("\n  Failed to find C compiler. \nmore"), "RuntimeError: Failed to find C compiler.)"),
        (OSError("no kernel image is available"), "no kernel image is available"),
        (ZeroDivisionError(), "ZeroDivisionError: )"),
    ],
)
def test_a_kernel_that_fails_is_refused_with_the_first_line_of_its_error(error, expected):
    def fail(*inputs):
        raise error

    reason = trial_failure("linear_scan", fail, CPU)
    assert str(reason).startswith("failed a small trial (")
    assert expected in str(reason)


def test_nan_and_other_shapes_are_refused():
    equation, _ = trial._EXAMPLES["causal_conv1d"]()
    assert "inf" in str(trial_failure("causal_conv1d", lambda *x: (equation(*x)[0] * torch.nan,), CPU))
    assert "shape (2, 19, 24) in place of (2, 20, 24)" in str(
        trial_failure("causal_conv1d", lambda *x: (equation(*x)[0][:, 1:],), CPU)
    )


def test_the_trial_runs_where_no_gradients_are_wanted():
    equation, _ = trial._EXAMPLES["linear_scan"]()
    with torch.inference_mode():
        assert trial_failure("linear_scan", equation, CPU) is None
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert trial_failure("selective_scan", trial._selective_scan_equation, CPU) is None


@pytest.mark.parametrize(
    ("imported", "failing", "expected"),
    [
        ({"mamba_ssm", "causal_conv1d", "triton"}, set(), ["triton", "mamba_ssm", "triton", "triton", "triton"]),
        ({"triton"}, set(), ["triton", "torch", "triton", "triton", "triton"]),
        (
            {"mamba_ssm", "causal_conv1d", "triton"},
            {"triton"},
            ["mamba_ssm", "mamba_ssm", "causal_conv1d", "associative", "streamed"],
        ),
        ({"triton"}, {"triton"}, ["torch", "torch", "torch", "associative", "streamed"]),
        (set(), set(), ["torch", "torch", "torch", "associative", "streamed"]),
    ],
)
def test_auto_on_cuda_takes_triton_then_a_package_that_works_then_torch(gpu_with, imported, failing, expected):
    gpu_with(imported, failing)
    assert [automatic_kernel(op, "cuda")[0] for op in OPS] == expected


def test_auto_says_why_it_did_not_take_what_comes_first(gpu_with):
    gpu_with({"mamba_ssm", "triton"}, {"triton"})
    name, refused = automatic_kernel("selective_scan", "cuda")
    assert name == "mamba_ssm"
    assert refused == {
        "triton": "failed a small trial (RuntimeError: no kernel image): use kernel='torch'",
    }


def test_a_kernel_asked_for_by_name_is_refused_after_a_failed_trial_too(gpu_with):
    gpu_with({"triton"}, {"triton"})
    with pytest.raises(
        dispatch.KernelError, match=r"kernel 'triton' of linear_scan cannot run: it failed a small trial"
    ):
        choose_kernel("linear_scan", "triton", CUDA)


def test_a_kernel_is_tried_once(gpu_with, monkeypatch):
    gpu_with({"triton"})
    tried = []
    monkeypatch.setattr(dispatch, "trial_failure", lambda op, run, device: tried.append(op))
    for _ in range(3):
        choose_kernel("linear_scan", "auto", CUDA)
    assert tried == ["linear_scan"]


def test_what_a_call_does_not_fit_goes_to_the_next_kernel(gpu_with):
    gpu_with({"mamba_ssm", "triton"})
    assert automatic_kernel("selective_scan", "cuda", {"mamba_ssm": "takes at most 256 states"})[0] == "triton"


def test_triton_that_is_not_installed_is_said_with_what_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    for op in ("selective_scan", "causal_conv1d", "linear_scan", "inverted_attention"):
        monkeypatch.delitem(sys.modules, f"slotbench.ops._cuda.triton_{op}", raising=False)
        reason = available_kernels(op, "cuda")["triton"]
        assert "needs triton, whose import failed (ModuleNotFoundError" in str(reason)
        assert "pip install triton" in str(reason)


def test_triton_runs_on_the_cpu_under_its_interpreter_alone(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert "runs on CUDA and the tensors are on 'cpu'" in str(available_kernels("linear_scan", "cpu")["triton"])
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(dispatch, "_triton_failure", lambda op: None)
    assert available_kernels("linear_scan", "cpu")["triton"] is None
    assert "'meta'" in str(available_kernels("linear_scan", "meta")["triton"])


def test_the_mark_on_the_choice_is_the_one_that_torch_sets():
    def constant() -> str:
        return ""

    marked = torch.compiler.assume_constant_result(constant)
    assert marked._dynamo_marked_constant is choose_kernel._dynamo_marked_constant is True
