"""VQ-GAN: a deep convolutional autoencoder with attention, whose map is replaced by rows of a trained codebook."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.interfaces import Tokenized, Tokenizer, VideoSpec
from slotbench.nn.parameters import without_decay
from slotbench.nn.vector_quantisation import code_rows, nearest_codes, straight_through


class VQGAN(Tokenizer):
    """VQ-GAN's autoencoder: residual blocks at falling resolutions, attention at low ones, and a trained codebook.

    A cell takes the nearest row of the codebook; the decoder's gradient passes that choice unchanged. Two terms train
    the choice: the squared distance of the rows from the vectors, and `commitment_weight` times that of the vectors
    from the rows. Inside, frames are in [-1, 1].

    The rest of the method is the task's, which trains any tokenizer so: `FrameTokenization` with
    `frame_error: absolute`, `perceptual_weight: 1`, and `adversarial_weight: 0.8` from step 10,000 on. Without them it
    is a VQ-VAE of this architecture.

    Source: Esser, Rombach, Ommer, "Taming Transformers for High-Resolution Image Synthesis", CVPR 2021, and its public
    code; TECO (Yan et al., 2023) has it for DMLab, Minecraft and Habitat. The default is small, for laptops; see
    `taming`.

    Args:
        video_spec: the frames.
        num_codes: rows of the codebook.
        embedding_dim: width of a row.
        channels: of the first level, a multiple of the number of groups, 32 or what of it divides the channels.
        multipliers: of the channels, level by level; between two levels height and width are halved, and both must be
            divisible that often.
        num_res_blocks: residual blocks of a level of the encoder; the decoder has one more.
        attention_sides: heights of maps with attention after every residual block; the lowest level has it anyway,
            once.
        map_channels: of the encoder's output, before a 1 x 1 convolution to `embedding_dim`.
        commitment_weight: of the vectors' squared distance from the rows.
        legacy_beta: as the public code does by default, put `commitment_weight` on the other term: the rows' squared
            distance from the vectors.
    """

    def __init__(
        self,
        video_spec: VideoSpec,
        num_codes: int = 256,
        embedding_dim: int = 64,
        channels: int = 32,
        multipliers: Sequence[int] = (1, 2, 2),
        num_res_blocks: int = 1,
        attention_sides: Sequence[int] = (),
        map_channels: int = 64,
        commitment_weight: float = 0.25,
        legacy_beta: bool = False,
    ):
        super().__init__()
        cell = 2 ** (len(multipliers) - 1)
        if video_spec.height % cell or video_spec.width % cell:
            raise ValueError(
                f"{len(multipliers)} levels halve frames {len(multipliers) - 1} times, and {video_spec.height} x "
                f"{video_spec.width} pixels are not divisible by {cell}: choose fewer multipliers"
            )
        rows, cols = video_spec.height // cell, video_spec.width // cell
        self.code_spec = VideoSpec(num_codes, rows, cols, num_views=video_spec.num_views)
        self.commitment_weight, self.legacy_beta = commitment_weight, legacy_beta
        widths = [channels * multiplier for multiplier in multipliers]
        attended = [video_spec.height >> level in attention_sides for level in range(len(widths))]
        self.encoder = nn.Sequential(
            *_encoder(video_spec.channels, channels, widths, attended, num_res_blocks),
            *_last(widths[-1], map_channels),
            nn.Conv2d(map_channels, embedding_dim, 1),
        )
        self.decoder = nn.Sequential(
            nn.Conv2d(embedding_dim, map_channels, 1),
            *_decoder(map_channels, widths, attended, num_res_blocks + 1),
            *_last(widths[0], video_spec.channels),
        )
        # rows that decay would drift away from their vectors
        self.codebook = without_decay(nn.Parameter(torch.empty(num_codes, embedding_dim)))
        nn.init.uniform_(self.codebook, -1 / num_codes, 1 / num_codes)

    @classmethod
    def taming(cls, video_spec: VideoSpec, legacy_beta: bool = False) -> VQGAN:
        """The sizes of the public code for images of one's own: of 256 x 256 pixels 16 x 16 codes, 72 M parameters."""
        return cls(
            video_spec,
            num_codes=1024,
            embedding_dim=256,
            channels=128,
            multipliers=(1, 1, 2, 2, 4),
            num_res_blocks=2,
            attention_sides=(16,),
            map_channels=256,
            legacy_beta=legacy_beta,
        )

    @property
    def last_layer(self) -> nn.Parameter:
        """Weights of the convolution to pixels."""
        return self.decoder[-1].weight  # type: ignore[return-value]

    def forward(self, frames: Float[Tensor, "batch time *views channels height width"]) -> Tokenized:
        """Codes, the frames painted from them, and the two terms of the codebook."""
        maps = self.encoder(2 * frames.flatten(0, -4) - 1)
        codes = nearest_codes(maps, self.codebook)
        rows = code_rows(codes, self.codebook)
        painted = self._painted(straight_through(maps, rows) if self.training else rows)
        codes, painted = (part.unflatten(0, frames.shape[:-3]) for part in (codes, painted))
        weights = (self.commitment_weight, 1.0) if self.legacy_beta else (1.0, self.commitment_weight)
        maps, rows = maps.to(self.codebook.dtype), rows.to(self.codebook.dtype)
        terms = {"codebook": F.mse_loss(rows, maps.detach()), "commitment": F.mse_loss(maps, rows.detach())}
        losses = {name: weight * term for weight, (name, term) in zip(weights, terms.items(), strict=True)}
        return Tokenized(codes, painted, losses)

    def encode(
        self, frames: Float[Tensor, "batch time *views channels height width"]
    ) -> Integer[Tensor, "batch time *views rows cols"]:
        """The codes alone; nothing is painted."""
        maps = self.encoder(2 * frames.flatten(0, -4) - 1)
        return nearest_codes(maps, self.codebook).unflatten(0, frames.shape[:-3])

    def decode(
        self, codes: Integer[Tensor, "batch time *views rows cols"]
    ) -> Float[Tensor, "batch time *views channels height width"]:
        """Frames of codes, clamped to [0, 1]."""
        painted = self._painted(code_rows(codes.flatten(0, -3), self.codebook))
        return painted.clamp(0, 1).unflatten(0, codes.shape[:-2])

    def _painted(self, rows: Float[Tensor, "frames dim rows cols"]) -> Float[Tensor, "frames channels height width"]:
        return (self.decoder(rows) + 1) / 2


def _encoder(
    colours: int, channels: int, widths: Sequence[int], attended: Sequence[bool], num_blocks: int
) -> Iterable[nn.Module]:
    """Levels from frames to the lowest map."""
    yield nn.Conv2d(colours, channels, 3, padding=1)
    before = channels
    for level, width in enumerate(widths):
        if level:
            yield nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(before, before, 3, stride=2))
        yield from _level(before, width, num_blocks, attended[level])
        before = width
    yield from _middle(before)


def _decoder(
    map_channels: int, widths: Sequence[int], attended: Sequence[bool], num_blocks: int
) -> Iterable[nn.Module]:
    """Levels from the lowest map to frames."""
    before = widths[-1]
    yield nn.Conv2d(map_channels, before, 3, padding=1)
    yield from _middle(before)
    for level in reversed(range(len(widths))):
        yield from _level(before, widths[level], num_blocks, attended[level])
        before = widths[level]
        if level:
            yield nn.Sequential(nn.Upsample(scale_factor=2.0), nn.Conv2d(before, before, 3, padding=1))


def _level(before: int, width: int, num_blocks: int, attended: bool) -> Iterable[nn.Module]:
    for block in range(num_blocks):
        yield _ResidualBlock(width if block else before, width)
        if attended:
            yield _Attention(width)


def _middle(width: int) -> Iterable[nn.Module]:
    return _ResidualBlock(width, width), _Attention(width), _ResidualBlock(width, width)


def _last(before: int, after: int) -> Iterable[nn.Module]:
    return _norm(before), nn.SiLU(), nn.Conv2d(before, after, 3, padding=1)


def _norm(channels: int) -> nn.GroupNorm:
    """GroupNorm of 32 groups, or of as many of 32 as divide the channels."""
    return nn.GroupNorm(math.gcd(32, channels), channels, eps=1e-6)


class _ResidualBlock(nn.Module):
    """Twice norm, swish and 3 x 3 convolution, added to the input, which a 1 x 1 convolution maps to another width."""

    def __init__(self, before: int, after: int):
        super().__init__()
        self.layers = nn.Sequential(
            *(_norm(before), nn.SiLU(), nn.Conv2d(before, after, 3, padding=1)),
            *(_norm(after), nn.SiLU(), nn.Conv2d(after, after, 3, padding=1)),
        )
        self.skip = nn.Identity() if before == after else nn.Conv2d(before, after, 1)

    def forward(self, images: Float[Tensor, "frames _ rows cols"]) -> Float[Tensor, "frames _ rows cols"]:
        return self.skip(images) + self.layers(images)


class _Attention(nn.Module):
    """Attention of one head among all cells of a frame, added to the input."""

    def __init__(self, width: int):
        super().__init__()
        self.norm = _norm(width)
        self.query_key_value = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(3))
        self.project = nn.Conv2d(width, width, 1)

    def forward(self, images: Float[Tensor, "frames width rows cols"]) -> Float[Tensor, "frames width rows cols"]:
        normed = self.norm(images)
        read = F.scaled_dot_product_attention(*(conv(normed).flatten(2).mT for conv in self.query_key_value))
        return images + self.project(read.mT.unflatten(2, images.shape[2:]))
