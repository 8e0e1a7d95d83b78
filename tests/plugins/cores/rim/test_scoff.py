"""SCOFF and ALTSCOFF: a step by hand, the choice of schemata and its gradient, and files that may be any number."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from slotbench_plugins.cores.rim import ALTSCOFF, RIM, SCOFF
from slotbench_plugins.cores.rim.mechanisms import RIMState
from slotbench_plugins.cores.rim.schemata import Schemata
from small_rim import DIM, MODULES, PLAIN, SPEC, noise, tokens
from torch import nn

from slotbench.metrics import usage_entropy
from slotbench.nn.slot_init import drawn_by_clip
from slotbench.testing.laws import (
    attention_sums_as_its_kind_says,
    autocast_stays_close,
    details_are_of_their_steps,
    gradient_reaches_every_parameter,
    samples_do_not_meet,
    splitting_carries_state,
)

CORES = pytest.mark.parametrize("kind", [SCOFF, ALTSCOFF])
CALM = {"input_dropout": 0.0, "communication_dropout": 0.0}


def small(kind: type[SCOFF] | type[ALTSCOFF] = SCOFF, **arguments) -> SCOFF | ALTSCOFF:
    torch.manual_seed(0)
    core = kind(SPEC, **({"num_slots": MODULES, "dim": DIM} | CALM | arguments)).double().eval()
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return core


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x - x.max()) / np.exp(x - x.max()).sum()


def step_by_hand(core: SCOFF, x: np.ndarray, h: np.ndarray, scale: float, null: bool) -> tuple[np.ndarray, list[int]]:
    """One clip's step: states "files dim", tokens "tokens dim"; all files active."""
    w = {name: value.numpy() for name, value in core.state_dict().items()}
    files, dim = h.shape
    rows = np.concatenate([x, np.zeros((1, x.shape[1]))]) if null else x
    keys, values = rows @ w["input_attention.key.weight"].T, rows @ w["input_attention.value.weight"].T
    scores = np.stack([keys @ (w["input_attention.query.weight"] @ h[k]) for k in range(files)]) / 8.0
    shares = np.stack([softmax(scores[:, j]) for j in range(len(rows))], axis=1) + 1e-8
    shares = shares / shares.sum(axis=1, keepdims=True)
    after, chosen = np.zeros_like(h), []
    for k in range(files):
        read, candidates, fits = shares[k] @ values, [], []
        for j in range(core.units.num_schemata):
            part = slice(3 * dim * j, 3 * dim * (j + 1))
            a = w["units.input_map.weight"][part] @ read + w["units.input_map.bias"][part]
            b = w["units.hidden_map.weight"][part] @ h[k] + w["units.hidden_map.bias"][part]
            reset, keep = sigmoid(a[:dim] + b[:dim]), sigmoid(a[dim : 2 * dim] + b[dim : 2 * dim])
            candidate = (1 - keep) * np.tanh(a[2 * dim :] + reset * b[2 * dim :]) + keep * h[k]
            query = w["units.query.weight"] @ h[k]
            key = w["units.keys.weight"].reshape(-1, len(query), dim)[j] @ candidate
            candidates.append(candidate)
            fits.append(query @ key * scale)
        chosen.append(int(np.argmax(fits)))
        after[k] = candidates[chosen[-1]]
    query, key = np.split(after @ w["communication.query_key.weight"].T, 2, axis=1)
    value, heard = after @ w["communication.value.weight"].T, []
    for head in range(2):
        part = slice(32 * head, 32 * (head + 1))
        weights = np.stack([softmax(key[:, part] @ query[k, part] / math.sqrt(32)) for k in range(files)])
        heard.append(weights @ value[:, part])
    output = np.concatenate(heard, axis=1) @ w["communication.output.weight"].T + w["communication.output.bias"]
    gate, change = np.split(output, 2, axis=1)
    return after + sigmoid(gate) * np.tanh(change), chosen


@pytest.mark.parametrize(("scaled", "null"), [(True, True), (False, False)])
def test_a_clip_of_scoff_is_the_clip_by_hand(scaled, null):
    core = small(scaled=scaled, null_row="last" if null else "none")
    output, x = core(tokens()), tokens().numpy()
    for sample in range(2):
        h = core.initial_state(tokens()[:, 0]).hidden[sample].numpy()
        for step in range(6):
            h, chosen = step_by_hand(core, x[sample, step], h, 0.25 if scaled else 1.0, null)
            np.testing.assert_allclose(output.slots[sample, step].detach().numpy(), h, rtol=1e-10, atol=1e-10)
            assert output.details["schemata"][sample, step].argmax(dim=-1).tolist() == chosen
    assert usage_entropy(output.details["schemata"]) > 0


@CORES
@pytest.mark.parametrize(
    "arguments",
    [
        {"num_inputs": 3, "slot_init": "learned"},
        {"sample_in_evaluation": True, "num_inputs": 2, "slot_norm": "joint", "top_k": 4},
        {"disabled_slots": (2,), "top_k": 3},
    ],
    ids=str,
)
def test_every_setting_keeps_the_laws(kind, arguments):
    build = partial(kind, **arguments)
    splitting_carries_state(build)
    attention_sums_as_its_kind_says(build)
    details_are_of_their_steps(build)
    samples_do_not_meet(build)
    autocast_stays_close(build)
    if "disabled_slots" not in arguments:
        gradient_reaches_every_parameter(build)


@pytest.mark.parametrize("kind", [SCOFF, ALTSCOFF])
def test_presets_of_the_thesis_run_and_draw_in_evaluation(kind):
    core = kind.thesis(SPEC, num_inputs=3).eval()
    x = tokens().float()
    with drawn_by_clip([1, 2]):
        output = core(x)
    with drawn_by_clip([1, 2]):
        assert torch.equal(core(x).slots, output.slots)
    with drawn_by_clip([3, 2]):
        other = core(x).details["schemata"]
    assert torch.equal(other[1], output.details["schemata"][1])
    assert not torch.equal(other[0], output.details["schemata"][0])
    assert core.units.num_schemata == (3 if kind is SCOFF else 2)
    assert core.units.keys.weight.shape[0] == (3 * 16 if kind is SCOFF else 64)


@CORES
def test_choices_are_one_hot_and_in_evaluation_always_the_same(kind):
    core = small(kind)
    schemata = core(tokens()).details["schemata"]
    assert ((schemata == 0) | (schemata == 1)).all()
    assert (schemata.sum(dim=-1) == 1).all()
    assert torch.equal(core(tokens()).details["schemata"], schemata)
    core.train()
    assert any(not torch.equal(core(tokens()).details["schemata"], schemata) for _ in range(5))


def test_the_value_is_the_chosen_candidate_and_the_gradient_that_of_a_softmax():
    torch.manual_seed(0)
    layer = Schemata(3, 5, 4, temperature=0.7).double()
    read, hidden, gumbel = noise(2, 6, 5), noise(2, 6, 4, seed=1), noise(2, 6, 3, seed=2)
    after, chosen = layer(read, hidden, gumbel)
    candidates = layer.candidates(read, hidden)
    scores = layer.scores(hidden, candidates) + gumbel
    assert torch.equal(after, candidates.gather(2, scores.argmax(-1)[..., None, None].expand(-1, -1, 1, 4))[:, :, 0])
    assert torch.equal(chosen.argmax(-1), scores.argmax(-1))
    assert chosen.flatten(0, 1).sum(dim=0).count_nonzero() > 1
    # the usual form of the straight-through estimator
    soft = (scores / 0.7).softmax(dim=-1)
    usual = ((chosen - soft.detach() + soft)[..., None] * candidates).sum(dim=2)
    weight, wanted = noise(2, 6, 4, seed=3), list(layer.parameters())
    expected = torch.autograd.grad((usual * weight).sum(), wanted)
    for name, found, value in zip(
        dict(layer.named_parameters()), torch.autograd.grad((after * weight).sum(), wanted), expected, strict=True
    ):
        torch.testing.assert_close(found, value)
        assert found.any(), name
    with torch.no_grad():
        assert torch.equal(layer(read, hidden, gumbel)[0], after)


@pytest.mark.parametrize("share_keys", [False, True])
def test_scores_are_products_of_queries_and_keys(share_keys):
    torch.manual_seed(0)
    layer = Schemata(3, 5, 4, key_dim=6, share_keys=share_keys).double()
    hidden, candidates = noise(2, 5, 4), noise(2, 5, 3, 4, seed=1)
    weights = layer.keys.weight.unflatten(0, (-1, 6)).expand(3, -1, -1)
    keys = torch.stack([candidates[:, :, j] @ weights[j].T for j in range(3)], dim=2)
    expected = (layer.query(hidden)[:, :, None] * keys).sum(dim=-1) / 6**0.5
    torch.testing.assert_close(layer.scores(hidden, candidates), expected)


def test_one_schema_is_one_gru_that_all_files_share():
    layer, cell = Schemata(1, 5, 4).double(), nn.GRUCell(5, 4).double()
    for name, half in (("ih", layer.input_map), ("hh", layer.hidden_map)):
        getattr(cell, f"weight_{name}").data = half.weight.data
        getattr(cell, f"bias_{name}").data = half.bias.data
    read, hidden = noise(2, 3, 5), noise(2, 3, 4, seed=1)
    expected = cell(read.flatten(0, 1), hidden.flatten(0, 1)).unflatten(0, (2, 3))
    torch.testing.assert_close(layer(read, hidden)[0], expected, rtol=1e-12, atol=1e-12)


def test_altscoff_of_one_schema_is_rim_whose_modules_have_equal_grus():
    core = small(ALTSCOFF, num_schemata=1, communication_output="linear")
    rim = RIM(SPEC, MODULES, DIM, MODULES, None, **PLAIN).double().eval()
    weights = {name: value for name, value in core.state_dict().items() if not name.startswith("units.")}
    for name in ("input", "hidden"):
        half = getattr(core.units, f"{name}_map")
        weights[f"units.{name}_weight"] = half.weight.T.expand(MODULES, -1, -1)
        weights[f"units.{name}_bias"] = half.bias.expand(MODULES, 1, -1)
    rim.load_state_dict(weights)
    torch.testing.assert_close(core(tokens()).slots, rim(tokens()).slots)


def test_files_permuted_in_their_states_permute_the_slots():
    core, order = small(), torch.tensor([2, 0, 3, 1])
    state = RIMState(noise(2, MODULES, DIM, seed=1), None)
    slots = core(tokens(), state).slots
    torch.testing.assert_close(core(tokens(), state._replace(hidden=state.hidden[:, order])).slots, slots[:, :, order])
    core = small(ALTSCOFF)
    moved = core(tokens(), state._replace(hidden=state.hidden[:, order])).slots
    assert not torch.allclose(moved, core(tokens(), state).slots[:, :, order])


@pytest.mark.parametrize("top_k", [None, 2])
def test_the_number_of_files_may_change_after_training(top_k):
    core = small(top_k=top_k)
    for number in (2, 7):
        core.num_slots = number
        output = core(tokens())
        assert output.slots.shape == (2, 6, number, DIM)
        assert (output.details["active"].sum(dim=-1) == (top_k or number)).all()
    with pytest.raises(ValueError, match="num_slots=0"):
        core.num_slots = 0
    assert not any(parameter.shape[0] == MODULES for parameter in core.parameters())


def test_temperature_can_be_set_while_training_and_changes_the_gradient_alone():
    core = small()
    found = []
    for temperature in (1.0, 0.2):
        core.temperature = temperature
        slots = core(tokens()).slots
        (gradient,) = torch.autograd.grad(slots.square().sum(), core.units.query.weight)
        found.append((slots, gradient))
    assert torch.equal(found[0][0], found[1][0])
    assert not torch.allclose(found[0][1], found[1][1])
    with pytest.raises(ValueError, match=r"temperature=0\.0: give a positive number"):
        core.temperature = 0.0
