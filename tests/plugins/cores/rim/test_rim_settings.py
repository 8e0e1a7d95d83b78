from __future__ import annotations

import pytest
import torch
from slotbench_plugins.cores.rim import RIM
from slotbench_plugins.cores.rim.cell import InputAttention
from small_rim import MODULES, small, tokens

from slotbench.interfaces import TokenSpec


def test_training_draws_dropout_and_a_normal_start_anew():
    for arguments in ({"input_dropout": 0.5}, {"communication_dropout": 0.5}, {"initial": "normal"}):
        core = small(MODULES, **arguments)
        assert not torch.equal(core(tokens()).slots, core(tokens()).slots), arguments
        assert torch.equal(core.eval()(tokens()).slots, core(tokens()).slots), arguments


def test_parameters_of_the_thesis_count_as_in_the_thesis():
    def count(module: torch.nn.Module) -> int:
        return sum(parameter.numel() for parameter in module.parameters())

    core = RIM.thesis(TokenSpec(dim=64, num_tokens=1))
    assert (count(core.units), count(core.communication), count(core)) == (543_600, 316_800, 915_696)
    assert count(RIM.thesis(TokenSpec(dim=100, num_tokens=3))) == 925_200


def test_communication_can_be_taken_from_a_trained_core():
    core = small(MODULES)
    full = core(tokens()).slots
    core.communication_mode = "off"
    off = core(tokens()).slots
    alone = small(MODULES, communication="off")
    alone.load_state_dict({n: w for n, w in core.state_dict().items() if not n.startswith("communication.")})
    assert not torch.equal(full, off)
    assert torch.equal(off, alone(tokens()).slots)


def test_the_place_of_the_null_input_is_that_of_its_keys_and_of_no_effect_on_slots():
    first, last = small(2, null_row="first"), small(2, null_row="last")
    x = tokens()
    for core, null in ((first, 0), (last, -1)):
        (attention,) = (part for part in core.modules() if isinstance(part, InputAttention))
        assert not attention.keys_values(x)[0][..., null, :].any()
    torch.testing.assert_close(first(x).slots, last(x).slots)


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
