"""Layers that more than one plugin uses, `from slotbench.nn import InvertedAttention`.

Importing the package imports no module, and so no torch: a name does, when it is asked for.
"""

from __future__ import annotations

from slotbench.lazy import lazy_names

_MODULES = {
    "action_embedding": ("ActionEmbedding",),
    "attention": ("CrossAttention", "SelfAttention", "SelfCrossLayer", "SlotMixer"),
    "causal_transformer": ("CausalTransformer", "TransformerLayer"),
    "diagonal_ssm": ("DiagonalDynamics",),
    "frame_sequence": ("FrameSequence",),
    "gru": ("SharedGRU",),
    "inverted_attention": ("InvertedAttention",),
    "linear": ("MLP",),
    "mamba": ("MambaBlock",),
    "mamba2": ("Mamba2Block",),
    "mask_git": ("MaskGit",),
    "positions": ("CoordinateEmbedding",),
    "resnet_blocks": ("ResNetBlock",),
    "slot_attention": ("SlotCorrector",),
    "slot_encoder": ("SlotEncoder",),
    "slot_init": ("GaussianSlots", "InitialisedSlots", "LearnedSlots"),
    "slot_predictor": ("SlotPredictor",),
    "slot_ssm_layer": ("SlotSSMLayer", "SlotSSMStack"),
    "temporal_attention": ("TemporalAttention",),
    "vector_quantisation": ("CosineQuantiser",),
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _MODULES)
