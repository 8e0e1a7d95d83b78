"""A convolution of frames whose weights are laid out once for many calls, and its readable reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from slotbench.ops._threads import run_in_threads
from slotbench.ops.dispatch import numba_works
from slotbench.ops.group_norm import group_norm_activation
from slotbench.ops.group_norm.activation import group_norm_activation_reference

if TYPE_CHECKING:
    from slotbench.ops.group_norm import Activation

__all__ = ["NormBefore", "PreparedConv", "convolve_reference"]

MAX_FRAMES = 32
"""Up to which the compiled convolution is taken: with 64 frames nothing is left of what it saves."""

_TRANSFORM = ((1.0, 0.0, 0.0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0.0, 0.0, 1.0))
"""G of F(2 x 2, 3 x 3)."""


class NormBefore(NamedTuple):
    """GroupNorm and activation in front of a convolution; the arguments of `group_norm_activation`."""

    num_groups: int
    weight: Tensor
    bias: Tensor
    eps: float
    activation: Activation
    kernel: str = "auto"


class PreparedConv:
    """y = passed + factor (conv(activation(norm(x))) + bias), for many calls with the same weights.

    Zeros lie around the frames, which keep their size. Few frames on a CPU without gradient are one call of a compiled
    kernel, if the convolution is 3 x 3: norm, activation and residual are done on the way, and Winograd's algorithm
    needs 16 products in the place of 36, with weights that are transformed at the first such call. Its values are as
    close to those in float64 as torch's. Everything else is torch's convolution, with gradients.

    Args:
        weight: "out in rows cols", of odd sizes.
        bias: "out", or None.
        norm: what comes before the convolution, or None for nothing.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None, norm: NormBefore | None = None):
        self.weight = weight
        self.bias = bias
        self.norm = norm
        self._is_one_pixel = tuple(weight.shape[2:]) == (1, 1) and norm is None
        self._can = (
            (self._is_one_pixel or tuple(weight.shape[2:]) == (3, 3))
            and weight.device.type == "cpu"
            and weight.dtype in (torch.float32, torch.float64)
            and (norm is None or _is_compiled(norm, weight))
            and numba_works()
        )
        self._arguments: tuple | None = None

    def __call__(self, images: Tensor, passed: Tensor | None = None, factor: float = 1.0) -> Tensor:
        """Each image on its own; channels-last from the compiled kernel.

        Args:
            images: "frames in rows cols".
            passed: what is added, "frames out rows cols", or None.
            factor: of the convolution beside `passed`.
        """
        if self._takes(images, passed):
            return self._compiled(images, passed, float(factor))
        norm = self.norm
        if norm is not None:
            numbers = (norm.num_groups, norm.weight, norm.bias, norm.eps, norm.activation)
            images = group_norm_activation(images, *numbers, kernel=norm.kernel)
        made = functional.conv2d(images, self.weight, self.bias, padding=self.weight.shape[-1] // 2)
        if passed is not None:
            return torch.add(passed, made, alpha=factor)
        return made if factor == 1 else factor * made

    def _takes(self, images: Tensor, passed: Tensor | None) -> bool:
        # torch raises the error about what does not fit
        return (
            self._can
            and images.ndim == 4
            and images.shape[0] <= MAX_FRAMES
            and images.shape[1] == self.weight.shape[1]
            and not torch.is_grad_enabled()
            and images.dtype == self.weight.dtype
            and images.device.type == "cpu"
            and not torch.is_autocast_enabled("cpu")
            and (passed is None or self._fits(passed, images))
        )

    def _fits(self, passed: Tensor, images: Tensor) -> bool:
        shape = (images.shape[0], self.weight.shape[0], *images.shape[2:])
        return passed.shape == shape and passed.dtype == images.dtype and passed.device == images.device

    def _compiled(self, images: Tensor, passed: Tensor | None, factor: float) -> Tensor:
        from slotbench.ops.frame_conv._numba import convolve, convolve_pixels

        if self._arguments is None:
            self._arguments = self._lay_out()
        frames, inputs, rows, cols = images.shape
        outputs = self.weight.shape[0]
        made = torch.empty(frames, rows, cols, outputs, dtype=images.dtype)
        x, y = _pixels(images), made.numpy()
        before = y[:0] if passed is None else _pixels(passed)
        if self._is_one_pixel:
            count = frames * rows * cols
            before = before.reshape(-1, outputs)
            convolve_pixels(x.reshape(count, inputs), *self._arguments, before, factor, y.reshape(count, outputs))
        elif frames == 1:
            convolve(x, *self._arguments, before, factor, y)
        else:
            arguments = self._arguments
            run_in_threads(
                lambda first, last: convolve(x[first:last], *arguments, before[first:last], factor, y[first:last]),
                frames,
            )
        return made.permute(0, 3, 1, 2)

    def _lay_out(self) -> tuple:
        """What the kernel takes of norm, weight and bias."""
        bias = self.weight.new_zeros(self.weight.shape[0]) if self.bias is None else self.bias
        if self._is_one_pixel:
            return panels_of(self.weight.permute(2, 3, 1, 0).flatten(0, 1)).numpy(), bias.detach().numpy()
        norm = (0, bias, bias, 0.0, False)
        if self.norm is not None:
            groups, weight, offset, eps, activation, _ = self.norm
            norm = (groups, weight, offset, eps, activation != "elu")
        values = (*norm, panels_of(transform_weight(self.weight)), bias)
        return tuple(value.detach().contiguous().numpy() if isinstance(value, Tensor) else value for value in values)


def transform_weight(weight: Tensor) -> Tensor:
    """G g G', "16 in out"."""
    transform = torch.tensor(_TRANSFORM, dtype=torch.float64)
    products = torch.einsum("ay,oiyx,bx->abio", transform, weight.detach().double(), transform)
    return products.flatten(0, 1).to(weight.dtype)


def panels_of(weights: Tensor) -> Tensor:
    """Weights "many in out" as panels of as many output channels as a register holds, the last filled up with zeros.

    Returns:
        "many panels in lanes", contiguous.
    """
    from slotbench.ops.frame_conv._block_product import VECTOR_BYTES

    lanes = VECTOR_BYTES // weights.element_size()
    panels = functional.pad(weights.detach(), (0, -weights.shape[-1] % lanes)).unflatten(-1, (-1, lanes))
    return panels.transpose(1, 2).contiguous()


def _pixels(images: Tensor) -> np.ndarray:
    """As "frames rows cols channels" in contiguous memory."""
    if images.requires_grad:
        images = images.detach()
    return images.permute(0, 2, 3, 1).contiguous().numpy()


def convolve_reference(
    images: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    norm: NormBefore | None = None,
    passed: Tensor | None = None,
    factor: float = 1.0,
) -> Tensor:
    """What `PreparedConv` computes, to read and to check against: a sum over what lies around each pixel."""
    if norm is not None:
        images = group_norm_activation_reference(images, *norm[:5])
    height, width = images.shape[2:]
    reach_y, reach_x = (size // 2 for size in weight.shape[2:])
    padded = functional.pad(images, (reach_x, reach_x, reach_y, reach_y))
    made = images.new_zeros(()) if bias is None else bias[:, None, None]
    for y in range(weight.shape[2]):
        for x in range(weight.shape[3]):
            seen = padded[:, :, y : y + height, x : x + width]
            made = made + torch.einsum("oi,nihw->nohw", weight[:, :, y, x], seen)
    return factor * made + (0 if passed is None else passed)


def _is_compiled(norm: NormBefore, weight: Tensor) -> bool:
    alike = norm.weight.dtype == weight.dtype and norm.weight.shape == norm.bias.shape == weight.shape[1:2]
    return alike and norm.kernel in ("auto", "numba") and weight.shape[1] % norm.num_groups == 0
