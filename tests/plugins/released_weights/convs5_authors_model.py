"""The ConvS5 authors' model without vector quantisation, on a tree of their names: shapes, formula weights, and loops.

Written from convs5.md 2.4-2.7 and 9.2, in numpy, frames as "... height width channels". It shares nothing with ours.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple
from zlib import crc32

import numpy as np


class Sizes(NamedTuple):
    depths: tuple[int, ...] = (32, 64)
    blocks: int = 2
    channels: int = 1
    action_dim: int = 1
    dim: int = 64
    half_state: int = 3
    b_kernel: int = 3
    c_kernel: int = 5
    activation: str = "resnet"
    activation_kernel: int = 3
    squeeze_excite: bool = False
    num_layers: int = 2


def conv_shapes(name, size, inputs, outputs, bias=True):
    return {f"{name}/kernel": (size, size, inputs, outputs), **({f"{name}/bias": (outputs,)} if bias else {})}


def dense_shapes(name, inputs, outputs):
    return {f"{name}/kernel": (inputs, outputs), f"{name}/bias": (outputs,)}


def norm_shapes(name, width):
    return {f"{name}/scale": (width,), f"{name}/bias": (width,)}


def block_shapes(name, inputs, outputs):
    return {
        **norm_shapes(f"{name}/GroupNorm_0", inputs),
        **conv_shapes(f"{name}/Conv_0", 3, inputs, outputs),
        **norm_shapes(f"{name}/GroupNorm_1", outputs),
        **conv_shapes(f"{name}/Conv_1", 3, outputs, outputs, bias=False),
        f"{name}/AddBias_0/bias": (outputs,),
        **({f"{name}/skip/kernel": (1, 1, inputs, outputs)} if inputs != outputs else {}),
    }


def activation_shapes(name, s: Sizes):
    conv = conv_shapes(f"{name}/Conv_0", s.activation_kernel, s.dim, s.dim)
    norm = norm_shapes(f"{name}/GroupNorm_0", s.dim)
    second = norm_shapes(f"{name}/GroupNorm_1", s.dim)
    hidden = max(s.dim // 16, 4)
    gate = {
        **dense_shapes(f"{name}/SEBlock_0/reduce", s.dim, hidden),
        **dense_shapes(f"{name}/SEBlock_0/expand", hidden, s.dim),
    }
    block = {
        "standard": {**conv, **norm},
        "half_glu": {**norm_shapes(f"{name}/norm", s.dim), **dense_shapes(f"{name}/Dense_0", s.dim, s.dim)},
        "diag_resnet": {**norm, **conv, **second},
        "resnet": {**norm, **conv, **second, **conv_shapes(f"{name}/Conv_1", s.activation_kernel, s.dim, s.dim)},
    }[s.activation]
    return {**block, **(gate if s.squeeze_excite else {})}


def layer_shapes(name, s: Sizes, lstm: bool):
    if lstm:
        return {f"{name}/seq/A": (3, 3, 2 * s.dim, 4 * s.dim), **norm_shapes(f"{name}/norm", s.dim)}
    return {
        f"{name}/seq/Lambda_re": (s.half_state,),
        f"{name}/seq/Lambda_im": (s.half_state,),
        f"{name}/seq/log_step": (s.half_state, 1),
        f"{name}/seq/B": (s.half_state, s.dim * s.b_kernel**2, 2),
        f"{name}/seq/C": (s.c_kernel, s.c_kernel, s.half_state, s.dim, 2),
        **activation_shapes(f"{name}/seq/C_D_conv", s),
        **norm_shapes(f"{name}/norm", s.dim),
    }


def encoder_shapes(name, depths, blocks, inputs):
    shapes = conv_shapes(f"{name}/Conv_0", 3, inputs, depths[0])
    widths = [(depths[0], depths[0])]
    for below, depth in pairwise(depths):
        widths += [(below if i == 0 else depth, depth) for i in range(blocks)]
    for j, (before, after) in enumerate(widths):
        shapes |= block_shapes(f"{name}/ResNetBlock_{j}", before, after)
    return shapes


def decoder_shapes(name, depths, blocks, inputs, outputs):
    shapes = conv_shapes(f"{name}/Conv_0", 3, inputs, depths[0])
    before, j = depths[0], 0
    for depth in reversed(depths):
        for _ in range(blocks):
            shapes |= block_shapes(f"{name}/ResNetBlock_{j}", before, depth)
            before, j = depth, j + 1
    return shapes | norm_shapes(f"{name}/LayerNorm_0", before) | dense_shapes(f"{name}/Dense_0", before, outputs)


def tree_shapes(s: Sizes, lstm: bool = False):
    shapes = encoder_shapes("encoder", s.depths, s.blocks, s.channels)
    shapes |= {"action_embeds/embedding": (2, s.action_dim)}
    shapes |= conv_shapes("action_conv/Conv_0", 1, s.depths[-1] + s.action_dim, s.dim)
    for i in range(s.num_layers):
        shapes |= layer_shapes(f"sequence_model/layers_{i}", s, lstm)
    return shapes | decoder_shapes("decoder", s.depths, s.blocks, s.dim, s.channels)


def formula_tree(s: Sizes, lstm: bool = False, dtype=np.float64):
    """Weights that a formula of name and index gives, of the size of usual ones."""
    return formula_weights(tree_shapes(s, lstm), dtype)


def formula_weights(shapes, dtype=np.float64):
    tree = {}
    for name, shape in shapes.items():
        wave = np.sin(0.37 * np.arange(np.prod(shape)) + crc32(name.encode()) % 1000).reshape(shape)
        kind = name.rpartition("/")[2]
        fan_in = np.prod(shape[:-1]) if kind in ("kernel", "A") else np.prod(shape[1:2] if kind == "B" else shape[:3])
        start = {"scale": 1.0, "Lambda_re": -0.5, "Lambda_im": -3.0, "log_step": np.log(0.05)}.get(kind, 0.0)
        size = {"scale": 0.1, "bias": 0.1, "Lambda_re": 0.2, "Lambda_im": 2.0, "log_step": 1.0, "embedding": 1.0}
        tree[name] = (start + size.get(kind, 1.4 / np.sqrt(fan_in)) * wave).astype(dtype)
    return tree


class Loops:
    """The forward pass of the authors' model, frame by frame and step by step."""

    def __init__(self, tree, s: Sizes, lstm: bool = False):
        self.tree, self.s, self.lstm = tree, s, lstm

    def __call__(self, video):
        """Video "time height width channels" in [-1, 1] to the decoder's output before tanh, of the same shape."""
        action = self.tree["action_embeds/embedding"][np.zeros(len(video), dtype=int)]
        return self.decode(self.layers(beside(self.encode("encoder", video), action)), self.s.depths, self.s.blocks)

    def layers(self, x):
        x = np.stack([self.conv("action_conv/Conv_0", frame) for frame in x])
        for i in range(self.s.num_layers):
            name = f"sequence_model/layers_{i}"
            y = self.conv_lstm(f"{name}/seq", x) if self.lstm else self.conv_s5(f"{name}/seq", x)
            x = self.layer_norm(f"{name}/norm", x + y)
        return x

    def encode(self, name, video):
        return np.stack([self.encode_frame(name, frame) for frame in video])

    def encode_frame(self, name, frame):
        x = self.block(f"{name}/ResNetBlock_0", self.conv(f"{name}/Conv_0", frame))
        for j in range((len(self.s.depths) - 1) * self.s.blocks):
            if j % self.s.blocks == 0:
                x = (x[::2, ::2] + x[1::2, ::2] + x[::2, 1::2] + x[1::2, 1::2]) / 4
            x = self.block(f"{name}/ResNetBlock_{j + 1}", x)
        return x

    def decode(self, video, depths, blocks):
        return np.stack([self.decode_frame(frame, depths, blocks) for frame in video])

    def decode_frame(self, x, depths, blocks):
        x = self.conv("decoder/Conv_0", x)
        for j in range(len(depths) * blocks):
            if j and j % blocks == 0:
                x = x.repeat(2, axis=0).repeat(2, axis=1)
            x = self.block(f"decoder/ResNetBlock_{j}", x)
        return self.dense("decoder/Dense_0", self.layer_norm("decoder/LayerNorm_0", x))

    def block(self, name, x):
        skip = self.conv(f"{name}/skip", x) if f"{name}/skip/kernel" in self.tree else x
        h = self.conv(f"{name}/Conv_0", elu(self.group_norm(f"{name}/GroupNorm_0", x)))
        h = self.conv(f"{name}/Conv_1", elu(self.group_norm(f"{name}/GroupNorm_1", h)))
        return skip + 0.1 * (h + self.tree[f"{name}/AddBias_0/bias"])

    def conv_s5(self, name, inputs):
        get = lambda leaf: self.tree[f"{name}/{leaf}"]  # noqa: E731
        b, c = (get(leaf)[..., 0] + 1j * get(leaf)[..., 1] for leaf in "BC")
        eigenvalues = np.minimum(get("Lambda_re"), -1e-4) + 1j * get("Lambda_im")
        decay = np.exp(eigenvalues * np.exp(get("log_step")[:, 0]))
        b_bar = ((decay - 1) / eigenvalues)[:, None] * b
        size = self.s.b_kernel
        b_bar = b_bar.reshape(self.s.half_state, self.s.dim, size, size).transpose(2, 3, 1, 0)
        x, outputs = 0, []
        for u in inputs:
            x = decay * x + correlate(u, b_bar)
            outputs.append(self.activation(f"{name}/C_D_conv", 2 * correlate(x, c).real, u))
        return np.stack(outputs)

    def activation(self, name, y, u):
        if self.s.activation == "half_glu":
            z = gelu(self.layer_norm(f"{name}/norm", y))
            return z * sigmoid(self.dense(f"{name}/Dense_0", z))
        if self.s.activation == "standard":
            return self.gate(name, gelu(self.group_norm(f"{name}/GroupNorm_0", y + self.conv(f"{name}/Conv_0", u))))
        h = self.conv(f"{name}/Conv_0", gelu(self.group_norm(f"{name}/GroupNorm_0", y)))
        h = gelu(self.group_norm(f"{name}/GroupNorm_1", h))
        if self.s.activation == "resnet":
            h = self.conv(f"{name}/Conv_1", h)
        return gelu(y + self.gate(name, h))

    def gate(self, name, x):
        if not self.s.squeeze_excite:
            return x
        hidden = np.maximum(self.dense(f"{name}/SEBlock_0/reduce", x.mean((0, 1))), 0)
        return x * sigmoid(self.dense(f"{name}/SEBlock_0/expand", hidden))

    def conv_lstm(self, name, inputs):
        h = c = np.zeros_like(inputs[0])
        outputs = []
        for u in inputs:
            i, f, o, g = np.split(correlate(np.concatenate([u, h], -1), self.tree[f"{name}/A"]), 4, axis=-1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            outputs.append(h)
        return np.stack(outputs)

    def dense(self, name, x):
        return x @ self.tree[f"{name}/kernel"] + self.tree.get(f"{name}/bias", 0)

    def conv(self, name, x):
        return correlate(x, self.tree[f"{name}/kernel"]) + self.tree.get(f"{name}/bias", 0)

    def group_norm(self, name, x):
        grouped = x.reshape(*x.shape[:2], 32, -1)
        mean, variance = grouped.mean((0, 1, 3), keepdims=True), grouped.var((0, 1, 3), keepdims=True)
        normal = ((grouped - mean) / np.sqrt(variance + 1e-6)).reshape(x.shape)
        return normal * self.tree[f"{name}/scale"] + self.tree[f"{name}/bias"]

    def layer_norm(self, name, x):
        normal = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
        return normal * self.tree[f"{name}/scale"] + self.tree[f"{name}/bias"]


def beside(video, vectors):
    """Frames with the vector of their step behind each cell's channels."""
    return np.concatenate([video, np.broadcast_to(vectors[:, None, None], (*video.shape[:3], vectors.shape[-1]))], -1)


def correlate(x, kernel):
    """Cross-correlation of "height width in" with "rows cols in out", zeros around the frame."""
    rows, cols = kernel.shape[:2]
    padded = np.pad(x, ((rows // 2, rows // 2), (cols // 2, cols // 2), (0, 0)))
    height, width = x.shape[:2]
    return sum(padded[i : i + height, j : j + width] @ kernel[i, j] for i in range(rows) for j in range(cols))


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def elu(x):
    return np.where(x > 0, x, np.expm1(np.minimum(x, 0)))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))
