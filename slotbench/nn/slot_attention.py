"""Slot Attention, which is the corrector of SAVi."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, get_args

from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import Aggregation, State
from slotbench.nn.gru import SharedGRU, gru_update
from slotbench.nn.inverted_attention import InvertedAttention
from slotbench.nn.linear import hoisted, xavier_linear
from slotbench.ops.inverted_attention import Memory

__all__ = ["Corrected", "CorrectorMLP", "SlotCorrector", "check_epsilon", "check_iterations", "relu_mlp"]

CorrectorMLP = Literal["every", "between", "none"]
"""After which iterations the MLP follows: every one, all but the last of a frame, or none."""


class Corrected(NamedTuple):
    """The result of a `SlotCorrector`: slots, share that each won of each token last, statistics of the aggregation."""

    slots: Float[Tensor, "batch slots dim"]
    assignment: Float[Tensor, "batch slots tokens"]
    statistics: State


class SlotCorrector(nn.Module):
    """Slot Attention: inverted attention, a GRU and a residual MLP, repeated with the same weights.

    The linear maps of the attention have no biases. With one head no map follows the aggregation: the GRU has one. With
    several, each head holds a competition of its own. Gradients go through all iterations.

    Source: Slot Attention (Locatello et al., 2020), Algorithm 1; SAVi (Kipf et al., 2022), the corrector.

    Args:
        dim: width of a slot.
        token_dim: width of a token; `dim` if None.
        num_heads: heads of the inverted attention.
        mlp_ratio: hidden width of the MLP in units of `dim`, rounded to a whole number.
        mlp: after which iterations the MLP follows.
        aggregation: turns (assignment, values) into updates, for values of width `dim` / `num_heads`.
        norm_eps: added to the variance in the LayerNorms. PyTorch has 1e-5, flax 1e-6, Keras 1e-3.
        normalised_state: the GRU's state are the slots as the attention reads them, normalised, as in VideoSAUR's code.
    """

    def __init__(
        self,
        dim: int,
        token_dim: int | None = None,
        num_heads: int = 1,
        mlp_ratio: int | float = 4,
        mlp: CorrectorMLP = "every",
        *,
        aggregation: Aggregation,
        norm_eps: float = 1e-5,
        normalised_state: bool = False,
    ):
        super().__init__()
        check_epsilon(norm_eps)
        self.normalised_state = normalised_state
        if mlp not in get_args(CorrectorMLP):
            raise ValueError(f"no corrector_mlp named {mlp!r}; choose one of {', '.join(get_args(CorrectorMLP))}")
        token_dim = dim if token_dim is None else token_dim
        several = num_heads > 1
        self.token_norm = nn.LayerNorm(token_dim, norm_eps)
        self.slot_norm = nn.LayerNorm(dim, norm_eps)
        self.attention = InvertedAttention(
            dim, token_dim, num_heads, aggregation=aggregation, across_heads=False, bias=False, output_map=several
        )
        self.gru = SharedGRU(dim, dim)
        self.mlp_after_last = mlp == "every"
        self.mlp = None if mlp == "none" else nn.Sequential(nn.LayerNorm(dim, norm_eps), *relu_mlp(dim, mlp_ratio))

    def frames(
        self, tokens: Float[Tensor, "batch time tokens token_dim"], num_slots: int, num_iterations: int
    ) -> Iterator[Memory]:
        """Memory that all iterations read of each frame (keys and values, or tokens), made for all frames at once."""
        return self.attention.frames(self.token_norm(tokens), num_slots, num_iterations)

    def forward(
        self,
        slots: Float[Tensor, "batch slots dim"],
        frame: Float[Tensor, "batch tokens token_dim"] | Memory,
        num_iterations: int,
        statistics: State = None,
    ) -> Corrected:
        """Algorithm 1 on one frame: its tokens, or its element of `frames`.

        An aggregation that measures (`BatchScaled`) does so at the first iteration, unless it is given the `statistics`
        of an earlier frame.
        """
        check_iterations(num_iterations)
        if isinstance(frame, Tensor):
            (frame,) = self.frames(frame[:, None], slots.shape[1], num_iterations)
        gru, mlp = self._on_rows()
        shape, slots, assignment = slots.shape, slots.flatten(0, 1), None
        for iteration in range(num_iterations):
            last = iteration == num_iterations - 1
            # assignment = softmax over slots of k q / sqrt(dim); updates = aggregation(assignment, v)
            normed = self.slot_norm(slots)
            updates, assignment, statistics = self.attention(normed.view(shape), frame, statistics, shares=last)
            slots = gru(updates, normed if self.normalised_state else slots)
            if self.mlp is not None and (self.mlp_after_last or not last):
                slots = slots + mlp(slots)
        assert assignment is not None
        return Corrected(slots.view(shape), assignment, statistics)

    def _on_rows(self) -> tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor], Tensor]]:
        """The GRU and the MLP on "(batch slots) dim", as products of matrices whose weights are transposed once."""
        input_gates, hidden_gates = hoisted(self.gru.input_map), hoisted(self.gru.hidden_map)

        def gru(updates: Tensor, slots: Tensor) -> Tensor:
            return gru_update(input_gates(updates.reshape(slots.shape)), hidden_gates(slots), slots)

        if self.mlp is None:
            return gru, nn.Identity()
        norm, (expand, contract) = self.mlp[0], (hoisted(layer) for layer in (self.mlp[1], self.mlp[3]))
        return gru, lambda slots: contract(expand(norm(slots)).relu_())


def check_iterations(num_iterations: int, name: str = "num_iterations") -> None:
    """Raises ValueError unless there is at least one."""
    if num_iterations < 1:
        raise ValueError(f"{name}={num_iterations}: slots must look at a frame at least once")


def check_epsilon(norm_eps: float) -> None:
    """Raises ValueError unless it is positive."""
    if not norm_eps > 0:
        raise ValueError(f"norm_eps={norm_eps}: give a small positive number, such as 1e-5")


def relu_mlp(dim: int, mlp_ratio: int | float) -> tuple[nn.Module, ...]:
    """Linear, ReLU and linear layer, `mlp_ratio` times as wide in between."""
    hidden = round(mlp_ratio * dim)
    return xavier_linear(dim, hidden), nn.ReLU(), xavier_linear(hidden, dim)
