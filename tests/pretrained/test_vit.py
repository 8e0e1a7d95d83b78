"""The vision transformer is what its equations say, and takes the files that it should take."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import erf, softmax
from vit_files import SMALL, vit_state

from slotbench.pretrained import vit
from slotbench.pretrained.vit import ARCHITECTURES, Architecture, ViT, resample_positions
from slotbench.pretrained.weights import WeightError


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    monkeypatch.setitem(vit.ARCHITECTURES, "small", SMALL)


def normed(x, state, name):
    centred = x - x.mean(-1, keepdims=True)
    return (
        centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6) * state[f"{name}.weight"] + state[f"{name}.bias"]
    )


def linear(x, state, name):
    return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]


def plain_vit(image, state, sizes):
    """One image "3 height width", patch by patch and head by head, in numpy."""
    size = sizes.patch_size
    rows, cols = image.shape[1] // size, image.shape[2] // size
    tokens = [state["cls_token"][0, 0]]
    for row in range(rows):
        for col in range(cols):
            patch = image[:, row * size : (row + 1) * size, col * size : (col + 1) * size]
            weight, bias = state["patch_embed.proj.weight"], state["patch_embed.proj.bias"]
            tokens.append(np.array([(kernel * patch).sum() for kernel in weight]) + bias)
    x = np.stack(tokens) + state["pos_embed"][0]
    width = sizes.dim // sizes.num_heads
    for block in (f"blocks.{i}" for i in range(sizes.num_layers)):
        qkv = linear(normed(x, state, f"{block}.norm1"), state, f"{block}.attn.qkv")
        heads = []
        for head in range(sizes.num_heads):
            q, k, v = (qkv[:, part * sizes.dim + head * width :][:, :width] for part in range(3))
            heads.append(softmax(q @ k.T / np.sqrt(width), axis=-1) @ v)
        x = x + linear(np.concatenate(heads, axis=-1), state, f"{block}.attn.proj")
        hidden = linear(normed(x, state, f"{block}.norm2"), state, f"{block}.mlp.fc1")
        x = x + linear(0.5 * hidden * (1 + erf(hidden / np.sqrt(2))), state, f"{block}.mlp.fc2")
    return normed(x, state, "norm")[1:].T.reshape(sizes.dim, rows, cols)


def test_the_features_are_those_of_a_plain_transformer():
    state, images = vit_state(), torch.randn(2, 3, 12, 12)
    network = ViT.from_tensors(state, "small", (3, 3))
    found = network(images).numpy()
    plain = {name: value.double().numpy() for name, value in state.items()}
    for ours, image in zip(found, images.double().numpy(), strict=True):
        theirs = plain_vit(image, plain, SMALL)
        assert theirs.std() > 0.1
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_every_tensor_of_the_file_matters():
    images = torch.randn(1, 3, 12, 12)
    before = ViT.from_tensors(vit_state(), "small", (3, 3))(images)
    for name in vit_state():
        changed = vit_state()
        changed[name] = changed[name] + torch.randn_like(changed[name])
        assert not torch.allclose(ViT.from_tensors(changed, "small", (3, 3))(images), before, atol=1e-4), name


@pytest.mark.parametrize("prefix", ["", "backbone.", "module.backbone."])
def test_files_of_dino_and_timm_are_read_with_what_surrounds_the_names(prefix):
    state = {f"{prefix}{name}": value for name, value in vit_state().items()}
    others = {"head.weight": torch.zeros(5, 12), "head.mlp.0.weight": torch.zeros(7, 12)}
    images = torch.randn(1, 3, 12, 12)
    expected = ViT.from_tensors(vit_state(), "small", (3, 3))(images)
    assert torch.equal(ViT.from_tensors(state | others, "small", (3, 3))(images), expected)


def test_a_loaded_network_is_frozen():
    network = ViT.from_tensors(vit_state(), "small", (3, 3))
    assert not network.training
    assert not any(parameter.requires_grad for parameter in network.parameters())


def test_positions_of_another_grid_are_resampled_around_the_class_token():
    linear_table = torch.zeros(1, 1 + 36, 2)
    linear_table[0, 0] = 7.0
    rows, cols = torch.meshgrid(torch.arange(6.0), torch.arange(6.0), indexing="ij")
    linear_table[0, 1:] = torch.stack([rows, cols], dim=-1).flatten(0, 1)
    found = resample_positions(linear_table, (12, 12))
    assert found.shape == (1, 145, 2)
    assert found[0, 0].tolist() == [7.0, 7.0]
    # torch's cubic filter keeps a plane to within a twentieth of a cell, away from the border
    inner = found[0, 1:].unflatten(0, (12, 12))[4:8, 4:8]
    expected = ((torch.arange(4, 8) + 0.5) / 2 - 0.5)[:, None].expand(4, 4)
    torch.testing.assert_close(inner[:, :, 0], expected, atol=0.05, rtol=0)
    torch.testing.assert_close(inner[:, :, 1], expected.T, atol=0.05, rtol=0)
    torch.testing.assert_close(resample_positions(linear_table, (6, 6)), linear_table)
    network = ViT.from_tensors(vit_state(), "small", (5, 4))
    assert network(torch.randn(1, 3, 20, 16)).shape == (1, 12, 5, 4)


def test_a_table_of_no_square_is_refused():
    with pytest.raises(WeightError, match=r"pos_embed in a.pth has 12 positions"):
        ViT.from_tensors(vit_state() | {"pos_embed": torch.zeros(1, 12, 12)}, "small", (3, 3), "a.pth")


def test_a_file_of_another_architecture_is_refused(monkeypatch):
    monkeypatch.setitem(vit.ARCHITECTURES, "finer", Architecture(2, 12, num_layers=2, num_heads=3))
    other = "patch_embed.proj.weight is 12x3x4x4 and has to be 12x3x2x2"
    with pytest.raises(WeightError, match=f"what is in a.pth is not a finer: {other}"):
        ViT.from_tensors(vit_state(), "finer", (3, 3), "a.pth")


def test_a_width_that_is_nobodys_is_shown_with_the_width_that_there_should_be():
    state = vit_state(Architecture(4, 15, num_layers=2, num_heads=3))
    with pytest.raises(WeightError, match="cls_token is 1x1x15 and has to be 1x1x12"):
        ViT.from_tensors(state, "small", (3, 3), "a.pth")


def test_a_file_of_something_else_is_refused():
    with pytest.raises(WeightError, match=r"a.pth does not hold one .*found 0"):
        ViT.from_tensors({"features.0.weight": torch.zeros(2)}, "small", (3, 3), "a.pth")
    twice = {f"{who}.{name}": value for who in ("student", "teacher") for name, value in vit_state().items()}
    with pytest.raises(WeightError, match=r"found 2"):
        ViT.from_tensors(twice, "small", (3, 3))
    state = vit_state()
    del state["blocks.1.attn.qkv.bias"]
    with pytest.raises(WeightError, match=r"missing are, in DINO's and timm's naming, blocks.1.attn.qkv.bias"):
        ViT.from_tensors(state, "small", (3, 3))


def test_the_sizes_of_the_release_are_those_of_its_files():
    network = ViT(ARCHITECTURES["vit_base_patch8"], (28, 28))
    assert sum(parameter.numel() for parameter in network.parameters()) == 85_807_872
