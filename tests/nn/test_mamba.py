from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from slotbench.nn.mamba import MambaBlock, MambaState
from slotbench.ops import available_kernels, set_kernel

EVERY = ("reference", "torch", "numba")


def block_with_random_weights(dim: int = 16, dtype: torch.dtype = torch.float64, **options: object) -> MambaBlock:
    """No parameter at its initial value, so that none can be left out unnoticed."""
    torch.manual_seed(0)
    block = MambaBlock(dim, **options).to(dtype)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return block


def block_in_numpy(block: MambaBlock, x: np.ndarray) -> np.ndarray:
    """The block of slotssm.md 2.3, one sample and one step at a time, from the parameters alone."""
    p = {name: value.detach().numpy() for name, value in block.named_parameters()}
    inner, num_states = p["A_log"].shape
    rank, width = p["dt_proj.weight"].shape[1], p["conv1d.weight"].shape[-1]

    def silu(value: np.ndarray) -> np.ndarray:
        return value / (1 + np.exp(-value))

    out = np.empty_like(x)
    for sample in range(len(x)):
        window, h = np.zeros((width, inner)), np.zeros((inner, num_states))
        for t in range(x.shape[1]):
            projected = p["in_proj.weight"] @ x[sample, t]
            window = np.concatenate([window[1:], projected[None, :inner]])
            u = silu((p["conv1d.weight"][:, 0].T * window).sum(0) + p["conv1d.bias"])
            selected = p["x_proj.weight"] @ u
            low_rank, B, C = selected[:rank], selected[rank : rank + num_states], selected[rank + num_states :]
            delta = np.log1p(np.exp(p["dt_proj.weight"] @ low_rank + p["dt_proj.bias"]))
            for e in range(inner):
                h[e] = np.exp(delta[e] * -np.exp(p["A_log"][e])) * h[e] + delta[e] * B * u[e]
            y = h @ C + p["D"] * u
            out[sample, t] = p["out_proj.weight"] @ (y * silu(projected[inner:]))
    return out


@pytest.mark.parametrize("kernel", EVERY)
def test_equals_a_plain_loop_in_numpy(kernel):
    block = block_with_random_weights(kernel=kernel)
    x = torch.randn(3, 9, 16, dtype=torch.float64)
    y, _ = block(x)
    np.testing.assert_allclose(y.detach().numpy(), block_in_numpy(block, x.numpy()), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("dim", "count"), [(64, 20_400), (192, 157_200), (384, 602_400)])
def test_has_the_parameter_count_of_the_specification(dim, count):
    assert sum(parameter.numel() for parameter in MambaBlock(dim).parameters()) == count


def test_starts_where_the_specification_says():
    block = MambaBlock(64, state_dim=16)
    expected = torch.arange(1, 17).log().expand(80, 16)
    torch.testing.assert_close(block.A_log, expected, check_dtype=False)
    assert torch.equal(block.D, torch.ones(80))
    assert block.dt_proj.weight.abs().max() <= 4**-0.5
    assert block.dt_proj.weight.abs().max() > 0.4  # drawn from the whole range
    step = functional.softplus(block.dt_proj.bias)
    assert step.min() >= 1e-3 * 0.999
    assert step.max() <= 1e-1 * 1.001
    assert step.log().std() > 0.8  # log-uniform over two decades: 1.33


def test_exempts_rates_skip_and_biases_from_weight_decay_and_only_them():
    block = MambaBlock(32)
    exempt = {name for name, parameter in block.named_parameters() if getattr(parameter, "_no_weight_decay", False)}
    assert exempt == {"A_log", "D", "conv1d.weight", "conv1d.bias", "dt_proj.bias"}
    assert block.dt_proj.bias._no_reinit is True


def test_decay_lies_between_zero_and_one():
    block = MambaBlock(32)
    delta = functional.softplus(torch.randn(100, block.inner_dim) + block.dt_proj.bias)
    decay = torch.exp(-delta[..., None] * torch.exp(block.A_log))
    assert decay.min() >= 0
    assert decay.max() < 1


@pytest.mark.parametrize("kernel", EVERY)
@pytest.mark.parametrize("cuts", [[1], [2], [3], [4], [7], list(range(1, 12))])
def test_a_clip_in_pieces_equals_the_whole(kernel, cuts):
    block = block_with_random_weights(kernel=kernel)
    x = torch.randn(2, 12, 16, dtype=torch.float64)
    whole, last = block(x)
    pieces, state = [], None
    for piece in x.tensor_split(cuts, dim=1):
        y, state = block(piece, state)
        pieces.append(y)
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(tuple(state), tuple(last), rtol=1e-9, atol=1e-11)


def test_state_holds_the_last_inputs_of_the_convolution_and_the_state_of_the_scan():
    _, state = block_with_random_weights(state_dim=5, conv_width=3)(torch.randn(2, 1, 16, dtype=torch.float64))
    assert isinstance(state, MambaState)
    assert state.conv.shape == (2, 2, 20)
    assert state.ssm.shape == (2, 20, 5)
    assert torch.equal(state.conv[:, 0], torch.zeros(2, 20, dtype=torch.float64))


def test_sees_no_later_input():
    block = block_with_random_weights()
    x = torch.randn(2, 8, 16, dtype=torch.float64, requires_grad=True)
    gradient = torch.autograd.grad(block(x)[0][:, :5].sum(), x)[0]
    assert torch.equal(gradient[:, 5:], torch.zeros_like(gradient[:, 5:]))
    assert gradient[:, 4].abs().min() > 0


@pytest.mark.parametrize("kernel", EVERY)
def test_gradient_reaches_every_parameter_and_is_the_same_for_every_kernel(kernel):
    x = torch.randn(2, 10, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(3))

    def gradients(name: str) -> dict[str, torch.Tensor]:
        block = block_with_random_weights(kernel=name)
        block(x)[0].square().sum().backward()
        return {key: parameter.grad for key, parameter in block.named_parameters()}

    expected = gradients("reference")
    for name, gradient in gradients(kernel).items():
        assert gradient.abs().max() > 0, name
        torch.testing.assert_close(gradient, expected[name], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kernel", EVERY)
def test_autocast_to_bfloat16_stays_near_float32(kernel):
    block = block_with_random_weights(dtype=torch.float32, kernel=kernel)
    x = torch.randn(2, 20, 16)
    expected, _ = block(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual, state = block(x)
    assert actual.dtype == torch.bfloat16
    assert state.ssm.dtype == torch.float32
    assert (actual.float() - expected).norm() < 0.03 * expected.norm()


@pytest.mark.parametrize(("time", "scale"), [(4096, 1.0), (16, 1e3)])
def test_long_clips_and_large_inputs_stay_finite(time, scale):
    block = MambaBlock(16)
    x = (scale * torch.randn(1, time, 16)).requires_grad_()
    y, _ = block(x)
    y.sum().backward()
    assert torch.isfinite(y).all()
    assert torch.isfinite(x.grad).all()


def test_the_exact_hold_differs_and_trains():
    x = torch.randn(2, 6, 16, dtype=torch.float64)
    exact, _ = block_with_random_weights(exact_zoh=True)(x)
    assert not torch.allclose(exact, block_with_random_weights()(x)[0])
    exact.sum().backward()


@pytest.mark.gpu
def test_the_cuda_kernels_agree_with_the_cpu_through_a_carried_state():
    reasons = [available_kernels(op, "cuda") for op in ("selective_scan", "causal_conv1d")]
    reason = reasons[0]["mamba_ssm"] or reasons[1]["causal_conv1d"]
    if reason is not None:
        pytest.skip(reason)
    block = block_with_random_weights(dtype=torch.float32, kernel="reference")
    x = torch.randn(2, 30, 16)
    expected, _ = block(x)
    set_kernel(block.cuda(), "mamba_ssm")
    first, state = block(x[:, :11].cuda())
    second, _ = block(x[:, 11:].cuda(), state)
    torch.testing.assert_close(torch.cat([first, second], dim=1).cpu(), expected, rtol=1e-3, atol=1e-4)
