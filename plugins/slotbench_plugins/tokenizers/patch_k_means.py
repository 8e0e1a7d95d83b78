"""Patch k-means: square patches of a frame, each replaced by the nearest entry of a codebook."""

from __future__ import annotations

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from slotbench.interfaces import Tokenized, Tokenizer, VideoSpec
from slotbench.nn.patch_codebook import cut_patches, fit_codebook, join_patches, nearest_entries


class PatchKMeans(Tokenizer):
    """Codebook of patches: the code of a patch is the nearest of the mean patches of k-means, which it decodes to.

    Nothing is learned by gradients: the codebook is fitted to frames of the training split before the training. It is
    the baseline that a learned tokenizer of as many codes and cells has to beat.

    Args:
        video_spec: the frames.
        num_codes: entries of the codebook.
        patch_size: side of a patch in pixels; it must divide height and width.
        fit_frames: frames of the training split that the codebook is fitted to.
        iterations: of k-means.
        seed: of its draws.
    """

    codebook: Tensor
    is_fitted: Tensor

    def __init__(
        self,
        video_spec: VideoSpec,
        num_codes: int = 64,
        patch_size: int = 4,
        fit_frames: int = 1000,
        iterations: int = 20,
        seed: int = 0,
    ):
        super().__init__()
        if video_spec.height % patch_size or video_spec.width % patch_size:
            raise ValueError(
                f"patches of {patch_size} x {patch_size} pixels do not tile frames of {video_spec.height} x "
                f"{video_spec.width}: choose a patch_size that divides both"
            )
        rows, cols = video_spec.height // patch_size, video_spec.width // patch_size
        self.code_spec = VideoSpec(num_codes, rows, cols, num_views=video_spec.num_views)
        self.patch_size, self.iterations, self.seed = patch_size, iterations, seed
        self._fit_frames = fit_frames
        # before it is fitted: patches of one brightness, from black to white
        shades = torch.linspace(0, 1, num_codes)[:, None]
        self.register_buffer("codebook", shades.expand(-1, video_spec.channels * patch_size**2).clone())
        self.register_buffer("is_fitted", torch.tensor(False))

    @property
    def fit_frames(self) -> int:
        """Those of the argument, until it is fitted."""
        return 0 if self.is_fitted else self._fit_frames

    def forward(self, frames: Float[Tensor, "batch time *views channels height width"]) -> Tokenized:
        """The nearest entry of every patch; there is nothing to train."""
        return Tokenized(nearest_entries(cut_patches(frames.to(self.codebook), self.patch_size), self.codebook))

    def decode(
        self, codes: Integer[Tensor, "batch time *views rows cols"]
    ) -> Float[Tensor, "batch time *views channels height width"]:
        """Each patch the entry of its code."""
        return join_patches(self.codebook[codes], self.patch_size).clamp(0, 1)

    def fit(self, frames: Float[Tensor, "frames channels height width"]) -> None:
        """Finds the codebook by k-means."""
        patches = cut_patches(frames.to(self.codebook), self.patch_size).flatten(0, -2)
        self.codebook.copy_(fit_codebook(patches, len(self.codebook), self.iterations, self.seed))
        self.is_fitted.fill_(True)
