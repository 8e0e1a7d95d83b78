"""ResNet decoder: the cells of a grid to an image, by convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.interfaces import Decoded, Decoder, SlotSpec, VideoBatch, VideoSpec
from slotbench.nn.grid import to_images
from slotbench.nn.linear import lecun_linear
from slotbench.nn.resnet_blocks import NORM_EPS, ResNetBlock, frame_conv


class ResNetDecoder(Decoder):
    """Residual blocks with nearest-neighbour upsampling between levels, then a LayerNorm and a linear head.

    `depths` is written as for `ResNetEncoder` and run through backwards: the last one has the size of the slots' grid,
    the first one that of the image. The convolution before them goes to the first depth, the narrowest, and the first
    block widens it again: a peculiarity of the authors' code, kept. The head's output is what the image is made
    of, not yet squashed into the range of pixels: the task does that.

    Source: Smith et al., "Convolutional State Space Models for Long-Range Spatiotemporal Modeling", NeurIPS 2023,
    Appendix D and its code; the paper's Moving-MNIST models have depths (64, 128, 256).

    Args:
        slot_spec: the output of the core, the cells of a grid, row by row.
        video_spec: the image to produce.
        depths: channels of every level, that of the full image first.
        blocks: residual blocks of every level.
    """

    def __init__(
        self, slot_spec: SlotSpec, video_spec: VideoSpec, depths: tuple[int, ...] = (16, 32, 64), blocks: int = 1
    ):
        super().__init__()
        if slot_spec.grid is None:
            raise ValueError(
                f"ResNetDecoder decodes the cells of a grid, and this core has {slot_spec.num_slots} slots "
                "without one: use a core that keeps the grid of its tokens (ConvS5, S5, ConvSSM, ConvLSTM, "
                "FrameTransformer, Performer), or a decoder of slots (TransformerDecoder)"
            )
        factor = 2 ** (len(depths) - 1)
        rows, cols = slot_spec.grid
        if (rows * factor, cols * factor) != (video_spec.height, video_spec.width):
            raise ValueError(
                f"{len(depths)} depths make an image {factor} times larger than the grid of the slots: from {rows} x "
                f"{cols} cells that is {rows * factor} x {cols * factor} pixels, and {video_spec.height} x "
                f"{video_spec.width} are wanted: give the decoder as many depths as the encoder has"
            )
        self.grid = slot_spec.grid
        self.blocks_per_level = blocks
        self.conv = frame_conv(slot_spec.dim, depths[0])
        reversed_depths = list(reversed(depths))
        stack = [
            ResNetBlock(depth if i else before, depth)
            for before, depth in zip([depths[0], *reversed_depths], reversed_depths, strict=False)
            for i in range(blocks)
        ]
        self.blocks: Sequence[ResNetBlock] = nn.ModuleList(stack)  # type: ignore[assignment]
        self.norm = nn.LayerNorm(depths[0], eps=NORM_EPS)
        self.head = lecun_linear(depths[0], video_spec.channels)

    def forward(self, slots: Float[Tensor, "batch time slots dim"], batch: VideoBatch | None = None) -> Decoded:
        """The image of every step; `batch` is not read."""
        images = self.conv(to_images(slots, self.grid))
        for index, block in enumerate(self.blocks):
            if index and index % self.blocks_per_level == 0:
                images = F.interpolate(images, scale_factor=2, mode="nearest")
            images = block(images)
        # in the precision of its weights: on bfloat16 a LayerNorm over 8 channels takes 4 times as long
        pixels = self.head(self.norm(images.permute(0, 2, 3, 1).to(self.norm.weight.dtype)))
        return Decoded(pixels.permute(0, 3, 1, 2).unflatten(0, slots.shape[:2]))
