"""Features of a vision transformer that is drawn at random, for which nothing is downloaded."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from slotbench.interfaces import VideoSpec
from slotbench.pretrained.feature_extractor import IMAGENET_MEAN, IMAGENET_STD, FeatureExtractor, check_coloured
from slotbench.pretrained.vit_features import check_multiple, library

__all__ = ["RandomViT"]


class RandomViT(FeatureExtractor):
    """Patches of a vision transformer of DINOv2's form with weights that a seed decides, not trained by anyone.

    A patch is told from others by its colours, texture and place, mixed a little with those of all patches. Such
    features show how a model on features is run, and what training them is worth.

    Args:
        video_spec: the frames, of three channels, whose sides are multiples of the patch.
        patch_size: side of a patch in pixels.
        dim: width of a token.
        num_layers: blocks.
        num_heads: heads of an attention.
        position_std: deviation of the numbers that tell a patch's place, which are smooth over the image; that of the
            patches' own is about 1.
        seed: of the weights.
        frames_at_once: frames that the network is given at a time.
    """

    def __init__(
        self,
        video_spec: VideoSpec,
        patch_size: int = 4,
        dim: int = 64,
        num_layers: int = 2,
        num_heads: int = 4,
        position_std: float = 0.5,
        seed: int = 0,
        frames_at_once: int = 64,
    ) -> None:
        check_coloured(video_spec)
        size = (video_spec.height, video_spec.width)
        check_multiple(size, patch_size)
        transformers = library("transformers")
        config = transformers.Dinov2Config(
            hidden_size=dim,
            num_hidden_layers=num_layers,
            num_attention_heads=num_heads,
            mlp_ratio=2,
            image_size=max(size),
            patch_size=patch_size,
            layerscale_value=1.0,
        )
        with torch.random.fork_rng(devices=()), torch.no_grad():
            torch.manual_seed(seed)
            network = transformers.Dinov2Model(config)
            # the library's start, of deviation 0.02, would tell neither patches nor places apart
            nn.init.normal_(network.embeddings.patch_embeddings.projection.weight, std=(3 * patch_size**2) ** -0.5)
            network.embeddings.position_embeddings[:, 1:] = position_std * _smooth_noise(max(size) // patch_size, dim)
        super().__init__(network, frames_at_once)
        self.resolution = size
        self.spec = VideoSpec(dim, size[0] // patch_size, size[1] // patch_size)
        self.keep_normalisation(IMAGENET_MEAN, IMAGENET_STD)

    def extract(self, images: Float[Tensor, "frames 3 height width"]) -> Float[Tensor, "frames dim rows cols"]:
        """Features of some frames, in [0, 1]."""
        patches = self.network(self.normalised(images)).last_hidden_state[:, 1:]
        return patches.transpose(1, 2).unflatten(2, (self.spec.height, self.spec.width))


def _smooth_noise(side: int, dim: int) -> Float[Tensor, "cells dim"]:
    """Normal noise on 3 x 3 places, and between them what is bicubic."""
    drawn = torch.randn(1, dim, 3, 3)
    return functional.interpolate(drawn, (side, side), mode="bicubic", align_corners=True)[0].flatten(1).mT
