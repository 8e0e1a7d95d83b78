"""The Mamba and the Mamba-2 block: equal to loops in NumPy, split anywhere in time, with every kernel."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from slotbench.nn.mamba import MambaBlock, MambaState
from slotbench.nn.mamba2 import Mamba2Block, Mamba2State
from slotbench.nn.slot_ssm_layer import SSMBlock
from slotbench.ops import available_kernels, set_kernel

BLOCKS = pytest.mark.parametrize("kind", [MambaBlock, Mamba2Block])
KERNELS = pytest.mark.parametrize("kernel", ["reference", "torch", "numba"])


def block_with_random_weights(
    kind: type[SSMBlock], dim: int = 16, dtype: torch.dtype = torch.float64, **options: object
) -> SSMBlock:
    """No parameter at its initial value, so that none can be left out unnoticed."""
    torch.manual_seed(0)
    heads = {"head_dim": 5} if kind is Mamba2Block else {}
    block = kind(dim, **heads, **options).to(dtype)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return block


def silu(value: np.ndarray) -> np.ndarray:
    return value / (1 + np.exp(-value))


def mamba_in_numpy(block: MambaBlock, x: np.ndarray) -> np.ndarray:
    """The block of slotssm.md 2.3, one sample and one step at a time, from the parameters alone."""
    p = {name: value.detach().numpy() for name, value in block.named_parameters()}
    inner, num_states = p["A_log"].shape
    rank, width = p["dt_proj.weight"].shape[1], p["conv1d.weight"].shape[-1]
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


def mamba_2_in_numpy(block: Mamba2Block, x: np.ndarray) -> np.ndarray:
    """The block, one sample, one step and one head at a time, from the parameters alone."""
    p = {name: value.detach().numpy() for name, value in block.named_parameters()}
    inner, heads, width = len(p["norm.weight"]), len(p["A_log"]), p["conv1d.weight"].shape[-1]
    conv_dim, head_dim, num_groups = len(p["conv1d.bias"]), inner // heads, block.num_groups
    num_states = (conv_dim - inner) // (2 * num_groups)
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


@KERNELS
@pytest.mark.parametrize(
    ("kind", "in_numpy", "options"),
    [
        (MambaBlock, mamba_in_numpy, {}),
        (Mamba2Block, mamba_2_in_numpy, {"num_groups": 1}),
        (Mamba2Block, mamba_2_in_numpy, {"num_groups": 2}),
    ],
)
def test_equals_a_plain_loop_in_numpy(kind, in_numpy, options, kernel):
    block = block_with_random_weights(kind, kernel=kernel, **options)
    x = torch.randn(3, 9, 16, dtype=torch.float64)
    np.testing.assert_allclose(block(x)[0].detach().numpy(), in_numpy(block, x.numpy()), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("dim", "count"), [(64, 20_400), (192, 157_200), (384, 602_400)])
def test_mamba_has_the_parameter_count_of_the_specification(dim, count):
    assert sum(parameter.numel() for parameter in MambaBlock(dim).parameters()) == count


@pytest.mark.parametrize(("dim", "head_dim", "num_groups"), [(64, 20, 1), (192, 16, 5), (32, 40, 1)])
def test_mamba_2_has_as_many_parameters_as_its_formula_says(dim, head_dim, num_groups):
    inner, states, width = dim * 5 // 4, 16, 4
    heads, conv_dim = inner // head_dim, inner + 2 * num_groups * states
    expected = dim * (inner + conv_dim + heads) + conv_dim * (width + 1) + 3 * heads + inner + inner * dim
    block = Mamba2Block(dim, head_dim=head_dim, num_groups=num_groups)
    assert sum(parameter.numel() for parameter in block.parameters()) == expected


def test_parameters_of_mamba_2_have_the_names_and_shapes_of_mamba_ssm():
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


def assert_steps_are_log_uniform(bias: torch.Tensor, least_deviation: float) -> None:
    step = functional.softplus(bias)
    assert step.min() >= 1e-3 * 0.999
    assert step.max() <= 1e-1 * 1.001
    assert step.log().std() > least_deviation  # log-uniform over two decades: 1.33


def test_mamba_starts_where_the_specification_says():
    block = MambaBlock(64, state_dim=16)
    expected = torch.arange(1, 17).log().expand(80, 16)
    torch.testing.assert_close(block.A_log, expected, check_dtype=False)
    assert torch.equal(block.D, torch.ones(80))
    assert block.dt_proj.weight.abs().max() <= 4**-0.5
    assert block.dt_proj.weight.abs().max() > 0.4  # drawn from the whole range
    assert_steps_are_log_uniform(block.dt_proj.bias, 0.8)


def test_mamba_2_starts_where_its_authors_do():
    torch.manual_seed(0)
    block = Mamba2Block(256, head_dim=1)
    assert torch.equal(block.D, torch.ones(320))
    assert torch.equal(block.norm.weight, torch.ones(320))
    rates = block.A_log.exp()
    assert rates.min() >= 1
    assert rates.max() <= 16
    assert rates.std() > 3  # uniform over 15: 4.3
    assert_steps_are_log_uniform(block.dt_bias, 1)


@pytest.mark.parametrize(("kind", "bias"), [(MambaBlock, "dt_proj.bias"), (Mamba2Block, "dt_bias")])
def test_exempts_rates_skip_and_biases_from_weight_decay_and_only_them(kind, bias):
    block = kind(32)
    exempt = {name for name, parameter in block.named_parameters() if getattr(parameter, "_no_weight_decay", False)}
    assert exempt == {"A_log", "D", "conv1d.weight", "conv1d.bias", bias}
    if kind is MambaBlock:
        assert block.dt_proj.bias._no_reinit is True


@pytest.mark.parametrize(
    ("kind", "state_type", "conv", "ssm"),
    [(MambaBlock, MambaState, (2, 2, 20), (2, 20, 6)), (Mamba2Block, Mamba2State, (2, 2, 20 + 2 * 6), (2, 4, 5, 6))],
)
def test_state_holds_the_last_inputs_of_the_convolution_and_the_state_of_the_scan(kind, state_type, conv, ssm):
    _, state = block_with_random_weights(kind, state_dim=6, conv_width=3)(torch.randn(2, 1, 16, dtype=torch.float64))
    assert isinstance(state, state_type)
    assert state.conv.shape == conv
    assert state.ssm.shape == ssm
    assert not state.conv[:, 0].any()


@BLOCKS
def test_gradient_reaches_every_parameter_and_is_the_same_for_every_kernel(kind):
    x = torch.randn(2, 40, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(3))

    def gradients(name: str) -> dict[str, torch.Tensor]:
        block = block_with_random_weights(kind, kernel=name)
        block(x)[0].square().sum().backward()
        return {key: parameter.grad for key, parameter in block.named_parameters()}

    expected = gradients("reference")
    for kernel in ("torch", "numba"):
        for name, gradient in gradients(kernel).items():
            assert gradient.abs().max() > 0, name
            torch.testing.assert_close(gradient, expected[name], rtol=1e-8, atol=1e-10)


@BLOCKS
def test_the_exact_hold_differs_and_trains(kind):
    x = torch.randn(2, 6, 16, dtype=torch.float64)
    exact, _ = block_with_random_weights(kind, exact_zoh=True)(x)
    assert not torch.allclose(exact, block_with_random_weights(kind)(x)[0])
    exact.sum().backward()


@pytest.mark.parametrize(("kind", "op"), [(MambaBlock, "selective_scan"), (Mamba2Block, "ssd")])
def test_a_kernel_that_there_is_not_is_refused_and_the_cuda_kernel_by_its_own_name(kind, op):
    x = torch.randn(1, 2, 16)
    with pytest.raises(ValueError, match="no kernel named 'associative'"):
        kind(16, kernel="associative")(x)
    with pytest.raises(RuntimeError, match=f"kernel 'mamba_ssm' of {op} cannot run"):
        kind(16, kernel="mamba_ssm")(x)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("kind", "op", "tolerance"),
    [(MambaBlock, "selective_scan", 1e-3), (Mamba2Block, "ssd", 5e-3)],  # the second multiplies in TF32
)
def test_the_cuda_kernels_agree_with_the_cpu_through_a_carried_state(kind, op, tolerance):
    reason = available_kernels(op, "cuda")["mamba_ssm"] or available_kernels("causal_conv1d", "cuda")["causal_conv1d"]
    if reason is not None:
        pytest.skip(reason)
    block = block_with_random_weights(kind, dtype=torch.float32, kernel="reference")
    x = torch.randn(2, 30, 16)
    expected, _ = block(x)
    set_kernel(block.cuda(), "mamba_ssm")
    first, state = block(x[:, :11].cuda())
    second, _ = block(x[:, 11:].cuda(), state)
    actual = torch.cat([first, second], dim=1).cpu()
    assert (actual - expected).norm() < tolerance * expected.norm()
