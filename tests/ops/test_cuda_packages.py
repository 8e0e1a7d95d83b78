"""The packages with CUDA kernels: what is called in them, and what is said where they are missing.

`FakeExtension` stands in for mamba-ssm's compiled module on machines without a GPU: the same arguments in the same
order, the conditions that the compiled functions check, and results by plain autograd.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import Tensor

from slotbench.ops import _cuda_packages, available_kernels
from slotbench.ops._selective_scan_mamba_ssm import selective_scan_mamba_ssm
from slotbench.ops.selective_scan import selective_scan_reference

BATCH, TIME, DIM, STATES = 2, 7, 3, 4


@pytest.fixture(autouse=True)
def nothing_remembered():
    _cuda_packages._load.cache_clear()
    yield
    _cuda_packages._load.cache_clear()


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


def broken_library(name: str) -> ModuleType:
    raise OSError(f"{name}.so: undefined symbol: _ZN3c10\nsecond line")


@pytest.mark.parametrize(
    ("op", "kernel", "module", "package"),
    [
        ("selective_scan", "mamba_ssm", "selective_scan_cuda", "mamba-ssm"),
        ("causal_conv1d", "causal_conv1d", "causal_conv1d", "causal-conv1d"),
    ],
)
class TestAPackageThatCannotBeUsed:
    def test_is_named_with_the_reason_and_the_way_out(self, monkeypatch, op, kernel, module, package):
        monkeypatch.setitem(sys.modules, module, None)
        reason = available_kernels(op, "cuda")[kernel]
        assert reason is not None
        assert f"needs {package}" in reason
        assert "docs/install_cuda.md" in reason
        assert module in reason

    def test_built_for_another_torch_gives_the_first_line_of_the_error(self, monkeypatch, op, kernel, module, package):
        monkeypatch.setattr(_cuda_packages, "import_module", broken_library)
        reason = available_kernels(op, "cuda")[kernel]
        assert reason is not None
        assert "undefined symbol" in reason
        assert "second line" not in reason

    def test_of_a_version_without_the_function_is_refused(self, monkeypatch, op, kernel, module, package):
        monkeypatch.setitem(sys.modules, module, SimpleNamespace())
        assert f"needs {package}" in str(available_kernels(op, "cuda")[kernel])

    def test_raises_when_it_is_taken_all_the_same(self, monkeypatch, op, kernel, module, package):
        monkeypatch.setitem(sys.modules, module, None)
        take = {"mamba-ssm": _cuda_packages.mamba_ssm_scan, "causal-conv1d": _cuda_packages.causal_conv1d_convolution}
        with pytest.raises(ImportError, match=package):
            take[package]()
