"""Keyed memory: what any core makes of tokens, asked for by the key that each of them ends with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from slotbench.interfaces import CoreOutput, PartError, SlotSpec, State, TemporalCore, TokenSpec
from slotbench_plugins.cores.s5 import S5


class KeyedMemory(TemporalCore):
    """A core over all numbers of the tokens but the last, a key, by which each slot that it makes is multiplied.

    The key stands behind its slot. With tokens of `KeyedEncoder` and a core that adds them up, a slot holds the sum of
    what was seen times the keys of where, and the product with the key of a place brings out what was seen there. Any
    core with one slot for each token will do, so that they can be compared as memories: `S5` keeps what it has read,
    `FrameTransformer` with a `window` does not.

    Args:
        token_spec: the output of the encoder; the last number of a token is its key.
        core: makes the core from the tokens without their keys.
    """

    def __init__(self, token_spec: TokenSpec, core: Callable[[TokenSpec], TemporalCore] = S5):
        super().__init__()
        if token_spec.dim < 2:
            raise PartError(
                f"KeyedMemory reads a key behind the numbers of a token, and these tokens have {token_spec.dim}: "
                "choose KeyedEncoder, or an encoder with a larger dim"
            )
        self.core = core(replace(token_spec, dim=token_spec.dim - 1))
        slots = self.core.slot_spec
        if slots.num_slots != token_spec.num_tokens:
            raise PartError(
                f"KeyedMemory multiplies each slot by the key of its token, and {type(self.core).__name__} makes "
                f"{slots.num_slots} slots of {token_spec.num_tokens} tokens: choose a core whose slots are the cells, "
                "such as S5, ConvS5 or FrameTransformer"
            )
        self.causal = self.core.causal
        self.slot_spec = SlotSpec(slots.num_slots, slots.dim + 1, slots.grid)

    def forward(self, tokens: Float[Tensor, "batch time tokens dim"], state: State | None = None) -> CoreOutput:
        """Slots of every step, each times its key, with the key behind; the state is that of the core inside."""
        output, key = self.core(tokens[..., :-1], state), tokens[..., -1:]
        return replace(output, slots=torch.cat([output.slots * key, key.to(output.slots)], dim=-1))
