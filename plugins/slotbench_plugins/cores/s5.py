"""S5: one vector per patch of the grid and one linear recurrence for each, without convolutions."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import torch
from einops import rearrange
from jaxtyping import Complex, Float
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from slotbench.interfaces import CoreOutput, SlotSpec, TemporalCore, TokenSpec
from slotbench.nn.diagonal_ssm import DiagonalDynamics, Initialisation, as_complex, as_pairs
from slotbench.nn.grid import grid_of
from slotbench.nn.linear import lecun_linear, lecun_normal_
from slotbench.nn.resnet_blocks import NORM_EPS
from slotbench.ops import linear_scan


class S5State(NamedTuple):
    """What an S5 layer remembers of every patch."""

    hidden: Complex[Tensor, "batch patches state"]


class S5(TemporalCore):
    """A stack of S5 layers along the time of every patch, weights shared and patches never mixed.

    With `patch` of 1 every cell is a sequence of its own, which is `ConvS5` with kernels of one cell and its "half GLU"
    activation. With a patch as large as the grid a frame is one vector, as in the paper's baseline. Patches are cut
    out and put together by linear maps without bias; the slots are the cells again.

    Source: Smith, Warrington, Linderman, "Simplified State Space Layers for Sequence Modeling", ICLR 2023; as the
    baseline of ConvS5 (Smith et al., NeurIPS 2023), appendix D, and its code.

    Args:
        token_spec: the output of the encoder; tokens without a grid are one row.
        dim: width of the sequences.
        state_dim: real states of a sequence, an even number; half as many complex ones are kept.
        num_layers: layers.
        patch: cells on a side of the square that becomes one vector; divides rows and columns of the grid.
        output_dim: channels of the cells that come out; None for `dim`.
        blocks: blocks that the HiPPO matrix is cut into.
        clip_eigs: hold the real parts of the eigenvalues at -1e-4 or below.
        initialisation: how the eigenvalues start: "hippo", "random", "lin" or "ring".
        prenorm: put the LayerNorms before the recurrences instead of at the end of the layers.
        dropout: share of a layer's outputs that are dropped in training, the same at all steps of a call.
        step_rescale: factor of all step sizes: 2 to run at half the frame rate of the training clips.
        checkpoint_layers: compute every layer again in the backward pass.
        kernel: which kernel of `slotbench.ops.linear_scan` runs the recurrence.
    """

    def __init__(
        self,
        token_spec: TokenSpec,
        dim: int = 64,
        state_dim: int = 64,
        num_layers: int = 2,
        patch: int = 1,
        output_dim: int | None = None,
        blocks: int = 1,
        clip_eigs: bool = True,
        initialisation: Initialisation = "hippo",
        prenorm: bool = False,
        dropout: float = 0.0,
        step_rescale: float = 1.0,
        checkpoint_layers: bool = False,
        kernel: str = "auto",
    ):
        super().__init__()
        self.grid = rows, cols = grid_of(token_spec)
        if patch < 1 or rows % patch or cols % patch:
            raise ValueError(f"patch={patch} must divide the {rows} rows and {cols} columns of the grid")
        self.patch = patch
        self.checkpoint_layers = checkpoint_layers
        output_dim = output_dim or dim
        self.slot_spec = SlotSpec(num_slots=rows * cols, dim=output_dim, grid=self.grid)
        self.into_patches = lecun_linear(token_spec.dim * patch**2, dim, bias=False)
        self.out_of_patches = lecun_linear(dim, output_dim * patch**2, bias=False)
        make_dynamics = partial(DiagonalDynamics, state_dim, blocks, initialisation, clip_eigs, step_rescale)
        self.layers = nn.ModuleList(
            S5Layer(S5StateSpace(dim, make_dynamics(), kernel), prenorm, dropout) for _ in range(num_layers)
        )

    def forward(
        self, tokens: Float[Tensor, "batch time tokens dim"], state: tuple[S5State, ...] | None = None
    ) -> CoreOutput:
        """Cells of every step, and one state per layer."""
        rows = self.grid[0] // self.patch
        sizes = {"rows": rows, "ph": self.patch, "pw": self.patch}
        patches = rearrange(tokens, "batch time (rows ph cols pw) dim -> batch time (rows cols) (ph pw dim)", **sizes)
        # in the weights' precision, so that the residual stream is not bfloat16 under autocast
        x = self.into_patches(patches).to(self.into_patches.weight.dtype)
        states = []
        for index, layer in enumerate(self.layers):
            before = None if state is None else state[index]
            if self.checkpoint_layers and torch.is_grad_enabled():
                x, after = checkpoint(layer, x, before, use_reentrant=False)
            else:
                x, after = layer(x, before)
            states.append(after)
        slots = rearrange(
            self.out_of_patches(x),
            "batch time (rows cols) (ph pw dim) -> batch time (rows ph cols pw) dim",
            **sizes,
        )
        return CoreOutput(slots=slots, attention=None, state=tuple(states))


class S5Layer(nn.Module):
    """State space model, GELU and gate around which the input is carried, then a LayerNorm.

    Source: ConvS5's code of S5.

    Args:
        ssm: the recurrence; gives the layer its width.
        prenorm: put the LayerNorm before the state space model instead of at the end.
        dropout: share of the outputs that are dropped, the same at all steps of a call.
    """

    def __init__(self, ssm: S5StateSpace, prenorm: bool = False, dropout: float = 0.0):
        super().__init__()
        dim = len(ssm.D)
        self.prenorm = prenorm
        self.dropout = dropout
        self.ssm = ssm
        self.gate = lecun_linear(dim, dim)
        self.norm = nn.LayerNorm(dim, eps=NORM_EPS)

    def forward(
        self, x: Float[Tensor, "batch time patches dim"], state: S5State | None = None
    ) -> tuple[Float[Tensor, "batch time patches dim"], S5State]:
        """(sequences, state)."""
        outputs, hidden = self.ssm(self.norm(x) if self.prenorm else x, None if state is None else state.hidden)
        z = functional.gelu(outputs, approximate="tanh")
        outputs = z * torch.sigmoid(self.gate(z))
        if self.training and self.dropout:
            outputs = outputs * functional.dropout(torch.ones_like(x[:, :1]), self.dropout)
        x = x + outputs
        return x if self.prenorm else self.norm(x), S5State(hidden)


class S5StateSpace(nn.Module):
    """The linear recurrence of S5: x_t = Abar x_{t-1} + Bbar u_t, y_t = 2 Re(C x_t) + D u_t.

    Source: S5, section 3; initialisation as in ConvS5's code of it, where B has the variance of a map from the states.

    Args:
        dim: width of input and output.
        dynamics: eigenvalues and step sizes; B and C start in the HiPPO basis, whichever the eigenvalues are.
        kernel: kernel of `slotbench.ops.linear_scan`; `slotbench.ops.set_kernel` changes it.
    """

    kernel_op = "linear_scan"

    def __init__(self, dim: int, dynamics: DiagonalDynamics, kernel: str = "auto"):
        super().__init__()
        self.kernel = kernel
        self.dynamics = dynamics
        half = len(dynamics.log_step)
        self.B = nn.Parameter(torch.empty(half, dim, 2))
        self.C = nn.Parameter(torch.empty(dim, half, 2))
        self.D = nn.Parameter(torch.randn(dim))
        self._initialise_maps(dynamics.hippo_basis())

    @torch.no_grad()
    def _initialise_maps(self, basis: Complex[Tensor, "state half"]) -> None:
        states, dim = len(basis), len(self.D)
        real = lecun_normal_(torch.empty(states, dim, dtype=torch.float64), states)
        self.B.copy_(torch.view_as_real(basis.mH @ real.to(basis)))
        parts = lecun_normal_(torch.empty(dim, states, 2, dtype=torch.float64), states)
        self.C.copy_(torch.view_as_real(torch.view_as_complex(parts) @ basis))

    def forward(
        self,
        inputs: Float[Tensor, "batch time patches dim"],
        state: Complex[Tensor, "batch patches state"] | None = None,
    ) -> tuple[Float[Tensor, "batch time patches dim"], Complex[Tensor, "batch patches state"]]:
        """(outputs, state after the last step)."""
        decay, gain = self.dynamics()
        weight = torch.view_as_real(gain[:, None] * torch.view_as_complex(self.B))
        drive = as_complex(functional.linear(inputs, rearrange(weight, "state dim part -> (state part) dim")))
        states, last = linear_scan(drive, decay, state, kernel=self.kernel)
        weight = rearrange(self.C * self.C.new_tensor([2.0, -2.0]), "dim state part -> dim (state part)")
        return functional.linear(as_pairs(states), weight) + self.D * inputs, last
