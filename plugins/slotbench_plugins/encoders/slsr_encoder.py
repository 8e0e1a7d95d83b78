"""SLSR encoder: posed images of all shown cameras to the tokens of a step, through convolutions and one transformer."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.interfaces import Encoder, TokenSpec, VideoBatch, VideoSpec
from slotbench.nn.attention import SlotMixer
from slotbench.nn.rays import RAY_CODES, RayPoint, encode_rays, rays_of


class SLSREncoder(Encoder):
    """Slotted latent scene representation: residual convolutions on each view, then attention among all of a step.

    A pixel enters with the origin and the direction of its ray. A 1 x 1 convolution, a group norm and stages of
    residual blocks of 5 x 5 convolutions follow, with one that halves the image between stages, and layers of
    self-attention and MLP among the tokens of all views of a step. The tokens of a view stand together, in row-major
    order, and views in the order of the batch; a batch may have another number of views than the training.

    Source: PSB (Singh et al., ICML 2024), section 3.2, appendix D.4.2 and Tables 6 (`stages=2`), 7 (`stages=3`) and 8,
    with `dim=192`. The first convolution, the number of groups and the MLP's width are not printed.

    Args:
        video_spec: one step of the input.
        dim: channels of all convolutions, and width of a token.
        stages: of the convolutions; all but the first halve the image, rounded up.
        blocks: residual blocks of a stage.
        kernel_size: of the convolutions, odd.
        norm_groups: groups of channels that are normalised together.
        num_layers: layers of the transformer.
        num_heads: their heads.
        mlp_ratio: hidden width of their MLPs in units of `dim`.
        patch_size: side of the patches, in pixels, that the first convolution makes a cell of; the paper's are 1.
        ray_point: null gives the first convolution the origin and the direction of each pixel's ray, as in the paper.
            Otherwise the mean ray of a patch is encoded by sines and cosines, as in `SlotMixerDecoder`, and added
            behind it.
        max_value: bound of the coordinates of the point that is encoded.
    """

    takes_views: ClassVar[bool] = True

    def __init__(
        self,
        video_spec: VideoSpec,
        dim: int = 64,
        stages: int = 2,
        blocks: int = 2,
        kernel_size: int = 5,
        norm_groups: int = 8,
        num_layers: int = 3,
        num_heads: int = 4,
        mlp_ratio: int = 4,
        patch_size: int = 1,
        ray_point: RayPoint | None = None,
        max_value: float = 16.0,
    ):
        super().__init__()
        rows, cols = video_spec.height, video_spec.width
        if patch_size < 1 or max_value <= 0 or rows % patch_size or cols % patch_size:
            raise ValueError(
                f"SLSREncoder: got patch_size={patch_size} and max_value={max_value} for images of {rows} x {cols}; "
                "expected positive numbers, and patches that divide the image"
            )
        rows, cols = rows // patch_size, cols // patch_size
        self.patch_size, self.ray_point, self.max_value = patch_size, ray_point, max_value
        channels = video_spec.channels + (6 if ray_point is None else 0)
        self.stem = nn.Conv2d(channels, dim, patch_size, stride=patch_size)
        self.ray = None if ray_point is None else nn.Linear(RAY_CODES, dim)
        layers: list[nn.Module] = [nn.GroupNorm(norm_groups, dim)]
        for stage in range(stages):
            if stage:
                layers += [nn.GroupNorm(norm_groups, dim), _conv(dim, kernel_size, stride=2)]
                rows, cols = -(-rows // 2), -(-cols // 2)
            layers += [_ResidualBlock(dim, kernel_size, norm_groups) for _ in range(blocks)]
        self.convs = nn.Sequential(*layers)
        self.layers = nn.ModuleList(SlotMixer(dim, num_heads, mlp_ratio) for _ in range(num_layers))
        views = video_spec.num_views
        self.token_spec = TokenSpec(dim, views * rows * cols, (rows, cols) if views == 1 else None)

    def forward(self, batch: VideoBatch) -> Float[Tensor, "batch time tokens dim"]:
        """Tokens of every step, those of all shown views."""
        steps, frames = batch.frames.shape[:2], batch.pixels.flatten(0, -4)
        # codes of points need the bits that frames under autocast may lack
        rays = rays_of(batch, "SLSREncoder").flatten(0, -4)
        if self.ray is None or self.ray_point is None:
            cells = self.stem(torch.cat([frames, rays.to(frames)], dim=1))
        else:
            origin, direction = F.avg_pool2d(rays, self.patch_size).movedim(1, -1).split(3, dim=-1)
            mean = torch.cat([origin, F.normalize(direction, dim=-1)], dim=-1)
            code = encode_rays(mean, self.max_value, self.ray_point)
            cells = self.stem(frames) + self.ray(code.to(frames)).movedim(-1, 1)
        images = self.convs(cells)
        count = math.prod((*batch.frames.shape[2:-3], *images.shape[2:]))
        tokens = images.flatten(2).mT.reshape(steps[0] * steps[1], count, images.shape[1])
        for layer in self.layers:
            tokens = layer(tokens)
        return tokens.unflatten(0, steps)


class _ResidualBlock(nn.Module):
    def __init__(self, dim: int, kernel_size: int, norm_groups: int):
        super().__init__()
        self.change = nn.Sequential(
            nn.GroupNorm(norm_groups, dim), _conv(dim, kernel_size), nn.ReLU(), _conv(dim, kernel_size)
        )

    def forward(self, x: Float[Tensor, "images dim rows cols"]) -> Float[Tensor, "images dim rows cols"]:
        return x + self.change(x)


def _conv(dim: int, kernel_size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(dim, dim, kernel_size, stride, kernel_size // 2)
