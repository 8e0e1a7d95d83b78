"""`RIM` against loops over clips, steps and modules, written from the descriptions of the two codes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from slotbench_plugins.cores.rim import RIM

from slotbench.interfaces import TokenSpec

BATCH, STEPS, MODULES, ACTIVE, DIM, TOKEN = 3, 12, 6, 4, 5, 7
Weights = dict[str, np.ndarray]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def softmax(x: np.ndarray) -> np.ndarray:
    shares = np.exp(x - x.max())
    return shares / shares.sum()


def gru(w: Weights, k: int, x: np.ndarray, h: np.ndarray) -> np.ndarray:
    a = x @ w["units.input_weight"][k] + w["units.input_bias"][k, 0]
    b = h @ w["units.hidden_weight"][k] + w["units.hidden_bias"][k, 0]
    reset, keep = sigmoid(a[:DIM] + b[:DIM]), sigmoid(a[DIM : 2 * DIM] + b[DIM : 2 * DIM])
    return (1 - keep) * np.tanh(a[2 * DIM :] + reset * b[2 * DIM :]) + keep * h


def lstm(w: Weights, k: int, x: np.ndarray, h: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    gates = x @ w["units.input_weight"][k] + h @ w["units.hidden_weight"][k]
    gates = gates + w["units.input_bias"][k, 0] + w["units.hidden_bias"][k, 0]
    enter, keep, show = (sigmoid(gates[i * DIM : (i + 1) * DIM]) for i in range(3))
    c = keep * c + enter * np.tanh(gates[3 * DIM :])
    return show * np.tanh(c), c


def heard(w: Weights, states: np.ndarray, k: int, heads: int, key_dim: int, value_dim: int) -> np.ndarray:
    """What module k gathers from all modules, heads side by side."""
    width, gathered = heads * key_dim, []
    for head in range(heads):
        part = slice(head * key_dim, (head + 1) * key_dim)
        query = (states[k] @ w["communication.query_key.weight"][k][:, :width])[part]
        keys = [(states[j] @ w["communication.query_key.weight"][j][:, width:])[part] for j in range(MODULES)]
        weights = softmax(np.array([query @ key for key in keys]) / np.sqrt(key_dim))
        values = [states[j] @ w["communication.value.weight"][j] for j in range(MODULES)]
        gathered.append(sum(weights[j] * values[j][head * value_dim : (head + 1) * value_dim] for j in range(MODULES)))
    return np.concatenate(gathered)


def authors_step(
    w: Weights, x: np.ndarray, h: np.ndarray, c: np.ndarray, masked: bool, cell_type: str
) -> tuple[np.ndarray, np.ndarray, set[int]]:
    """The RIM authors' code: softmax over (null, inputs), every module steps, only what is kept is masked."""
    rows = np.concatenate([np.zeros((1, TOKEN)), x])
    keys, values = rows @ w["input_attention.key.weight"].T, rows @ w["input_attention.value.weight"].T
    shares = []
    for k in range(MODULES):
        query = h[k] @ w["input_attention.query.weight"][k]
        shares.append(softmax(keys @ query / np.sqrt(keys.shape[1])))
    active = set(sorted(range(MODULES), key=lambda k: (shares[k][0], k))[:ACTIVE])
    updated, memories = np.zeros_like(h), np.zeros_like(c)
    for k in range(MODULES):
        read = shares[k] @ values * (0 if masked and k not in active else 1)
        if cell_type == "gru":
            updated[k] = gru(w, k, read, h[k])
        else:
            updated[k], memories[k] = lstm(w, k, read, h[k], c[k])
    after, memory = h.copy(), c.copy()
    for k in active:
        gathered = heard(w, updated, k, heads=4, key_dim=16, value_dim=16)
        gate, change = np.split(w["communication.output.weight"] @ gathered + w["communication.output.bias"], 2)
        after[k] = updated[k] + sigmoid(gate) * np.tanh(change)
        memory[k] = memories[k]
    return after, memory, active


def thesis_step(
    w: Weights, x: np.ndarray, h: np.ndarray, c: np.ndarray, masked: bool
) -> tuple[np.ndarray, np.ndarray, set[int]]:
    """The thesis' code: softmax over modules, then over (inputs, null); modules that are not active read zeros."""
    rows = np.concatenate([x, np.zeros((1, TOKEN))])
    keys, values = rows @ w["input_attention.key.weight"].T, rows @ w["input_attention.value.weight"].T
    scores = np.stack([keys @ (h[k] @ w["input_attention.query.weight"][k]) for k in range(MODULES)])
    scores = scores / np.sqrt(keys.shape[1])
    shares = np.stack([softmax(scores[:, j]) for j in range(len(rows))], axis=1) + 1e-8
    shares = shares / shares.sum(axis=1, keepdims=True)
    active = set(sorted(range(MODULES), key=lambda k: (shares[k][-1], k))[:ACTIVE])
    updated = np.zeros_like(h)
    for k in range(MODULES):
        updated[k] = gru(w, k, shares[k] @ values * (0 if masked and k not in active else 1), h[k])
    after = h.copy()
    for k in active:
        gathered = heard(w, updated, k, heads=2, key_dim=32, value_dim=DIM)
        after[k] = updated[k] + gathered @ w["communication.output.weight"][k]
    return after, c, active


def reference(core: RIM, tokens: np.ndarray, start: np.ndarray, step) -> tuple[np.ndarray, list[set[int]]]:
    w = {name: value.detach().numpy() for name, value in core.state_dict().items()}
    slots, active = np.zeros((BATCH, STEPS, MODULES, DIM)), []
    for sample in range(BATCH):
        h, c = start[sample].copy(), np.zeros((MODULES, DIM))
        for t in range(STEPS):
            h, c, chosen = step(w, tokens[sample, t], h, c)
            slots[sample, t] = h
            active.append(chosen)
    return slots, active


def lively(core: RIM, seed: int, scale: float = 0.5) -> RIM:
    """Weights far from the small ones of the start, at which differences of reads would hardly show."""
    generator = torch.Generator().manual_seed(seed)
    core = core.double().eval()
    with torch.no_grad():
        for parameter in core.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * scale)
    return core


def tokens(count: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 + seed)
    return torch.randn(BATCH, STEPS, count, TOKEN, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("cell_type", ["gru", "lstm"])
@pytest.mark.parametrize("inputs", [1, 3])
def test_original_agrees_with_a_loop_over_modules_whether_inactive_modules_read_or_not(inputs, cell_type, masked):
    for seed in range(3):
        core = lively(RIM.original(TokenSpec(TOKEN, inputs), MODULES, ACTIVE, DIM, cell_type), seed)
        assert core.mask_inactive_reads is False
        core.mask_inactive_reads = masked
        x = tokens(inputs, seed)
        expected, active = reference(
            core,
            x.numpy(),
            np.zeros((BATCH, MODULES, DIM)),
            lambda *given: authors_step(*given, masked=masked, cell_type=cell_type),
        )
        output = core(x)
        np.testing.assert_allclose(output.slots.detach().numpy(), expected, rtol=1e-12, atol=1e-12)
        read = (output.attention.sum(dim=-1) > 0).flatten(0, 1)
        assert [set(row.nonzero()[:, 0].tolist()) for row in read] == active


@pytest.mark.parametrize("masked", [False, True])
def test_thesis_agrees_with_a_loop_over_modules_whether_inactive_modules_read_or_not(masked):
    for seed in range(3):
        core = lively(RIM.thesis(TokenSpec(TOKEN, 3), MODULES, ACTIVE, DIM), seed, scale=0.15)
        assert core.mask_inactive_reads is True
        core.mask_inactive_reads = masked
        x = tokens(3, seed)
        start = core.initial_state(x[:, 0]).hidden.numpy()
        expected, _ = reference(core, x.numpy(), start, lambda *given: thesis_step(*given, masked=masked))
        np.testing.assert_allclose(core(x).slots.detach().numpy(), expected, rtol=1e-12, atol=1e-12)


def test_original_starts_with_the_weights_of_its_authors():
    for cell_type in ("gru", "lstm"):
        torch.manual_seed(0)
        core = RIM.original(TokenSpec(200, 1), MODULES, ACTIVE, 50, cell_type)
        attention, talk = core.input_attention, core.communication
        grouped = (attention.query, talk.query_key, talk.value)
        for weight in (attention.key.weight, attention.value.weight, *(layer.weight for layer in grouped)):
            assert weight.std().item() == pytest.approx(0.01, rel=0.05)
            assert weight.abs().max() > 0.03  # normal, not uniform
        # one unit of the width of all modules together, cut into blocks
        bound = (MODULES * 50) ** -0.5
        names = {name for name, _ in core.units.named_parameters()}
        assert names == {"input_weight", "hidden_weight", "input_bias", "hidden_bias"}
        for parameter in core.units.parameters():
            assert 0.98 * bound < parameter.abs().max() <= bound
        for parameter in talk.output.parameters():
            assert 0.8 * 64**-0.5 < parameter.abs().max() <= 64**-0.5


def test_thesis_starts_with_the_weights_of_its_code():
    torch.manual_seed(0)
    core = RIM.thesis(TokenSpec(200, 3), MODULES, ACTIVE, 50)
    for layer in (core.input_attention.key, core.input_attention.value):
        assert 0.98 * 200**-0.5 < layer.weight.abs().max() <= 200**-0.5
    for layer in (core.input_attention.query, core.communication.query_key, core.communication.output):
        assert layer.weight.std().item() == pytest.approx(0.01, rel=0.05)
    for parameter in core.units.parameters():
        assert 0.98 * 50**-0.5 < parameter.abs().max() <= 50**-0.5


def test_dropout_of_what_is_read_zeroes_whole_channels_of_a_modules_read():
    torch.manual_seed(0)
    core = RIM(TokenSpec(TOKEN, 3), MODULES, DIM, num_inputs=None, input_dropout=0.5, input_dropout_on="read")
    reads = []
    core.units.register_forward_pre_hook(lambda module, given: reads.append(given[0]))
    core(torch.randn(8, 1, 3, TOKEN))
    core.eval()(torch.randn(8, 1, 3, TOKEN))
    assert 0.4 < (reads[0][reads[0].any(dim=-1)] == 0).float().mean() < 0.6
    assert not (reads[1][reads[1].any(dim=-1)] == 0).any()
