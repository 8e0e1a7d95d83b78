"""ResNet with group norm, positions, and a transformer over the cells of each frame: the encoder of SAVi++."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.interfaces import Encoder, TokenSpec, VideoBatch, VideoSpec
from slotbench.nn.attention import check_heads, merge_heads, split_heads
from slotbench.nn.grid import to_tokens
from slotbench.nn.linear import lecun_linear, lecun_normal_
from slotbench.nn.positions import CoordinateEmbedding, CoordinateGrid

NORM_EPS = 1e-6
"""Of all norms; that of flax, and so of SAVi++'s code."""


class ResNetTransformerEncoder(Encoder):
    """Residual convolutions with group norm, then self-attention among the cells of a frame: one token per cell.

    The first convolution keeps the size of the image, and every stage after the first halves it (rounded up) and has
    twice the channels. To each cell a linear map of its coordinates is added; a LayerNorm and an MLP, without a
    residual, make the token, and layers of pre-norm attention and MLP follow. Frames enter as they are, in [0, 1]. Each
    frame is encoded on its own.

    Source: SAVi++ (Elsayed et al., 2022) and its public code, whose encoder on MOVi is a ResNet-34 for small images
    with 4 such layers: `width=64`, `blocks=(3, 4, 6, 3)`, `norm_groups=32`, `residual_scale=0`, `num_layers=4`,
    `attention_dim=64`, `mlp_dim=1024`. As there, no ReLU follows the first norm, MLPs have ReLUs, weights are LeCun
    normal and biases zero, and where a convolution halves an even side the missing row or column is added at its end.

    Args:
        video_spec: one step of the input.
        width: channels of the first stage; a token has `width` times 2 for every stage after it.
        blocks: residual blocks of every stage.
        norm_groups: groups of channels that are normalised together, or as many as there are channels, if that is less.
        residual_scale: what the last norm of each block multiplies by at the start; at 0 every block starts as its
            shortcut.
        positions: see `slotbench.nn.positions.coordinate_grid`.
        position_hidden_dim: hidden width of the MLP after the positions.
        num_layers: layers of the transformer; 0 for none.
        num_heads: their heads.
        mlp_dim: hidden width of their MLPs.
        attention_dim: width of the queries, keys and values of all heads together; that of a token if None.
    """

    def __init__(
        self,
        video_spec: VideoSpec,
        width: int = 16,
        blocks: tuple[int, ...] = (1, 1, 1),
        norm_groups: int = 8,
        residual_scale: float = 0.1,
        positions: CoordinateGrid = "signed_ramps",
        position_hidden_dim: int = 64,
        num_layers: int = 1,
        num_heads: int = 4,
        mlp_dim: int = 128,
        attention_dim: int | None = None,
    ):
        super().__init__()
        rows, cols, channels = video_spec.height, video_spec.width, width
        stack = [SameConv(video_spec.channels, width, 3), _norm(width, norm_groups)]
        for stage, count in enumerate(blocks):
            for block in range(count):
                halves = stage > 0 and block == 0
                grown = 2 * channels if halves else channels
                stack.append(GroupNormBlock(channels, grown, 2 if halves else 1, norm_groups, residual_scale))
                channels = grown
                rows, cols = (-(-rows // 2), -(-cols // 2)) if halves else (rows, cols)
        self.token_spec = TokenSpec(channels, rows * cols, (rows, cols))
        self.convs = nn.Sequential(*stack)
        self.position = CoordinateEmbedding(positions, rows, cols, channels)
        lecun_normal_(self.position.linear.weight)
        self.position_mlp = _pre_norm_mlp(channels, position_hidden_dim)
        attended = channels if attention_dim is None else attention_dim
        layers = [TransformerLayer(channels, num_heads, mlp_dim, attended) for _ in range(num_layers)]
        self.layers: Sequence[TransformerLayer] = nn.ModuleList(layers)  # type: ignore[assignment]

    def forward(self, batch: VideoBatch) -> Float[Tensor, "batch time tokens dim"]:
        """Tokens of every step."""
        images = self.convs(batch.pixels.flatten(0, 1)) + self.position()
        tokens = self.position_mlp(to_tokens(images, len(batch)).flatten(0, 1))
        for layer in self.layers:
            tokens = layer(tokens)
        return tokens.unflatten(0, (len(batch), -1))


class GroupNormBlock(nn.Module):
    """Two 3 x 3 convolutions with group norm and a shortcut, which is a 1 x 1 convolution where the shape changes.

    Source: He et al., "Deep Residual Learning for Image Recognition", 2016, the block without a bottleneck.

    Args:
        in_channels: of the input.
        out_channels: of the output.
        stride: 1, or 2 to halve the image.
        norm_groups: groups of channels at most.
        residual_scale: what the last norm multiplies by at the start.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int, norm_groups: int, residual_scale: float):
        super().__init__()
        self.first = SameConv(in_channels, out_channels, 3, stride)
        self.first_norm = _norm(out_channels, norm_groups)
        self.second = SameConv(out_channels, out_channels, 3)
        self.second_norm = _norm(out_channels, norm_groups)
        nn.init.constant_(self.second_norm.weight, residual_scale)
        changes = stride != 1 or in_channels != out_channels
        self.shortcut = (
            nn.Sequential(SameConv(in_channels, out_channels, 1, stride), _norm(out_channels, norm_groups))
            if changes
            else nn.Identity()
        )

    def forward(self, x: Float[Tensor, "frames in_channels rows cols"]) -> Float[Tensor, "frames out_channels h w"]:
        """The output after the last ReLU."""
        change = self.second_norm(self.second(F.relu(self.first_norm(self.first(x)))))
        return F.relu(self.shortcut(x) + change)


class TransformerLayer(nn.Module):
    """Self-attention over all tokens of a frame, then an MLP on each, both with a residual and a LayerNorm before it.

    Args:
        dim: width of a token.
        num_heads: heads.
        mlp_dim: hidden width of the MLP.
        attention_dim: width of the queries, keys and values of all heads together.
    """

    def __init__(self, dim: int, num_heads: int, mlp_dim: int, attention_dim: int):
        super().__init__()
        check_heads(attention_dim, num_heads)
        self.num_heads = num_heads
        self.attention_norm = nn.LayerNorm(dim, NORM_EPS)
        self.query_key_value = lecun_linear(dim, 3 * attention_dim)
        self.output = lecun_linear(attention_dim, dim)
        self.mlp = _pre_norm_mlp(dim, mlp_dim)

    def forward(self, x: Float[Tensor, "frames tokens dim"]) -> Float[Tensor, "frames tokens dim"]:
        """Tokens of the same shape."""
        maps = self.query_key_value(self.attention_norm(x)).chunk(3, dim=-1)
        query, key, value = (split_heads(part, self.num_heads) for part in maps)
        attended = F.scaled_dot_product_attention(query, key, value)
        x = x + self.output(merge_heads(attended))
        return x + self.mlp(x)


class SameConv(nn.Conv2d):
    """A convolution without bias whose output has a side of the input's over the stride, rounded up.

    What is missing at the borders is zeros, half of them on either side, and an odd one at the end.

    Args:
        in_channels: of the input.
        out_channels: of the output.
        kernel_size: side of the kernel.
        stride: in both directions.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1):
        super().__init__(in_channels, out_channels, kernel_size, stride, bias=False)
        lecun_normal_(self.weight)

    def forward(self, input: Float[Tensor, "frames in_channels rows cols"]) -> Tensor:
        """Images with the smaller sides."""
        kernel, stride = self.kernel_size[0], self.stride[0]
        missing = [max((-(-side // stride) - 1) * stride + kernel - side, 0) for side in input.shape[-2:]]
        rows, cols = ((count // 2, count - count // 2) for count in missing)
        if rows[0] == rows[1] and cols[0] == cols[1]:
            return F.conv2d(input, self.weight, None, stride, (rows[0], cols[0]))
        return F.conv2d(F.pad(input, (*cols, *rows)), self.weight, None, stride)


def _pre_norm_mlp(dim: int, hidden_dim: int) -> nn.Sequential:
    return nn.Sequential(
        nn.LayerNorm(dim, NORM_EPS), lecun_linear(dim, hidden_dim), nn.ReLU(), lecun_linear(hidden_dim, dim)
    )


def _norm(channels: int, groups: int) -> nn.GroupNorm:
    groups = min(groups, channels)
    if channels % groups:
        raise ValueError(
            f"ResNetTransformerEncoder: norm_groups={groups} does not divide {channels} channels: choose a number that "
            "divides width"
        )
    return nn.GroupNorm(groups, channels, NORM_EPS)
