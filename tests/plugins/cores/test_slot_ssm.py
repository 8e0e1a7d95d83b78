from __future__ import annotations

from typing import get_args

import pytest
import torch
from slotbench_plugins.cores.single_state_ssm import SingleStateSSM
from slotbench_plugins.cores.slot_ssm import SlotSSM
from slotbench_plugins.cores.split_ssm import SplitSSM
from torch import nn

from slotbench.interfaces import TokenSpec
from slotbench.nn.attention import SlotMixer
from slotbench.nn.mamba import MambaBlock
from slotbench.nn.slot_ssm_layer import MixerName, SlotSSMLayer, SlotSSMStack

SPEC = TokenSpec(dim=12, num_tokens=5)
MIXERS = get_args(MixerName)


def tokens(batch: int = 2, time: int = 6, spec: TokenSpec = SPEC) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(batch, time, spec.num_tokens, spec.dim, generator=generator)


def small(num_slots: int | list[int] = 3, num_layers: int = 2, **arguments) -> SlotSSM:
    return SlotSSM(SPEC, num_slots, dim=16, num_layers=num_layers, num_heads=2, encoder_layers=1, **arguments)


def test_parameter_counts_are_those_of_the_paper():
    core = SlotSSM(TokenSpec(dim=64, num_tokens=16), num_slots=6, num_layers=3)
    layers = [sum(parameter.numel() for parameter in layer.parameters()) for layer in core.layers]
    assert layers == [70_512] * 3
    assert sum(parameter.numel() for parameter in core.parameters()) == 205_184 + 3 * 70_512


@pytest.mark.parametrize(("ssm", "rates"), [("mamba", (32, 5)), ("mamba2", (4,))])
def test_what_is_given_reaches_every_layer(ssm, rates):
    given = {"state_dim": 5, "expand": 2.0, "conv_width": 3, "head_dim": 8, "exact_zoh": True, "kernel": "reference"}
    core = small(ssm=ssm, mlp_ratio=3, **given)
    for layer, state in zip(core.layers, core(tokens()).state, strict=True):
        block = layer.ssm
        assert block.A_log.shape == rates
        assert (block.state_dim, block.inner_dim, block.exact_zoh, block.kernel) == (5, 32, True, "reference")
        assert block.conv1d.kernel_size == (3,)
        assert (state.conv.shape[2], state.ssm.shape[-1]) == (2, 5)
        assert {part.out_features for part in layer.mixer.mlp.modules() if isinstance(part, nn.Linear)} == {48, 16}
    assert len(core.encoders["0"].layers) == 1


def test_encoders_stand_where_the_number_of_slots_changes():
    core = small([8, 8, 4, 4, 2], num_layers=5)
    assert list(core.encoders) == ["0", "2", "4"]
    output = core(tokens())
    assert output.slots.shape == (2, 6, 2, 16)
    assert [state.ssm.shape[1] for state in output.state] == [8, 8, 4, 4, 2]
    assert output.attention is None


def test_the_first_layer_has_an_encoder_even_where_there_are_as_many_tokens_as_slots():
    core = SlotSSM(TokenSpec(dim=64, num_tokens=1), num_slots=1)
    assert list(core.encoders) == ["0"]


@pytest.mark.parametrize("mixer", ["mlp", "none"])
def test_without_attention_in_the_mixer_a_slot_never_hears_of_another(mixer):
    core = small(mixer=mixer).double()
    slots = torch.randn(2, 5, 3, 16, dtype=torch.float64, requires_grad=True)
    out, _ = core.layers(slots)
    (gradient,) = torch.autograd.grad(out[:, :, 1].square().sum(), slots)
    assert not gradient[:, :, [0, 2]].any()
    assert gradient[:, :, 1].any()


def test_the_mixers_mlp_is_what_is_left_when_its_attention_goes():
    names = {mixer: {name for name, _ in small(mixer=mixer).layers.named_parameters()} for mixer in MIXERS}
    assert names["none"] < names["mlp"] < names["attention_mlp"]
    assert {name for name in names["attention_mlp"] - names["mlp"] if ".mixer.attention" not in name} == set()


def test_the_mixer_joins_slots_of_a_step_and_the_scan_carries_that_on():
    layers = nn.ModuleList(SlotSSMLayer(16, MambaBlock(16), SlotMixer(16)) for _ in range(2)).double()
    slots = torch.randn(1, 5, 3, 16, dtype=torch.float64, requires_grad=True)
    x = slots
    for layer in layers:
        x, _ = layer(x)
    for step, reached in ((1, False), (2, True), (4, True)):
        (gradient,) = torch.autograd.grad(x[:, step, 0].square().sum(), slots, retain_graph=True)
        assert gradient[:, 2, 1].any().item() is reached


def test_only_the_last_encoders_queries_are_declared_as_slot_parameters():
    assert small([3, 3]).slot_parameters() == {"encoders.0.queries": 0}
    assert small([3, 2]).slot_parameters() == {"encoders.1.queries": 0}


def context(batch: int = 2, time: int = 6) -> torch.Tensor:
    return torch.randn(batch, time, 5, 12, generator=torch.Generator().manual_seed(0))


def test_is_slot_ssm_with_one_slot():
    single, slots = SingleStateSSM(SPEC, dim=16), SlotSSM(SPEC, 1, dim=16)
    weights = {name.replace("encoder.", "encoders.0.", 1): value for name, value in single.state_dict().items()}
    slots.load_state_dict(weights)
    assert torch.equal(single(context()).slots, slots(context()).slots)


class NoLayers(SlotSSMStack):
    """A stack that hands on what it is given."""

    def forward(self, slots, state=None):
        return slots, ()


def small_split(**arguments) -> SplitSSM:
    return SplitSSM(SPEC, **{"num_slots": 3, "dim": 16, "stack_dim": 32, "encoder_layers": 1, **arguments})


def test_slots_come_back_as_they_went_in_where_nothing_is_in_between():
    core = small_split(stack_dim=None)
    core.layers = NoLayers(48)
    x = context()
    slots, _ = core.encoder(x.flatten(0, 1))
    assert torch.equal(core(x).slots, slots.unflatten(0, (2, 6)))


@pytest.mark.parametrize("stack_dim", [None, 32])
def test_every_slot_depends_on_every_other(stack_dim):
    core = small_split(stack_dim=stack_dim)
    queries = core.encoder.queries
    # self-attention over the queries couples slots too: cut it, so that only the stack is left to do so
    for layer in core.encoder.layers:
        torch.nn.init.zeros_(layer.self_attention.output.weight)
    for slot in range(3):
        (gradient,) = torch.autograd.grad(core(context()).slots[:, -1, slot].square().sum(), queries)
        assert (gradient.abs().amax(dim=-1) > 0).all()


def test_without_projections_the_layers_are_as_wide_as_all_slots_together():
    core = small_split(stack_dim=None)
    assert core.layers[0].ssm_norm.normalized_shape == (48,)
    assert not list(core.join.parameters())
    assert not list(core.split.parameters())
