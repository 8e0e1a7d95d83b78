from __future__ import annotations

import pytest
import torch
from slotbench_plugins.cores.rim import ALTSCOFF, OCRIM, RIM, SCOFF
from small_rim import CELLS, MODULES, SPEC, small, tokens

from slotbench.interfaces import SlotSpec, TokenSpec
from slotbench.nn.parameters import decay_groups


@pytest.mark.parametrize("kind", [RIM, OCRIM, SCOFF, ALTSCOFF])
def test_arguments_reach_the_parts(kind):
    core = kind(
        SPEC,
        num_slots=4,
        dim=8,
        top_k=3,
        input_attention="standard",
        input_key_dim=5,
        input_value_dim=7,
        input_dropout=0.25,
        communication="self",
        communication_heads=3,
        communication_key_dim=9,
        communication_value_dim=11,
        communication_dropout=0.35,
        disabled_slots=(1,),
    )
    attention, communication = core.input_attention, core.communication
    assert (attention.key.out_features, attention.value.out_features, attention.normalisation) == (5, 7, "standard")
    assert (attention.dropout.p, attention.drops_what_is_read) == (0.25, False)
    assert (communication.num_heads, communication.scale, communication.dropout.p) == (3, 9**-0.5, 0.35)
    assert communication(core.initial_state(tokens().float()[:, 0]).hidden).shape == (2, 4, 8)
    assert (core.slot_spec, core.top_k, core.communication_mode) == (SlotSpec(4, 8), 3, "self")
    assert (core.disabled_slots, core.has_memory) == ((1,), False)


@CELLS
@pytest.mark.parametrize("initial", ["learned", "zeros", "normal"])
def test_evaluation_is_the_same_every_time_and_for_every_sample_of_a_batch(initial, cell_type):
    core = small(initial=initial, cell_type=cell_type, input_dropout=0.3, communication_dropout=0.3).eval()
    slots = core(tokens(batch=3)).slots
    assert torch.equal(core(tokens(batch=3)).slots, slots)
    for sample in range(3):
        torch.testing.assert_close(core(tokens(batch=3)[sample : sample + 1]).slots[0], slots[sample])


def test_training_draws_dropout_and_a_normal_start_anew():
    for arguments in ({"input_dropout": 0.5}, {"communication_dropout": 0.5}, {"initial": "normal"}):
        core = small(MODULES, **arguments)
        assert not torch.equal(core(tokens()).slots, core(tokens()).slots), arguments


def test_parameters_of_the_thesis_count_as_in_the_thesis():
    def count(module: torch.nn.Module) -> int:
        return sum(parameter.numel() for parameter in module.parameters())

    core = RIM.thesis(TokenSpec(dim=64, num_tokens=1))
    assert (count(core.units), count(core.communication), count(core)) == (543_600, 316_800, 915_696)
    assert count(RIM.thesis(TokenSpec(dim=100, num_tokens=3))) == 925_200


@pytest.mark.parametrize("cell_type", ["gru", "lstm"])
def test_original_settings_are_four_of_six_with_a_gate_after_the_communication(cell_type):
    core = RIM.original(TokenSpec(dim=10, num_tokens=1), cell_type=cell_type).eval()
    slots = core(torch.randn(2, 4, 1, 10)).slots
    assert ((slots[:, 1:] != slots[:, :-1]).any(dim=-1).sum(dim=-1) == 4).all()
    assert slots.shape == (2, 4, 6, 100)
    assert core.communication.output.weight.shape == (200, 64)


@pytest.mark.parametrize("preset", [RIM.thesis, RIM.original])
def test_presets_start_their_modules_projections_small(preset):
    weight = preset(SPEC).communication.value.weight
    assert weight.std().item() == pytest.approx(0.01, rel=0.1)


def test_communication_can_be_taken_from_a_trained_core():
    core = small(MODULES)
    full = core(tokens()).slots
    core.communication_mode = "off"
    off = core(tokens()).slots
    alone = small(MODULES, communication="off")
    alone.load_state_dict({n: w for n, w in core.state_dict().items() if not n.startswith("communication.")})
    assert not torch.equal(full, off)
    assert torch.equal(off, alone(tokens()).slots)


def test_two_thirds_are_active_unless_told():
    assert [RIM(SPEC, num_slots=n).top_k for n in (1, 3, 6, 8)] == [1, 2, 4, 5]


def test_learned_start_and_biases_do_not_decay():
    core = small()
    rest = {id(parameter) for parameter in decay_groups(core.parameters())[1]["params"]}
    assert {name for name, parameter in core.named_parameters() if id(parameter) in rest} == {
        "initial_modules",
        "units.input_bias",
        "units.hidden_bias",
    }


@pytest.mark.parametrize("null_row", ["first", "last"])
@pytest.mark.parametrize("top_k", [2, MODULES])
def test_details_say_who_is_active_what_is_read_and_who_is_heard(top_k, null_row):
    core = small(top_k, null_row=null_row)
    output = core(tokens())
    active, reads, heard = (output.details[name] for name in ("active", "reads", "communication"))
    assert (active.dtype, active.shape) == (torch.bool, (2, 6, MODULES))
    assert (active.sum(dim=-1) == top_k).all()
    assert torch.equal(active, output.attention.sum(dim=-1) > 0)
    # all read and are weighed by the null input, the last; what is handed on are the reads of the active ones
    torch.testing.assert_close(reads.sum(dim=-1), torch.ones(2, 6, MODULES).double())
    torch.testing.assert_close(reads[..., :-1] * active[..., None], output.attention.detach())
    assert (reads[..., -1].where(active, 0.0).amax(-1) <= reads[..., -1].where(~active, 1.0).amin(-1)).all()
    torch.testing.assert_close(heard.sum(dim=-1), active.double())


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (RIM, {"top_k": 9}, "top_k=9 of num_slots=8 .* choose 1 to 8"),
        (RIM, {"num_slots": 0}, "at least one module, got num_slots=0"),
        (OCRIM, {"disabled_slots": (6,)}, r"disabled_slots=\(6,\) of 6 modules: give numbers from 0 to 5"),
        (OCRIM, {"disabled_slots": (0, 1, 2, 3, 4, 5)}, "leave at least one module"),
        (OCRIM, {"evaluation_top_k": 7}, "evaluation_top_k=7 of num_slots=6 modules cannot be active"),
        (OCRIM, {"num_inputs": None, "head_dim": 8}, "head_dim=8 makes slots like those of a frame"),
        (OCRIM, {"num_inputs": 0}, "at least 1 slot"),
        (SCOFF, {"num_schemata": 0}, "num_schemata=0: give at least 1"),
        (ALTSCOFF, {"temperature": 0.0}, r"temperature=0\.0: give a positive number"),
    ],
)
def test_arguments_that_cannot_be_are_refused_by_the_family(kind, arguments, message):
    with pytest.raises(ValueError, match=message):
        kind(SPEC, **arguments)
