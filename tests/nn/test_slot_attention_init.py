"""Slot Attention and SAVi start from the weights that their authors' codes start from."""

from __future__ import annotations

import math

import pytest
import torch
from slotbench_plugins.cores.savi import SAVi
from slotbench_plugins.cores.slot_attention import SlotAttention
from torch import Tensor, nn

from slotbench.interfaces import TokenSpec

TOKEN_DIM, DIM, RATIO = 48, 64, 3
SPEC = TokenSpec(TOKEN_DIM, num_tokens=6)
CORES = [SlotAttention, SAVi]
INITS = ["slot_attention", "steve", "plain"]
PUBLISHED = ["slot_attention", "steve"]


def made(core=SAVi, init="steve", **arguments):
    torch.manual_seed(0)
    return core(
        SPEC, **{"num_slots": 5, "dim": DIM, "mlp_ratio": RATIO, "slot_init": "gaussian"} | arguments, init=init
    )


def assert_uniform(weight: Tensor, bound: float) -> None:
    """Fills the interval up to the bound, on both sides, and has the spread of a uniform distribution."""
    assert weight.abs().max() <= bound
    few = 4 / weight.numel()
    assert weight.max() > bound * (1 - 2 * few - 0.02)
    assert weight.min() < -bound * (1 - 2 * few - 0.02)
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.04 if weight.numel() > 1000 else 0.25)


def xavier(fan_in: int, fan_out: int, gain: float = 1.0) -> float:
    return gain * math.sqrt(6 / (fan_in + fan_out))


def kaiming(fan_in: int) -> float:
    return math.sqrt(6 / fan_in)


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("init", PUBLISHED)
def test_the_grus_input_maps_are_xavier_over_all_three_gates_and_its_recurrent_maps_orthogonal_together(core, init):
    gru = made(core, init).corrector.gru
    assert_uniform(gru.input_map.weight, xavier(DIM, 3 * DIM))
    recurrent = gru.hidden_map.weight
    assert recurrent.shape == (3 * DIM, DIM)
    torch.testing.assert_close(recurrent.mT @ recurrent, torch.eye(DIM), rtol=0, atol=1e-5)
    # the authors' codes make one matrix of the three maps, so that no gate alone has an orthogonal one
    gate = recurrent[:DIM]
    assert (gate.mT @ gate - torch.eye(DIM)).abs().max() > 0.3
    assert not gru.input_map.bias.any()
    assert not gru.hidden_map.bias.any()


@pytest.mark.parametrize("core", CORES)
def test_plain_has_each_map_of_the_gru_by_its_own_fan(core):
    gru = made(core, "plain").corrector.gru
    for gate in (*gru.input_map.weight.chunk(3), *gru.hidden_map.weight.chunk(3)):
        assert_uniform(gate, xavier(DIM, DIM))


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize(("init", "first"), [("slot_attention", xavier(DIM, RATIO * DIM)), ("steve", kaiming(DIM))])
def test_the_correctors_mlp_starts_as_each_code_has_it(core, init, first):
    _, expand, _, contract = made(core, init).corrector.mlp
    assert_uniform(expand.weight, first)
    assert_uniform(contract.weight, xavier(RATIO * DIM, DIM))
    assert not expand.bias.any()
    assert not contract.bias.any()


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("init", INITS)
def test_queries_keys_and_values_are_xavier_each_by_its_own_fan(core, init):
    attention = made(core, init).corrector.attention
    assert_uniform(attention.query.weight, xavier(DIM, DIM))
    for part in attention.key_value.weight.chunk(2):
        assert_uniform(part, xavier(TOKEN_DIM, DIM))


@pytest.mark.parametrize(("init", "gain", "first"), [("slot_attention", 1, None), ("steve", 0.5**0.5, kaiming(DIM))])
def test_what_steves_predictor_adds_to_the_slots_is_scaled_down(init, gain, first):
    predictor = made(SAVi, init).predictor
    assert_uniform(predictor.attention.output.weight, xavier(DIM, DIM, gain))
    _, expand, _, contract = predictor.mlp
    assert_uniform(expand.weight, first or xavier(DIM, RATIO * DIM))
    assert_uniform(contract.weight, xavier(RATIO * DIM, DIM, gain))
    for part in predictor.attention.query_key_value.weight.chunk(3):
        assert_uniform(part, xavier(DIM, DIM))


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize(("init", "bound"), [("slot_attention", xavier(1, DIM)), ("steve", xavier(DIM, DIM))])
def test_mean_and_deviation_of_drawn_slots_start_as_each_code_has_them(core, init, bound):
    slots = made(core, init, dim=DIM).slot_init
    for parameter in (slots.mean, slots.log_deviation):
        assert_uniform(parameter, bound)
    assert (slots.mean - slots.log_deviation).abs().max() > 0.05, "they are drawn apart"


def test_the_bounds_at_the_width_of_clevr_are_those_of_keras_and_of_pytorch():
    assert xavier(1, 64) == pytest.approx(0.3038, abs=1e-4)
    assert xavier(64, 64) == pytest.approx(0.2165, abs=1e-4)


@pytest.mark.parametrize("core", CORES)
def test_plain_draws_slots_from_a_standard_normal_distribution(core):
    slots = made(core, "plain").slot_init
    assert not slots.mean.any()
    assert not slots.log_deviation.any()


# sums and sums of squares of all parameters, and the next number that is drawn, from before there were presets
EARLIER = [
    (SlotAttention, {}, 58.77594406074786, 245.90301509490428, -0.8623221516609192),
    (
        SlotAttention,
        {"slot_init": "learned", "num_heads": 2},
        57.63347689084185,
        327.8442349960703,
        -1.6531991958618164,
    ),
    (SAVi, {}, 111.47343986727356, 483.49540290701475, 1.027583122253418),
    (SAVi, {"slot_init": "gaussian"}, 113.00096926337574, 418.3528648891333, -0.7836888432502747),
]


@pytest.mark.parametrize(("core", "arguments", "total", "squares", "after"), EARLIER)
def test_plain_is_what_was_before_there_were_presets(core, arguments, total, squares, after):
    torch.manual_seed(0)
    parameters = list(core(TokenSpec(24, 4), num_slots=5, dim=16, init="plain", **arguments).parameters())
    assert torch.randn(1).item() == pytest.approx(after, abs=1e-6)
    assert sum(p.double().sum().item() for p in parameters) == pytest.approx(total, abs=1e-4)
    assert sum(p.double().square().sum().item() for p in parameters) == pytest.approx(squares, abs=1e-4)


def test_each_core_starts_as_its_authors_do_unless_told_otherwise():
    torch.manual_seed(0)
    attention = SlotAttention(SPEC, dim=DIM)
    torch.manual_seed(0)
    savi = SAVi(SPEC, dim=DIM)
    expected = (made(SlotAttention, "slot_attention", num_slots=8, mlp_ratio=2), made(SAVi, "steve", num_slots=8))
    assert torch.equal(attention.corrector.gru.hidden_map.weight, expected[0].corrector.gru.hidden_map.weight)
    assert torch.equal(attention.slot_init.mean, expected[0].slot_init.mean)
    assert savi.predictor.mlp[1].weight.abs().max() > xavier(DIM, 4 * DIM), "Kaiming, as in STEVE's code"


@pytest.mark.parametrize("core", CORES)
def test_the_epsilon_of_every_layer_norm_is_the_one_that_was_asked_for(core):
    def epsilons(model: nn.Module) -> set[float]:
        return {module.eps for module in model.modules() if isinstance(module, nn.LayerNorm)}

    assert epsilons(made(core, norm_eps=1e-6)) == {1e-6}
    assert epsilons(made(core)) == {1e-5}
    tokens = 1e-3 * torch.randn(1, 2, 6, TOKEN_DIM)
    torch.manual_seed(1)
    fine = made(core, slot_init="learned", norm_eps=1e-6)(tokens).slots
    assert (fine - made(core, slot_init="learned", norm_eps=1e-3)(tokens).slots).abs().max() > 1e-3


def test_videosaur_begins_with_pytorchs_layers_and_slots_of_small_norm():
    core = made(init="videosaur", form="videosaur")
    assert_uniform(core.corrector.attention.key_value.weight, 1 / math.sqrt(TOKEN_DIM))
    assert_uniform(core.corrector.gru.hidden_map.weight, 1 / math.sqrt(DIM))
    assert core.corrector.gru.input_map.bias.any()
    assert not core.corrector.mlp[1].bias.any()
    assert_uniform(core.predictor.attention.query.weight, xavier(DIM, DIM))
    assert_uniform(core.predictor.mlp[1].weight, 1 / math.sqrt(DIM))
    assert core.slot_init.log_deviation.exp().tolist() == pytest.approx([1 / math.sqrt(DIM)] * DIM)
    learned = made(init="videosaur", slot_init="learned", num_slots=50).slot_init.slots
    assert learned.std().item() == pytest.approx(1 / math.sqrt(DIM), rel=0.05)
