"""Features in the place of frames, for tasks whose encoder reads them."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from slotbench.interfaces import VideoBatch
from slotbench.pretrained.feature_extractor import FeatureExtractor

__all__ = ["features_as_frames"]


def features_as_frames(batch: VideoBatch, encoder: nn.Module, extractor: FeatureExtractor | None = None) -> VideoBatch:
    """The batch with features in the place of its frames.

    Args:
        batch: clips.
        encoder: reads them, in the dtype of its parameters.
        extractor: makes the features from the frames; None for those of the data.
    """
    if extractor is not None:
        found = extractor(batch.pixels)
    else:
        found = batch.require("features").to(next(encoder.parameters()).dtype)
    # masks and rays are of the frames' pixels
    return replace(batch, frames=found, features=None, masks=None, rays=None)
