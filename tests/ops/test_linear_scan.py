from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scan_inputs import assert_agree, linear_scan_inputs, values_and_gradients, without
from torch import Tensor

from slotbench.ops import available_kernels, chosen_kernels, dispatch, linear_scan

FAST = ("torch", "numba")
EVERY = ("reference", *FAST)
DECAYS = ("state", "time state", "batch time state")


def results(inputs: dict[str, Tensor], kernel: str) -> dict[str, Tensor]:
    return values_and_gradients(inputs, partial(linear_scan, kernel=kernel))


@pytest.mark.parametrize("kernel", EVERY)
@pytest.mark.parametrize("decay", DECAYS)
def test_computes_the_recurrence(kernel, decay):
    inputs = {name: value.detach() for name, value in linear_scan_inputs(decay=decay).items()}
    states, last = linear_scan(**inputs, kernel=kernel)
    batch, time, rows, cols, num_states = inputs["drive"].shape
    factor = inputs["decay"].expand(batch, time, num_states)
    for b, r, c, n in torch.cartesian_prod(*map(torch.arange, (batch, rows, cols, num_states))).tolist():
        h = complex(inputs["state"][b, r, c, n])
        for t in range(time):
            h = complex(factor[b, t, n]) * h + complex(inputs["drive"][b, t, r, c, n])
            assert complex(states[b, t, r, c, n]) == pytest.approx(h, rel=1e-12, abs=1e-12)
        assert complex(last[b, r, c, n]) == pytest.approx(h, rel=1e-12, abs=1e-12)


@given(
    batch=st.integers(1, 4),
    time=st.integers(1, 40),
    space=st.lists(st.integers(1, 9), max_size=2).map(tuple),  # up to 81 pixels: past the blocks of the compiled kernel
    num_states=st.integers(1, 130),
    decay=st.sampled_from(DECAYS),
    with_state=st.booleans(),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=25)
def test_kernels_agree_with_the_reference_in_value_and_every_gradient(
    batch, time, space, num_states, decay, with_state, seed
):
    inputs = linear_scan_inputs(batch, time, space, num_states, decay=decay, seed=seed)
    if not with_state:
        inputs = without(inputs, "state")
    expected = results(inputs, "reference")
    for kernel in FAST:
        assert_agree(results(inputs, kernel), expected, 1e-10)


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("time", [1, 2, 3, 7, 64, 300])
def test_kernels_agree_at_every_length_from_a_zero_and_from_a_random_state(time, batch, decay):
    inputs = linear_scan_inputs(batch, time, (2, 2), 8, decay=decay)
    for case in (inputs, without(inputs, "state")):
        expected = results(case, "reference")
        for kernel in FAST:
            actual = results(case, kernel)
            assert (actual["y"] - expected["y"]).abs().max() < 1e-10
            assert_agree(actual, expected, 1e-10)


@pytest.mark.parametrize("kernel", FAST)
@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("time", [1, 4])
def test_gradients_pass_gradcheck(kernel, decay, time):
    inputs = linear_scan_inputs(2, time, (2,), 2, decay=decay)
    assert torch.autograd.gradcheck(lambda *x: linear_scan(*x, kernel=kernel), tuple(inputs.values()))


@pytest.mark.parametrize("kernel", EVERY)
@pytest.mark.parametrize("cuts", [range(1, 20), [1], [7, 8], [16]])
def test_a_clip_in_pieces_equals_the_whole_with_its_gradients(kernel, cuts):
    inputs = linear_scan_inputs(2, 20, (3,), 5, decay="batch time state")

    def in_pieces(drive: Tensor, decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        pieces = []
        for begin, end in zip([0, *cuts], [*cuts, 20], strict=True):
            states, state = linear_scan(drive[:, begin:end], decay[:, begin:end], state, kernel=kernel)
            pieces.append(states)
        return torch.cat(pieces, dim=1), state

    assert_agree(values_and_gradients(inputs, in_pieces), results(inputs, kernel), 1e-10)


@pytest.mark.parametrize("kernel", EVERY)
@pytest.mark.parametrize("decay", DECAYS)
def test_the_gradient_of_the_returned_state_alone_reaches_every_input(kernel, decay):
    inputs = linear_scan_inputs(decay=decay)
    _, last = linear_scan(**inputs, kernel=kernel)
    for name, gradient in zip(inputs, torch.autograd.grad(last.abs().sum(), list(inputs.values())), strict=True):
        assert gradient.abs().max() > 0, name


@pytest.mark.parametrize("kernel", EVERY)
def test_complex64_is_near_complex128(kernel):
    for decay in DECAYS:
        expected = results(linear_scan_inputs(2, 300, (4, 4), 16, decay=decay), "reference")
        inputs = linear_scan_inputs(2, 300, (4, 4), 16, decay=decay, dtype=torch.complex64)
        actual = results(inputs, kernel)
        assert {value.dtype for value in actual.values()} == {torch.complex64}
        assert_agree(actual, expected, 1e-5)


@pytest.mark.parametrize("kernel", EVERY)
def test_autocast_changes_nothing(kernel):
    inputs = linear_scan_inputs(dtype=torch.complex64)

    def under_autocast(**x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return linear_scan(**x, kernel=kernel)

    assert_agree(values_and_gradients(inputs, under_autocast), results(inputs, kernel), 0.0)


@pytest.mark.parametrize("kernel", FAST)
def test_inputs_may_be_views_with_any_strides_and_conjugates(kernel):
    inputs = linear_scan_inputs(decay="batch time state")
    expected = results(
        {name: value.detach().conj_physical().requires_grad_() for name, value in inputs.items()}, kernel
    )

    def of_views(**x: Tensor) -> tuple[Tensor, Tensor]:
        return linear_scan(
            **{n: v.transpose(0, -1).contiguous().transpose(0, -1).conj() for n, v in x.items()}, kernel=kernel
        )

    actual = values_and_gradients(inputs, of_views)
    for name in ("y", "last state"):
        torch.testing.assert_close(actual[name], expected[name])
    for name in inputs:
        torch.testing.assert_close(actual[f"grad {name}"], expected[f"grad {name}"].conj_physical())


@pytest.mark.parametrize("kernel", EVERY)
def test_takes_a_channels_last_convolution_as_complex_without_a_copy(kernel):
    images = torch.randn(2 * 5, 2 * 3, 4, 4).to(memory_format=torch.channels_last)
    real = images.permute(0, 2, 3, 1).view(2, 5, 4, 4, 3, 2).requires_grad_()
    drive = torch.view_as_complex(real)
    assert drive.data_ptr() == images.data_ptr()
    inputs = linear_scan_inputs(2, 5, (4, 4), 3, dtype=torch.complex64)
    states, _ = linear_scan(drive, inputs["decay"], kernel=kernel)
    (gradient,) = torch.autograd.grad(torch.view_as_real(states).square().sum(), real)
    assert gradient.shape == real.shape
    torch.testing.assert_close(gradient[:, -1], 2 * torch.view_as_real(states)[:, -1])


def test_numba_gives_the_same_bits_on_any_number_of_threads():
    cases = [
        linear_scan_inputs(3, 20, (8, 8), 64, decay=decay, dtype=torch.complex64) for decay in DECAYS
    ]  # worth threads
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected = [results(inputs, "numba") for inputs in cases]
        torch.set_num_threads(3)
        actual = [results(inputs, "numba") for inputs in cases]
    finally:
        torch.set_num_threads(threads)
    for one, three in zip(expected, actual, strict=True):
        assert all(torch.equal(three[name], value) for name, value in one.items())


def test_auto_takes_the_compiled_kernel_on_the_cpu_and_torch_on_cuda_without_triton(monkeypatch):
    monkeypatch.setattr(dispatch, "_chosen", {})
    monkeypatch.setattr(dispatch, "_import_failure", lambda op, kernel: "needs triton")
    linear_scan(**linear_scan_inputs())
    assert chosen_kernels() == {"linear_scan": "numba"}
    assert dispatch.choose_kernel("linear_scan", "auto", torch.device("cuda")) == "torch"
    assert "runs on the CPU" in str(available_kernels("linear_scan", "cuda")["numba"])


@pytest.mark.gpu
@pytest.mark.parametrize("decay", DECAYS)
def test_torch_on_cuda_agrees_with_the_reference_on_the_cpu(decay):
    expected = results(linear_scan_inputs(2, 100, (4, 4), 16, decay=decay), "reference")
    inputs = linear_scan_inputs(2, 100, (4, 4), 16, decay=decay, dtype=torch.complex64)
    inputs = {name: value.detach().cuda().requires_grad_() for name, value in inputs.items()}
    assert_agree(results(inputs, "torch"), expected, 1e-4)
