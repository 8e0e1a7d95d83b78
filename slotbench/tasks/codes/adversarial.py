"""A discriminator of patches, and the terms by which it and a tokenizer are trained against one another."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

__all__ = ["Adversary", "PatchDiscriminator", "adaptive_weight", "hinge_loss"]

_SMALLEST = 24
"""Side in pixels of the smallest frame of which the convolutions leave a patch."""

Frames = Float[Tensor, "frames channels height width"]


class PatchDiscriminator(nn.Sequential):
    """Convolutions to one logit for each of many overlapping patches, above 0 where they look true.

    Source: Isola et al., "Image-to-Image Translation with Conditional Adversarial Networks", CVPR 2017, and its code.
    """

    def __init__(self, channels: int, width: int = 64):
        super().__init__(nn.Conv2d(channels, width, 4, 2, 1), nn.LeakyReLU(0.2))
        for level, stride in enumerate((2, 2, 1)):
            before, after = width << level, width << (level + 1)
            self.extend([nn.Conv2d(before, after, 4, stride, 1, bias=False), nn.BatchNorm2d(after), nn.LeakyReLU(0.2)])
        self.append(nn.Conv2d(width << 3, 1, 4, 1, 1))
        for module in self:
            if isinstance(module, nn.Conv2d):
                nn.init.normal_(module.weight, 0.0, 0.02)
            elif isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.weight, 1.0, 0.02)


class Adversary(nn.Module):
    """Discriminator of a tokenizer's frames, and its two terms, for one optimiser over both networks.

    The tokenizer's term is minus the mean logit of its frames, the discriminator's is the hinge loss. No gradient of
    either term reaches the other network; VQ-GAN's code updates the discriminator after the tokenizer in each step.

    Source: Esser, Rombach, Ommer, "Taming Transformers for High-Resolution Image Synthesis", CVPR 2021, Equations 5 to
    7, with the numbers of its public code; hinge loss: Lim and Ye, "Geometric GAN", 2017.

    Args:
        channels: of a frame.
        side: height or width of a frame in pixels, whichever is less.
        weight: of the tokenizer's term, beside the adaptive weight.
        start: step from which on both terms count.
    """

    def __init__(self, channels: int, side: int, weight: float = 0.8, start: int = 10_000):
        super().__init__()
        if side < _SMALLEST:
            raise ValueError(f"adversarial_weight needs frames of {_SMALLEST} pixels a side, at least; got {side}")
        self.discriminator = PatchDiscriminator(channels)
        self.weight, self.start = weight, start

    def forward(
        self, painted: Frames, true: Frames, error: Float[Tensor, ""], last_layer: Tensor, step: int
    ) -> dict[str, Float[Tensor, ""]]:
        """The two terms of a training step: `adversarial`, weighted, and `discriminator`."""
        own = dict(self.discriminator.named_parameters())
        if step < self.start:
            # a gradient of zeros: several processes wait for that of every parameter
            nothing = 0 * torch.stack([parameter.sum() for parameter in own.values()]).sum()
            return {"adversarial": nothing.detach(), "discriminator": nothing}
        painted, true = 2 * painted - 1, 2 * true.to(painted) - 1
        fixed = {name: parameter.detach() for name, parameter in own.items()}
        term = -functional_call(self.discriminator, fixed, (painted,)).mean()
        weight = self.weight * adaptive_weight(error, term, last_layer)
        return {
            "adversarial": weight * term,
            "discriminator": hinge_loss(self.discriminator(true), self.discriminator(painted.detach())),
        }


def adaptive_weight(
    error: Float[Tensor, ""], term: Float[Tensor, ""], last_layer: Tensor, eps: float = 1e-4, largest: float = 1e4
) -> Float[Tensor, ""]:
    """Norm of the error's gradient at a layer over that of another term, without a gradient of its own."""
    sizes = [torch.autograd.grad(value, last_layer, retain_graph=True)[0].norm() for value in (error, term)]
    return (sizes[0] / (sizes[1] + eps)).clamp(max=largest).detach()


def hinge_loss(true: Float[Tensor, "*patches"], painted: Float[Tensor, "*patches"]) -> Float[Tensor, ""]:
    """How far logits of true patches are below 1, and those of others above -1, halved."""
    return (F.relu(1 - true).mean() + F.relu(1 + painted).mean()) / 2
