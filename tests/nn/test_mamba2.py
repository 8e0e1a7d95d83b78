from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from slotbench.nn.mamba2 import Mamba2Block, Mamba2State
from slotbench.ops import available_kernels, set_kernel

EVERY = ("reference", "torch", "numba")


def block_with_random_weights(dim: int = 16, dtype: torch.dtype = torch.float64, **options: object) -> Mamba2Block:
    """No parameter at its initial value, so that none can be left out unnoticed."""
    torch.manual_seed(0)
    block = Mamba2Block(dim, **{"head_dim": 5, **options}).to(dtype)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return block


def block_in_numpy(block: Mamba2Block, x: np.ndarray, num_groups: int) -> np.ndarray:
    """The block, one sample, one step and one head at a time, from the parameters alone."""
    p = {name: value.detach().numpy() for name, value in block.named_parameters()}
    inner, heads, width = len(p["norm.weight"]), len(p["A_log"]), p["conv1d.weight"].shape[-1]
    conv_dim, head_dim = len(p["conv1d.bias"]), inner // heads
    num_states = (conv_dim - inner) // (2 * num_groups)

    def silu(value: np.ndarray) -> np.ndarray:
        return value / (1 + np.exp(-value))

    out = np.empty_like(x)
    for sample in range(len(x)):
        window, h = np.zeros((width, conv_dim)), np.zeros((heads, head_dim, num_states))
        for t in range(x.shape[1]):
            projected = p["in_proj.weight"] @ x[sample, t]
            gate, step = projected[:inner], projected[inner + conv_dim :]
            window = np.concatenate([window[1:], projected[None, inner : inner + conv_dim]])
            convolved = silu((p["conv1d.weight"][:, 0].T * window).sum(0) + p["conv1d.bias"])
            u = convolved[:inner].reshape(heads, head_dim)
            B, C = convolved[inner:].reshape(2, num_groups, num_states)
            delta = np.log1p(np.exp(step + p["dt_bias"]))
            y = np.empty((heads, head_dim))
            for head in range(heads):
                group = head * num_groups // heads
                decay = np.exp(-delta[head] * np.exp(p["A_log"][head]))
                h[head] = decay * h[head] + delta[head] * np.outer(u[head], B[group])
                y[head] = h[head] @ C[group] + p["D"][head] * u[head]
            gated = (y.reshape(inner) * silu(gate)).reshape(num_groups, -1)
            scale = 1 / np.sqrt((gated**2).mean(1, keepdims=True) + 1e-5)
            out[sample, t] = p["out_proj.weight"] @ ((gated * scale).reshape(inner) * p["norm.weight"])
    return out


@pytest.mark.parametrize("kernel", EVERY)
@pytest.mark.parametrize("num_groups", [1, 2])
def test_equals_a_plain_loop_in_numpy(kernel, num_groups):
    block = block_with_random_weights(kernel=kernel, num_groups=num_groups)
    x = torch.randn(3, 9, 16, dtype=torch.float64)
    y, _ = block(x)
    np.testing.assert_allclose(y.detach().numpy(), block_in_numpy(block, x.numpy(), num_groups), rtol=1e-9, atol=1e-11)


def test_parameters_have_the_names_and_shapes_of_mamba_ssm():
    block = Mamba2Block(32, state_dim=8, expand=2.0, conv_width=3, head_dim=16, num_groups=2)
    inner, conv_dim, heads = 64, 64 + 2 * 2 * 8, 4
    assert {name: tuple(value.shape) for name, value in block.state_dict().items()} == {
        "dt_bias": (heads,),
        "A_log": (heads,),
        "D": (heads,),
        "in_proj.weight": (inner + conv_dim + heads, 32),
        "conv1d.weight": (conv_dim, 1, 3),
        "conv1d.bias": (conv_dim,),
        "norm.weight": (inner,),
        "out_proj.weight": (32, inner),
    }


@pytest.mark.parametrize(("dim", "head_dim", "num_groups"), [(64, 20, 1), (192, 16, 5), (32, 40, 1)])
def test_has_as_many_parameters_as_its_formula_says(dim, head_dim, num_groups):
    inner, states, width = dim * 5 // 4, 16, 4
    heads, conv_dim = inner // head_dim, inner + 2 * num_groups * states
    expected = dim * (inner + conv_dim + heads) + conv_dim * (width + 1) + 3 * heads + inner + inner * dim
    block = Mamba2Block(dim, head_dim=head_dim, num_groups=num_groups)
    assert sum(parameter.numel() for parameter in block.parameters()) == expected


def test_starts_where_mamba_2_does():
    torch.manual_seed(0)
    block = Mamba2Block(256, head_dim=1)
    assert torch.equal(block.D, torch.ones(320))
    assert torch.equal(block.norm.weight, torch.ones(320))
    rates = block.A_log.exp()
    assert rates.min() >= 1
    assert rates.max() <= 16
    assert rates.std() > 3  # uniform over 15: 4.3
    step = functional.softplus(block.dt_bias)
    assert step.min() >= 1e-3 * 0.999
    assert step.max() <= 1e-1 * 1.001
    assert step.log().std() > 1  # log-uniform over two decades: 1.33


def test_exempts_rates_skip_and_biases_from_weight_decay_and_only_them():
    block = Mamba2Block(32)
    exempt = {name for name, parameter in block.named_parameters() if getattr(parameter, "_no_weight_decay", False)}
    assert exempt == {"A_log", "D", "dt_bias", "conv1d.weight", "conv1d.bias"}


@pytest.mark.parametrize("kernel", EVERY)
@pytest.mark.parametrize("cuts", [[1], [2], [4], [33], list(range(1, 40))])
def test_a_clip_in_pieces_equals_the_whole(kernel, cuts):
    block = block_with_random_weights(kernel=kernel)
    x = torch.randn(2, 40, 16, dtype=torch.float64)
    whole, last = block(x)
    pieces, state = [], None
    for piece in x.tensor_split(cuts, dim=1):
        y, state = block(piece, state)
        pieces.append(y)
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(tuple(state), tuple(last), rtol=1e-9, atol=1e-11)


def test_state_holds_the_last_inputs_of_the_convolution_and_the_state_of_the_scan():
    _, state = block_with_random_weights(state_dim=6, conv_width=3)(torch.randn(2, 1, 16, dtype=torch.float64))
    assert isinstance(state, Mamba2State)
    assert state.conv.shape == (2, 2, 20 + 2 * 6)
    assert state.ssm.shape == (2, 4, 5, 6)
    assert not state.conv[:, 0].any()


def test_sees_no_later_input():
    block = block_with_random_weights()
    x = torch.randn(2, 8, 16, dtype=torch.float64, requires_grad=True)
    gradient = torch.autograd.grad(block(x)[0][:, :5].sum(), x)[0]
    assert torch.equal(gradient[:, 5:], torch.zeros_like(gradient[:, 5:]))
    assert gradient[:, 4].abs().min() > 0


def test_gradient_reaches_every_parameter_and_is_the_same_for_every_kernel():
    x = torch.randn(2, 40, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(3))

    def gradients(name: str) -> dict[str, torch.Tensor]:
        block = block_with_random_weights(kernel=name)
        block(x)[0].square().sum().backward()
        return {key: parameter.grad for key, parameter in block.named_parameters()}

    expected = gradients("reference")
    for kernel in ("torch", "numba"):
        for name, gradient in gradients(kernel).items():
            assert gradient.abs().max() > 0, name
            torch.testing.assert_close(gradient, expected[name], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kernel", EVERY)
def test_autocast_to_bfloat16_stays_near_float32(kernel):
    block = block_with_random_weights(dtype=torch.float32, kernel=kernel)
    x = torch.randn(2, 40, 16)
    expected, _ = block(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual, state = block(x)
    assert actual.dtype == torch.bfloat16
    assert state.ssm.dtype == torch.float32
    assert (actual.float() - expected).norm() < 0.03 * expected.norm()


@pytest.mark.parametrize(("time", "scale"), [(4096, 1.0), (16, 1e3)])
def test_long_clips_and_large_inputs_stay_finite(time, scale):
    block = Mamba2Block(16)
    x = (scale * torch.randn(1, time, 16)).requires_grad_()
    y, _ = block(x)
    y.sum().backward()
    assert torch.isfinite(y).all()
    assert torch.isfinite(x.grad).all()


def test_the_exact_hold_differs():
    x = torch.randn(2, 6, 16, dtype=torch.float64)
    exact, _ = block_with_random_weights(exact_zoh=True)(x)
    assert not torch.allclose(exact, block_with_random_weights()(x)[0])


def test_heads_and_groups_that_do_not_come_out_even_are_refused_with_what_to_type():
    with pytest.raises(ValueError, match=r"int\(1.25 \* 48\) = 60 .* head_dim=16 .* set head_dim to one of 1, 2, 3, 4"):
        Mamba2Block(48, head_dim=16)
    with pytest.raises(ValueError, match="num_groups=3 does not divide the 4 heads"):
        Mamba2Block(64, head_dim=20, num_groups=3)


def test_a_kernel_that_there_is_not_is_refused_and_the_cuda_kernel_by_its_own_name():
    x = torch.randn(1, 2, 16)
    with pytest.raises(ValueError, match="no kernel named 'associative'"):
        Mamba2Block(16, kernel="associative")(x)
    with pytest.raises(RuntimeError, match="kernel 'mamba_ssm' of ssd cannot run"):
        Mamba2Block(16, kernel="mamba_ssm")(x)


@pytest.mark.gpu
def test_the_cuda_kernels_agree_with_the_cpu_through_a_carried_state():
    reason = (
        available_kernels("ssd", "cuda")["mamba_ssm"] or available_kernels("causal_conv1d", "cuda")["causal_conv1d"]
    )
    if reason is not None:
        pytest.skip(reason)
    block = block_with_random_weights(dtype=torch.float32, kernel="reference")
    x = torch.randn(2, 30, 16)
    expected, _ = block(x)
    set_kernel(block.cuda(), "mamba_ssm")
    first, state = block(x[:, :11].cuda())
    second, _ = block(x[:, 11:].cuda(), state)
    actual = torch.cat([first, second], dim=1).cpu()
    assert (actual - expected).norm() < 5e-3 * expected.norm()  # its products are of the precision TF32
