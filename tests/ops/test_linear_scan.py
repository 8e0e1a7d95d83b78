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


def test_the_reference_can_be_differentiated_twice():
    inputs = linear_scan_inputs(1, 3, (2,), 2)
    assert torch.autograd.gradgradcheck(lambda *x: linear_scan(*x, kernel="reference"), tuple(inputs.values()))


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
def test_stretches_of_a_clip_combine_associatively(kernel):
    inputs = {
        name: value.detach() for name, value in linear_scan_inputs(2, 12, (), 5, decay="batch time state").items()
    }

    def element(begin: int, end: int) -> tuple[Tensor, Tensor]:
        """A stretch of steps as h -> A h + x: what it makes of a state of ones without its drive, and of none with."""
        drive, decay = inputs["drive"][:, begin:end], inputs["decay"][:, begin:end]
        _, decayed = linear_scan(torch.zeros_like(drive), decay, torch.ones_like(drive[:, 0]), kernel=kernel)
        _, driven = linear_scan(drive, decay, kernel=kernel)
        return decayed, driven

    def combine(first: tuple[Tensor, Tensor], second: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return second[0] * first[0], second[0] * first[1] + second[1]

    a, b, c = element(0, 3), element(3, 8), element(8, 12)
    for left, right, whole in zip(combine(combine(a, b), c), combine(a, combine(b, c)), element(0, 12), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(left, whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kernel", EVERY)
@pytest.mark.parametrize("decay", DECAYS)
def test_the_gradient_of_the_returned_state_alone_reaches_every_input(kernel, decay):
    inputs = linear_scan_inputs(decay=decay)
    _, last = linear_scan(**inputs, kernel=kernel)
    for name, gradient in zip(inputs, torch.autograd.grad(last.abs().sum(), list(inputs.values())), strict=True):
        assert gradient.abs().max() > 0, name


@pytest.mark.parametrize("kernel", FAST)
@pytest.mark.parametrize("wanted", ["drive", "decay", "state"])
def test_one_input_alone_may_want_its_gradient(kernel, wanted):
    inputs = {name: value if name == wanted else value.detach() for name, value in linear_scan_inputs().items()}
    gradients = [
        torch.autograd.grad(linear_scan(**inputs, kernel=name)[0].abs().sum(), inputs[wanted])[0]
        for name in (kernel, "reference")
    ]
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kernel", FAST)
@pytest.mark.parametrize("decay", DECAYS)
def test_keeps_the_states_and_never_a_decay_of_their_size(kernel, decay):
    inputs = linear_scan_inputs(2, 9, (4, 4), 3, decay=decay)
    kept: list[int] = []

    def keep(x: Tensor) -> Tensor:
        kept.append(x.numel())
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        linear_scan(**inputs, kernel=kernel)
    assert sum(kept) == sum(value.numel() for value in inputs.values())


@pytest.mark.parametrize("kernel", EVERY)
def test_complex64_is_near_complex128(kernel):
    for decay in DECAYS:
        expected = results(linear_scan_inputs(2, 300, (4, 4), 16, decay=decay), "reference")
        inputs = linear_scan_inputs(2, 300, (4, 4), 16, decay=decay, dtype=torch.complex64)
        actual = results(inputs, kernel)
        assert {value.dtype for value in actual.values()} == {torch.complex64}
        assert_agree(actual, expected, 1e-5)


@pytest.mark.parametrize("kernel", EVERY)
def test_one_input_of_complex128_makes_the_result_complex128(kernel):
    inputs = linear_scan_inputs(dtype=torch.complex64)
    inputs["decay"] = inputs["decay"].detach().to(torch.complex128).requires_grad_()
    actual = results(inputs, kernel)
    assert actual["y"].dtype == actual["last state"].dtype == torch.complex128
    assert actual["grad drive"].dtype == torch.complex64


@pytest.mark.parametrize("kernel", EVERY)
def test_autocast_changes_nothing(kernel):
    inputs = linear_scan_inputs(dtype=torch.complex64)

    def under_autocast(**x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return linear_scan(**x, kernel=kernel)

    assert_agree(values_and_gradients(inputs, under_autocast), results(inputs, kernel), 0.0)


@pytest.mark.parametrize("kernel", EVERY)
@pytest.mark.parametrize("magnitude", [1e-8, 0.9512, 1.0])  # whose 4096th power is 0, 0 and 1
def test_long_clips_and_their_gradients_are_finite(kernel, magnitude):
    inputs = linear_scan_inputs(1, 4096, (2,), 4, dtype=torch.complex64)
    inputs["decay"] = torch.polar(torch.full((4,), magnitude), torch.linspace(0, 3, 4)).requires_grad_()
    found = results(inputs, kernel)
    assert all(torch.isfinite(torch.view_as_real(value)).all() for value in found.values())
    if magnitude == 1:
        first = torch.autograd.grad(linear_scan(**inputs, kernel=kernel)[1].abs().sum(), inputs["drive"])[0][:, 0]
        assert first.abs().min() > 0.1


@pytest.mark.parametrize("kernel", EVERY)
def test_samples_and_places_do_not_touch_one_another(kernel):
    inputs = {name: value.detach() for name, value in linear_scan_inputs(3, 9, (4,)).items()}
    before, _ = linear_scan(**inputs, kernel=kernel)
    inputs["drive"][0, :, 1] += 1
    after, _ = linear_scan(**inputs, kernel=kernel)
    touched = (after != before).any(dim=1).any(dim=-1)
    assert touched.nonzero().tolist() == [[0, 1]]


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


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("decay", (3,), r"takes decay as \(state,\) = \(4,\) beside drive \(2, 5, 2, 3, 4\), and got the shape \(3,\)"),
        ("decay", (4, 4), r"takes decay as \(time, state\) = \(5, 4\)"),
        ("decay", (1, 5, 4), r"takes decay as \(batch, time, state\) = \(2, 5, 4\)"),
        ("decay", (2, 5, 2, 3, 4), r"\(state,\), \(time, state\) or \(batch, time, state\) and got the shape"),
        ("decay", (), r"\(state,\), \(time, state\) or \(batch, time, state\) and got the shape \(\)"),
        ("state", (2, 6, 4), r"takes state as \(batch, \*space, state\) = \(2, 2, 3, 4\)"),
        ("drive", (5, 4), r"takes drive as \(batch, time, \*space, state\) and got the shape \(5, 4\)"),
        ("drive", (2, 0, 2, 3, 4), "at least one time step"),
    ],
)
def test_a_shape_that_does_not_fit_is_named(name, shape, expected):
    inputs = linear_scan_inputs() | {name: torch.zeros(shape, dtype=torch.complex128)}
    with pytest.raises(ValueError, match=expected):
        linear_scan(**inputs)


@pytest.mark.parametrize("name", ["drive", "decay", "state"])
def test_a_real_tensor_is_refused_with_what_to_write_instead(name):
    inputs = linear_scan_inputs()
    with pytest.raises(ValueError, match=rf"{name} is torch\.float64.*view_as_complex.*{name}\.to\(torch\.complex64\)"):
        linear_scan(**(inputs | {name: inputs[name].detach().real}))


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
