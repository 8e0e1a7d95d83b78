"""Linear scan in Triton: one program runs through time for a block of pixels and states, which stay in registers.

Every number of the clip is read and written once. The gradient of the decay is a sum of parts, one part per program, so
the result is the same bits every time.

Complex numbers are pairs of float32. Type hints are left off the kernels: Triton infers the types of each from its
arguments.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from slotbench.ops._cuda.launching import OPTIONS, blocks, on_device_of, power_of_two


@triton.jit
def _load(pointer, place, mask):
    """Real and imaginary parts of the complex numbers at the places "row column" of a tensor."""
    part = tl.arange(0, 2)[None, None, :]
    return tl.split(tl.load(pointer + 2 * place[:, :, None] + part, mask=mask[:, :, None], other=0.0))


@triton.jit
def _store(pointer, place, real, imag, mask):
    part = tl.arange(0, 2)[None, None, :]
    tl.store(pointer + 2 * place[:, :, None] + part, tl.join(real, imag), mask=mask[:, :, None])


@triton.jit
def _load_row(pointer, n, num_states):
    """Real and imaginary parts "1 state" of one row."""
    real = tl.load(pointer + 2 * n, mask=n < num_states, other=0.0)
    imag = tl.load(pointer + 2 * n + 1, mask=n < num_states, other=0.0)
    return real[None, :], imag[None, :]


@triton.jit
def _store_sums(pointer, n, real, imag, num_states):
    """The sums over pixels as one row."""
    tl.store(pointer + 2 * n, tl.sum(real, axis=0), mask=n < num_states)
    tl.store(pointer + 2 * n + 1, tl.sum(imag, axis=0), mask=n < num_states)


@triton.jit
def _forward(
    drive,
    decay,
    state,
    states,
    last,
    decay_sample,
    decay_step,
    time,
    pixels,
    num_states,
    PIXELS: tl.constexpr,
    STATES: tl.constexpr,
):
    num_blocks = tl.cdiv(pixels, PIXELS)
    sample = tl.program_id(0).to(tl.int64) // num_blocks
    pixel = (tl.program_id(0) % num_blocks) * PIXELS + tl.arange(0, PIXELS)
    n = tl.program_id(1) * STATES + tl.arange(0, STATES)
    mask = (pixel < pixels)[:, None] & (n < num_states)[None, :]
    place = pixel[:, None].to(tl.int64) * num_states + n[None, :]
    real, imag = _load(state, sample * pixels * num_states + place, mask)
    for t in range(time):
        decay_real, decay_imag = _load_row(decay + 2 * (sample * decay_sample + t * decay_step), n, num_states)
        at = (sample * time + t) * pixels * num_states + place
        drive_real, drive_imag = _load(drive, at, mask)
        before = real
        real = decay_real * before - decay_imag * imag + drive_real
        imag = decay_real * imag + decay_imag * before + drive_imag
        _store(states, at, real, imag, mask)
    _store(last, sample * pixels * num_states + place, real, imag, mask)


@triton.jit
def _backward(
    states,
    decay,
    state,
    grad_states,
    grad_last,
    grad_drive,
    grad_decay,
    grad_state,
    decay_sample,
    decay_step,
    time,
    pixels,
    num_states,
    PIXELS: tl.constexpr,
    STATES: tl.constexpr,
    PER_STEP: tl.constexpr,
):
    num_blocks = tl.cdiv(pixels, PIXELS)
    part = tl.program_id(0).to(tl.int64)
    sample = part // num_blocks
    pixel = (tl.program_id(0) % num_blocks) * PIXELS + tl.arange(0, PIXELS)
    n = tl.program_id(1) * STATES + tl.arange(0, STATES)
    mask = (pixel < pixels)[:, None] & (n < num_states)[None, :]
    place = pixel[:, None].to(tl.int64) * num_states + n[None, :]
    # of the loss by the state after the step, in PyTorch's convention
    real, imag = _load(grad_last, sample * pixels * num_states + place, mask)
    sum_real = tl.zeros([PIXELS, STATES], tl.float32)
    sum_imag = tl.zeros([PIXELS, STATES], tl.float32)
    for i in range(time):
        t = time - 1 - i
        at = (sample * time + t) * pixels * num_states + place
        outer_real, outer_imag = _load(grad_states, at, mask)
        real += outer_real
        imag += outer_imag
        _store(grad_drive, at, real, imag, mask)
        if grad_decay is not None:
            if t > 0:
                before_real, before_imag = _load(states, at - pixels * num_states, mask)
            else:
                before_real, before_imag = _load(state, sample * pixels * num_states + place, mask)
            product_real = before_real * real + before_imag * imag
            product_imag = before_real * imag - before_imag * real
            if PER_STEP:
                _store_sums(grad_decay + 2 * (part * time + t) * num_states, n, product_real, product_imag, num_states)
            else:
                sum_real += product_real
                sum_imag += product_imag
        decay_real, decay_imag = _load_row(decay + 2 * (sample * decay_sample + t * decay_step), n, num_states)
        after = real
        real = decay_real * after + decay_imag * imag
        imag = decay_real * imag - decay_imag * after
    _store(grad_state, sample * pixels * num_states + place, real, imag, mask)
    if grad_decay is not None:  # noqa: SIM102 -- Triton decides each by itself, while it compiles
        if not PER_STEP:
            _store_sums(grad_decay + 2 * part * num_states, n, sum_real, sum_imag, num_states)


def _cut(pixels: int, num_states: int) -> tuple[dict[str, Any], int, int]:
    """The sizes that a kernel is compiled for, and how many blocks of pixels and of states there are."""
    of_states = min(128, power_of_two(num_states))
    of_pixels = min(256 // of_states, power_of_two(pixels))
    sizes = {"PIXELS": of_pixels, "STATES": of_states}
    warps = max(1, of_pixels * of_states // 64)
    return sizes | OPTIONS | {"num_warps": warps}, blocks(pixels, of_pixels), blocks(num_states, of_states)


def _pairs(x: Tensor) -> Tensor:
    """Contiguous complex numbers as pairs of real ones."""
    return torch.view_as_real(x.resolve_conj().contiguous())


def _strides(decay: Tensor) -> tuple[int, int]:
    """How far apart the decays of neighbouring samples and steps lie, in complex numbers; 0 where they are shared."""
    samples, steps, num_states = decay.shape
    return (steps * num_states if samples > 1 else 0), (num_states if steps > 1 else 0)


@torch.library.custom_op(
    "slotbench::triton_linear_scan",
    mutates_args=(),
    schema="(Tensor drive, Tensor decay, Tensor state) -> (Tensor, Tensor)",
)
def _scan(drive: Tensor, decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    batch, time, pixels, num_states = drive.shape
    states, last = _result_shapes(drive, decay, state)
    sizes, of_pixels, of_states = _cut(pixels, num_states)
    with on_device_of(drive):
        _forward[(batch * of_pixels, of_states)](
            *(_pairs(drive), _pairs(decay), _pairs(state), torch.view_as_real(states), torch.view_as_real(last)),
            *(*_strides(decay), time, pixels, num_states),
            **sizes,
        )
    return states, last


@_scan.register_fake
def _result_shapes(drive: Tensor, decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    return drive.new_empty(drive.shape), state.new_empty(state.shape)


@torch.library.custom_op(
    "slotbench::triton_linear_scan_backward",
    mutates_args=(),
    schema="(Tensor states, Tensor decay, Tensor state, Tensor grad_states, Tensor grad_last, bool wants_decay) "
    "-> (Tensor, Tensor, Tensor)",
)
def _gradients(
    states: Tensor, decay: Tensor, state: Tensor, grad_states: Tensor, grad_last: Tensor, wants_decay: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of drive, decay and state; that of the decay is empty unless wanted."""
    batch, time, pixels, num_states = states.shape
    grad_drive, grad_decay, grad_state = _gradient_shapes(states, decay, state, grad_states, grad_last, wants_decay)
    sizes, of_pixels, of_states = _cut(pixels, num_states)
    parts = decay.new_empty(batch, of_pixels, decay.shape[1], num_states) if wants_decay else None
    with on_device_of(states):
        _backward[(batch * of_pixels, of_states)](
            *(_pairs(x) for x in (states, decay, state, grad_states, grad_last)),
            torch.view_as_real(grad_drive),
            None if parts is None else torch.view_as_real(parts),
            torch.view_as_real(grad_state),
            *(*_strides(decay), time, pixels, num_states),
            **sizes,
            PER_STEP=decay.shape[1] > 1,
        )
    if parts is not None:
        grad_decay = parts.sum(1)
        if len(decay) < batch:
            grad_decay = grad_decay.sum(0, keepdim=True)
    return grad_drive, grad_decay, grad_state


@_gradients.register_fake
def _gradient_shapes(
    states: Tensor, decay: Tensor, state: Tensor, grad_states: Tensor, grad_last: Tensor, wants_decay: bool
) -> tuple[Tensor, Tensor, Tensor]:
    grad_decay = decay.new_empty(decay.shape if wants_decay else 0)
    return states.new_empty(states.shape), grad_decay, state.new_empty(state.shape)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, decay, state = inputs
    ctx.save_for_backward(decay, state, output[0])


def _differentiate(ctx: Any, grad_states: Tensor, grad_last: Tensor) -> tuple[Tensor | None, ...]:
    decay, state, states = ctx.saved_tensors
    wants_decay = ctx.needs_input_grad[1]
    grad_drive, grad_decay, grad_state = _gradients(states, decay, state, grad_states, grad_last, wants_decay)
    return grad_drive, grad_decay if wants_decay else None, grad_state


_scan.register_autograd(_differentiate, setup_context=_remember)


def linear_scan_triton(drive: Tensor, decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """(drive "batch time pixels state", decay "batch|1 time|1 state", state "batch pixels state") -> (states, last).

    All of complex64.
    """
    states, last = _scan(drive, decay, state)
    return states, last
