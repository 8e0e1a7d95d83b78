"""Layers that any plugin may use.

Those that cores are most often built of can be taken from here, `from slotbench.nn import InvertedAttention`; every
layer from its own module. Importing the package imports no module, and so no torch: a name does, when it is asked for.
"""

from __future__ import annotations

import importlib

_MODULES = {
    "action_embedding": ("ActionEmbedding",),
    "attention": ("CrossAttention", "SelfAttention"),
    "causal_transformer": ("CausalTransformer", "CausalTransformerLayer"),
    "conv_lstm_layer": ("ConvLSTMLayer",),
    "conv_s5_layer": ("ConvS5Layer",),
    "coordinates": ("CoordinateEmbedding",),
    "feature_extractor": ("FeatureExtractor",),
    "grouped": ("GroupGRU", "GroupLSTM", "GroupLinear"),
    "gru": ("SharedGRU",),
    "inverted_attention": ("InvertedAttention", "TokenMemory"),
    "mamba": ("MambaBlock",),
    "mamba2": ("Mamba2Block",),
    "mlp": ("MLP",),
    "psb_block": ("PSBBlock",),
    "self_cross": ("SelfCrossLayer",),
    "slot_attention": ("SlotCorrector", "SlotPredictor"),
    "slot_encoder": ("SlotEncoder",),
    "slot_init": ("GaussianSlots", "LearnedSlots"),
    "slot_mixer": ("SlotMixer",),
    "slot_ssm_layer": ("SlotSSMLayer", "SlotSSMStack"),
    "temporal_attention": ("TemporalAttention",),
    "time_bias": ("RelativeTimeBias",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
