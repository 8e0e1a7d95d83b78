from __future__ import annotations

from importlib import import_module

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scan_inputs import assert_agree, ssd_inputs, values_and_gradients
from torch import Tensor

from slotbench.ops import available_kernels, chosen_kernels, dispatch, selective_scan, ssd

EVERY = ("reference", "torch", "numba")
FAST = ("torch", "numba")


def results(inputs: dict[str, Tensor], kernel: str, **options: bool) -> dict[str, Tensor]:
    return values_and_gradients(inputs, lambda **x: ssd(**x, kernel=kernel, **options))


def scan_by_hand(x, delta, A, B, C, D, state):
    """The equations with one Python loop per axis, for tensors small enough."""
    batch, time, heads, head_dim = x.shape
    y, h = torch.zeros_like(x), state.clone()
    for b in range(batch):
        for t in range(time):
            for head in range(heads):
                group = head // (heads // B.shape[2])
                decay = torch.exp(delta[b, t, head] * A[head])
                for p in range(head_dim):
                    drive = delta[b, t, head] * x[b, t, head, p] * B[b, t, group]
                    h[b, head, p] = decay * h[b, head, p] + drive
                    y[b, t, head, p] = (C[b, t, group] * h[b, head, p]).sum() + D[head] * x[b, t, head, p]
    return y, h


@pytest.mark.parametrize("kernel", EVERY)
def test_computes_the_equations(kernel):
    inputs = {name: value.detach() for name, value in ssd_inputs(2, 5).items()}
    y, last = ssd(**inputs, kernel=kernel)
    expected_y, expected_last = scan_by_hand(**inputs)
    torch.testing.assert_close(y, expected_y, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(last, expected_last, rtol=1e-10, atol=1e-12)


@given(
    batch=st.integers(1, 4),
    time=st.integers(1, 100),  # up to three chunks and a part of one
    groups=st.integers(1, 3),
    heads_per_group=st.integers(1, 3),
    head_dim=st.integers(1, 9),
    num_states=st.integers(1, 17),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=15)
def test_kernels_agree_with_the_reference_in_value_and_every_gradient(
    batch, time, groups, heads_per_group, head_dim, num_states, seed
):
    inputs = ssd_inputs(batch, time, groups * heads_per_group, head_dim, groups, num_states, seed=seed)
    expected = results(inputs, "reference")
    for kernel in FAST:
        assert_agree(results(inputs, kernel), expected, 1e-10)


@pytest.mark.parametrize("chunk", [1, 2, 7, 64])
def test_the_length_of_a_chunk_does_not_matter(monkeypatch, chunk):
    inputs = ssd_inputs(2, 20)
    expected = results(inputs, "torch")
    monkeypatch.setattr("slotbench.ops._ssd_torch._CHUNK", chunk)
    assert_agree(results(inputs, "torch"), expected, 1e-9)


@pytest.mark.parametrize("kernel", EVERY)
def test_one_channel_per_head_is_the_selective_scan_with_one_rate_per_channel(kernel):
    heads, num_states = 6, 4
    inputs = ssd_inputs(2, 40, heads, 1, 1, num_states)

    def as_selective_scan(x, delta, A, B, C, D, state):
        y, last = selective_scan(
            x[..., 0], delta, A[:, None].expand(heads, num_states), B[:, :, 0], C[:, :, 0], D, None, state[:, :, 0]
        )
        return y[..., None], last[:, :, None]

    assert_agree(results(inputs, kernel), values_and_gradients(inputs, as_selective_scan), 1e-9)


@pytest.mark.parametrize("kernel", ["reference", "torch"])
def test_the_exact_hold_of_a_constant_input_ends_where_the_differential_equation_does(kernel):
    """h' = A h + B x from 0 with constant x is (exp(A t) - 1) / A B x, however the time is cut into steps."""
    time, A = 50, torch.tensor([-0.7], dtype=torch.float64)
    ones = torch.ones(1, time, 1, 1, dtype=torch.float64)
    delta = torch.linspace(0.01, 0.2, time, dtype=torch.float64).view(1, time, 1)
    _, last = ssd(ones, delta, A, ones, ones, exact_zoh=True, kernel=kernel)
    torch.testing.assert_close(last.flatten(), torch.expm1(A * delta.sum()) / A)


@pytest.mark.parametrize("kernel", EVERY)
def test_small_steps_after_huge_ones_keep_their_precision(kernel):
    """The sum of the exponents of a chunk is huge; what separates two of its later steps is small."""
    inputs = {name: value.detach() for name, value in ssd_inputs(2, 30).items()}
    inputs["delta"][:, :10] = 1e4
    single = {name: value.float() for name, value in inputs.items()}
    torch.testing.assert_close(
        ssd(**single, kernel=kernel)[1], ssd(**inputs, kernel="reference")[1].float(), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(("kernel", "time", "expected"), [("auto", 32, 0), ("auto", 33, 1), ("mamba_ssm", 2, 1)])
def test_auto_leaves_short_clips_to_matrix_products_where_mamba_ssm_is_installed(monkeypatch, kernel, time, expected):
    def stand_in(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        calls.append(inputs)
        return inputs[0], inputs[-1]

    calls: list[tuple[Tensor, ...]] = []
    monkeypatch.setattr(dispatch, "_why_not", lambda op, kernel, device: None)
    monkeypatch.setitem(dispatch._PREFERENCE, "cpu", dispatch._PREFERENCE["cuda"])
    monkeypatch.setattr(dispatch, "_chosen", {})
    monkeypatch.setattr(import_module("slotbench.ops.ssd"), "ssd_mamba_ssm", stand_in)
    ssd(**ssd_inputs(1, time, dtype=torch.float32), kernel=kernel)
    assert len(calls) == expected
    assert chosen_kernels() == {"ssd": "mamba_ssm" if expected else "torch"}


@pytest.mark.gpu
@pytest.mark.parametrize(("kernel", "tolerance"), [("torch", 1e-4), ("mamba_ssm", 5e-3)])  # the second computes in TF32
@pytest.mark.parametrize("time", [1, 40, 150])
def test_kernels_on_cuda_agree_with_the_reference_on_the_cpu(kernel, tolerance, time):
    reason = available_kernels("ssd", "cuda")[kernel]
    if reason is not None:
        pytest.skip(reason)
    expected = results(ssd_inputs(3, time, 4, 20, 2, 16), "reference")
    inputs = {n: x.detach().float().cuda().requires_grad_() for n, x in ssd_inputs(3, time, 4, 20, 2, 16).items()}
    assert_agree(results(inputs, kernel), expected, tolerance)
