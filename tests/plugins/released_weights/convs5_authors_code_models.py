"""The ConvS5 authors' models of codes and TECO, on a tree of their names: shapes, random weights, and loops.

Written from convs5.md 2.8-2.10 and 9.2 and the names in their code, in numpy. It shares nothing with ours.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

import numpy as np
from convs5_authors_model import (
    Loops,
    beside,
    conv_shapes,
    decoder_shapes,
    dense_shapes,
    encoder_shapes,
    gelu,
    layer_shapes,
    norm_shapes,
    sigmoid,
)


class CodeSizes(NamedTuple):
    """Sizes of a model; those after `dim` have no meaning where it has no such part."""

    core: str = "ConvS5"
    teco: bool = False
    vector_dim: int = 16
    num_codes: int = 6
    grid: int = 4
    depths: tuple[int, ...] = (32,)
    decoder_depths: tuple[int, ...] = (64,)
    blocks: int = 2
    decoder_blocks: int = 1
    actions: int = 3
    action_dim: int = 5
    num_layers: int = 2
    dim: int = 64
    half_state: int = 3
    b_kernel: int = 3
    c_kernel: int = 5
    activation: str = "resnet"
    activation_kernel: int = 3
    squeeze_excite: bool = False
    output_dim: int = 24
    heads: int = 4
    mlp_dim: int = 128
    latent_dim: int = 10
    latent_codes: int = 7
    latent_code_dim: int = 4
    prior_dim: int = 16
    prior_heads: int = 2
    prior_layers: int = 2
    prior_code_dim: int = 8

    @property
    def cells(self) -> int:
        """Rows of what the core reads."""
        return self.grid >> (len(self.depths) - 1)


SMALL = {
    f"{'TECO-' if teco else ''}{core}": CodeSizes(core, teco, depths=depths, decoder_depths=decoder)
    for teco, depths, decoder in ((False, (32,), (64,)), (True, (32, 64), (32, 64)))
    for core in ("ConvS5", "S5", "FrameTransformer")
}


def transformer_shapes(name, inputs, dim, heads, mlp_dim, layers):
    shapes = {**dense_shapes(f"{name}/Dense_0", inputs, dim), **dense_shapes(f"{name}/Dense_1", dim, dim)}
    shapes |= norm_shapes(f"{name}/LayerNorm_0", dim)
    for i in range(layers):
        layer = f"{name}/TransformerLayer_{i}"
        attention, mlp = f"{layer}/MultiHeadAttention_0", f"{layer}/MlpBlock_0"
        shapes |= norm_shapes(f"{layer}/LayerNorm_0", dim) | norm_shapes(f"{layer}/LayerNorm_1", dim)
        for part in ("query", "key", "value"):
            shapes[f"{attention}/{part}/kernel"] = (dim, heads, dim // heads)
            shapes[f"{attention}/{part}/bias"] = (heads, dim // heads)
        shapes |= {f"{attention}/out/kernel": (heads, dim // heads, dim), f"{attention}/out_bias/bias": (dim,)}
        shapes |= dense_shapes(f"{mlp}/wi", dim, mlp_dim)
        shapes |= {f"{mlp}/wo/kernel": (mlp_dim, dim), f"{mlp}/wo_bias/bias": (dim,)}
    return shapes


def core_shapes(s: CodeSizes):
    read = (s.latent_dim if s.teco else s.depths[-1]) + s.action_dim
    shapes, layers = {}, [f"sequence_model/layers_{i}" for i in range(s.num_layers)]
    if s.core == "ConvS5":
        shapes |= conv_shapes("action_conv/Conv_0", 1, read, s.dim)
        for name in layers:
            shapes |= layer_shapes(name, s, False)
        return shapes
    shapes |= {"z_proj/kernel": (s.cells, s.cells, read, s.dim)}
    shapes |= {"z_unproj/kernel": (s.cells, s.cells, s.dim, s.output_dim)}
    if s.core == "FrameTransformer":
        shapes |= transformer_shapes("z_tfm", s.dim, s.dim, s.heads, s.mlp_dim, s.num_layers)
        return shapes | {"sos": (1, 1, s.dim)}
    for name in layers:
        shapes |= {f"{name}/seq/{part}": (s.half_state,) for part in ("Lambda_re", "Lambda_im")}
        shapes |= {f"{name}/seq/log_step": (s.half_state, 1), f"{name}/seq/D": (s.dim,)}
        shapes |= {f"{name}/seq/B": (s.half_state, s.dim, 2), f"{name}/seq/C": (s.dim, s.half_state, 2)}
        shapes |= dense_shapes(f"{name}/seq/out2", s.dim, s.dim) | norm_shapes(f"{name}/norm", s.dim)
    return shapes


def code_shapes(s: CodeSizes):
    shapes = {"action_embeds/embedding": (s.actions + 1, s.action_dim), **core_shapes(s)}
    slots = s.dim if s.core == "ConvS5" else s.output_dim
    if not s.teco:
        shapes |= encoder_shapes("encoder", s.depths, s.blocks, s.vector_dim)
        return shapes | decoder_shapes("decoder", s.decoder_depths, s.decoder_blocks, slots, s.num_codes)
    shapes |= {"sos_post": (s.grid, s.grid, s.vector_dim)}
    shapes |= encoder_shapes("encoder/layers_0", s.depths, s.blocks, 2 * s.vector_dim)
    shapes |= dense_shapes("encoder/layers_1", s.depths[-1], s.latent_dim)
    shapes |= {"codebook/codebook": (s.latent_codes, s.latent_code_dim)}
    shapes |= {"codebook/Dense_0/kernel": (s.latent_dim, s.latent_code_dim)}
    shapes |= {"codebook/Dense_1/kernel": (s.latent_code_dim, s.latent_dim)}
    shapes |= {"z_git/token_embed": (s.latent_codes + 1, s.prior_code_dim)}
    shapes |= {f"z_git/net/BroadcastPositionBiases_0/d_{i}": (s.cells, s.prior_dim // 2) for i in (0, 1)}
    sizes = (s.prior_dim, s.prior_heads, 4 * s.prior_dim, s.prior_layers)
    shapes |= transformer_shapes("z_git/net", s.prior_code_dim + slots, *sizes)
    shapes |= dense_shapes("z_git/mlm/Dense_0", s.prior_dim, s.prior_code_dim)
    shapes |= norm_shapes("z_git/mlm/LayerNorm_0", s.prior_code_dim)
    shapes |= {"z_git/mlm/AddBias_0/bias": (s.latent_codes,)}
    return shapes | decoder_shapes("decoder", s.decoder_depths, s.decoder_blocks, slots + s.latent_dim, s.num_codes)


def random_tree(s: CodeSizes, dtype=np.float64):
    """Weights drawn by name, of the size of usual ones; what nothing reads is none of them."""
    tree = {}
    for name, shape in code_shapes(s).items():
        kind = name.rpartition("/")[2]
        drawn = np.random.default_rng(crc32(name.encode())).standard_normal(shape)
        start = {"scale": 1.0, "Lambda_re": -0.8, "Lambda_im": -3.0, "log_step": np.log(0.05)}.get(kind, 0.0)
        size = {"scale": 0.1, "bias": 0.1, "Lambda_re": 0.1, "Lambda_im": 1.0, "log_step": 0.5}
        # one weight of the output reads as many numbers as all but the last axis has, of heads somewhat fewer
        fan_in = {"kernel": np.prod(shape[:-1]), "B": shape[1:2], "C": np.prod(shape[:3])}.get(kind, 1)
        tree[name] = (start + size.get(kind, 1 / np.sqrt(np.prod(fan_in))) * drawn).astype(dtype)
    return tree


class CodeLoops(Loops):
    """The deterministic parts of the authors' models of codes."""

    choice = None
    """Of a quantiser that is held: (codes, unit vectors, rows); what is not 0 in its derivative passes the choice."""

    def __call__(self, vectors, actions, frame_mask=None):
        """What the model makes of one clip: a dict of `slots`, `logits`, and of TECO's `latents` and `codes`.

        Args:
            vectors: of each frame's codes, "time rows cols channels".
            actions: as theirs: that of step t leads to frame t; -1 for a masked one.
            frame_mask: the first frame whose latents are hidden.
        """
        s, out = self.s, {}
        if s.teco:
            before = np.concatenate([self.tree["sos_post"][None], vectors[:-1]])
            encoded = self.encode("encoder/layers_0", np.concatenate([before, vectors], -1))
            latents = self.dense("encoder/layers_1", encoded)
            quantised, out["codes"], out["given"] = self.quantise(latents)
            out["latents"] = quantised
            read = np.concatenate([latents[:1], quantised[1:]])
            read[frame_mask or len(read) :] = -2
        else:
            read = self.encode("encoder", vectors)
        read = beside(read[:-1], self.tree["action_embeds/embedding"][actions[1:]])
        out["slots"] = slots = {"ConvS5": self.layers, "S5": self.s5, "FrameTransformer": self.frames}[s.core](read)
        decoded = np.concatenate([slots, quantised[1:]], -1) if s.teco else slots
        out["logits"] = self.decode(decoded, s.decoder_depths, s.decoder_blocks)
        return out

    def quantise(self, latents):
        rows, given = unit(self.tree["codebook/codebook"]), unit(self.dense("codebook/Dense_0", latents))
        codes = (2 - 2 * given @ rows.T).argmin(-1)
        if self.choice is None:
            return self.dense("codebook/Dense_1", rows[codes]), codes, given
        codes, held, chosen = self.choice
        return self.dense("codebook/Dense_1", given + (chosen - held)), codes, given

    def losses(self, out, true, drawn, masked):
        """The terms of TECO's loss of one clip on its device (convs5.md 2.10 and 8, rows 16 and 17).

        Args:
            out: what the model made of the clip.
            true: codes of its frames, "time rows cols".
            drawn: numbers of the predictions that have a loss, 0 for that of frame 1.
            masked: of each of them, the cells whose codes MaskGit is to fill in, "drawn rows cols".
        """
        logits, num_codes = out["logits"][drawn], self.s.num_codes
        target = 0.99 * np.eye(num_codes)[true[1:][drawn]] + 0.01 / num_codes
        recon = -(target * log_softmax(logits)).sum((1, 2, 3)).mean()
        latents = out["codes"][1:][drawn]
        filled = zip(np.where(masked, -1, latents), out["slots"][drawn], strict=True)
        chances = log_softmax(np.stack([self.prior(*frame) for frame in filled]))
        errors = -np.take_along_axis(chances, latents[..., None], -1)[..., 0]
        rows = unit(self.tree["codebook/codebook"])[out["codes"]]
        _, held, chosen = self.choice or (None, out["given"], rows)
        return {
            "recon": recon,
            "prior": (errors * masked).sum() / masked.sum() * self.s.cells**2,
            "codebook": 0.5 * ((rows - held) ** 2).mean(),
            "commitment": 0.25 * 0.5 * ((out["given"] - chosen) ** 2).mean(),
        }

    def prior(self, codes, slots):
        """Logits of one frame's latents: codes "rows cols", -1 where masked, and slots "rows cols dim"."""
        cells, table = self.s.cells, self.tree["z_git/token_embed"]
        x = self.dense("z_git/net/Dense_0", np.concatenate([table[codes], slots], -1))
        for row in range(cells):
            for col in range(cells):
                places = [self.tree[f"z_git/net/BroadcastPositionBiases_0/d_{i}"][k] for i, k in enumerate((row, col))]
                x[row, col] += np.concatenate(places)
        x = self.transformer("z_git/net", x.reshape(cells**2, -1), self.s.prior_layers, causal=False)
        x = self.layer_norm("z_git/mlm/LayerNorm_0", gelu(self.dense("z_git/mlm/Dense_0", x)))
        return (x @ table[:-1].T + self.tree["z_git/mlm/AddBias_0/bias"]).reshape(cells, cells, -1)

    def into_patch(self, read):
        return np.einsum("tyxc,yxcd->td", read, self.tree["z_proj/kernel"])

    def out_of_patch(self, x):
        # a transposed convolution of JAX: its kernel runs backwards over the cells
        return np.einsum("td,yxdc->tyxc", x, self.tree["z_unproj/kernel"][::-1, ::-1])

    def s5(self, read):
        x = self.into_patch(read)
        for i in range(self.s.num_layers):
            name = f"sequence_model/layers_{i}"
            get = lambda leaf, name=name: self.tree[f"{name}/seq/{leaf}"]  # noqa: E731
            b, c = (get(leaf)[..., 0] + 1j * get(leaf)[..., 1] for leaf in "BC")
            eigenvalues = get("Lambda_re") + 1j * get("Lambda_im")
            decay = np.exp(eigenvalues * np.exp(get("log_step")[:, 0]))
            b_bar = ((decay - 1) / eigenvalues)[:, None] * b
            state, outputs = 0, []
            for u in x:
                state = decay * state + b_bar @ u
                z = gelu(2 * (c @ state).real + get("D") * u)
                outputs.append(z * sigmoid(self.dense(f"{name}/seq/out2", z)))
            x = self.layer_norm(f"{name}/norm", x + np.stack(outputs))
        return self.out_of_patch(x)

    def frames(self, read):
        dim = self.s.dim
        x = np.concatenate([self.tree["sos"].reshape(1, dim), self.into_patch(read)])
        angles = np.outer(np.arange(len(x)), 10000.0 ** (-np.arange(0, dim, 2) / dim))
        x = self.dense("z_tfm/Dense_0", x) + np.concatenate([np.sin(angles), np.cos(angles)], -1)
        return self.out_of_patch(self.transformer("z_tfm", x, self.s.num_layers, causal=True)[1:])

    def transformer(self, name, x, layers, causal):
        """The layers and the head of tokens "token dim" that are mapped and have their places."""
        for i in range(layers):
            layer = f"{name}/TransformerLayer_{i}"
            x = x + self.attention(f"{layer}/MultiHeadAttention_0", self.layer_norm(f"{layer}/LayerNorm_0", x), causal)
            hidden = self.dense(f"{layer}/MlpBlock_0/wi", self.layer_norm(f"{layer}/LayerNorm_1", x))
            hidden = hidden * sigmoid(1.702 * hidden)
            x = x + self.dense(f"{layer}/MlpBlock_0/wo", hidden) + self.tree[f"{layer}/MlpBlock_0/wo_bias/bias"]
        return self.layer_norm(f"{name}/LayerNorm_0", gelu(self.dense(f"{name}/Dense_1", x)))

    def attention(self, name, x, causal):
        part = lambda leaf: np.einsum("ne,ehd->hnd", x, self.tree[f"{name}/{leaf}/kernel"])  # noqa: E731
        query, key, value = (
            part(leaf) + self.tree[f"{name}/{leaf}/bias"][:, None] for leaf in ("query", "key", "value")
        )
        scores = np.einsum("hnd,hmd->hnm", query, key) / np.sqrt(query.shape[-1])
        if causal:
            scores = np.where(np.tri(len(x), dtype=bool), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        seen = np.einsum("hnm,hmd->nhd", weights, value)
        return np.einsum("nhd,hde->ne", seen, self.tree[f"{name}/out/kernel"]) + self.tree[f"{name}/out_bias/bias"]


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)
