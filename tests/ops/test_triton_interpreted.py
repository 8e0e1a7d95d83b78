"""The Triton kernels, run step by step in Python by Triton's interpreter: values and gradients, without a GPU.

Left out without Triton or without its flag; `nox -s triton` has both. No bfloat16: the interpreter's is wrong.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import triton_under_compile
from hypothesis import given, settings
from hypothesis import strategies as st
from scan_inputs import NAMES, assert_agree, linear_scan_inputs, scan_inputs, values_and_gradients, without
from torch import Tensor

from slotbench.ops import available_kernels, linear_scan, selective_scan
from slotbench.ops.dispatch import automatic_kernel

if find_spec("triton") is None or os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs triton and TRITON_INTERPRET=1: nox -s triton", allow_module_level=True)

FLOAT32 = 1e-5  # relative, of values and of every gradient
DECAYS = ("state", "time state", "batch time state")


def single(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same numbers in single precision."""
    dtypes = {torch.float64: torch.float32, torch.complex128: torch.complex64}
    return {name: value.detach().to(dtypes[value.dtype]).requires_grad_() for name, value in inputs.items()}


def outputs_and_gradients(op: Callable[..., tuple[Tensor, ...]], inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Outputs of `op`, and the gradient of a linear function of all of them for every input."""
    outputs = op(**inputs)
    weights = [torch.cos(torch.arange(x.numel(), dtype=torch.float64)).view(x.shape).to(x) for x in outputs]
    gradients = torch.autograd.grad(outputs, list(inputs.values()), weights, allow_unused=True, materialize_grads=True)
    named = {f"output {index}": value for index, value in enumerate(outputs)}
    return named | {f"grad {name}": value for name, value in zip(inputs, gradients, strict=True)}


# dim past a block of channels, time past two chunks of steps, states that are no power of two
@pytest.mark.parametrize(
    ("batch", "time", "dim", "num_states"), [(1, 1, 1, 1), (2, 1, 5, 4), (2, 19, 20, 16), (1, 33, 35, 8), (2, 5, 3, 70)]
)
def test_selective_scan_is_the_reference(batch, time, dim, num_states):
    inputs = scan_inputs(batch, time, dim, num_states)
    assert_agree(values_and_gradients(single(inputs), "triton"), values_and_gradients(inputs, "reference"), FLOAT32)


def in_spans(spans: int, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Values and gradients by Triton, chunks of four steps being enough of them for short clips."""
    from slotbench.ops._cuda import triton_selective_scan

    def scan(**given: Tensor) -> tuple[Tensor, Tensor]:
        left_out = dict.fromkeys(("D", "z", "state"))
        return triton_selective_scan.selective_scan_triton(**(left_out | given), spans=spans)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triton_selective_scan, "_CHUNK", 4)
        return values_and_gradients(inputs, scan)


# spans of one chunk and of several; the last one shorter; more spans than chunks; less than a chunk
@pytest.mark.parametrize(("time", "spans"), [(1, 4), (3, 2), (4, 3), (5, 2), (12, 3), (13, 2), (18, 4), (9, 100)])
def test_selective_scan_in_spans_of_time_is_the_reference(time, spans):
    inputs = scan_inputs(2, time, 5, 3)
    assert_agree(in_spans(spans, single(inputs)), values_and_gradients(inputs, "reference"), FLOAT32)


@given(
    sizes=st.tuples(*(st.integers(1, most) for most in (2, 20, 18, 9))),
    spans=st.integers(1, 6),
    left_out=st.sets(st.sampled_from(["D", "z", "state"])),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=10)
def test_selective_scan_in_spans_of_any_shape_is_the_reference(sizes, spans, left_out, seed):
    inputs = without(scan_inputs(*sizes, seed=seed), *left_out)
    assert_agree(in_spans(spans, single(inputs)), values_and_gradients(inputs, "reference"), FLOAT32)


def test_selective_scan_cuts_time_into_the_spans_that_fill_the_device(monkeypatch):
    from slotbench.ops._cuda import launching, triton_selective_scan

    monkeypatch.setattr(triton_selective_scan, "multiprocessors", lambda device: 1)
    monkeypatch.setattr(launching, "_FEWEST_STEPS", 4)
    inputs = single(scan_inputs(1, 14, 5, 3))
    chosen, three, one = (in_spans(spans, inputs) for spans in (0, 3, 1))
    assert all(torch.equal(chosen[name], value) for name, value in three.items())
    assert not all(torch.equal(chosen[name], value) for name, value in one.items())


def test_selective_scan_of_half_inputs_is_computed_in_float32():
    inputs = scan_inputs(2, 17, 5, 4)
    kept = {"A", "D", "state"}  # parameters and states are float32 beside half activations
    mixed = {
        name: value.detach().to(torch.float32 if name in kept else torch.float16) for name, value in inputs.items()
    }
    exact = {name: value.double().requires_grad_() for name, value in mixed.items()}
    actual = values_and_gradients({name: value.requires_grad_() for name, value in mixed.items()}, "triton")
    expected = values_and_gradients(exact, "reference")
    assert actual["y"].dtype == torch.float16
    assert {actual[f"grad {name}"].dtype for name in kept} == {actual["last state"].dtype} == {torch.float32}
    assert_agree({"last": actual["last state"]}, {"last": expected["last state"]}, FLOAT32)
    assert_agree(actual, expected, 1e-3)  # the rounding of float16 is 2^-11


@pytest.mark.parametrize("cuts", [[1], [7, 8], [16]])
def test_selective_scan_of_a_clip_in_pieces_is_that_of_the_whole(cuts):
    inputs = single(scan_inputs(2, 20, 5, 3))

    def in_pieces(state: Tensor, A: Tensor, D: Tensor, **in_time: Tensor) -> tuple[Tensor, Tensor]:
        ys = []
        for begin, end in zip([0, *cuts], [*cuts, 20], strict=True):
            piece = {name: value[:, begin:end] for name, value in in_time.items()}
            y, state = selective_scan(A=A, D=D, state=state, kernel="triton", **piece)
            ys.append(y)
        return torch.cat(ys, dim=1), state

    assert_agree(values_and_gradients(inputs, in_pieces), values_and_gradients(inputs, "triton"), 1e-6)


def test_the_gradient_of_the_last_state_alone_reaches_the_inputs_and_that_of_the_outputs_alone_too():
    inputs = scan_inputs(2, 6, 3, 4)
    for index, names in enumerate([NAMES, [name for name in NAMES if name not in ("C", "D", "z")]]):
        results = [
            torch.autograd.grad(selective_scan(**given, kernel=kernel)[index].sum(), [given[name] for name in names])
            for given, kernel in ((single(inputs), "triton"), (inputs, "reference"))
        ]
        for actual, expected in zip(*results, strict=True):
            torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=1e-5)


def test_selective_scan_reads_parts_of_a_projection_where_they_lie_and_any_other_strides():
    inputs = single(scan_inputs(2, 5, 4, 4))
    expected = values_and_gradients(inputs, "triton")
    joined = torch.cat([inputs[name].detach() for name in ("u", "z", "B", "C")], dim=-1)
    parts = dict(zip(("u", "z", "B", "C"), joined.split(4, dim=-1), strict=True))
    assert not parts["z"].is_contiguous()
    strided = {name: value.detach().mT.contiguous().mT for name, value in inputs.items() if value.ndim > 1}
    for views in (parts, strided):
        given = inputs | {name: value.detach().requires_grad_() for name, value in views.items()}
        actual = values_and_gradients(given, "triton")
        assert all(torch.equal(actual[name], value) for name, value in expected.items())


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize(
    ("batch", "time", "space", "num_states"), [(1, 1, (), 1), (2, 5, (2, 3), 4), (2, 9, (5, 9), 7), (3, 2, (3,), 130)]
)
def test_linear_scan_is_the_reference(batch, time, space, num_states, decay):
    inputs = linear_scan_inputs(batch, time, space, num_states, decay=decay)
    for case in (inputs, without(inputs, "state")):
        results = [
            outputs_and_gradients(lambda k=kernel, **x: linear_scan(**x, kernel=k), given)
            for given, kernel in ((single(case), "triton"), (case, "reference"))
        ]
        assert_agree_complex(*results)


def test_linear_scan_takes_conjugates_and_any_strides():
    inputs = single(linear_scan_inputs(2, 5, (3,), 4, decay="batch time state"))
    plain = {name: value.detach().conj_physical().requires_grad_() for name, value in inputs.items()}
    expected = outputs_and_gradients(lambda **x: linear_scan(**x, kernel="triton"), plain)

    def of_views(**x: Tensor) -> tuple[Tensor, Tensor]:
        views = {n: v.transpose(0, -1).contiguous().transpose(0, -1).conj() for n, v in x.items()}
        return linear_scan(**views, kernel="triton")

    actual = outputs_and_gradients(of_views, inputs)
    for name, value in expected.items():
        assert torch.equal(actual[name], value.conj() if name.startswith("grad") else value), name


def assert_agree_complex(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    def real(values: dict[str, Tensor]) -> dict[str, Tensor]:
        return {name: torch.view_as_real(value.detach().resolve_conj()) for name, value in values.items()}

    assert all(actual[name].shape == value.shape for name, value in expected.items())
    assert_agree(real(actual), real(expected), FLOAT32)


def test_torch_compile_takes_every_op_in_one_graph_whatever_the_number_of_steps():
    script = Path(triton_under_compile.__file__)
    done = subprocess.run([sys.executable, script, "cpu", "aot_eager"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    ops = ("selective_scan", "linear_scan")
    assert done.stdout.splitlines() == [f"{op} in one graph" for op in ops]


def test_the_ops_are_what_torch_library_asks_for():
    from slotbench.ops._cuda import triton_linear_scan, triton_selective_scan

    u, delta, A, B, C, D, z, state = single(scan_inputs(2, 3, 3, 4)).values()
    torch.library.opcheck(triton_selective_scan._scan, (u, delta, A, B, C, D, z, state, True, 0))
    torch.library.opcheck(triton_selective_scan._scan, (u, delta, A, B, C, None, None, None, True, 2))
    drive, decay, first = single(linear_scan_inputs(2, 3, (3,), 4)).values()
    decay = decay.detach()[None, None].requires_grad_()
    torch.library.opcheck(triton_linear_scan._scan, (drive, decay, first))


def test_the_interpreter_is_offered_by_name_and_never_taken_by_itself():
    assert available_kernels("selective_scan", "cpu")["triton"] is None
    assert automatic_kernel("selective_scan", "cpu")[0] != "triton"
