"""Slots that forget exponentially, each channel at its own learned rate."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import RecurrentCore, SlotSpec, State, TokenSpec
from slotbench.nn.parameters import without_decay


class LeakyIntegrator(RecurrentCore):
    """Slots that are running averages of what they attend to.

    Each slot reads the tokens of a step with its own learned query (softmax over the tokens) and mixes what it read
    into its trace, `trace = decay * trace + (1 - decay) * read`. The decay is a constant of the slot and the channel,
    not a function of the input: the simplest state space model there is, and a baseline for those that select.

    Args:
        token_spec: the tokens of one step.
        num_slots: number of slots.
        dim: width of a slot.
        shortest: smallest time constant at the start of training, in steps.
        longest: largest time constant at the start of training, in steps; those of the channels lie between, evenly in
            their logarithm.

    Raises:
        ValueError: if not 0 < shortest <= longest.
    """

    attention_kind = "reading"

    def __init__(
        self, token_spec: TokenSpec, num_slots: int = 8, dim: int = 64, shortest: float = 1.0, longest: float = 100.0
    ) -> None:
        super().__init__()
        if not 0 < shortest <= longest:
            raise ValueError(
                f"LeakyIntegrator got shortest={shortest} and longest={longest} (steps); "
                "expected 0 < shortest <= longest: try --model.core.shortest 1 --model.core.longest 100"
            )
        self.slot_spec = SlotSpec(num_slots, dim)
        timescales = torch.linspace(math.log(shortest), math.log(longest), dim)
        # weight decay would pull the queries to one another and every time constant to a single step
        self.queries = without_decay(nn.Parameter(torch.randn(num_slots, dim)))
        self.log_timescale = without_decay(nn.Parameter(timescales.repeat(num_slots, 1)))
        self.norm = nn.LayerNorm(token_spec.dim)
        self.to_key = nn.Linear(token_spec.dim, dim, bias=False)
        self.to_value = nn.Linear(token_spec.dim, dim)
        self.output = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim))

    def slot_parameters(self) -> dict[str, int]:
        """Nothing but these rows tells one slot from another, so permuting them permutes the slots."""
        return {"queries": 0, "log_timescale": 0}

    def initial_state(self, tokens: Float[Tensor, "batch tokens token_dim"]) -> Float[Tensor, "batch slots dim"]:
        """Empty traces."""
        return tokens.new_zeros(tokens.shape[0], *self.queries.shape)

    def cell(
        self, tokens: Float[Tensor, "batch tokens token_dim"], state: State
    ) -> tuple[Float[Tensor, "batch slots dim"], Float[Tensor, "batch slots tokens"], State]:
        """One step of every slot."""
        tokens = self.norm(tokens)
        scores = self.queries @ self.to_key(tokens).mT / math.sqrt(self.slot_spec.dim)  # (batch, slots, tokens)
        attention = scores.softmax(dim=-1)
        read = attention @ self.to_value(tokens)
        decay = torch.exp(-torch.exp(-self.log_timescale))
        trace = decay * state + (1 - decay) * read
        return self.output(trace), attention, trace
