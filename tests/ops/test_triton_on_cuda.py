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

from slotbench.nn.inverted_attention import InvertedAttention
from slotbench.ops import available_kernels, chosen_kernels, dispatch, linear_scan, selective_scan
from slotbench.ops.inverted_attention.competition import Competition
from slotbench.ops.inverted_attention.fused import fused_sums
from slotbench.ops.inverted_attention.streamed import streamed_sums
from slotbench.registry import load

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


ATTENTIONS = {
    "all sizes 1": ((1, 1, 1, 1, 1, 1), {}),
    "a frame": ((4, 1, 1, 11, 5000, 64), {}),
    "heads of their own": ((2, 1, 4, 11, 300, 100), {"across_heads": False}),
    "most slots": ((2, 1, 1, 32, 1000, 256), {}),
    "widest tokens": ((2, 1, 1, 16, 200, 512), {}),
    "most numbers": ((2, 3, 4, 11, 64, 192), {"causal": True}),
    "a clip": ((2, 6, 4, 7, 50, 96), {"causal": True, "window": 3}),
    "both ways": ((2, 3, 1, 11, 64, 192), {}),
}


def attended(inputs: dict[str, Tensor], competition: Competition, sums: Callable[..., tuple[Tensor, ...]]):
    outputs = sums(*inputs.values(), *([None] if len(inputs) == 3 else []), competition, 1e-2, True)
    weights = [torch.cos(torch.arange(x.numel(), dtype=torch.float64)).view(x.shape).to(x) for x in outputs]
    gradients = torch.autograd.grad(outputs, list(inputs.values()), weights)
    return dict(zip(("values", "mass", "shares", *inputs), (*outputs, *gradients), strict=True))


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("case", ATTENTIONS)
def test_inverted_attention_is_the_reference(case, dtype):
    (batch, time, heads, slots, num_tokens, dim), settings = ATTENTIONS[case]
    generator = torch.Generator().manual_seed(0)
    shapes = {"query": (heads, slots, dim), "bias": (heads, slots, 1), "tokens": (num_tokens, dim)}
    inputs = {n: torch.randn(batch, time, *s, generator=generator, dtype=torch.float64) for n, s in shapes.items()}
    inputs["query"] /= dim**0.5
    if heads > 1 and settings.get("across_heads", True):
        inputs["time_bias"] = torch.randn(heads, time, time, generator=generator, dtype=torch.float64)
    competition = Competition(**{"across_heads": True, **settings})
    inputs["tokens"] = inputs["tokens"].to(dtype).double()
    expected = attended({name: value.requires_grad_() for name, value in inputs.items()}, competition, streamed_sums)
    dtypes = dict.fromkeys(inputs, torch.float32) | {"tokens": dtype}
    on_device = {name: value.detach().to("cuda", dtypes[name]).requires_grad_() for name, value in inputs.items()}
    found = attended(on_device, competition, fused_sums)
    assert_agree({"tokens": found.pop("tokens")}, {"tokens": expected.pop("tokens")}, TOLERANCES[dtype])
    assert_agree(found, expected, TOLERANCES[torch.float32])


def test_a_fused_attention_keeps_less_than_a_third_of_what_the_reference_keeps():
    attention = InvertedAttention(64, aggregation=load("aggregations", "WeightedMean")(64), bias=False).cuda()
    slots, tokens = torch.randn(8, 11, 64, device="cuda"), torch.randn(8, 16384, 64, device="cuda")
    tokens.requires_grad_()
    peak = {}
    for attention.kernel in ("triton", "reference"):
        for _ in range(2):
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            torch.autograd.grad(attention(slots, tokens, shares=False).updates.sum(), tokens)
            peak[attention.kernel] = torch.cuda.max_memory_allocated() - before
    assert peak["triton"] <= 0.3 * peak["reference"], peak


def test_auto_takes_the_fused_attention_for_many_weights(monkeypatch):
    monkeypatch.setattr(dispatch, "_chosen", {})
    attention = InvertedAttention(64, aggregation=load("aggregations", "WeightedMean")(64)).cuda()
    attention(torch.randn(8, 11, 64, device="cuda"), torch.randn(8, 16384, 64, device="cuda"))
    assert chosen_kernels() == {"inverted_attention": "triton"}


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
