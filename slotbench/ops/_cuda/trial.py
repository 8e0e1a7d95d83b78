"""The trial of a kernel for CUDA: a small call, forward and backward, beside the equation on the CPU.

A kernel can be installed and still not work: built for another GPU, no C compiler for what Triton compiles on the way,
a release that changed. `auto` takes none that has not passed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["trial_failure"]

_TOLERANCE = 1e-2  # relative to the largest value: products of float32 in mamba-ssm's Mamba-2 are TF32
_TIME = 20  # longer than a chunk of any kernel but those of Mamba-2
Run = Callable[..., tuple[Tensor, ...]]


def trial_failure(op: str, run: Run, device: torch.device) -> str | None:
    """What is wrong with a kernel of `op` on `device`: its error, or how far it is off; None if it works.

    Args:
        op: name of the op.
        run: the kernel; takes what the equation of the op in this file takes, in float32.
        device: where it is to run.
    """
    equation, inputs = _EXAMPLES[op]()
    try:
        with torch.inference_mode(False), torch.enable_grad(), ExitStack() as contexts:
            for name in {"cpu", device.type}:
                contexts.enter_context(torch.autocast(name, enabled=False))
            expected = _values_and_gradients(equation, inputs)
            actual = _values_and_gradients(run, [value.to(device) for value in inputs])
            error = max(_error(*pair) for pair in zip(actual, expected, strict=True))
    except Exception as failure:  # whatever a compiler, a driver or a package of others may raise
        why = next((line.strip() for line in str(failure).splitlines() if line.strip()), "")
        return f"failed a small trial ({type(failure).__name__}: {why})"
    return None if error <= _TOLERANCE else f"was off by {error:.0e} of the largest value in a small trial"


def _values_and_gradients(run: Run, inputs: list[Tensor]) -> list[Tensor]:
    leaves = [value.detach().clone().requires_grad_() for value in inputs]
    outputs = run(*leaves)
    weights = [torch.linspace(-1, 1, x.numel(), device=x.device, dtype=x.dtype).view(x.shape) for x in outputs]
    return [*outputs, *torch.autograd.grad(outputs, leaves, weights)]


def _error(actual: Tensor, expected: Tensor) -> float:
    if actual.shape != expected.shape:
        raise ValueError(f"a result has the shape {tuple(actual.shape)} in place of {tuple(expected.shape)}")
    difference = (actual.detach().cpu() - expected).abs().max() / expected.abs().max()
    return torch.inf if difference.isnan() else difference.item()


def _noise() -> Callable[..., Tensor]:
    generator = torch.Generator().manual_seed(0)
    return lambda *shape: torch.randn(*shape, generator=generator)


def _selective_scan() -> tuple[Run, list[Tensor]]:
    randn = _noise()
    inputs = [randn(2, _TIME, 24), randn(2, _TIME, 24).exp() / 5, -randn(24, 8).exp(), randn(2, _TIME, 8)]
    return _selective_scan_equation, [*inputs, randn(2, _TIME, 8), randn(2, 24, 8)]


def _selective_scan_equation(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor
) -> tuple[Tensor, ...]:
    ys = []
    for t in range(u.shape[1]):
        drive = (delta[:, t] * u[:, t])[..., None] * B[:, t, None]
        state = torch.exp(delta[:, t, :, None] * A) * state + drive
        ys.append((state * C[:, t, None]).sum(-1))
    return torch.stack(ys, dim=1), state


def _ssd() -> tuple[Run, list[Tensor]]:
    randn = _noise()
    inputs = [randn(2, _TIME, 2, 16), randn(2, _TIME, 2).exp() / 5, -randn(2).exp(), randn(2, _TIME, 1, 16)]
    return _ssd_equation, [*inputs, randn(2, _TIME, 1, 16), randn(2, 2, 16, 16)]


def _ssd_equation(x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, state: Tensor) -> tuple[Tensor, ...]:
    ys = []
    for t in range(x.shape[1]):
        drive = (delta[:, t, :, None] * x[:, t])[..., None] * B[:, t, :, None]
        state = torch.exp(delta[:, t] * A)[..., None, None] * state + drive
        ys.append((state * C[:, t, :, None]).sum(-1))
    return torch.stack(ys, dim=1), state


def _causal_conv1d() -> tuple[Run, list[Tensor]]:
    randn = _noise()
    return _causal_conv1d_equation, [randn(2, _TIME, 24), randn(24, 4), randn(24)]


def _causal_conv1d_equation(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
    window = functional.pad(x.mT, (weight.shape[1] - 1, 0))
    return (functional.silu(functional.conv1d(window, weight[:, None], bias, groups=len(weight))).mT,)


def _linear_scan() -> tuple[Run, list[Tensor]]:
    randn = _noise()
    decay = torch.polar(torch.sigmoid(randn(1, 1, 8)), randn(1, 1, 8))
    drive, state = (torch.complex(randn(*shape), randn(*shape)) for shape in ((2, _TIME, 9, 8), (2, 9, 8)))
    return _linear_scan_equation, [drive, decay, state]


def _linear_scan_equation(drive: Tensor, decay: Tensor, state: Tensor) -> tuple[Tensor, ...]:
    states = []
    for drive_t in drive.unbind(1):
        state = decay[:, 0] * state + drive_t
        states.append(state)
    return torch.stack(states, dim=1), state


def _inverted_attention() -> tuple[Run, list[Tensor]]:
    randn = _noise()
    # more tokens than a block, heads that compete each on their own
    return _inverted_attention_equation, [randn(2, 1, 2, 5, 24), randn(2, 1, 2, 5, 1), randn(2, 1, 10 * _TIME, 24)]


def _inverted_attention_equation(query: Tensor, bias: Tensor, tokens: Tensor) -> tuple[Tensor, ...]:
    keys = tokens[:, :, None]
    share = (query @ keys.mT + bias).softmax(dim=3)
    weights = share + 0.1
    return weights @ keys, weights.sum(-1, keepdim=True), share.mean(2)


_EXAMPLES: dict[str, Callable[[], tuple[Run, list[Tensor]]]] = {
    "selective_scan": _selective_scan,
    "ssd": _ssd,
    "causal_conv1d": _causal_conv1d,
    "linear_scan": _linear_scan,
    "inverted_attention": _inverted_attention,
}
