"""What the compiled cell of an autoregressive transformer reads, and its state from cell to cell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from slotbench.ops.dispatch import numba_works

__all__ = ["CellDecoder", "CellWeights", "can_decode"]

_MOST_FRAMES = 8  # beyond which torch's products of matrices are faster


def can_decode(slots: Float[Tensor, "frames slots dim"]) -> bool:
    """Whether the compiled cell is there for such slots, and is faster: few frames on a CPU, float32 or float64."""
    fits = slots.device.type == "cpu" and slots.dtype in (torch.float32, torch.float64)
    fits = fits and 0 < len(slots) <= _MOST_FRAMES
    return fits and not torch.is_autocast_enabled("cpu") and numba_works()


@dataclass(frozen=True)
class CellWeights:
    """The parameters of a stack of layers, each with those of the layers before it in the first dimension.

    Args:
        norms: weights and biases of the LayerNorms before self-attention, slots and MLP: "layers three two dim".
        mapping: the map to queries, keys and values: "layers three_dim dim".
        output: the map after self-attention: "layers dim dim".
        expand: the first map of the MLP: "layers hidden dim".
        expand_bias: its bias: "layers hidden".
        contract: the second one: "layers dim hidden".
        contract_bias: its bias: "layers dim".
        last_norm: weight and bias of the LayerNorm after the layers: "two dim".
        head: the map to logits: "codes dim".
        eps: of all norms.
    """

    norms: Tensor
    mapping: Tensor
    output: Tensor
    expand: Tensor
    expand_bias: Tensor
    contract: Tensor
    contract_bias: Tensor
    last_norm: Tensor
    head: Tensor
    eps: float

    def arrays(self) -> tuple[np.ndarray, ...]:
        """All but `eps`, in this order."""
        tensors = (
            self.norms, self.mapping, self.output, self.expand, self.expand_bias, self.contract, self.contract_bias,
            self.last_norm, self.head,
        )  # fmt: skip
        return tuple(tensor.detach().contiguous().numpy() for tensor in tensors)


class CellDecoder:
    """Decodes the cells of a frame one after the other, keeping the keys and values of those before.

    Args:
        weights: of the layers.
        slot_keys: the slots' keys with the map of the queries before them: "layers frames heads slots dim".
        slot_values: the slots' values with the output map after them: "layers frames heads slots dim".
        cells: how many there are.
    """

    def __init__(self, weights: CellWeights, slot_keys: Tensor, slot_values: Tensor, cells: int) -> None:
        layers, frames, num_heads, num_slots, dim = slot_keys.shape
        self._weights = weights.arrays()
        self._slots = tuple(slots.detach().contiguous().numpy() for slots in (slot_keys, slot_values))
        kind = self._slots[0].dtype
        self._kept = np.empty((layers, frames, 2, num_heads, cells, dim // num_heads), kind)
        self._scores = np.empty(max(cells, num_slots), kind)
        numbers = (0, weights.eps, dim, (dim // num_heads) ** -0.5, 1 / layers)
        self._numbers = tuple(kind.type(number) for number in numbers)
        self._shape = (frames, num_heads, num_slots)

    def decode(
        self, x: Float[Tensor, "frames dim"], cell: int
    ) -> tuple[Float[Tensor, "frames codes"], Float[Tensor, "frames heads slots"]]:
        """(logits, weights on the slots as the mean over layers) of a cell, after those before it."""
        from slotbench.ops.code_sampling._numba import decode_cell

        logits, shares = x.new_empty(len(x), self._weights[-1].shape[0]), x.new_empty(self._shape)
        decode_cell(
            x.numpy().copy(), cell, self._weights, *self._slots, self._kept, self._numbers, self._scores,
            logits.numpy(), shares.numpy(),
        )  # fmt: skip
        return logits, shares
