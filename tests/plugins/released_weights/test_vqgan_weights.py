"""The variables of TECO's VQ-GAN give its codes and frames, and come back to the bit."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pytest
import torch
from convs5_authors_model import conv_shapes, correlate, norm_shapes, sigmoid
from slotbench_plugins.released_weights.vqgan import load_vqgan
from slotbench_plugins.tokenizers.vqgan import VQGAN

from slotbench.interfaces import VideoSpec

pytestmark = pytest.mark.slow

SIDE, CODES, WIDTH = 8, 9, 5
CHANNELS, MULTIPLIERS, BLOCKS, ATTENDED, MAP = 32, (1, 2), 2, (4,), 6
SIZES = {
    "num_codes": CODES,
    "embedding_dim": WIDTH,
    "channels": CHANNELS,
    "multipliers": MULTIPLIERS,
    "num_res_blocks": BLOCKS,
    "attention_sides": ATTENDED,
    "map_channels": MAP,
}


def layers(part):
    """(name, channels before, after) of their layers, in the order in which they run."""
    widths = [CHANNELS * multiplier for multiplier in MULTIPLIERS]
    found, width = [], 3

    def add(kind, after):
        nonlocal width
        count = sum(name.startswith(f"{kind}_") for name, *_ in found)
        found.append((f"{kind}_{count}", width, after))
        width = after

    def level(index, blocks):
        for _ in range(blocks):
            add("ResnetBlock", widths[index])
            if SIDE >> index in ATTENDED:
                add("AttnBlock", width)

    if part == "encoder":
        add("Conv", CHANNELS)
        for index in range(len(widths)):
            level(index, BLOCKS)
            if index < len(widths) - 1:
                add("Downsample", width)
    else:
        width = MAP
        add("Conv", widths[-1])
    for kind in ("ResnetBlock", "AttnBlock", "ResnetBlock"):
        add(kind, width)
    if part == "decoder":
        for index in reversed(range(len(widths))):
            level(index, BLOCKS + 1)
            if index:
                add("Upsample", width)
    add("GroupNorm", width)
    add("Conv", MAP if part == "encoder" else 3)
    return found


def shapes():
    found = {"stats/quantize/embeddings": (CODES, WIDTH)}
    found |= conv_shapes("params/quant_conv", 1, MAP, WIDTH) | conv_shapes("params/post_quant_conv", 1, WIDTH, MAP)
    for part in ("encoder", "decoder"):
        for layer, before, after in layers(part):
            name, kind = f"params/{part}/{layer}", layer.partition("_")[0]
            if kind == "Conv":
                found |= conv_shapes(name, 3, before, after)
            elif kind == "GroupNorm":
                found |= norm_shapes(name, before)
            elif kind == "ResnetBlock":
                found |= norm_shapes(f"{name}/GroupNorm_0", before) | conv_shapes(f"{name}/Conv_0", 3, before, after)
                found |= norm_shapes(f"{name}/GroupNorm_1", after) | conv_shapes(f"{name}/Conv_1", 3, after, after)
                found |= conv_shapes(f"{name}/Conv_2", 1, before, after) if before != after else {}
            elif kind == "AttnBlock":
                found |= norm_shapes(f"{name}/GroupNorm_0", before)
                for index in range(4):
                    found |= conv_shapes(f"{name}/Conv_{index}", 1, before, after)
            else:
                found |= conv_shapes(f"{name}/Conv_0", 3, before, after)
    return found


def random_variables(dtype=np.float64):
    tree = {}
    for name, shape in shapes().items():
        drawn = np.random.default_rng(crc32(name.encode())).standard_normal(shape)
        start, size = {"scale": (1, 0.1), "bias": (0, 0.1), "embeddings": (0, 0.5)}.get(
            name.rpartition("/")[2], (0, np.prod(shape[:-1]) ** -0.5)
        )
        tree[name] = (start + size * drawn).astype(dtype)
    return tree


class Loops:
    """Their VQ-GAN, frame by frame, "height width channels" in [-1, 1]."""

    def __init__(self, tree):
        self.tree = tree

    def codes(self, frame):
        x = self.conv("params/quant_conv", self.run("encoder", frame))
        return ((x[..., None, :] - self.tree["stats/quantize/embeddings"]) ** 2).sum(-1).argmin(-1)

    def paint(self, codes):
        x = self.tree["stats/quantize/embeddings"][codes]
        return self.run("decoder", self.conv("params/post_quant_conv", x))

    def run(self, part, x):
        for layer, *_ in layers(part):
            name = f"params/{part}/{layer}"
            x = getattr(self, layer.partition("_")[0].lower())(name, x)
        return x

    def conv(self, name, x):
        return correlate(x, self.tree[f"{name}/kernel"]) + self.tree[f"{name}/bias"]

    def groupnorm(self, name, x, swish=True):
        groups = x.reshape(*x.shape[:2], 32, -1)
        groups = groups - groups.mean((0, 1, 3), keepdims=True)
        x = (groups / np.sqrt((groups**2).mean((0, 1, 3), keepdims=True) + 1e-6)).reshape(x.shape)
        x = x * self.tree[f"{name}/scale"] + self.tree[f"{name}/bias"]
        return x * sigmoid(x) if swish else x

    def resnetblock(self, name, x):
        h = self.conv(f"{name}/Conv_0", self.groupnorm(f"{name}/GroupNorm_0", x))
        h = self.conv(f"{name}/Conv_1", self.groupnorm(f"{name}/GroupNorm_1", h))
        return h + (self.conv(f"{name}/Conv_2", x) if f"{name}/Conv_2/kernel" in self.tree else x)

    def attnblock(self, name, x):
        h = self.groupnorm(f"{name}/GroupNorm_0", x, swish=False)
        query, key, value = (self.conv(f"{name}/Conv_{i}", h).reshape(-1, x.shape[-1]) for i in range(3))
        weights = np.exp(query @ key.T / np.sqrt(x.shape[-1]))
        seen = (weights / weights.sum(1, keepdims=True)) @ value
        return x + self.conv(f"{name}/Conv_3", seen.reshape(x.shape))

    def downsample(self, name, x):
        # the frame is padded below and on the right alone
        kernel, x = self.tree[f"{name}/Conv_0/kernel"], np.pad(x, ((0, 1), (0, 1), (0, 0)))
        rows = x.shape[0] // 2
        windows = [x[i : i + 2 * rows : 2, j : j + 2 * rows : 2] @ kernel[i, j] for i in range(3) for j in range(3)]
        return sum(windows) + self.tree[f"{name}/Conv_0/bias"]

    def upsample(self, name, x):
        return self.conv(f"{name}/Conv_0", x.repeat(2, axis=0).repeat(2, axis=1))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)], ids=str)
def test_the_authors_variables_give_their_codes_and_frames(dtype, tolerance):
    tree = random_variables()
    tokenizer = VQGAN(VideoSpec(3, SIDE, SIDE), **SIZES).to(dtype).eval()
    load_vqgan(tokenizer, tree)
    frames = np.random.default_rng(0).random((4, SIDE, SIDE, 3))
    loops = Loops(tree)
    codes = np.stack([loops.codes(2 * frame - 1) for frame in frames])
    assert len(set(codes.flatten().tolist())) > 3
    painted = torch.from_numpy(np.stack([loops.paint(frame) for frame in codes]))
    with torch.no_grad():
        ours = tokenizer(torch.from_numpy(frames).to(dtype).permute(0, 3, 1, 2)[None])
        decoded = tokenizer.decode(torch.from_numpy(codes)[None])[0].permute(0, 2, 3, 1)
    assert ours.codes[0].tolist() == codes.tolist()
    assert painted.std() > 0.1
    torch.testing.assert_close(
        2 * ours.reconstruction[0].permute(0, 2, 3, 1).double() - 1, painted, rtol=0, atol=tolerance
    )
    torch.testing.assert_close(2 * decoded.double() - 1, painted.clamp(-1, 1), rtol=0, atol=tolerance)
