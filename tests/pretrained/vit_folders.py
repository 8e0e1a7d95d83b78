"""Folders of small vision transformers with random weights, as transformers' `save_pretrained` writes them."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import transformers

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
FAMILIES = {
    "vit": (transformers.ViTConfig, transformers.ViTModel),
    "dinov2": (transformers.Dinov2Config, transformers.Dinov2Model),
    "dinov2_with_registers": (transformers.Dinov2WithRegistersConfig, transformers.Dinov2WithRegistersModel),
    "dinov3_vit": (transformers.DINOv3ViTConfig, transformers.DINOv3ViTModel),
}


def vit_folder(folder: Path, family: str = "dinov2", patch: int = 4, mean: float | None = None, seed: int = 0) -> str:
    """Writes a network of `family` that was trained at 24 x 24 pixels; `mean` is that of its colours."""
    torch.manual_seed(seed)
    config, model = FAMILIES[family]
    network = model(config(**SIZES, patch_size=patch, image_size=24))
    for values in network.parameters():  # as large as trained ones: nothing is nearly linear
        torch.nn.init.normal_(values, std=0.3)
    network.save_pretrained(folder)
    if mean is not None:
        colours = {"image_mean": [mean] * 3, "image_std": [0.5, 0.25, 0.2]}
        (folder / "preprocessor_config.json").write_text(json.dumps(colours))
    return str(folder)
