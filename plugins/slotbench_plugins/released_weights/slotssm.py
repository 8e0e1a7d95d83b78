"""Weights of the SlotSSM authors' public code for `OCSlotSSM`.

    core = OCSlotSSM.original(token_spec, num_slots=6)
    load_slotssm(core, safetensors.torch.load_file("final_checkpoint/slotssm/model.safetensors"))

The package safetensors is no part of slotbench. What is loaded is their `SlotSSM` with inverted attention; where it has
another Mamba or a feed-forward network than in their example, build `OCSlotSSM` with the same (`ssm`, `mixer`).
Queries, keys and values that they keep apart are one map here.

Source: the names of github.com/JindongJiang/SlotSSMs, src/models/slotssm.py and module.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from slotbench.errors import FileError
from slotbench_plugins.cores.oc_slot_ssm import OCSlotSSM
from slotbench_plugins.released_weights._flax_trees import load_all

__all__ = ["from_slotssm", "load_slotssm"]

# what follows "blocks.INDEX." there -> what it is here; several of theirs are one of ours, one after the other
_NAMES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("input_proj",), "readers.{i}.token_projection"),
    (("cross_attn_input_norm",), "readers.{i}.slot_norm"),
    (("cross_attn_ref_norm",), "readers.{i}.token_norm"),
    (("cross_attn.proj_q",), "readers.{i}.attention.query"),
    (("cross_attn.proj_k", "cross_attn.proj_v"), "readers.{i}.attention.key_value"),
    (("cross_attn.proj_o",), "readers.{i}.attention.output"),
    (("time_mixer_norm",), "layers.{i}.ssm_norm"),
    (("space_attn_norm",), "layers.{i}.mixer.attention_norm"),
    # flash-attn's module, or their own
    (("space_attn.Wqkv",), "layers.{i}.mixer.attention.query_key_value"),
    (("space_attn.out_proj",), "layers.{i}.mixer.attention.output"),
    (("space_attn.proj_q", "space_attn.proj_k", "space_attn.proj_v"), "layers.{i}.mixer.attention.query_key_value"),
    (("space_attn.proj_o",), "layers.{i}.mixer.attention.output"),
    (("ffn_norm",), "layers.{i}.mixer.mlp_norm"),
    (("ffn.0",), "layers.{i}.mixer.mlp.expand"),
    (("ffn.2",), "layers.{i}.mixer.mlp.contract"),
)


def from_slotssm(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of an `OCSlotSSM` from that of the authors' `SlotSSM`."""
    ours, left = {}, dict(weights)
    ours["slot_init.slots"] = left.pop("init_slots")[0, 0]
    for index in sorted({int(found[1]) for name in left if (found := re.match(r"blocks\.(\d+)\.", name))}):
        block = f"blocks.{index}."
        # mamba-ssm's own names
        for name in [name for name in left if name.startswith(f"{block}time_mixer.")]:
            ours[f"layers.{index}.ssm.{name.removeprefix(f'{block}time_mixer.')}"] = left.pop(name)
        for theirs, here in _NAMES:
            for kind in ("weight", "bias"):
                names = [f"{block}{part}.{kind}" for part in theirs]
                if not any(name in left for name in names):
                    continue
                ours[f"{here.format(i=index)}.{kind}"] = torch.cat([left.pop(name) for name in names])
    if left:
        raise FileError(
            f"{sorted(left)[0]} is no name of the authors' SlotSSM with inverted attention: a model that reads its "
            "input with ordinary attention, or not in every block, has no counterpart here"
        )
    return ours


def load_slotssm(core: OCSlotSSM, weights: Mapping[str, Tensor]) -> None:
    """Loads the authors' weights into a core of the same sizes; every tensor must have its place."""
    advice = (
        "Build the core as the weights were, from OCSlotSSM.original with as many layers, or with mixer, ssm, "
        "bottom_up_bias and token_projection as in that code"
    )
    load_all(core, from_slotssm(weights), core.state_dict(), advice)
