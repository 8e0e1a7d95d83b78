from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scan_inputs import assert_agree, scan_inputs, values_and_gradients
from torch import Tensor

from slotbench.ops import selective_scan

FAST = ("torch", "numba")
EVERY = ("reference", *FAST)


def scan_by_hand(u, delta, A, B, C, D, z, state):
    """The equations with one Python loop per axis, for tensors small enough."""
    batch, time, dim = u.shape
    y, h = torch.zeros_like(u), state.clone()
    for b in range(batch):
        for t in range(time):
            for d in range(dim):
                h[b, d] = torch.exp(delta[b, t, d] * A[d]) * h[b, d] + delta[b, t, d] * B[b, t] * u[b, t, d]
                gate = z[b, t, d] / (1 + torch.exp(-z[b, t, d]))
                y[b, t, d] = ((C[b, t] * h[b, d]).sum() + D[d] * u[b, t, d]) * gate
    return y, h


@pytest.mark.parametrize("kernel", EVERY)
def test_computes_the_equations(kernel):
    inputs = {name: value.detach() for name, value in scan_inputs(2, 5, 3, 4).items()}
    y, last = selective_scan(**inputs, kernel=kernel)
    expected_y, expected_last = scan_by_hand(**inputs)
    torch.testing.assert_close(y, expected_y, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(last, expected_last, rtol=1e-10, atol=1e-12)


# dim beyond one block of lanes, time beyond one chunk, batch beyond the groups of the sums
@given(
    batch=st.integers(1, 40),
    time=st.integers(1, 35),
    dim=st.integers(1, 140),  # past the 128 channels of a block
    num_states=st.integers(1, 17),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=15)
def test_kernels_agree_with_the_reference_in_value_and_every_gradient(batch, time, dim, num_states, seed):
    inputs = scan_inputs(batch, time, dim, num_states, seed=seed)
    expected = values_and_gradients(inputs, "reference")
    for kernel in FAST:
        assert_agree(values_and_gradients(inputs, kernel), expected, 1e-9)


@given(
    batch=st.integers(1, 35),
    time=st.integers(1, 20),
    dim=st.integers(1, 140),
    num_states=st.integers(1, 6),
    offset=st.integers(0, 3),
    slots_inside=st.booleans(),
)
@settings(max_examples=15)
def test_parts_of_projections_are_read_where_they_lie(batch, time, dim, num_states, offset, slots_inside):
    def clip(channels: int) -> Tensor:
        shape = (time, batch, channels) if slots_inside else (batch, time, channels)
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    generator = torch.Generator().manual_seed(5)
    wide, maps = clip(2 * dim + offset), clip(2 * num_states + offset)
    rest = scan_inputs(batch, time, dim, num_states)

    def of(kernel: str, copies: bool) -> list[Tensor]:
        halves, both = (x.transpose(0, 1) if slots_inside else x for x in (wide, maps))
        parts = (halves[..., :dim], halves[..., dim + offset :], *both[..., offset:].split(num_states, -1))
        u, z, B, C = (x.clone() if copies else x for x in parts)
        y, last = selective_scan(u, rest["delta"], rest["A"], B, C, rest["D"], z, rest["state"], kernel=kernel)
        leaves = [wide, maps, rest["delta"], rest["A"], rest["state"]]
        return [y, last, *torch.autograd.grad(y.sin().sum() + last.sin().sum(), leaves)]

    for actual, expected in zip(of("numba", False), of("reference", True), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)


def test_numba_gives_the_same_bits_on_any_number_of_threads():
    inputs = scan_inputs(48, 16, 130, 16, dtype=torch.float32)  # large enough to be shared out
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected = values_and_gradients(inputs, "numba")
        torch.set_num_threads(3)
        actual = values_and_gradients(inputs, "numba")
    finally:
        torch.set_num_threads(threads)
    for name, value in expected.items():
        assert torch.equal(actual[name], value), name


def zero_start_scan(u, delta, A, B, C):
    """What mamba-ssm's function computes: axes "batch dim time", h_0 = 0, no last state."""
    y, _ = selective_scan(*(x.transpose(1, 2) for x in (u, delta)), A, B.mT, C.mT, kernel="reference")
    return y.mT


@pytest.mark.parametrize("with_state", [True, False])
def test_the_mamba_ssm_kernel_carries_both_states_through_a_function_that_knows_none(monkeypatch, with_state):
    from slotbench.ops import _selective_scan_mamba_ssm as module

    monkeypatch.setattr(module, "mamba_ssm_scan", lambda: zero_start_scan)
    inputs = {name: value for name, value in scan_inputs(3, 11, 5, 4).items() if name not in ("D", "z")}
    if not with_state:
        del inputs["state"]

    def through_the_package(state: Tensor | None = None, **others: Tensor) -> tuple[Tensor, Tensor]:
        return module.selective_scan_mamba_ssm(**others, state=state)

    assert_agree(values_and_gradients(inputs, through_the_package), values_and_gradients(inputs, "reference"), 1e-9)


@pytest.mark.gpu
@pytest.mark.parametrize("kernel", ["torch", "mamba_ssm"])
def test_kernels_on_cuda_agree_with_the_reference_on_the_cpu(kernel):
    from slotbench.ops import available_kernels

    reason = available_kernels("selective_scan", "cuda")[kernel]
    if reason is not None:
        pytest.skip(reason)
    expected = values_and_gradients(scan_inputs(3, 40, 24, 16), "reference")
    inputs = {n: x.detach().float().cuda().requires_grad_() for n, x in scan_inputs(3, 40, 24, 16).items()}
    assert_agree(values_and_gradients(inputs, kernel), expected, 1e-4)
