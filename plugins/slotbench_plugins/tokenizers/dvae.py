"""Discrete VAE: each cell of a frame draws one of many codes, in training softly so that a gradient passes."""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.interfaces import Tokenized, Tokenizer, VideoSpec
from slotbench.nn.gumbel import gumbel_noise

DVAENorm = Literal["none", "group"]


class DVAE(Tokenizer):
    """Discrete VAE of STEVE: convolutions to the codes of cells of 4 x 4 pixels, and from codes to frames.

    In training a cell passes on soft weights of all codes, a softmax of log probabilities plus Gumbel noise over a
    temperature, which falls by half a cosine. In evaluation its code is the most likely one, and frames are painted
    from codes. Noise and softmax are computed in float32, or float64 where frames are. The reconstruction of a training
    is not bounded, as in the source; `decode` clamps it to [0, 1].

    Source: Singh et al., "Simple Unsupervised Object-Centric Learning for Complex and Naturalistic Videos" (STEVE),
    NeurIPS 2022, and its code; the decoder of MOVi-C to E in PSB (Singh et al., 2024), Appendix D.3.2. With 4096 codes
    and 64 channels it has 680,515 parameters. SLATE's code has `norm: group`, and with 1024 codes 285,635 parameters.
    As in both codes, weights start Kaiming-uniform before a ReLU and Xavier-uniform elsewhere, with zero biases.

    Args:
        video_spec: the frames; height and width are multiples of 4.
        num_codes: size of the codebook.
        channels: of every hidden layer.
        first_temperature: of the first step.
        last_temperature: from step `anneal_steps` on.
        anneal_steps: steps in which the temperature falls.
        usage_weight: of a loss that spreads the codes: the divergence in nats of the mean probability of each code over
            the batch's cells from a uniform one. 0, as in the source, leaves it out; small batches and few steps need
            it, for a code that no cell takes gets next to no gradient.
        draw_codes: whether codes are drawn in training, by noise of their own, as the source does where transformer and
            tokenizer are trained together; otherwise they are the most likely ones.
        norm: before each ReLU: "group" for a GroupNorm of one group, whose offset takes the place of the convolution's
            bias, or "none".
    """

    def __init__(
        self,
        video_spec: VideoSpec,
        num_codes: int = 64,
        channels: int = 64,
        first_temperature: float = 1.0,
        last_temperature: float = 0.1,
        anneal_steps: int = 30_000,
        draw_codes: bool = False,
        usage_weight: float = 0.0,
        norm: DVAENorm = "none",
    ):
        super().__init__()
        if video_spec.height % 4 or video_spec.width % 4:
            raise ValueError(
                f"DVAE: a code is of 4 x 4 pixels, and frames are {video_spec.height} x {video_spec.width}: choose a "
                "height and a width that are multiples of 4"
            )
        self.usage_weight = usage_weight
        rows, cols = video_spec.height // 4, video_spec.width // 4
        self.code_spec = VideoSpec(num_codes, rows, cols, num_views=video_spec.num_views)
        self.first_temperature, self.last_temperature = first_temperature, last_temperature
        self.anneal_steps, self.draw_codes = anneal_steps, draw_codes
        self.temperature = first_temperature
        self.encoder = nn.Sequential(
            *_block(video_spec.channels, channels, 4, norm, stride=4),
            *_pointwise(channels, 6, norm),
            _last(channels, num_codes),
        )
        self.decoder = nn.Sequential(
            *_block(num_codes, channels, 1, norm),
            *_doubling(channels, norm),
            *_doubling(channels, norm),
            _last(channels, video_spec.channels),
        )

    @property
    def codebook(self) -> Float[Tensor, "codes embedding_dim"]:  # type: ignore[override]  # a view has no setter
        """Weights of the decoder's first layer, which a one-hot code picks; its bias is added to each when decoding."""
        return self.decoder[0].weight[:, :, 0, 0].T  # type: ignore[union-attr,index]

    @property
    def last_layer(self) -> nn.Parameter:
        """Weights of the convolution to pixels."""
        return self.decoder[-1].weight  # type: ignore[return-value]

    def forward(self, frames: Float[Tensor, "batch time *views channels height width"]) -> Tokenized:
        """Codes, and in training the frames painted from soft weights of them; in evaluation from the codes."""
        logits = self.logits(frames.flatten(0, -4))
        codes = self._codes(logits).unflatten(0, frames.shape[:-3])
        if not self.training:
            return Tokenized(codes, self._painted(codes))
        soft = gumbel_softmax(logits, self.temperature)
        losses = {"usage": self.usage_weight * unevenness(logits)} if self.usage_weight else {}
        return Tokenized(codes, self.decoder(soft.to(frames.dtype)).unflatten(0, frames.shape[:-3]), losses)

    def encode(
        self, frames: Float[Tensor, "batch time *views channels height width"]
    ) -> Integer[Tensor, "batch time *views rows cols"]:
        """The codes alone; nothing is painted."""
        return self._codes(self.logits(frames.flatten(0, -4))).unflatten(0, frames.shape[:-3])

    def logits(self, images: Float[Tensor, "frames channels height width"]) -> Float[Tensor, "frames codes rows cols"]:
        """Log probabilities of the codes of every cell, in float32 at least."""
        logits = self.encoder(images)
        return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(1)

    def decode(
        self, codes: Integer[Tensor, "batch time *views rows cols"]
    ) -> Float[Tensor, "batch time *views channels height width"]:
        """Frames of codes, clamped to [0, 1]."""
        return self._painted(codes).clamp(0, 1)

    def at_step(self, step: int) -> None:
        """Lowers the temperature."""
        done = min(1.0, step / self.anneal_steps)
        first, last = self.first_temperature, self.last_temperature
        self.temperature = last + (first - last) * 0.5 * (1 + math.cos(math.pi * done))

    def _codes(self, logits: Float[Tensor, "frames codes rows cols"]) -> Integer[Tensor, "frames rows cols"]:
        if self.training and self.draw_codes:
            logits = logits.detach() + gumbel_noise(logits)
        return logits.argmax(1)

    def _painted(self, codes: Integer[Tensor, "batch time *views rows cols"]) -> Tensor:
        first, *others = self.decoder
        assert isinstance(first, nn.Conv2d)
        # the first layer of one-hot weights, of which there would be 4096 for each cell
        cells = F.embedding(codes.flatten(0, -3), self.codebook)
        images = (cells if first.bias is None else cells + first.bias).movedim(-1, 1)
        for layer in others:
            images = layer(images)
        return images.unflatten(0, codes.shape[:-2])


def gumbel_softmax(
    logits: Float[Tensor, "frames codes rows cols"], temperature: float
) -> Float[Tensor, "frames codes rows cols"]:
    """Soft weights of the codes of each cell: a draw by `logits`, nearly one-hot at a low temperature."""
    with torch.autocast(logits.device.type, enabled=False):
        return ((logits + gumbel_noise(logits)) / temperature).softmax(1)


def unevenness(logits: Float[Tensor, "frames codes rows cols"]) -> Float[Tensor, ""]:
    """How far the codes' mean probabilities are from all alike: a divergence in nats."""
    share = logits.exp().mean((0, 2, 3))
    return torch.xlogy(share, share).sum() + math.log(len(share))


def _block(before: int, after: int, size: int, norm: DVAENorm, stride: int = 1) -> list[nn.Module]:
    """A convolution, a norm if any, a ReLU."""
    padding, normed = 0 if stride > 1 else size // 2, norm == "group"
    conv = nn.Conv2d(before, after, size, stride, padding, bias=not normed)
    nn.init.kaiming_uniform_(conv.weight, nonlinearity="relu")
    if conv.bias is not None:
        nn.init.zeros_(conv.bias)
    return [conv, *([nn.GroupNorm(1, after)] if normed else []), nn.ReLU()]


def _last(before: int, after: int) -> nn.Conv2d:
    """A map of every cell that nothing follows."""
    conv = nn.Conv2d(before, after, 1)
    nn.init.xavier_uniform_(conv.weight)
    assert conv.bias is not None
    nn.init.zeros_(conv.bias)
    return conv


def _pointwise(channels: int, count: int, norm: DVAENorm) -> list[nn.Module]:
    return [layer for _ in range(count) for layer in _block(channels, channels, 1, norm)]


def _doubling(channels: int, norm: DVAENorm) -> list[nn.Module]:
    """Layers that double the side of a map."""
    return [
        *_block(channels, channels, 3, norm),
        *_pointwise(channels, 2, norm),
        *_block(channels, 4 * channels, 1, norm),
        nn.PixelShuffle(2),
    ]
