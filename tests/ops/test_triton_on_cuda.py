"""The Triton kernels on a GPU: agreement in every dtype, the same bits twice, long offsets, torch.compile.

The tolerances were written down before any of these tests had run on a GPU. They are relative to the norm: float32 as
under the interpreter but for the GPU's faster exp; bfloat16 rounds inputs, outputs and gradients to 2^-8, float16 to
2^-11, and sums of such errors grow a little.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
import triton_under_compile
from scan_inputs import assert_agree, scan_inputs, values_and_gradients
from torch import Tensor

from slotbench.ops import available_kernels, linear_scan, selective_scan

pytestmark = pytest.mark.gpu

TOLERANCES = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
SHAPES = [(1, 1, 1, 1), (3, 17, 33, 8), (2, 40, 70, 16), (4, 300, 96, 16), (2, 5, 3, 300)]


def on_gpu(inputs: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    return {name: value.detach().to("cuda", dtype).requires_grad_() for name, value in inputs.items()}


def rounded(inputs: dict[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """What `dtype` holds of the inputs, in double precision."""
    return {name: value.detach().to(dtype).double().requires_grad_() for name, value in inputs.items()}


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("shape", SHAPES)
def test_selective_scan_is_the_reference(shape, dtype):
    inputs = scan_inputs(*shape)
    expected = values_and_gradients(rounded(inputs, dtype), "reference")
    assert_agree(values_and_gradients(on_gpu(inputs, dtype), "triton"), expected, TOLERANCES[dtype])


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("spans", [2, 7])
def test_selective_scan_in_spans_of_time_is_the_reference(spans, dtype):
    inputs = scan_inputs(3, 300, 33, 16)
    expected = values_and_gradients(rounded(inputs, dtype), "reference")
    in_spans = partial(selective_scan_in_spans, spans=spans)
    assert_agree(values_and_gradients(on_gpu(inputs, dtype), in_spans), expected, TOLERANCES[dtype])


def selective_scan_in_spans(spans: int, **inputs: Tensor) -> tuple[Tensor, Tensor]:
    from slotbench.ops._cuda.triton_selective_scan import selective_scan_triton

    return selective_scan_triton(**inputs, spans=spans)


def test_selective_scan_is_that_of_mamba_ssm():
    reason = available_kernels("selective_scan", "cuda")["mamba_ssm"]
    if reason is not None:
        pytest.skip(reason)
    inputs = on_gpu(scan_inputs(3, 40, 24, 16), torch.float32)
    assert_agree(values_and_gradients(inputs, "triton"), values_and_gradients(inputs, "mamba_ssm"), 1e-4)


def linear_results(inputs: dict[str, Tensor], kernel: str) -> dict[str, Tensor]:
    """Outputs and gradients as pairs of real numbers."""
    outputs = linear_scan(**inputs, kernel=kernel)
    loss = sum(torch.view_as_real(x).square().sum() for x in outputs)
    values = (*outputs, *torch.autograd.grad(loss, list(inputs.values())))
    named = zip(("states", "last", *inputs), values, strict=True)
    return {name: torch.view_as_real(value.resolve_conj()) for name, value in named}


@pytest.mark.parametrize("per_step", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 100, 16, 16), (3, 300, 6, 130), (2, 24, 256, 64)])
def test_linear_scan_is_the_reference(shape, per_step):
    batch, time, pixels, num_states = shape
    generator = torch.Generator().manual_seed(0)

    def normal(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=generator, dtype=torch.complex128)

    factor = normal(batch, time, num_states) if per_step else normal(num_states)
    inputs = {
        "drive": normal(batch, time, pixels, num_states),
        "decay": factor / (0.05 + factor.abs()),
        "state": normal(batch, pixels, num_states),
    }
    expected = linear_results({name: value.requires_grad_() for name, value in inputs.items()}, "reference")
    assert_agree(linear_results(on_gpu(inputs, torch.complex64), "triton"), expected, TOLERANCES[torch.float32])


def test_two_runs_give_the_same_bits():
    scan = on_gpu(scan_inputs(64, 50, 200, 16), torch.bfloat16)
    runs: list[Callable[[], dict[str, Tensor]]] = [
        lambda: values_and_gradients(scan, "triton"),
        lambda: values_and_gradients(scan, partial(selective_scan_in_spans, spans=3)),
    ]
    for run in runs:
        first, second = run(), run()
        assert all(torch.equal(first[name], second[name]) for name in first)


def test_offsets_past_32_bits_are_right():
    free, _ = torch.cuda.mem_get_info()
    if free < 30e9:
        pytest.skip("needs 30 GB of GPU memory")
    x = torch.randn(5, 2**14, 2**15, device="cuda", dtype=torch.float16)  # 2.7e9 numbers
    step, A = torch.zeros_like(x), -torch.ones(2**15, 1, device="cuda")
    step[:, -1] = 1
    B = torch.ones(5, 2**14, 1, device="cuda")
    y, _ = selective_scan(x, step, A, B, B, kernel="triton")
    assert torch.equal(y[-1, -1], x[-1, -1])


def test_torch_compile_takes_every_op_in_one_graph_whatever_the_number_of_steps():
    script = Path(triton_under_compile.__file__)
    done = subprocess.run([sys.executable, script, "cuda", "inductor"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
