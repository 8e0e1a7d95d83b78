"""A transformer over frames: patches of the grid in, causal layers of any attention with a state, the grid out."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from einops import rearrange
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn.functional import gelu

from slotbench.interfaces import State
from slotbench.nn.linear import lecun_linear, lecun_normal_
from slotbench.nn.positions import sincos_embedding, sincos_grid
from slotbench.nn.resnet_blocks import NORM_EPS

__all__ = ["FrameLayer", "FrameSequence", "FrameSequenceState", "GridToPatches", "PatchesToGrid", "patch_shape"]


class FrameSequenceState(NamedTuple):
    """The position that the next frame will have, and what the attention of each layer carries."""

    next_step: Integer[Tensor, " batch"]
    layers: tuple[State, ...]


class FrameLayer(nn.Module):
    """Causal attention, then x sigmoid(1.702 x) between two linear maps; residuals, and a LayerNorm before each half.

    Source: ConvS5 (Smith et al., NeurIPS 2023), public code, transformer baseline.

    Args:
        dim: width of a token.
        attention: maps (tokens "batch time slots dim", its state or None) to (tokens, state). Its linear maps start
            from normal weights of variance 1 / fan.
        mlp_ratio: hidden width of the MLP in units of `dim`.
    """

    def __init__(self, dim: int, attention: nn.Module, mlp_ratio: int = 4):
        super().__init__()
        self.attention_norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.attention = attention
        self.mlp_norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.expand = lecun_linear(dim, mlp_ratio * dim)
        self.contract = lecun_linear(mlp_ratio * dim, dim)
        for module in attention.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=module.in_features**-0.5)

    def forward(
        self, x: Float[Tensor, "batch time patches dim"], state: State = None
    ) -> tuple[Float[Tensor, "batch time patches dim"], State]:
        """(tokens, state of the attention after the last step)."""
        change, state = self.attention(self.attention_norm(x), state)
        x = x + change
        hidden = self.expand(self.mlp_norm(x))
        return x + self.contract(hidden * torch.sigmoid(1.702 * hidden)), state


class FrameSequence(nn.Module):
    """Frames as one sequence behind a learned first element, with a sine and cosine embedding of the step.

    A clip without a state begins with the learned element at step 0, as many copies of it as a frame has patches; its
    output is dropped, so that frame k stands at step k + 1 and has the output of index k. Where a frame has several
    patches they are told apart by a fixed sine and cosine embedding of their place; with one there is none.

    Source: ConvS5 (Smith et al., NeurIPS 2023), public code, transformer baseline, which has one patch of the whole
    grid; several patches are an extension.

    Args:
        token_dim: width of a token of the input.
        grid: (rows, cols) of the tokens.
        attention: makes the attention of layer i, as `FrameLayer` wants it.
        dim: width inside, an even number; a multiple of 4 where a frame has several patches.
        num_layers: layers, at least one.
        mlp_ratio: hidden width of the MLPs in units of `dim`.
        patch: cells per side of a patch; None for one patch of the whole grid.
        output_dim: width of a cell of the output; `dim` if None.
    """

    places: Tensor

    def __init__(
        self,
        token_dim: int,
        grid: tuple[int, int],
        attention: Callable[[int], nn.Module],
        dim: int = 64,
        num_layers: int = 2,
        mlp_ratio: int = 4,
        patch: int | None = None,
        output_dim: int | None = None,
    ):
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"num_layers must be at least 1, got {num_layers}")
        if dim % 2:
            raise ValueError(f"sines and cosines of the step need an even dim, got dim={dim}")
        shape = patch_shape(grid, patch)
        rows, cols = grid[0] // shape[0], grid[1] // shape[1]
        self.dim = dim
        self.output_dim = dim if output_dim is None else output_dim
        self.project = GridToPatches(token_dim, dim, grid, shape)
        self.start = nn.Parameter(0.02 * torch.randn(dim))
        self.input_map = lecun_linear(dim, dim)
        places = sincos_grid(rows, cols, dim).flatten(0, 1) if rows * cols > 1 else torch.zeros(1, dim)
        self.register_buffer("places", places, persistent=False)
        self.layers = nn.ModuleList(FrameLayer(dim, attention(index), mlp_ratio) for index in range(num_layers))
        self.output_map = lecun_linear(dim, dim)
        self.output_norm = nn.LayerNorm(dim, eps=NORM_EPS)
        self.unproject = PatchesToGrid(dim, self.output_dim, grid, shape)

    def forward(
        self, tokens: Float[Tensor, "batch time tokens dim"], state: FrameSequenceState | None = None
    ) -> tuple[Float[Tensor, "batch time tokens output_dim"], FrameSequenceState]:
        """(cells after every frame, state after the last); `state` is that of the call before."""
        batch, time = tokens.shape[:2]
        x = self.project(tokens)
        if state is None:
            x = torch.cat([self.start.expand(batch, 1, x.shape[2], -1).to(x.dtype), x], dim=1)
            first = torch.zeros(batch, dtype=torch.long, device=x.device)
        else:
            first = state.next_step
        index = first[:, None] + torch.arange(x.shape[1], device=x.device)
        # in the weights' precision, so that the residual stream is not bfloat16 under autocast
        position = sincos_embedding(index, self.dim, dtype=self.start.dtype)[:, :, None] + self.places
        x = self.input_map(x) + position
        after = []
        for number, layer in enumerate(self.layers):
            x, layer_state = layer(x, None if state is None else state.layers[number])
            after.append(layer_state)
        x = self.output_norm(gelu(self.output_map(x[:, -time:]), approximate="tanh"))
        return self.unproject(x), FrameSequenceState(first + position.shape[1], tuple(after))


def patch_shape(grid: tuple[int, int], patch: int | None) -> tuple[int, int]:
    """(rows, cols) of one patch, in cells."""
    if patch is None:
        return grid
    if patch < 1 or grid[0] % patch or grid[1] % patch:
        raise ValueError(
            f"patch={patch} does not tile a grid of {grid[0]}x{grid[1]} cells: give a number that divides both sides, "
            "or None to make one patch of the whole grid"
        )
    return patch, patch


class GridToPatches(nn.Module):
    """One linear map without bias from the cells of a patch to its vector: a convolution whose stride is its kernel.

    Row (r, c, d) of the transposed weight, in row-major order, belongs to channel d of cell (r, c) of the patch.

    Source: ConvS5 (Smith et al., NeurIPS 2023), public code, `z_proj`.

    Args:
        token_dim: width of a token.
        dim: width of a patch's vector.
        grid: (rows, cols) of the tokens.
        shape: (rows, cols) of a patch, as `patch_shape` gives them.
    """

    def __init__(self, token_dim: int, dim: int, grid: tuple[int, int], shape: tuple[int, int]):
        super().__init__()
        self.grid, self.shape = grid, shape
        self.linear = nn.Linear(shape[0] * shape[1] * token_dim, dim, bias=False)
        lecun_normal_(self.linear.weight)

    def forward(self, tokens: Float[Tensor, "batch time tokens token_dim"]) -> Float[Tensor, "batch time patches dim"]:
        """The patches of every step, row by row."""
        pattern = "batch time (rows r cols c) dim -> batch time (rows cols) (r c dim)"
        r, c = self.shape
        return self.linear(rearrange(tokens, pattern, rows=self.grid[0] // r, cols=self.grid[1] // c, r=r, c=c))


class PatchesToGrid(nn.Module):
    """One linear map without bias from a vector to the cells of its patch: a transposed convolution of that stride.

    Row (r, c, d) of the weight, in row-major order, belongs to channel d of cell (r, c). Its initial
    weights have the fan of the public code, which counts the cells of a patch in although they share no sum.

    Source: ConvS5 (Smith et al., NeurIPS 2023), public code, `z_unproj`.

    Args:
        dim: width of a patch's vector.
        token_dim: width of a cell of the output.
        grid: (rows, cols) of the output.
        shape: (rows, cols) of a patch, as `patch_shape` gives them.
    """

    def __init__(self, dim: int, token_dim: int, grid: tuple[int, int], shape: tuple[int, int]):
        super().__init__()
        self.grid, self.shape = grid, shape
        cells = shape[0] * shape[1]
        self.linear = nn.Linear(dim, cells * token_dim, bias=False)
        lecun_normal_(self.linear.weight, fan_in=cells * dim)

    def forward(self, patches: Float[Tensor, "batch time patches dim"]) -> Float[Tensor, "batch time tokens token_dim"]:
        """The cells of every step, row by row."""
        pattern = "batch time (rows cols) (r c dim) -> batch time (rows r cols c) dim"
        r, c = self.shape
        return rearrange(self.linear(patches), pattern, rows=self.grid[0] // r, cols=self.grid[1] // c, r=r, c=c)
