"""SAVi of the form "videosaur" is the public code's recurrent module with mapped weights, written in loops."""

from __future__ import annotations

from functools import partial
from math import sqrt

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from slotbench_plugins.aggregations.weighted_mean import WeightedMean
from slotbench_plugins.cores.savi import SAVi

from slotbench.interfaces import TokenSpec

Weights = dict[str, np.ndarray]


def softmax(logits: np.ndarray) -> np.ndarray:
    raised = np.exp(logits - logits.max())
    return raised / raised.sum()


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def normed(x: np.ndarray, weights: Weights, name: str) -> np.ndarray:
    return (x - x.mean()) / sqrt(x.var() + 1e-5) * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def mapped(x: np.ndarray, weights: Weights, name: str) -> np.ndarray:
    return weights[f"{name}.weight"] @ x + weights.get(f"{name}.bias", 0)


def gru(x: np.ndarray, hidden: np.ndarray, weights: Weights) -> np.ndarray:
    given, kept = mapped(x, weights, "corrector.gru.input_map"), mapped(hidden, weights, "corrector.gru.hidden_map")
    (r, z, n), (hr, hz, hn) = np.split(given, 3), np.split(kept, 3)
    update = sigmoid(z + hz)
    return (1 - update) * np.tanh(n + sigmoid(r + hr) * hn) + update * hidden


def corrected(slots: list[np.ndarray], tokens: np.ndarray, weights: Weights, iterations: int) -> list[np.ndarray]:
    """`SlotAttention`: the GRU's hidden state is the normalised slot."""
    features = [normed(token, weights, "corrector.token_norm") for token in tokens]
    keys_values = [np.split(mapped(one, weights, "corrector.attention.key_value"), 2) for one in features]
    for _ in range(iterations):
        slots = [normed(slot, weights, "corrector.slot_norm") for slot in slots]
        queries = [mapped(slot, weights, "corrector.attention.query") for slot in slots]
        shares = np.array(
            [softmax(np.array([q @ key for q in queries]) / sqrt(len(slots[0]))) for key, _ in keys_values]
        )
        shares = (shares + 1e-8) / (shares + 1e-8).sum(0)
        updates = [sum(share * value for share, (_, value) in zip(row, keys_values, strict=True)) for row in shares.T]
        slots = [gru(update, slot, weights) for update, slot in zip(updates, slots, strict=True)]
        if "corrector.mlp.1.weight" in weights:
            slots = [slot + mlp(slot, weights, "corrector.mlp") for slot in slots]
    return slots


def mlp(x: np.ndarray, weights: Weights, name: str) -> np.ndarray:
    hidden = np.maximum(mapped(normed(x, weights, f"{name}.0"), weights, f"{name}.1"), 0)
    return mapped(hidden, weights, f"{name}.3")


def predicted(slots: list[np.ndarray], weights: Weights, heads: int) -> list[np.ndarray]:
    """`TransformerEncoder` of one block, whose attention multiplies by the root of a head's width."""
    read = [normed(slot, weights, "predictor.norm") for slot in slots]
    keys_values = [mapped(one, weights, "predictor.attention.key_value") for one in read]
    dim, width = len(slots[0]), len(slots[0]) // heads
    found = []
    for slot, one in zip(slots, read, strict=True):
        query, mixed = mapped(one, weights, "predictor.attention.query"), np.zeros(dim)
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            shares = softmax(np.array([query[part] @ kv[:dim][part] for kv in keys_values]) * sqrt(width))
            mixed[part] = sum(share * kv[dim:][part] for share, kv in zip(shares, keys_values, strict=True))
        x = slot + mapped(mixed, weights, "predictor.attention.output")
        found.append(x + mlp(x, weights, "predictor.mlp"))
    return found


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4), st.sampled_from(["every", "none"]), st.integers(0, 99))
def test_slots_are_those_of_the_public_code(time, count, tokens, corrector_mlp, seed):
    torch.manual_seed(seed)
    core = SAVi(
        TokenSpec(3, tokens),
        num_slots=count,
        dim=4,
        num_iterations=2,
        first_iterations=3,
        predictor_heads=2,
        corrector_mlp=corrector_mlp,
        aggregation=partial(WeightedMean, eps=1e-8, eps_form="entry"),
        form="videosaur",
        init="videosaur",
    ).double()
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    clip = torch.randn(1, time, tokens, 3, dtype=torch.float64)
    found = core(clip).slots[0].detach().numpy()
    weights = {name: value.numpy() for name, value in core.state_dict().items()}
    slots = list(weights["slot_init.slots"])
    for step in range(time):
        slots = corrected(slots, clip[0, step].numpy(), weights, iterations=2 if step else 3)
        np.testing.assert_allclose(found[step], slots, atol=1e-9)
        slots = predicted(slots, weights, heads=2)
