"""The packages with CUDA kernels: what is called in them, and what is said where they are missing.

`FakeExtension` stands in for mamba-ssm's compiled module on machines without a GPU: the same arguments in the same
order, the conditions that the compiled functions check, and results by plain autograd.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch
from scan_inputs import assert_agree, ssd_inputs, values_and_gradients
from torch import Tensor

from slotbench.ops import _cuda_packages, available_kernels, dispatch, ssd
from slotbench.ops._selective_scan_mamba_ssm import selective_scan_mamba_ssm
from slotbench.ops.selective_scan import selective_scan_reference
from slotbench.ops.ssd import ssd_reference

BATCH, TIME, DIM, STATES = 2, 7, 3, 4


@pytest.fixture(autouse=True)
def nothing_remembered():
    for remembering in (_cuda_packages._load, dispatch._import_failure):
        remembering.cache_clear()
    yield
    for remembering in (_cuda_packages._load, dispatch._import_failure):
        remembering.cache_clear()


def equations(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
    start = u.new_zeros(len(u), *A.shape)
    y, _ = selective_scan_reference(u.mT, delta.mT, A, B[:, 0].mT, C[:, 0].mT, None, None, start)
    return y.mT


def check(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor) -> None:
    batch, dim, time = u.shape
    assert delta.shape == u.shape
    assert A.shape == (dim, STATES)
    assert B.shape == C.shape == (batch, 1, STATES, time)
    assert all(x.stride(-1) == 1 and x.dtype == torch.float32 for x in (u, delta, A, B, C))


class FakeExtension:
    def fwd(self, u, delta, A, B, C, D_, z_, delta_bias_, delta_softplus):
        assert D_ is z_ is delta_bias_ is None
        assert not delta_softplus
        check(u, delta, A, B, C)
        self.states = torch.ones(len(u), u.shape[1], 1, 2 * STATES)
        return [equations(u, delta, A, B, C), self.states]

    def bwd(self, u, delta, A, B, C, D_, z_, delta_bias_, dout, x_, out_, dz_, delta_softplus, recompute_out_z):
        assert D_ is z_ is delta_bias_ is out_ is dz_ is None
        assert not delta_softplus
        assert not recompute_out_z
        assert x_ is self.states
        assert dout.shape == u.shape
        assert dout.stride(-1) == 1
        check(u, delta, A, B, C)
        with torch.enable_grad():
            leaves = [x.detach().requires_grad_() for x in (u, delta, A, B, C)]
            gradients = torch.autograd.grad(equations(*leaves), leaves, dout)
        return [*gradients, None, None]


def inputs() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    values = {
        "u": normal(BATCH, TIME, DIM),
        "delta": normal(BATCH, TIME, DIM).exp() / 5,
        "A": -normal(DIM, STATES).exp(),
        "B": normal(BATCH, TIME, STATES),
        "C": normal(BATCH, TIME, STATES),
        "state": normal(BATCH, DIM, STATES),
    }
    return {name: value.requires_grad_() for name, value in values.items()}


def test_the_compiled_functions_of_mamba_ssm_get_what_they_expect_and_their_gradients_arrive(monkeypatch):
    monkeypatch.setitem(sys.modules, "selective_scan_cuda", FakeExtension())
    monkeypatch.setitem(sys.modules, "mamba_ssm", None)  # the package around them is not imported

    def outputs_and_gradients(with_mamba_ssm: bool) -> list[Tensor]:
        given = inputs()
        if with_mamba_ssm:
            y, last = selective_scan_mamba_ssm(**given)
        else:
            y, last = selective_scan_reference(**given, D=None, z=None)
        (y.square().sum() + last.square().sum()).backward()
        return [y.detach(), last.detach(), *(x.grad for x in given.values())]

    for actual, expected in zip(outputs_and_gradients(True), outputs_and_gradients(False), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def test_a_gradient_with_strides_of_its_own_is_copied_for_the_compiled_backward(monkeypatch):
    monkeypatch.setitem(sys.modules, "selective_scan_cuda", FakeExtension())
    given = {name: value for name, value in inputs().items() if name != "state"}
    u, delta, B, C = (given[name].mT.contiguous() for name in ("u", "delta", "B", "C"))
    y = _cuda_packages.mamba_ssm_scan()(u, delta, given["A"], B, C)
    gradient = torch.arange(float(y.numel())).view(BATCH, TIME, DIM).mT
    (actual,) = torch.autograd.grad(y, given["u"], gradient)
    expected, _ = selective_scan_reference(**given, D=None, z=None, state=torch.zeros(BATCH, DIM, STATES))
    torch.testing.assert_close(actual, torch.autograd.grad(expected, given["u"], gradient.mT)[0], rtol=1e-4, atol=1e-4)


def fake_chunk_scan(
    x,
    dt,
    A,
    B,
    C,
    chunk_size,
    D=None,
    z=None,
    dt_bias=None,
    initial_states=None,
    seq_idx=None,
    cu_seqlens=None,
    dt_softplus=False,
    dt_limit=(0.0, float("inf")),
    return_final_states=False,
    return_varlen_states=False,
):
    """mamba-ssm's function for Mamba-2: its arguments in its order, its conditions, results by plain autograd."""
    batch, time, heads, head_dim = x.shape
    groups, num_states = B.shape[2:]
    assert D is z is dt_bias is seq_idx is cu_seqlens is None
    assert not dt_softplus
    assert not return_varlen_states
    assert return_final_states
    assert chunk_size & (chunk_size - 1) == 0
    assert heads % groups == 0
    assert dt.shape == (batch, time, heads)
    assert A.shape == (heads,)
    assert B.shape == C.shape == (batch, time, groups, num_states)
    given = [x, dt, A, B, C]
    if initial_states is None:
        initial_states = x.new_zeros(batch, heads, head_dim, num_states)
    else:
        assert initial_states.shape == (batch, heads, head_dim, num_states)
        given.append(initial_states)
    assert all(value.is_contiguous() and value.dtype == torch.float32 for value in given)
    return ssd_reference(dt[..., None] * x, dt * A, B, C, initial_states)


def install_package(folder: Path) -> None:
    """A package mamba_ssm whose own import fails, as it does without the language models that it imports."""
    below = folder / "mamba_ssm" / "ops" / "triton"
    below.mkdir(parents=True)
    (folder / "mamba_ssm" / "__init__.py").write_text("import a_language_model_that_is_not_there\n")
    (folder / "mamba_ssm" / "ops" / "__init__.py").touch()
    (below / "__init__.py").touch()
    (below / "names.py").write_text("from test_cuda_packages import fake_chunk_scan\n")
    (below / "ssd_combined.py").write_text(
        "from mamba_ssm.ops.triton.names import fake_chunk_scan as mamba_chunk_scan_combined\n"
    )


@pytest.fixture
def package_that_fails_at_its_own_import(tmp_path, monkeypatch):
    install_package(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    dispatch._import_failure.cache_clear()
    failure = dispatch._import_failure
    monkeypatch.setattr(dispatch, "_why_not", lambda op, k, device: failure(op, k) if k == "mamba_ssm" else None)
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "mamba_ssm"]:
        del sys.modules[name]


@pytest.mark.usefixtures("package_that_fails_at_its_own_import")
@pytest.mark.parametrize("with_state", [True, False])
def test_the_triton_kernels_of_mamba_ssm_get_what_they_expect_and_their_gradients_arrive(with_state):
    inputs = ssd_inputs(2, 7, dtype=torch.float32)
    if not with_state:
        del inputs["state"]
    strided = {
        name: value.detach().transpose(0, -1).contiguous().transpose(0, -1).requires_grad_()
        for name, value in inputs.items()
    }

    def through(kernel: str, given: dict[str, Tensor]) -> dict[str, Tensor]:
        return values_and_gradients(given, lambda **x: ssd(**x, kernel=kernel))

    assert_agree(through("mamba_ssm", strided), through("reference", inputs), 1e-5)


@pytest.mark.usefixtures("package_that_fails_at_its_own_import")
def test_the_package_around_the_triton_kernels_is_neither_run_nor_left_behind():
    assert available_kernels("ssd", "cuda")["mamba_ssm"] is None
    assert "mamba_ssm" not in sys.modules
    with pytest.raises(ImportError, match="a_language_model_that_is_not_there"):
        import_module("mamba_ssm")
