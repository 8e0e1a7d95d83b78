"""The recurrences of SlotRNN and RIM against torch.nn.GRU over the same slots, forward plus backward.

torch.nn.GRU sees every slot of every clip as a sequence of its own, of the width of a slot. What the cores have beside
a recurrence is taken out as far as the row says. A slot encoder is taken out everywhere (tokens are as many and as wide
as slots, and pass through), because it is attention and parallel over time. SlotRNN has one layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from slotbench.bench.contest import Contest, Way
from slotbench.bench.subjects import Subject
from slotbench.interfaces import TokenSpec
from slotbench.registry import load

__all__ = ["SUBJECT"]

FULL, QUICK = (8, 100, 6, 64), (2, 20, 6, 16)


def contests(quick: bool) -> Iterator[Contest]:
    """One contest."""
    shape = QUICK if quick else FULL
    yield Contest(", ".join(map(str, shape)), lambda: _ways(shape), "torch.nn.GRU")


class _PassThrough(nn.Module):
    """Stands for a slot encoder: the tokens are the slots."""

    def __init__(self, queries: Tensor):
        super().__init__()
        self.queries = queries

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        return tokens, tokens.new_zeros(tokens.shape[0], tokens.shape[1], tokens.shape[1])


def _ways(shape: tuple[int, int, int, int]) -> dict[str, Way]:
    batch, steps, slots, dim = shape
    torch.manual_seed(0)
    spec = TokenSpec(dim, slots)
    tokens = torch.randn(batch, steps, slots, dim, requires_grad=True)
    gru = nn.GRU(dim, dim, batch_first=True)
    sparse = max(1, 2 * slots // 3)
    cores = {
        "SlotRNN, no mixer": _slot_rnn(spec, "none"),
        "SlotRNN, attention": _slot_rnn(spec, "attention"),
        "RIM, GRUs alone": _groups_alone(spec),
        "RIM, all active, input attention": _rim(spec, top_k=slots, communication="off"),
        "RIM, top-k, input attention": _rim(spec, top_k=sparse, communication="off"),
        "RIM, top-k, both attentions": _rim(spec, top_k=sparse),
    }

    def run(forward: Callable[[], Tensor]) -> None:
        tokens.grad = None
        forward().sum().backward()

    ways: dict[str, Way] = {"torch.nn.GRU": lambda: run(lambda: gru(tokens.transpose(1, 2).flatten(0, 1))[0])}
    for name, core in cores.items():
        ways[name] = lambda core=core: run(lambda: core(tokens).slots)  # type: ignore[misc]
    return ways


def _slot_rnn(spec: TokenSpec, mixer: str) -> nn.Module:
    core: Any = load("cores", "SlotRNN")(spec, spec.num_tokens, spec.dim, num_layers=1, mixer=mixer)
    core.encoder = _PassThrough(core.encoder.queries.detach())
    return core


def _rim(spec: TokenSpec, **arguments: Any) -> nn.Module:
    core: nn.Module = load("cores", "RIM")(spec, spec.num_tokens, spec.dim, num_inputs=None, **arguments)
    return core


def _groups_alone(spec: TokenSpec) -> nn.Module:
    """RIM without either attention: each module reads the input of its own index."""
    rim: Any = load("cores", "RIM")

    class GroupsAlone(rim):  # type: ignore[misc]
        def per_step(self, tokens: Tensor) -> Tensor:
            return tokens

        def cell(self, inputs: Tensor, state: Any) -> tuple[Tensor, None, Any]:
            after, _ = self._update(inputs, state, None)
            return after.hidden, None, after

    sizes = (spec.num_tokens, spec.dim, spec.num_tokens)
    return GroupsAlone(spec, *sizes, num_inputs=None, input_value_dim=spec.dim, communication="off")


SUBJECT = Subject("recurrences, forward + backward, float32", "batch, steps, slots, width", contests, rounds=11)
