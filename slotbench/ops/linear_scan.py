"""The complex diagonal recurrence along time of S5 and ConvS5: one op, a readable reference, and faster kernels."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from slotbench.ops._arguments import check_shapes
from slotbench.ops._linear_scan_torch import LinearScan, decay_of_steps
from slotbench.ops.dispatch import choose_kernel

__all__ = ["linear_scan", "linear_scan_reference"]


def linear_scan(
    drive: Tensor, decay: Tensor, state: Tensor | None = None, *, kernel: str = "auto"
) -> tuple[Tensor, Tensor]:
    """Runs a recurrence whose states do not mix, the same at every place of the frame.

        h_t = decay_t h_{t-1} + drive_t

    The decay is shared by all places, and by all steps and samples unless it has these axes (irregular sampling); it is
    never copied to the size of the drive. The returned state is an output like the others: gradient that comes in
    through it counts, so a clip can be cut anywhere. Gradients follow PyTorch's convention for complex tensors. It
    computes in complex128 if any input is complex128, in complex64 otherwise, under autocast too.

    Kernels: `reference` is the equation as a loop under plain autograd (the only one that can be differentiated twice);
    `torch` the same loop with one buffer and a backward of its own, on every device; `numba` the same compiled, on the
    CPU, on `torch.get_num_threads()` threads, its gradients the same bits whatever that number;
    `triton` the same for CUDA, in complex64, its gradients the same bits every time.

    Source: S5 (Smith, Warrington and Linderman, ICLR 2023), Eq. 2; ConvS5 (Smith et al., NeurIPS 2023), section 3.2.

    Args:
        drive: what every step adds to the state, complex, "batch time *space state", time >= 1; the fast kernels read
            it without a copy if it is contiguous, as the view of a channels-last convolution is.
        decay: factor of the state before, complex, of magnitude <= 1 if the states are to stay bounded; "state",
            "time state" or "batch time state".
        state: h before the first step, complex, "batch *space state"; zeros if None.
        kernel: "auto" (the fastest that runs here) or the name of a kernel.

    Returns:
        every h "batch time *space state", and the last of them "batch *space state".
    """
    _check(drive, decay, state)
    dtype, excluded = torch.complex64, {}
    if any(x is not None and x.dtype == torch.complex128 for x in (drive, decay, state)):
        dtype = torch.complex128
        excluded = {"triton": "computes in complex64 and an input is complex128: use kernel='torch'"}
    name = choose_kernel("linear_scan", kernel, drive.device, excluded)
    batch, time, *space, num_states = drive.shape
    # one axis for all places, and all three axes of the decay, of length 1 where it is broadcast
    pixels = math.prod(space)
    drive_ = drive.to(dtype).reshape(batch, time, pixels, num_states)
    decay_ = decay.to(dtype)[(None,) * (3 - decay.ndim)]
    if state is None:
        state_ = drive_.new_zeros(batch, pixels, num_states)
    else:
        state_ = state.to(dtype).reshape(batch, pixels, num_states)

    if time == 1 and name != "reference":
        # one product and one sum: nothing to loop over
        last = torch.addcmul(drive_[:, 0], decay_[:, 0, None], state_)
        states = last.clone()
    elif name == "reference":
        states, last = linear_scan_reference(drive_, decay_, state_)
    elif name == "numba":
        from slotbench.ops._linear_scan_numba import LinearScan as NumbaScan

        states, last = NumbaScan.apply(drive_, decay_, state_)
    elif name == "triton":
        from slotbench.ops._cuda.triton_linear_scan import linear_scan_triton

        states, last = linear_scan_triton(drive_, decay_, state_)
    else:
        states, last = LinearScan.apply(drive_, decay_, state_)
    return states.reshape(drive.shape), last.reshape(batch, *space, num_states)


def linear_scan_reference(drive: Tensor, decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """The recurrence of `linear_scan`, to read and to check against, on tensors of one dtype.

    All places are one axis: `drive` is "batch time pixels state", `state` "batch pixels state", and `decay`
    "batch|1 time|1 state".
    """
    states = []
    # unbind once: indexing drive[:, t] in a differentiated loop costs O(T^2) in the backward pass
    for drive_t, decay_t in zip(drive.unbind(1), decay_of_steps(decay, drive.shape[1]), strict=True):
        state = decay_t * state + drive_t
        states.append(state)
    return torch.stack(states, dim=1), state


def _check(drive: Tensor, decay: Tensor, state: Tensor | None) -> None:
    for name, value in (("drive", drive), ("decay", decay), ("state", state)):
        if value is not None and not value.is_complex():
            raise ValueError(
                f"linear_scan takes complex tensors and {name} is {value.dtype}: pair real and imaginary parts in the "
                f"last axis with torch.view_as_complex, or write {name}.to(torch.complex64) for a real one"
            )
    if drive.ndim < 3:
        raise ValueError(
            f"linear_scan takes drive as (batch, time, *space, state) and got the shape {tuple(drive.shape)}"
        )
    batch, time, *space, num_states = drive.shape
    if time == 0:
        raise ValueError(
            "linear_scan needs at least one time step and drive has none: leave the call out for an empty clip"
        )
    if not 1 <= decay.ndim <= 3:
        raise ValueError(
            f"linear_scan takes decay as (state,), (time, state) or (batch, time, state) and got the shape "
            f"{tuple(decay.shape)}; it is shared by all places of the space"
        )
    decay_shape = (batch, time, num_states)[-decay.ndim :]
    decay_words = ("(state,)", "(time, state)", "(batch, time, state)")[decay.ndim - 1]
    expected = {
        "decay": (decay, decay_shape, decay_words),
        "state": (state, (batch, *space, num_states), "(batch, *space, state)"),
    }
    check_shapes("linear_scan", {"drive": drive}, expected)
