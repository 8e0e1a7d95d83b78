from __future__ import annotations

import pytest
import torch
from slotbench_plugins.cores.slot_rnn import AttentionMixer, SlotRNN
from torch import Tensor, nn

from slotbench.interfaces import TokenSpec

SPEC = TokenSpec(dim=12, num_tokens=5)


def tokens(batch: int = 2, time: int = 6) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(batch, time, SPEC.num_tokens, SPEC.dim, generator=generator, dtype=torch.float64)


def small(num_slots: int = 3, num_layers: int = 2, **arguments) -> SlotRNN:
    torch.manual_seed(0)
    return SlotRNN(SPEC, num_slots, dim=16, num_layers=num_layers, num_heads=2, encoder_layers=1, **arguments).double()


class SlotsAreTokens(nn.Module):
    """Stands for the encoder, so that slots enter apart from one another."""

    def __init__(self, queries: Tensor):
        super().__init__()
        self.queries = queries

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, torch.eye(x.shape[-2]).expand(*x.shape[:-2], -1, -1)


def with_slots_as_tokens(**arguments) -> SlotRNN:
    core = SlotRNN(TokenSpec(16, 3), 3, 16, num_heads=2, encoder_layers=1, **arguments).double()
    core.encoder = SlotsAreTokens(core.encoder.queries.detach())
    return core


def test_without_a_mixer_every_layer_is_a_gru_over_each_slot():
    core = small(mixer="none")
    gru = nn.GRU(16, 16, num_layers=2, batch_first=True).double()
    with torch.no_grad():
        for index, layer in enumerate(core.layers):
            for name, half in (("ih", layer.gru.input_map), ("hh", layer.gru.hidden_map)):
                half.bias.normal_()
                getattr(gru, f"weight_{name}_l{index}").copy_(half.weight)
                getattr(gru, f"bias_{name}_l{index}").copy_(half.bias)
    x = tokens()
    slots = core.encoder(x.flatten(0, 1))[0].unflatten(0, x.shape[:2])
    expected, last = gru(slots.transpose(1, 2).flatten(0, 1))
    output = core(x)
    torch.testing.assert_close(output.slots, expected.unflatten(0, (2, 3)).transpose(1, 2))
    for state, after in zip(output.state, last, strict=True):
        torch.testing.assert_close(state, after.unflatten(0, (2, 3)))


def test_slots_do_not_meet_without_a_mixer():
    core = with_slots_as_tokens(mixer="none")
    x = torch.randn(1, 5, 3, 16, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(core(x).slots[:, :, 1].square().sum(), x)
    assert not gradient[:, :, [0, 2]].any()
    assert gradient[:, :, 1].abs().amax(dim=-1).min() > 0


@pytest.mark.parametrize("mixer", ["attention", "attention_mlp"])
def test_a_mixer_joins_the_slots_of_a_step_and_of_later_ones(mixer):
    core = with_slots_as_tokens(mixer=mixer)
    x = torch.randn(1, 5, 3, 16, dtype=torch.float64, requires_grad=True)
    slots = core(x).slots
    for step, reached in ((1, False), (2, True), (4, True)):
        (gradient,) = torch.autograd.grad(slots[:, step, 0].square().sum(), x, retain_graph=True)
        assert gradient[:, 2, 1].any().item() is reached


def test_the_mixed_slots_are_what_the_next_step_starts_from():
    core = small(num_layers=1)
    output = core(tokens(time=3))
    torch.testing.assert_close(output.state[0], output.slots[:, -1])
    inputs = core.per_step(tokens())
    (layer,) = core.layers
    hidden = core.initial_state(tokens()[:, 0])[0]
    for gates in inputs.gates.unbind(1):
        hidden = layer.mixer(layer.gru(gates, hidden))
    torch.testing.assert_close(hidden, core(tokens()).slots[:, -1])


def test_the_norm_of_the_mixer_stands_where_one_says():
    slots = torch.randn(2, 3, 16)
    for norm in ("after", "before", "none"):
        torch.manual_seed(0)
        mixer = AttentionMixer(16, 2, norm)
        normed = nn.functional.layer_norm(slots, (16,))
        expected = {
            "after": nn.functional.layer_norm(slots + mixer.attention(slots), (16,)),
            "before": slots + mixer.attention(normed),
            "none": slots + mixer.attention(slots),
        }[norm]
        torch.testing.assert_close(mixer(slots), expected)


@pytest.mark.parametrize("mixer", ["attention", "attention_mlp", "none"])
def test_gradient_of_the_last_step_reaches_the_first_of_eighty_and_does_not_explode(mixer):
    core, x = small(mixer=mixer), tokens(time=80).requires_grad_()
    slots = core(x).slots[:, -1]
    (gradient,) = torch.autograd.grad((slots * torch.randn_like(slots)).sum(), x)
    first, last = gradient[:, 0].norm(), gradient[:, -1].norm()
    assert 0 < first / last < 100
