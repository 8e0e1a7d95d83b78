"""Small models, fixed seeds, seconds: that the parts learn together at all. Results proper are in docs/results.md."""

from __future__ import annotations

from collections.abc import Callable

import torch
from slotbench_plugins.cores.slot_ssm import SlotSSM
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.interfaces import TokenSpec

NUM_COLOURS = 4


def first_colour_wins(generator: torch.Generator, batch: int, time: int) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens "batch time 1 colours+1" that are blank but for three colours, the first of them within four steps; which
    colour came first; and whether one has come yet, "batch time"."""
    colour = torch.full((batch, time), NUM_COLOURS)
    later = 4 + torch.rand(batch, time - 4, generator=generator).argsort(dim=1)[:, :2]
    colour.scatter_(1, later, torch.randint(0, NUM_COLOURS, later.shape, generator=generator))
    first = torch.randint(0, NUM_COLOURS, (batch, 1), generator=generator)
    step = torch.randint(0, 4, (batch, 1), generator=generator)
    colour.scatter_(1, step, first)
    return F.one_hot(colour, NUM_COLOURS + 1).float()[:, :, None], first[:, 0], torch.arange(time) >= step


def test_a_colour_is_remembered_over_256_steps_by_the_state_and_by_nothing_else():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    core = SlotSSM(TokenSpec(NUM_COLOURS + 1, 1), num_slots=1, dim=32, num_heads=2, encoder_layers=1)
    head = nn.Linear(32, NUM_COLOURS)

    def loss_at(batch: int, time: int) -> Callable[[], Tensor]:
        def loss() -> Tensor:
            tokens, first, seen = first_colour_wins(generator, batch, time)
            return F.cross_entropy(head(core(tokens).slots[:, :, 0])[seen], first[:, None].expand_as(seen)[seen])

        return loss

    def accuracy(last_slots: Tensor) -> float:
        return (head(last_slots).argmax(dim=-1) == first).float().mean().item()

    # Short clips first: on long ones alone it takes far longer to find out that there is something to remember.
    for batch, time, steps in ((32, 8, 100), (16, 32, 80), (8, 128, 40)):
        optimise(nn.ModuleList([core, head]), loss_at(batch, time), steps, learning_rate=5e-3)
    with torch.no_grad():
        tokens, first, _ = first_colour_wins(generator, 256, 256)
        with_state = core(tokens).slots[:, -1, 0]
        # Dropping the state before every step leaves the last step alone.
        without_state = core(tokens[:, -1:]).slots[:, -1, 0]
    chance = 1 / NUM_COLOURS
    assert accuracy(with_state) > 3 * chance
    assert accuracy(without_state) < 1.4 * chance


def optimise(model: nn.Module, loss: Callable[[], Tensor], steps: int, learning_rate: float) -> None:
    optimiser = torch.optim.AdamW(model.parameters(), lr=learning_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    for _ in range(steps):
        optimiser.zero_grad()
        loss().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
