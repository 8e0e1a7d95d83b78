from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from slotbench_plugins.cores.rim import ALTSCOFF, OCRIM, RIM, SCOFF
from small_rim import CELLS, DIM, MODULES, SPEC, small, tokens

from slotbench.interfaces import SlotSpec, TokenSpec, map_state
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
        disabled_mode="code",
    )
    attention, communication = core.input_attention, core.communication
    assert (attention.key.out_features, attention.value.out_features, attention.normalisation) == (5, 7, "standard")
    assert (attention.dropout.p, attention.drops_what_is_read) == (0.25, False)
    assert (communication.num_heads, communication.scale, communication.dropout.p) == (3, 9**-0.5, 0.35)
    assert communication(core.initial_state(tokens().float()[:, 0]).hidden).shape == (2, 4, 8)
    assert (core.slot_spec, core.top_k, core.communication_mode) == (SlotSpec(4, 8), 3, "self")
    assert (core.disabled_slots, core.disabled_mode, core.has_memory) == ((1,), "code", False)


def test_arguments_of_rim_and_oc_rim_alone_reach_the_parts():
    given = {"cell_type": "lstm", "initial": "zeros", "expose_inactive_update": True, "evaluation_top_k": 2}
    rim = RIM(SPEC, num_slots=4, input_dropout_on="read", mask_inactive_reads=False, **given)
    for core in (rim, OCRIM(SPEC, num_slots=4, **given)):
        assert (core.has_memory, core.initial, core.expose_inactive_update, core.evaluation_top_k) == (
            True,
            "zeros",
            True,
            2,
        )
    assert rim.input_attention.drops_what_is_read
    assert not rim.mask_inactive_reads


@CELLS
@pytest.mark.parametrize("num_inputs", [None, 2])
@settings(max_examples=6)
@given(cut=st.integers(1, 6), top_k=st.integers(1, MODULES))
def test_a_clip_in_two_pieces_is_the_clip(cell_type, num_inputs, cut, top_k):
    core, x = small(top_k, num_inputs, cell_type=cell_type), tokens(time=7).requires_grad_()
    whole = core(x)
    first = core(x[:, :cut])
    second = core(x[:, cut:], first.state)
    torch.testing.assert_close(torch.cat([first.slots, second.slots], dim=1), whole.slots)
    expected, gradient = (torch.autograd.grad(y.slots[:, -1].square().sum(), x)[0] for y in (whole, second))
    torch.testing.assert_close(gradient, expected)


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


def test_a_normal_start_differs_between_clips_in_training_only():
    core = small(initial="normal")
    start = core.initial_state(tokens(batch=4)[:, 0]).hidden
    assert start.flatten(1).unique(dim=0).shape[0] == 4
    start = core.eval().initial_state(tokens(batch=4)[:, 0]).hidden
    assert start.flatten(1).unique(dim=0).shape[0] == 1
    assert 0.5 < start.std() < 1.5


def test_attention_is_in_terms_of_the_tokens_and_only_of_modules_that_read():
    for num_inputs in (None, "num_slots", 2):
        core = small(2, num_inputs)
        attention = core(tokens()).attention
        assert attention.shape == (2, 6, MODULES, 3)
        read = attention.sum(dim=-1)
        assert ((read > 0).sum(dim=-1) == 2).all()
        assert (read < 1).all()


def test_encoder_makes_as_many_inputs_as_asked():
    assert small(num_inputs=None).encoder is None
    assert small(num_inputs="num_slots").encoder.queries.shape == (MODULES, DIM)
    assert small(num_inputs=7).encoder.queries.shape == (7, DIM)


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


def test_state_is_finite_after_huge_tokens():
    core, x = small(), (1e4 * tokens()).requires_grad_()
    slots = core(x).slots
    (gradient,) = torch.autograd.grad(slots.square().sum(), x)
    assert slots.isfinite().all()
    assert gradient.isfinite().all()


def test_default_states_do_not_grow_with_the_length_of_the_clip():
    for seed in (1, 2):
        torch.manual_seed(seed)
        core = RIM(TokenSpec(dim=64, num_tokens=4)).eval()
        with torch.no_grad():
            slots = core(torch.randn(1, 120, 4, 64)).slots
        assert slots.abs().max() < 10


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


def test_state_without_memory_maps_to_one_without():
    state = small()(tokens()).state
    assert map_state(torch.clone, state).memory is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"top_k": 9}, "top_k=9 of num_slots=8 .* choose 1 to 8"),
        ({"top_k": 0}, "top_k=0 of num_slots=8"),
        ({"num_slots": 0}, "at least one module, got num_slots=0"),
        ({"share_query": True, "initial": "zeros"}, "same query at the first step"),
        ({"num_inputs": 0}, "at least 1 slot"),
    ],
)
def test_arguments_that_cannot_be_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        RIM(SPEC, **arguments)


def test_settings_on_the_papers_page_are_the_presets():
    page = (Path(__file__).parents[4] / "docs" / "papers" / "rim.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    x = torch.randn(2, 5, SPEC.num_tokens, SPEC.dim)
    for block, preset in zip(blocks, (RIM.thesis, RIM.original, OCRIM.thesis), strict=True):
        given, outputs = yaml.safe_load(block)["core"], []
        for build in (preset, partial(preset.__self__, **given["init_args"])):
            torch.manual_seed(0)
            core = build(SPEC).eval()
            torch.manual_seed(1)
            outputs.append(core(x).slots)
        assert given["class_path"] == preset.__self__.__name__
        assert torch.equal(*outputs)


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


def test_communication_among_the_details_follows_its_mode():
    core = small(2)
    core.communication_mode = "self"
    details = core(tokens()).details
    assert torch.equal(details["communication"], torch.diag_embed(details["active"].double()))
    core.communication_mode = "off"
    assert "communication" not in core(tokens()).details
