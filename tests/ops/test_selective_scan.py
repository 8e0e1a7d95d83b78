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


@pytest.mark.parametrize("kernel", FAST)
@pytest.mark.parametrize("left_out", [("D",), ("z",), ("state",), ("D", "z", "state")])
def test_optional_inputs_can_be_left_out(kernel, left_out):
    inputs = {name: value for name, value in scan_inputs(2, 9, 33, 3).items() if name not in left_out}
    assert_agree(values_and_gradients(inputs, kernel), values_and_gradients(inputs, "reference"), 1e-9)


@pytest.mark.parametrize("kernel", EVERY)
def test_float32_is_near_float64(kernel):
    expected = values_and_gradients(scan_inputs(4, 50, 40, 16), "reference")
    assert_agree(values_and_gradients(scan_inputs(4, 50, 40, 16, dtype=torch.float32), kernel), expected, 1e-5)


def test_the_torch_kernel_passes_gradcheck():
    inputs = scan_inputs(2, 18, 2, 2)  # longer than a chunk
    assert torch.autograd.gradcheck(lambda *x: selective_scan(*x, kernel="torch"), tuple(inputs.values()))


def test_the_exact_hold_has_the_reference_gradients():
    inputs = scan_inputs(2, 18, 3, 4)
    results = [
        values_and_gradients(inputs, lambda kernel=kernel, **x: selective_scan(**x, exact_zoh=True, kernel=kernel))
        for kernel in ("torch", "reference")
    ]
    assert_agree(*results, 1e-9)
    assert not torch.allclose(results[0]["y"], values_and_gradients(inputs, "torch")["y"])


@pytest.mark.parametrize("kernel", EVERY)
@pytest.mark.parametrize("cuts", [range(1, 21), [1], [7, 8], [16]])
def test_a_clip_in_pieces_equals_the_whole_with_its_gradients(kernel, cuts):
    inputs = scan_inputs(2, 20, 5, 3)

    def in_pieces(state: Tensor, A: Tensor, D: Tensor, **in_time: Tensor) -> tuple[Tensor, Tensor]:
        ys = []
        for begin, end in zip([0, *cuts], [*cuts, 20], strict=True):
            if begin == end:
                continue
            piece = {name: value[:, begin:end] for name, value in in_time.items()}
            y, state = selective_scan(A=A, D=D, state=state, kernel=kernel, **piece)
            ys.append(y)
        return torch.cat(ys, dim=1), state

    assert_agree(values_and_gradients(inputs, in_pieces), values_and_gradients(inputs, kernel), 1e-9)


@pytest.mark.parametrize("kernel", EVERY)
def test_the_gradient_of_the_returned_state_alone_reaches_the_inputs(kernel):
    inputs = scan_inputs(2, 6, 3, 4)
    _, last = selective_scan(**inputs, kernel=kernel)
    names = ("u", "delta", "A", "B", "state")
    for name, gradient in zip(names, torch.autograd.grad(last.sum(), [inputs[name] for name in names]), strict=True):
        assert gradient.abs().max() > 0, name


@pytest.mark.parametrize("kernel", EVERY)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_inputs_are_computed_in_float32(kernel, dtype):
    inputs = {name: value.detach().to(dtype) for name, value in scan_inputs(2, 12, 4, 3).items()}
    y, last = selective_scan(**inputs, kernel=kernel)
    expected, expected_last = selective_scan(**{n: x.float() for n, x in inputs.items()}, kernel="reference")
    assert y.dtype == dtype
    assert last.dtype == torch.float32
    torch.testing.assert_close(y, expected.to(dtype), rtol=1e-2, atol=1e-4)
    torch.testing.assert_close(last, expected_last, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kernel", EVERY)
def test_autocast_changes_nothing(kernel):
    inputs = scan_inputs(2, 12, 4, 3, dtype=torch.float32)

    def under_autocast(**x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return selective_scan(**x, kernel=kernel)

    assert_agree(values_and_gradients(inputs, under_autocast), values_and_gradients(inputs, kernel), 1e-6)


@pytest.mark.parametrize("kernel", FAST)
def test_long_clips_and_their_first_gradient_are_finite(kernel):
    inputs = scan_inputs(1, 4096, 3, 4, dtype=torch.float32)
    results = values_and_gradients(inputs, kernel)
    assert all(torch.isfinite(value).all() for value in results.values())
    slow = {**inputs, "A": (inputs["A"] * 1e-5).detach()}
    gradient = torch.autograd.grad(selective_scan(**slow, kernel=kernel)[0][:, -1].sum(), inputs["u"])[0]
    assert gradient[:, 0].norm() > 0


@pytest.mark.parametrize("kernel", EVERY)
def test_inputs_a_thousand_times_too_large_give_no_nan(kernel):
    inputs = scan_inputs(2, 12, 4, 3, dtype=torch.float32)
    scaled = {name: (value * 1e3).detach().requires_grad_() for name, value in inputs.items()}
    results = values_and_gradients(scaled, kernel)
    assert not any(torch.isnan(value).any() for value in results.values())


@pytest.mark.parametrize("kernel", EVERY)
def test_samples_do_not_touch_one_another(kernel):
    inputs = {name: value.detach() for name, value in scan_inputs(3, 9, 4, 3).items()}
    before = selective_scan(**inputs, kernel=kernel)[0]
    inputs["u"][0] += 1
    after = selective_scan(**inputs, kernel=kernel)[0]
    assert torch.equal(before[1:], after[1:])
    assert not torch.equal(before[0], after[0])


@pytest.mark.parametrize("kernel", FAST)
def test_inputs_may_be_views_with_any_strides(kernel):
    inputs = scan_inputs(3, 9, 5, 4)
    expected = values_and_gradients(inputs, kernel)
    strided = {
        name: value.detach().transpose(0, -1).contiguous().transpose(0, -1).requires_grad_()
        for name, value in inputs.items()
    }
    assert_agree(values_and_gradients(strided, kernel), expected, 1e-12)


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


@pytest.mark.parametrize(
    ("name", "shape"),
    [("delta", (2, 4, 3)), ("A", (4, 2)), ("B", (2, 5, 3)), ("D", (4,)), ("z", (2, 5, 4)), ("state", (2, 3, 1))],
)
def test_a_shape_that_does_not_fit_is_named(name, shape):
    inputs = scan_inputs(2, 5, 3, 2) | {name: torch.zeros(shape, dtype=torch.float64)}
    with pytest.raises(ValueError, match=r"selective_scan takes .* and got the shape|takes delta"):
        selective_scan(**inputs)


def test_an_empty_clip_is_refused():
    inputs = {n: x[:, :0] if n in ("u", "delta", "B", "C", "z") else x for n, x in scan_inputs(2, 5, 3, 2).items()}
    with pytest.raises(ValueError, match="at least one time step"):
        selective_scan(**inputs)


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
