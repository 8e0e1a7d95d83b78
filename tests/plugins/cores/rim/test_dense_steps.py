"""The faster way through modules that are all active: the values and gradients of the cell, and where it is taken."""

from __future__ import annotations

import pytest
import torch
from slotbench_plugins.cores.rim import ALTSCOFF, OCRIM, RIM, SCOFF, mechanisms
from small_rim import DIM, MODULES, SPEC, tokens

from slotbench.nn.slot_init import drawn_by_clip

LINEAR = {"communication_output": "linear", "communication_heads": 3}


def rim(**arguments):
    torch.manual_seed(0)
    return RIM(SPEC, MODULES, DIM, **({"top_k": MODULES, "num_inputs": None} | arguments)).double().eval()


def oc_rim(**arguments):
    torch.manual_seed(0)
    sizes = {"dim": DIM, "num_inputs": 3, "slot_dim": 7, "slot_mlp_dim": 8}
    return OCRIM(SPEC, MODULES, **(sizes | arguments)).double().eval()


DENSE = {
    "gated": lambda: rim(),
    "linear": lambda: rim(**LINEAR),
    "standard, null first": lambda: rim(input_attention="standard", null_row="first", input_bias=True),
    "two input heads": lambda: rim(input_heads=2),
    "no communication": lambda: rim(communication="off"),
    "slot encoder": lambda: rim(num_inputs=2, num_heads=2, encoder_layers=1),
    "OC-RIM": lambda: oc_rim(**LINEAR),
    "OC-RIM, past slots": lambda: oc_rim(past_slots=True),
    "OC-RIM, feature flow": lambda: oc_rim(num_inputs=None),
    "OC-RIM with a head": lambda: oc_rim(head_dim=5),
}


def outcome(core, path):
    """Everything that a clip in two pieces comes to, with gradients."""
    core.path, x = path, tokens().requires_grad_()
    core.zero_grad(set_to_none=True)
    with drawn_by_clip(range(2)):
        first = core(x[:, :2])
    with drawn_by_clip(range(2)):
        second = core(x[:, 2:], first.state)
    found = {"slots": torch.cat([first.slots, second.slots], dim=1), "hidden": second.state.hidden}
    found["attention"] = torch.cat([first.attention, second.attention], dim=1)
    loss = found["slots"].sin().sum() + second.state.hidden.cos().sum() + found["attention"].square().sum()
    if second.frame_slots is not None:
        found["frame_slots"] = second.frame_slots
        loss = loss + second.frame_slots.sin().sum()
    loss.backward()
    found |= {f"gradient of {name}": value.grad for name, value in core.named_parameters()} | {"tokens": x.grad}
    return found | {f"details of {name}": value for name, value in second.details.items()}


@pytest.mark.parametrize("name", DENSE)
def test_values_gradients_and_details_are_those_of_the_cell(name):
    core = DENSE[name]()
    fast, cell = outcome(core, "auto"), outcome(core, "cell")
    assert fast.keys() == cell.keys()
    for key, value in cell.items():
        assert (value is None) == (fast[key] is None), key
        if value is not None:
            assert fast[key].dtype == value.dtype
            torch.testing.assert_close(fast[key], value, rtol=0, atol=1e-11, msg=lambda text, key=key: f"{key}: {text}")


def test_dropout_of_a_training_falls_on_the_same_weights():
    core, found = rim(**LINEAR, input_dropout=0.3, communication_dropout=0.3).train(), []
    for path in ("auto", "cell"):
        core.path = path
        torch.manual_seed(1)
        found.append(core(tokens()).slots)
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)


def taken(core, monkeypatch):
    calls = []
    whole = mechanisms.dense_steps
    monkeypatch.setattr(mechanisms, "dense_steps", lambda *given: calls.append(1) or whole(*given))
    core(tokens())
    return bool(calls)


@pytest.mark.parametrize("name", DENSE)
def test_it_is_taken_where_all_modules_are_active(name, monkeypatch):
    assert taken(DENSE[name](), monkeypatch)


@pytest.mark.parametrize(
    "core",
    [
        lambda: rim(top_k=2),
        lambda: rim(cell_type="lstm"),
        lambda: rim(disabled_slots=(1,)),
        lambda: rim(input_dropout_on="read"),
        lambda: rim(share_query=True),
        lambda: rim(communication="self"),
        lambda: SCOFF(SPEC, MODULES, DIM).double().eval(),
        lambda: ALTSCOFF(SPEC, MODULES, DIM).double().eval(),
    ],
)
def test_it_is_not_taken_where_it_would_do_something_else(core, monkeypatch):
    assert not taken(core(), monkeypatch)


def test_what_is_switched_on_a_trained_core_is_heeded():
    core = rim(**LINEAR)
    whole = core(tokens()).slots
    core.communication_mode = "off"
    assert not torch.allclose(core(tokens()).slots, whole)
    core.communication_mode, core.disabled_slots = "full", (0,)
    assert not core(tokens()).slots[:, :, 0].any()
