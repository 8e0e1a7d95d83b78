"""The lines of docs/datasets.md make of a file in DINO's naming a folder, with the features of DINO's network."""

from __future__ import annotations

from pathlib import Path

import torch
from torch.nn import functional as F

from slotbench.interfaces import VideoSpec
from slotbench.pretrained.vit_features import ViTFeatures

DOCS = Path(__file__).parents[2] / "docs" / "datasets.md"
DIM, HEADS, PATCH, SIDE = 12, 3, 4, 3
SMALLER = {"768": str(DIM), "12": "2", "3072": str(4 * DIM)}


def dino_state():
    """Weights of two blocks, large enough that nothing is nearly linear."""
    shapes = {"cls_token": (1, 1, DIM), "pos_embed": (1, 1 + SIDE**2, DIM)}
    maps = {"patch_embed.proj": (DIM, 3, PATCH, PATCH)}
    for block in ("blocks.0", "blocks.1"):
        maps |= {f"{block}.attn.qkv": (3 * DIM, DIM), f"{block}.attn.proj": (DIM, DIM)}
        maps |= {f"{block}.mlp.fc1": (4 * DIM, DIM), f"{block}.mlp.fc2": (DIM, 4 * DIM)}
        maps |= {f"{block}.norm1": (DIM,), f"{block}.norm2": (DIM,)}
    for name, shape in (maps | {"norm": (DIM,)}).items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) / shape[-1] ** 0.25 for name, shape in shapes.items()}


def dino(images, state):
    """DINO's network as its equations say, of tensors in its naming."""

    def maps(x, name):
        return F.linear(x, state[f"{name}.weight"], state[f"{name}.bias"])

    def norm(x, name):
        return F.layer_norm(x, (DIM,), state[f"{name}.weight"], state[f"{name}.bias"], 1e-6)

    x = F.conv2d(images, state["patch_embed.proj.weight"], state["patch_embed.proj.bias"], PATCH).flatten(2).mT
    x = torch.cat([state["cls_token"].expand(len(x), -1, -1), x], dim=1) + state["pos_embed"]
    for block in ("blocks.0", "blocks.1"):
        qkv = maps(norm(x, f"{block}.norm1"), f"{block}.attn.qkv").unflatten(-1, (3, HEADS, -1))
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        shares = (q @ k.mT / (DIM // HEADS) ** 0.5).softmax(-1)
        x = x + maps((shares @ v).transpose(1, 2).flatten(2), f"{block}.attn.proj")
        x = x + maps(F.gelu(maps(norm(x, f"{block}.norm2"), f"{block}.mlp.fc1")), f"{block}.mlp.fc2")
    return norm(x, "norm")[:, 1:].mT.unflatten(2, (SIDE, SIDE))


def test_the_documented_lines_give_the_features_of_dino(tmp_path, monkeypatch):
    (page,) = [part for part in DOCS.read_text().split("```python\n") if "dino_vitbase8_pretrain.pth" in part]
    code = page.partition("```")[0]
    for name, large in {"hidden_size": "768", "num_hidden_layers": "12", "intermediate_size": "3072"}.items():
        code = code.replace(f'"{name}": {large}', f'"{name}": {SMALLER[large]}')
    code = code.replace('"num_attention_heads": 12', f'"num_attention_heads": {HEADS}')
    code = code.replace("patch_size=8, image_size=224", f"patch_size={PATCH}, image_size={PATCH * SIDE}")
    monkeypatch.chdir(tmp_path)
    torch.save(dino_state(), "dino_vitbase8_pretrain.pth")
    exec(compile(code, str(DOCS), "exec"), {})
    extractor = ViTFeatures(VideoSpec(3, PATCH * SIDE, PATCH * SIDE), "dino_vitbase8")
    frames = torch.rand(1, 2, 3, PATCH * SIDE, PATCH * SIDE)
    expected = dino(extractor.normalised(frames[0]), dino_state())
    torch.testing.assert_close(extractor(frames)[0], expected, atol=1e-4, rtol=1e-4)
