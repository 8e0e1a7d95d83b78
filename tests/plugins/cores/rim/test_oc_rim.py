from __future__ import annotations

from functools import partial

import pytest
import torch
from slotbench_plugins.cores.rim import ALTSCOFF, OCRIM, RIM, SCOFF
from slotbench_plugins.cores.rim.draws import noise_of_steps
from slotbench_plugins.cores.rim.frame_slots import reading_of
from small_rim import DIM, MODULES, PLAIN, SPEC, small, tokens

from slotbench.interfaces import TokenSpec
from slotbench.nn.slot_init import drawn_by_clip

INPUTS, WIDTH = 3, 7


def count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def oc(seed: int = 0, **arguments) -> OCRIM:
    torch.manual_seed(seed)
    sizes = {"num_slots": MODULES, "dim": DIM, "num_inputs": INPUTS, "slot_dim": WIDTH, "slot_mlp_dim": 8}
    return OCRIM(SPEC, **(sizes | PLAIN | arguments)).double().eval()


@pytest.mark.parametrize("norm", ["vector", "joint"])
@pytest.mark.parametrize("top_k", [2, MODULES])
def test_modules_read_the_slots_of_each_frame_as_rim_reads_its_tokens(norm, top_k):
    core = oc(slot_norm=norm, top_k=top_k)
    rim = RIM(TokenSpec(WIDTH, INPUTS), MODULES, DIM, top_k, None, **PLAIN).double().eval()
    rim.load_state_dict({name: value for name, value in core.state_dict().items() if not name.startswith("encoder.")})
    clips = [3, 5]
    with drawn_by_clip(clips):
        output = core(tokens())
        draws = core.initial_state(tokens()[:, 0]).draws
    given = core.per_step(tokens(), draws)
    frame_slots = noise_of_steps((INPUTS, WIDTH), 6, draws, tokens(), anew=False, kind="normal")
    expected = rim(core.frame_slots(tokens(), frame_slots)[0])
    torch.testing.assert_close(output.slots, expected.slots)
    torch.testing.assert_close(output.details["reads"], expected.details["reads"])
    # attention in terms of the tokens is what was read of the slots, times what the slots are made of
    reading = reading_of(output.details["inputs"])
    torch.testing.assert_close(output.attention, expected.attention @ reading)
    torch.testing.assert_close(given.attention, reading)
    torch.testing.assert_close(output.details["inputs"].sum(dim=2), torch.ones(2, 6, SPEC.num_tokens).double())


def test_without_slot_attention_it_is_rim_on_the_tokens():
    torch.manual_seed(0)
    flow = OCRIM.feature_flow(SPEC, MODULES, dim=DIM).double().eval()
    rim = RIM.thesis(SPEC, MODULES, MODULES, DIM).double().eval()
    rim.load_state_dict(flow.state_dict())
    assert torch.equal(flow(tokens()).slots, rim(tokens()).slots)
    assert "inputs" not in flow(tokens()).details
    assert flow.frame_slots is None


def test_presets_have_the_parameters_of_the_thesis():
    spec = TokenSpec(64, 36)
    for core, slots, cells in (
        (OCRIM.thesis(spec), 53_952, 915_696),
        (OCRIM.code(spec), 109_428, 925_200),
        (OCRIM.thesis(spec, num_inputs=6), 53_952, 915_696),
    ):
        assert (count(core.encoder), count(core) - count(core.encoder)) == (slots, cells)
        assert core.top_k == core.slot_spec.num_slots == 6
    assert count(OCRIM.feature_flow(TokenSpec(64, 36))) == count(RIM.thesis(TokenSpec(64, 36))) == 915_696
    assert OCRIM.thesis(spec).input_attention.query.weight.std().item() == pytest.approx(0.01, rel=0.05)


def test_slots_of_evaluation_depend_on_the_clip_and_the_step_alone():
    core, x = oc(), tokens(batch=3)
    with drawn_by_clip([4, 8, 15]):
        together = core(x)
    with drawn_by_clip([15, 4]):
        others = core(x[[2, 0]])
    torch.testing.assert_close(others.slots, together.slots[[2, 0]])
    with drawn_by_clip([5, 8, 15]):
        assert not torch.allclose(core(x).slots[0], together.slots[0])
    # the same frame again has other slots
    with drawn_by_clip([4, 8, 15]):
        won = core(x[:, :1].expand(-1, 4, -1, -1)).details["inputs"]
    assert not torch.allclose(won[:, 0], won[:, 1])
    with drawn_by_clip([4, 8, 15]), pytest.raises(ValueError, match="numbers of 3 clips, and the batch has 2"):
        core(x[:2])


def without(core: RIM, gone: int) -> RIM:
    """The same core with one module fewer."""
    keep = [k for k in range(MODULES) if k != gone]
    left = RIM(SPEC, MODULES - 1, DIM, min(core.top_k, MODULES - 1), None, cell_type=core.cell_type,
               input_attention=core.input_attention.normalisation, **PLAIN).double()  # fmt: skip
    weights = {}
    for name, value in core.state_dict().items():
        axis = 1 if name == "initial_modules" else 0
        shared = name in ("input_attention.key.weight", "input_attention.value.weight")
        weights[name] = value if shared else value.index_select(axis, torch.tensor(keep))
    left.load_state_dict(weights)
    return left


@pytest.mark.parametrize("top_k", [1, 2, 3, MODULES])
@pytest.mark.parametrize("arguments", [{}, {"cell_type": "lstm"}, {"input_attention": "standard"}], ids=str)
def test_removed_modules_are_as_if_they_were_not_there(top_k, arguments):
    core = small(top_k, **arguments).eval()
    for gone in (0, 2):
        core.disabled_slots = (gone,)
        output, expected = core(tokens()), without(core, gone).eval()(tokens())
        keep = [k for k in range(MODULES) if k != gone]
        torch.testing.assert_close(output.slots[:, :, keep], expected.slots)
        torch.testing.assert_close(output.attention[:, :, keep], expected.attention)
        for name in ("active", "reads"):
            torch.testing.assert_close(output.details[name][:, :, keep], expected.details[name])
        heard = output.details["communication"]
        torch.testing.assert_close(heard[:, :, keep][..., keep], expected.details["communication"])
        assert not output.slots[:, :, gone].any()
        assert not any(output.details[name][:, :, gone].any() for name in ("active", "reads", "communication"))
        assert not heard[..., gone].any()


@pytest.mark.parametrize("make", [oc, partial(oc, num_inputs=None)], ids=["slots", "tokens"])
def test_a_core_trained_with_few_active_modules_is_evaluated_with_as_many_as_are_asked_for(make):
    few, more, x = make(top_k=2), make(top_k=2, evaluation_top_k=MODULES), tokens()
    with drawn_by_clip([0, 1]):
        assert more(x).details["active"].all()
        torch.testing.assert_close(more(x).slots, make(top_k=MODULES)(x).slots)
    few.train(), more.train()
    found = []
    for core in (few, more):
        torch.manual_seed(3)
        found.append(core(x))
    assert found[1].details["active"].sum(-1).unique().tolist() == [2]
    torch.testing.assert_close(found[0].slots, found[1].slots, rtol=0, atol=0)


@pytest.mark.parametrize("kind", [OCRIM, SCOFF, ALTSCOFF])
@pytest.mark.parametrize("top_k", [1, 3])
def test_modules_that_are_not_active_keep_their_state_to_the_bit(kind, top_k):
    torch.manual_seed(0)
    core = kind(SPEC, MODULES, DIM, num_inputs=2, top_k=top_k).double()
    start = core.initial_state(tokens()[:, 0])
    output = core(tokens(), start)
    before = torch.cat([start.hidden[:, None], output.slots[:, :-1]], dim=1)
    active = output.details["active"]
    assert (active.sum(dim=-1) == top_k).all()
    assert torch.equal((output.slots == before).all(dim=-1), ~active)
    assert not output.attention[~active].any()
    heard = output.details["communication"].sum(dim=-1)
    torch.testing.assert_close(heard, active.double())
