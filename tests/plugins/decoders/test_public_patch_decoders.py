"""The patch decoders are those of martius-lab/videosaur with mapped weights, written once more in loops."""

from __future__ import annotations

from math import exp, sqrt

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from slotbench_plugins.decoders.mlp_patch_decoder import MLPPatchDecoder
from slotbench_plugins.decoders.slot_mixer_patch_decoder import SlotMixerPatchDecoder

from slotbench.interfaces import SlotSpec, VideoSpec

Weights = dict[str, np.ndarray]
SIZES = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.integers(1, 3), st.integers(1, 4))


def softmax(logits: list[float]) -> np.ndarray:
    raised = [exp(one - max(logits)) for one in logits]
    return np.array(raised) / sum(raised)


def normed(x: np.ndarray, weights: Weights, name: str) -> np.ndarray:
    return (x - x.mean()) / sqrt(x.var() + 1e-5) * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def mapped(x: np.ndarray, weights: Weights, name: str) -> np.ndarray:
    return weights[f"{name}.weight"] @ x + weights.get(f"{name}.bias", 0)


def mlp_decoder(slots: np.ndarray, weights: Weights, hidden: int) -> tuple[np.ndarray, np.ndarray]:
    """`MLPDecoder`: slot plus position through an MLP with ReLUs, the last number being the mask's logit."""
    contents, masks = [], []
    for position in weights["pos_emb"]:
        outputs = []
        for slot in slots:
            x = slot + position
            for layer in range(hidden):
                x = np.maximum(mapped(x, weights, f"mlp.layers.{2 * layer}"), 0)
            outputs.append(mapped(x, weights, f"mlp.layers.{2 * hidden}"))
        shares = softmax([one[-1] for one in outputs])
        contents.append(sum(share * one[:-1] for share, one in zip(shares, outputs, strict=True)))
        masks.append(shares)
    return np.array(contents), np.array(masks)


def attended(x: np.ndarray, memory: list[np.ndarray], weights: Weights, name: str, heads: int) -> np.ndarray:
    """`Attention`, which divides queries by (head width) ** -0.5, so multiplies by its root."""
    query = mapped(x, weights, f"{name}.q")
    keys_values = [mapped(one, weights, f"{name}.kv") for one in memory]
    width, dim, found = len(query) // heads, len(query), np.zeros(len(query))
    for head in range(heads):
        part = slice(head * width, (head + 1) * width)
        values = [one[dim:][part] for one in keys_values]
        shares = softmax([float(query[part] @ one[:dim][part]) * sqrt(width) for one in keys_values])
        found[part] = sum(share * value for share, value in zip(shares, values, strict=True))
    return mapped(found, weights, f"{name}.out_proj")


def slot_mixer(slots: np.ndarray, weights: Weights, layers: int, hidden: int) -> tuple[np.ndarray, np.ndarray]:
    """`SlotMixerDecoder` with layer norms and positions that are added."""
    contents, masks = [], []
    memory = [normed(slot, weights, "norm_memory") for slot in slots]
    for position in weights["pos_emb"]:
        x = position
        for layer in range(layers):
            block = f"allocator.blocks.{layer}"
            x = x + attended(normed(x, weights, f"{block}.norm1"), memory, weights, f"{block}.self_attn", heads=2)
            inner = np.maximum(mapped(normed(x, weights, f"{block}.norm2"), weights, f"{block}.linear1"), 0)
            x = x + mapped(inner, weights, f"{block}.linear2")
        query = mapped(normed(x, weights, "norm_q"), weights, "to_q")
        keys = [mapped(normed(slot, weights, "norm_k"), weights, "to_k") for slot in slots]
        shares = softmax([float(query @ key) / sqrt(len(query)) for key in keys])
        x = sum(share * slot for share, slot in zip(shares, slots, strict=True)) + position
        for layer in range(hidden):
            x = np.maximum(mapped(x, weights, f"renderer.layers.{2 * layer}"), 0)
        contents.append(mapped(x, weights, "output_transform"))
        masks.append(shares)
    return np.array(contents), np.array(masks)


MLP_NAMES = {"positions": "pos_emb", "first.": "mlp.layers.0.", "hidden.0.": "mlp.layers.2.", "head.": "mlp.layers.4."}
MIXER_NAMES = {
    "positions": "pos_emb",
    "memory_norm.": "norm_memory.",
    "head.": "output_transform.",
    "choice.0.": "norm_q.",
    "choice.1.": "to_q.",
    "key.0.": "norm_k.",
    "key.1.": "to_k.",
    **{f"mlp.{2 * i}.": f"renderer.layers.{2 * i}." for i in range(2)},
}
for _i in range(2):
    for _ours, _theirs in {
        "norm": "norm1",
        "attention.query": "self_attn.q",
        "attention.key_value": "self_attn.kv",
        "attention.output": "self_attn.out_proj",
        "mlp.0": "norm2",
        "mlp.1": "linear1",
        "mlp.3": "linear2",
    }.items():
        MIXER_NAMES[f"layers.{_i}.{_ours}."] = f"allocator.blocks.{_i}.{_theirs}."


def renamed(decoder: torch.nn.Module, names: dict[str, str]) -> Weights:
    """Our weights by the names of the public code; each of ours must have one."""
    found = {}
    for name, value in decoder.state_dict().items():
        (ours,) = [start for start in names if name.startswith(start)]
        found[names[ours] + name.removeprefix(ours)] = value.numpy()
    return found


def compare(decoder, reference, dim: int, count: int, seed: int) -> None:
    """Contents, masks and a gradient along random directions, against the loops."""
    decoder = decoder.double()
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.normal_(std=0.5)
    slots = torch.randn(1, 1, count, dim, dtype=torch.float64, requires_grad=True)
    out = decoder(slots)
    content, masks = reference(slots[0, 0].detach().numpy())
    np.testing.assert_allclose(out.reconstruction[0, 0].flatten(1).mT.detach(), content, atol=1e-9)
    np.testing.assert_allclose(out.masks[0, 0].flatten(1).mT.detach(), masks, atol=1e-9)
    towards, along = torch.randn_like(out.reconstruction), torch.randn_like(slots)
    (out.reconstruction * towards).sum().backward()
    step = 1e-6 * along[0, 0].numpy()
    ahead, behind = (reference(slots[0, 0].detach().numpy() + sign * step)[0] for sign in (1, -1))
    expected = ((ahead - behind) / 2e-6 * towards[0, 0].flatten(1).mT.numpy()).sum()
    assert (slots.grad * along).sum().item() == pytest.approx(expected, rel=1e-5, abs=1e-5)


@settings(max_examples=12, deadline=None)
@given(SIZES, st.integers(0, 99))
def test_the_mlp_decoder_is_the_public_one(sizes, seed):
    rows, cols, width, channels, count = sizes
    decoder = MLPPatchDecoder(SlotSpec(count, 4 * width), VideoSpec(channels, rows, cols), 5, num_hidden=2)
    compare(decoder, lambda slots: mlp_decoder(slots, renamed(decoder, MLP_NAMES), hidden=2), 4 * width, count, seed)


@settings(max_examples=12, deadline=None)
@given(SIZES, st.integers(0, 99))
def test_the_slot_mixer_is_the_public_one(sizes, seed):
    rows, cols, width, channels, count = sizes
    spec = SlotSpec(count, 4 * width), VideoSpec(channels, rows, cols)
    decoder = SlotMixerPatchDecoder(*spec, num_layers=2, num_heads=2, hidden_dim=5, num_hidden=2, sharp_attention=True)
    compare(
        decoder, lambda slots: slot_mixer(slots, renamed(decoder, MIXER_NAMES), 2, hidden=2), 4 * width, count, seed
    )


def test_without_sharp_attention_queries_are_that_much_smaller():
    made = [SlotMixerPatchDecoder(SlotSpec(3, 8), VideoSpec(5, 2, 3), sharp_attention=sharp) for sharp in (True, False)]
    weights = made[0].state_dict()
    made[1].load_state_dict(
        {name: value * 2 if "attention.query" in name else value for name, value in weights.items()}
    )
    slots = torch.randn(2, 2, 3, 8)
    torch.testing.assert_close(made[0](slots).reconstruction, made[1](slots).reconstruction)


def test_positions_begin_as_wide_as_they_are_told():
    wide, narrow = (
        MLPPatchDecoder(SlotSpec(2, 64), VideoSpec(3, 16, 16), position_std=std).positions.std() for std in (1.0, 0.125)
    )
    assert wide.item() == pytest.approx(1, abs=0.05)
    assert narrow.item() == pytest.approx(0.125, abs=0.01)


def test_the_slot_mixer_begins_as_the_public_one():
    """Xavier-uniform maps of attention and a linear layer of the content without biases; MLPs as torch makes them."""
    mixer = SlotMixerPatchDecoder(SlotSpec(3, 64), VideoSpec(48, 2, 3), hidden_dim=96, num_hidden=2)
    xavier, torchs = lambda a, b: (6 / (a + b)) ** 0.5, lambda fan_in: fan_in**-0.5
    expected = {"choice.1": (xavier(64, 64), 0), "head": (xavier(96, 48), 0), "mlp.0": (torchs(64), 0)}
    expected |= {"mlp.2": (torchs(96), 0), "layers.0.mlp.1": (torchs(64),) * 2, "layers.1.mlp.3": (torchs(256),) * 2}
    expected |= {"layers.0.attention.output": (xavier(64, 64), 0), "layers.0.attention.key_value": (xavier(64, 64), 0)}
    for name, (weight, bias) in expected.items():
        layer = mixer.get_submodule(name)
        assert layer.weight.abs().max().item() == pytest.approx(weight, rel=0.02), name
        assert layer.bias is None or layer.bias.abs().max().item() == pytest.approx(bias, rel=0.1), name
