"""What the two scans of state space models have in common, `selective_scan` and `ssd`, with each of their kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from scan_inputs import assert_agree, scan_inputs, ssd_inputs, values_and_gradients, without
from torch import Tensor

from slotbench.ops import selective_scan, ssd

FAST = ("torch", "numba")
EVERY = ("reference", *FAST)


class Scan(NamedTuple):
    """A scan, and what makes its inputs from (batch, time)."""

    op: Callable[..., tuple[Tensor, Tensor]]
    inputs: Callable[..., dict[str, Tensor]]

    def results(self, inputs: dict[str, Tensor], kernel: str, **options: bool) -> dict[str, Tensor]:
        return values_and_gradients(inputs, lambda **x: self.op(**x, kernel=kernel, **options))


SCANS = pytest.mark.parametrize(
    "scan", [Scan(selective_scan, scan_inputs), Scan(ssd, ssd_inputs)], ids=["selective_scan", "ssd"]
)


@SCANS
@pytest.mark.parametrize("kernel", FAST)
@pytest.mark.parametrize("left_out", [("D",), ("z",), ("state",), ("D", "z", "state")])
def test_optional_inputs_can_be_left_out(scan, left_out, kernel):
    given = scan.inputs(2, 40)
    inputs = without(given, *left_out)
    assert_agree(scan.results(inputs, kernel), scan.results(inputs, "reference"), 1e-9)
    if "state" in left_out:
        zeros = {**inputs, "state": torch.zeros_like(given["state"])}
        assert torch.equal(scan.op(**inputs, kernel=kernel)[0], scan.op(**zeros, kernel=kernel)[0])


@SCANS
@pytest.mark.parametrize("kernel", FAST)
def test_the_fast_kernels_pass_gradcheck(scan, kernel):
    sizes = {"dim": 2, "num_states": 2} if scan.op is selective_scan else {"heads": 2, "head_dim": 1, "groups": 1}
    inputs = scan.inputs(1, 34, **sizes)  # longer than a chunk
    assert torch.autograd.gradcheck(lambda *x: scan.op(*x, kernel=kernel), tuple(inputs.values()))


@SCANS
def test_the_exact_hold_differs_and_has_the_reference_gradients(scan):
    inputs = scan.inputs(2, 40)
    expected = scan.results(inputs, "reference", exact_zoh=True)
    for kernel in ("torch",):
        exact = scan.results(inputs, kernel, exact_zoh=True)
        assert_agree(exact, expected, 1e-9)
        assert not torch.allclose(exact["y"], scan.results(inputs, kernel)["y"])


@SCANS
@pytest.mark.parametrize("kernel", EVERY)
def test_float32_is_near_float64(scan, kernel):
    expected = scan.results(scan.inputs(4, 150, num_states=16), "reference")
    assert_agree(scan.results(scan.inputs(4, 150, num_states=16, dtype=torch.float32), kernel), expected, 1e-5)


@SCANS
@pytest.mark.parametrize("kernel", EVERY)
@pytest.mark.parametrize("cuts", [range(1, 40), [1], [7, 8], [31, 33], [32]])
def test_a_clip_in_pieces_equals_the_whole_with_its_gradients(scan, kernel, cuts):
    inputs = scan.inputs(2, 40)

    def in_pieces(state: Tensor, A: Tensor, D: Tensor, **in_time: Tensor) -> tuple[Tensor, Tensor]:
        ys = []
        for begin, end in zip([0, *cuts], [*cuts, 40], strict=True):
            piece = {name: value[:, begin:end] for name, value in in_time.items()}
            y, state = scan.op(A=A, D=D, state=state, kernel=kernel, **piece)
            ys.append(y)
        return torch.cat(ys, dim=1), state

    assert_agree(values_and_gradients(inputs, in_pieces), scan.results(inputs, kernel), 1e-9)


@SCANS
@pytest.mark.parametrize("kernel", EVERY)
def test_the_gradient_of_the_returned_state_alone_reaches_the_inputs(scan, kernel):
    inputs = scan.inputs(2, 6)
    _, last = scan.op(**inputs, kernel=kernel)
    reached = without(inputs, "C", "D", "z")
    for name, gradient in zip(reached, torch.autograd.grad(last.sum(), list(reached.values())), strict=True):
        assert gradient.abs().max() > 0, name


@SCANS
@pytest.mark.parametrize("kernel", EVERY)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_inputs_are_computed_in_float32(scan, kernel, dtype):
    inputs = {name: value.detach().to(dtype) for name, value in scan.inputs(2, 12).items()}
    y, last = scan.op(**inputs, kernel=kernel)
    expected, expected_last = scan.op(**{n: x.float() for n, x in inputs.items()}, kernel="reference")
    assert y.dtype == dtype
    assert last.dtype == torch.float32
    torch.testing.assert_close(y, expected.to(dtype), rtol=1e-2, atol=1e-4)
    torch.testing.assert_close(last, expected_last, rtol=1e-4, atol=1e-5)


@SCANS
@pytest.mark.parametrize("kernel", EVERY)
def test_autocast_changes_nothing(scan, kernel):
    inputs = scan.inputs(2, 40, dtype=torch.float32)

    def under_autocast(**x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return scan.op(**x, kernel=kernel)

    assert_agree(values_and_gradients(inputs, under_autocast), scan.results(inputs, kernel), 1e-6)


@SCANS
@pytest.mark.parametrize("kernel", FAST)
def test_autocast_around_the_backward_pass_changes_nothing(scan, kernel):
    inputs = scan.inputs(2, 40, dtype=torch.float32)
    expected = scan.results(inputs, kernel)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_agree(scan.results(inputs, kernel), expected, 1e-6)


@SCANS
@pytest.mark.parametrize("kernel", FAST)
def test_inputs_may_be_views_with_any_strides(scan, kernel):
    inputs = scan.inputs(3, 40)
    strided = {
        name: value.detach().transpose(0, -1).contiguous().transpose(0, -1).requires_grad_()
        for name, value in inputs.items()
    }
    assert_agree(scan.results(strided, kernel), scan.results(inputs, kernel), 1e-12)
