"""Spatial broadcast decoder: one image per slot from a small grid of copies of it, mixed by a softmax over slots."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.interfaces import Decoded, Decoder, SlotSpec, VideoBatch, VideoSpec
from slotbench.nn.grid import normalise_frames
from slotbench.nn.positions import CoordinateEmbedding, CoordinateGrid
from slotbench_plugins.decoders._mixture import check_output, enabled_slots, mix_slots, start_colours

DecoderInit = Literal["torch", "xavier", "torch_all"]


class SpatialBroadcastDecoder(Decoder):
    """Spatial broadcast: a slot copied to every cell of a small grid, plus positions, upsampled by convolutions.

    All layers are transposed convolutions. As many of the first ones as are needed double the image, the rest keep
    its size; ReLU follows each but the last, which has the channels of the image and one more: the logit of the slot
    in the softmax over slots that makes the mask. Slots share all weights, so there may be any number of them, also
    another one than in training. The image has no output non-linearity unless `output` sets one.

    `decoder.disabled_slots` may be changed on a trained decoder to see what the image is without some of its slots;
    their own images stay in `Decoded.components`. `moving_mnist` and `moving_sprites` are the decoders of the RIM
    thesis.

    Source: Watters et al., "Spatial Broadcast Decoder", 2019, as used in SlotSSM, Table 4; PSB, Table 5 and its code;
    Krimmel et al., "Attention Normalization Impacts Cardinality Generalization in Slot Attention", TMLR 2024, Table 3;
    Lin, "Modular Neural Networks for Video Prediction", M.Sc. thesis, TU Delft, 2022, after its author's code. The
    arguments that make each of them are in `experiments/paper`. The defaults are a light one for CPUs, where this
    decoder is most of a training step.

    Args:
        slot_spec: the output of the core.
        video_spec: the image to produce.
        channels: of every layer but the last; a number for all of them, or one for each.
        num_layers: layers before the last; if None, as many as there are `channels`, or one for each doubling of the
            image.
        kernel_size: side of the kernel of these layers, a number for all of them or one for each; an even one only
            where the layer doubles the image.
        output_kernel: side of the kernel of the last layer; even only if that layer doubles the image.
        broadcast_size: cells of the grid along the shorter side of the image, which must be this times a power of 2.
        slot_norm: LayerNorm on a slot before it is copied.
        grid_norm: GroupNorm of one group on every slot's grid, after the positions are added.
        layer_norm: LayerNorm over each slot's whole map, without weights, after each ReLU.
        positions: see `slotbench.nn.positions.coordinate_grid`.
        initialisation: of the convolutions: "torch" as PyTorch does it ("torch_all": of the positions' linear layer
            too), "xavier": Xavier-uniform weights, zero biases.
        initial_rgb: what the biases of the image's channels start from, e.g. 0.5 to start from a grey image.
        output: "linear", or "sigmoid" for the images of the slots, and so their mixture, in [0, 1].
        disabled_slots: slots, from 0, that are left out of the softmax.
    """

    def __init__(
        self,
        slot_spec: SlotSpec,
        video_spec: VideoSpec,
        channels: int | tuple[int, ...] = 16,
        num_layers: int | None = None,
        kernel_size: int | tuple[int, ...] = 4,
        output_kernel: int = 3,
        broadcast_size: int = 8,
        slot_norm: bool = False,
        grid_norm: bool = False,
        positions: CoordinateGrid = "centres",
        initialisation: DecoderInit = "torch",
        initial_rgb: float = 0.0,
        layer_norm: bool = False,
        output: Literal["linear", "sigmoid"] = "linear",
        disabled_slots: tuple[int, ...] = (),
    ):
        super().__init__()
        doublings = _doublings(video_spec, broadcast_size)
        widths, kernels = _layers(channels, num_layers, kernel_size, doublings)
        if min(widths, default=1) < 1 or not widths or len(widths) + 1 < doublings:
            raise ValueError(
                f"SpatialBroadcastDecoder: got channels={channels} and num_layers={len(widths)}; from broadcast_size="
                f"{broadcast_size} to {video_spec.height} x {video_spec.width} pixels the image doubles {doublings} "
                f"times: give at least one channel and at least {max(1, doublings - 1)} layers before the last"
            )
        enabled_slots(slot_spec.num_slots, disabled_slots)
        self.paints_pixels = check_output("SpatialBroadcastDecoder", output)
        self.layer_norm = layer_norm
        self.disabled_slots = disabled_slots
        self.video_spec = video_spec
        rows, cols = video_spec.height >> doublings, video_spec.width >> doublings
        self.slot_norm = nn.LayerNorm(slot_spec.dim) if slot_norm else nn.Identity()
        self.position = CoordinateEmbedding(positions, rows, cols, slot_spec.dim)
        self.grid_norm = nn.GroupNorm(1, slot_spec.dim) if grid_norm else nn.Identity()
        sizes = pairwise((slot_spec.dim, *widths, video_spec.channels + 1))
        convs = [
            _growing_conv(before, after, kernel, doubles=i < doublings)
            for i, ((before, after), kernel) in enumerate(zip(sizes, (*kernels, output_kernel), strict=True))
        ]
        if initialisation == "torch_all":
            self.position.linear.reset_parameters()
        if initialisation == "xavier":
            for conv in convs:
                nn.init.xavier_uniform_(conv.weight)
                _bias(conv).zero_()
        start_colours(convs[-1].bias, video_spec.channels, initial_rgb)
        self.convs: Sequence[nn.ConvTranspose2d] = nn.ModuleList(convs)  # type: ignore[assignment]

    @classmethod
    def moving_mnist(cls, slot_spec: SlotSpec, video_spec: VideoSpec) -> SpatialBroadcastDecoder:
        """The decoder of the thesis' Moving-MNIST models: 221,622 parameters for slots of width 100 and one channel."""
        return cls._thesis(slot_spec, video_spec, (64, 32, 32))

    @classmethod
    def moving_sprites(cls, slot_spec: SlotSpec, video_spec: VideoSpec) -> SpatialBroadcastDecoder:
        """That of its Moving-Sprites models: 282,648 parameters for slots of width 100 and three channels."""
        return cls._thesis(slot_spec, video_spec, (64, 64, 32))

    @classmethod
    def _thesis(cls, slot_spec: SlotSpec, video_spec: VideoSpec, channels: tuple[int, ...]) -> SpatialBroadcastDecoder:
        return cls(
            slot_spec,
            video_spec,
            channels,
            kernel_size=(5, 5, 3),
            positions="ramps",
            initialisation="torch_all",
            layer_norm=True,
            output="sigmoid",
        )

    def forward(self, slots: Float[Tensor, "batch time slots dim"], batch: VideoBatch | None = None) -> Decoded:
        """The mixture, the masks and every slot's image; `batch` is not read."""
        images = self.first_layer(slots)
        for conv in self.convs[1:]:
            images = F.relu(images, inplace=True)
            images = conv(normalise_frames(images) if self.layer_norm else images)
        images = images.unflatten(0, slots.shape[:3])
        components = torch.sigmoid(images[:, :, :, :-1]) if self.paints_pixels else images[:, :, :, :-1]
        return Decoded(*mix_slots(components, images[:, :, :, -1], self.disabled_slots), components)

    def first_layer(self, slots: Float[Tensor, "batch time slots dim"]) -> Float[Tensor, "images channels rows cols"]:
        """The first convolution over every slot's grid, which is not written out where no norm needs it."""
        vectors = self.slot_norm(slots).flatten(0, 2)
        if isinstance(self.grid_norm, nn.Identity):
            return broadcast_conv_transpose(self.convs[0], vectors, self.position())
        cells = vectors[:, :, None, None] + self.position()
        return self.convs[0](self.grid_norm(cells.contiguous(memory_format=torch.channels_last)))


def _bias(conv: nn.ConvTranspose2d) -> Tensor:
    assert conv.bias is not None
    return conv.bias.detach()


def _layers(
    channels: int | tuple[int, ...], num_layers: int | None, kernel_size: int | tuple[int, ...], doublings: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Channels and side of the kernel of every layer before the last."""
    given = [len(sizes) for sizes in (channels, kernel_size) if not isinstance(sizes, int)]
    count = num_layers if num_layers is not None else max(given, default=doublings)
    if any(length != count for length in given):
        raise ValueError(
            f"SpatialBroadcastDecoder: got channels={channels}, num_layers={num_layers} and kernel_size={kernel_size}; "
            "expected as many numbers for each as there are layers before the last, or one number for all of them"
        )
    widths = (channels,) * count if isinstance(channels, int) else tuple(channels)
    return widths, (kernel_size,) * count if isinstance(kernel_size, int) else tuple(kernel_size)


def _doublings(video_spec: VideoSpec, broadcast_size: int) -> int:
    """How often the grid has to double to become the image."""
    sides = (video_spec.height, video_spec.width)
    factor = min(sides) // max(1, broadcast_size)
    if broadcast_size < 1 or factor * broadcast_size != min(sides) or factor & (factor - 1) or max(sides) % factor:
        raise ValueError(
            f"SpatialBroadcastDecoder: got broadcast_size={broadcast_size} for an image of {sides[0]} x {sides[1]} "
            "pixels; expected a shorter side of broadcast_size times a power of 2, and a longer one that is a multiple "
            "of that power: choose another broadcast_size or resolution"
        )
    return factor.bit_length() - 1


def _growing_conv(in_channels: int, out_channels: int, kernel_size: int, *, doubles: bool) -> nn.ConvTranspose2d:
    """A transposed convolution that doubles the image or keeps its size."""
    if kernel_size < 1 or (kernel_size % 2 == 0 and not doubles):
        raise ValueError(
            f"SpatialBroadcastDecoder: a kernel of {kernel_size} pixels cannot keep the size of an image: give an odd "
            "kernel_size and output_kernel, or as many layers as the image doubles (num_layers=None)"
        )
    if kernel_size == 1 and doubles:
        raise ValueError("SpatialBroadcastDecoder: a kernel of 1 pixel cannot double an image: give at least 2")
    odd = kernel_size % 2
    padding = (kernel_size - 1) // 2
    return nn.ConvTranspose2d(
        in_channels,
        out_channels,
        kernel_size,
        stride=2 if doubles else 1,
        padding=padding,
        output_padding=odd if doubles else 0,
    )


def broadcast_conv_transpose(
    conv: nn.ConvTranspose2d,
    vectors: Float[Tensor, "count in_channels"],
    offsets: Float[Tensor, "1 in_channels rows cols"],
) -> Float[Tensor, "count out_channels out_rows out_cols"]:
    """`conv` of `vectors[:, :, None, None] + offsets`, without writing out that grid.

    Every cell holds the same vector, so what reaches a place of the output is the vector times the sum of those taps
    of the kernel that meet a cell there: one matrix for all vectors. The offsets go through the convolution once. A
    training step of SAVi in `experiments/movi_like.yaml` takes 15 % longer without it.
    """
    rows, cols = (_taps(conv, axis, cells).to(conv.weight) for axis, cells in enumerate(offsets.shape[-2:]))
    matrix = einsum(conv.weight, rows, cols, "inner outer k l, row k, col l -> inner row col outer")
    shape = (len(vectors), *matrix.shape[1:])
    # the matrix is channels-last, and so is what follows: no copy
    grown = (vectors @ matrix.flatten(1)).view(shape).permute(0, 3, 1, 2)
    return grown + conv(offsets).contiguous(memory_format=torch.channels_last)


def _taps(conv: nn.ConvTranspose2d, axis: int, cells: int) -> Float[Tensor, "out_cells taps"]:
    """1 where, at a place of the output, a tap of the kernel meets one of the cells, along one axis."""
    size, stride, padding = conv.kernel_size[axis], conv.stride[axis], conv.padding[axis]
    assert not isinstance(padding, str)
    length = (cells - 1) * stride - 2 * padding + size + conv.output_padding[axis]
    # tap k of cell i lands on i * stride - padding + k
    origin = torch.arange(length)[:, None] + padding - torch.arange(size)
    return ((origin % stride == 0) & (origin >= 0) & (origin // stride < cells)).float()
