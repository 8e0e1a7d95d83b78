"""Weights of the VQ-GANs that TECO's authors trained, in JAX, for our `VQGAN`, and back.

    # state = flax.training.checkpoints.restore_checkpoint(FOLDER, None)
    # variables = {"params": state["params"], **state["model_state"]}
    # numpy.savez("vqgan.npz", **flax.traverse_util.flatten_dict(variables, sep="/"))
    load_vqgan(tokenizer, "vqgan.npz")

The sizes are in the checkpoint's own settings: n_embed, embed_dim, ch, ch_mult, num_res_blocks, attn_resolutions and
z_channels are `num_codes`, `embedding_dim`, `channels`, `multipliers`, `num_res_blocks`, `attention_sides` and
`map_channels` of `VQGAN`.

Source: the modules of TECO (Yan et al., ICML 2023) as the code of ConvS5 has them, github.com/NVlabs/ConvSSM,
src/models/vqgan.py.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import torch

from slotbench_plugins.released_weights._flax_trees import Tree, load_all, read_arrays
from slotbench_plugins.tokenizers.vqgan import VQGAN

__all__ = ["load_vqgan", "vqgan_tree"]

_WHOLE = {"": ""}
_KINDS = {
    "Conv2d": ("Conv", _WHOLE),
    "GroupNorm": ("GroupNorm", _WHOLE),
    "_ResidualBlock": (
        "ResnetBlock",
        {
            "/GroupNorm_0": ".layers.0",
            "/Conv_0": ".layers.2",
            "/GroupNorm_1": ".layers.3",
            "/Conv_1": ".layers.5",
            "/Conv_2": ".skip",
        },
    ),
    "_Attention": (
        "AttnBlock",
        {
            "/GroupNorm_0": ".norm",
            "/Conv_0": ".query_key_value.0",
            "/Conv_1": ".query_key_value.1",
            "/Conv_2": ".query_key_value.2",
            "/Conv_3": ".project",
        },
    ),
    "Sequential": ("{resample}", {"/Conv_0": ".1"}),
}
"""Their name of each class of layers, which they count from 0 on, and what its parts are called there and here."""


def load_vqgan(tokenizer: VQGAN, tree: str | Path | Tree) -> None:
    """Loads the variables of the authors' VQ-GAN, the collections "params" and "stats"; each must have its place."""
    names, found = _names(tokenizer), {}
    for name, value in read_arrays(tree).items():
        ours = torch.from_numpy(np.array(value))
        found[names.get(name, name)] = (ours.permute(3, 2, 0, 1) if ours.ndim == 4 else ours).contiguous()
    load_all(tokenizer, found, tokenizer.state_dict(), "Build VQGAN with the sizes in the checkpoint's settings")


def vqgan_tree(tokenizer: VQGAN) -> dict[str, np.ndarray]:
    """The authors' variables for a tokenizer: the inverse of `load_vqgan`, to the bit."""
    own = {name: value.detach().cpu() for name, value in tokenizer.state_dict().items()}
    values = {theirs: own[ours] for theirs, ours in _names(tokenizer).items()}
    return {
        name: np.ascontiguousarray((value.permute(2, 3, 1, 0) if value.ndim == 4 else value).numpy())
        for name, value in values.items()
    }


def _names(tokenizer: VQGAN) -> dict[str, str]:
    """Our name of each of their variables, for a tokenizer of these sizes."""
    own = tokenizer.state_dict()
    names = {"stats/quantize/embeddings": "codebook"}
    for part, resample, edge, outer in (
        ("encoder", "Downsample", -1, "quant_conv"),
        ("decoder", "Upsample", 0, "post_quant_conv"),
    ):
        layers = list(tokenizer.get_submodule(part).named_children())
        number, _ = layers.pop(edge)
        stems = {f"params/{outer}": f"{part}.{number}"}
        counts: Counter[str] = Counter()
        for number, layer in layers:
            kind, parts = _KINDS.get(type(layer).__name__, ("", {}))
            stem = f"params/{part}/{kind.format(resample=resample)}_{counts[kind]}"
            stems |= {stem + there: f"{part}.{number}{here}" for there, here in parts.items()}
            counts[kind] += 1
        for there, here in stems.items():
            if f"{here}.weight" in own:
                names[f"{there}/{'kernel' if own[f'{here}.weight'].ndim == 4 else 'scale'}"] = f"{here}.weight"
                names[f"{there}/bias"] = f"{here}.bias"
    return names
