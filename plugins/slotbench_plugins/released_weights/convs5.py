"""Weights of the ConvS5 authors' JAX models for our parts, and back.

The trees are those of their models with ConvS5, ConvLSTM, S5 and Transformer, their names such as
"sequence_model/layers_0/seq/B":

- without vector quantisation: a task with `ResNetEncoder` (with an action embedding), the core, and `ResNetDecoder`;
- over the codes of a tokenizer: the same parts in `CodePrediction`;
- TECO: the task `TECO`.

Each conversion is a change of axes, so that there and back is the same to the bit. A tokenizer is no part of these
trees and stays as it is; the start frame of the Transformers over codes and the start token of TECO-S5, which their
code makes and does not read, are left out.

    # params = flax.training.checkpoints.restore_checkpoint(FOLDER, None)["params"]
    # numpy.savez("params.npz", **flax.traverse_util.flatten_dict(params, sep="/"))
    load_tree(task, "params.npz")

Source: ConvS5 (Smith et al., NeurIPS 2023) and the modules of its code, github.com/NVlabs/ConvSSM, which name the
parameters; its README links trained ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from slotbench.errors import FileError
from slotbench_plugins.released_weights._flax_trees import Tree, load_all, read_arrays, some

__all__ = ["from_tree", "load_tree", "read_tree", "to_tree"]


class _Axes(NamedTuple):
    """How an array changes on the way here, where `dim` is the width of the layers, and back, with a size of ours."""

    here: Callable[[Tensor, int], Tensor]
    back: Callable[[Tensor, int], Tensor]


class _Rule(NamedTuple):
    """One parameter; `{i}` is a number.

    Attributes:
        theirs: its name in their tree.
        ours: its name here, "name[k]" for part k of the three that are one here, "" for what nothing reads.
        axes: how its array changes.
        size: path of the attribute of our model that the way back takes.
    """

    theirs: str
    ours: str
    axes: _Axes
    size: str = ""


def _kernel_of_b(value: Tensor, dim: int) -> Tensor:
    """(state, dim * rows * cols, 2), columns in that order, as a kernel."""
    size = round((value.shape[1] / dim) ** 0.5)
    return value.reshape(len(value), dim, size, size, 2)


def _patch_of_rows(value: Tensor, size: int) -> Tensor:
    """(rows * cols * channels, dim) as (rows, cols, channels, dim)."""
    return value.unflatten(0, (size, size, -1))


_SAME = _Axes(lambda x, dim: x, lambda x, size: x)
_DENSE = _Axes(lambda x, dim: x.T, lambda x, size: x.T)
_CONV = _Axes(lambda x, dim: x.permute(3, 2, 0, 1), lambda x, size: x.permute(2, 3, 1, 0))
_STEP = _Axes(lambda x, dim: x[:, 0], lambda x, size: x[:, None])
_B = _Axes(_kernel_of_b, lambda x, size: x.flatten(1, 3))
_C = _Axes(lambda x, dim: x.permute(3, 2, 0, 1, 4), lambda x, size: x.permute(2, 3, 1, 0, 4))
# a convolution of one cell there, a linear layer here
_CELLWISE = _Axes(lambda x, dim: x[0, 0].T, lambda x, size: x.T[None, None])
# a convolution whose stride is its kernel, and a transposed one, which runs through its kernel backwards
_INTO_PATCHES = _Axes(lambda x, dim: x.flatten(0, 2).T, lambda x, size: _patch_of_rows(x.T, size))
_OUT_OF_PATCHES = _Axes(
    lambda x, dim: x.flip(0, 1).transpose(2, 3).flatten(0, 2),
    lambda x, size: _patch_of_rows(x, size).transpose(2, 3).flip(0, 1),
)
_START = _Axes(lambda x, dim: x.flatten(), lambda x, size: x[None, None])
_FRAME = _Axes(lambda x, dim: x.permute(2, 0, 1), lambda x, size: x.permute(1, 2, 0))
_ROWS = _Axes(lambda x, dim: x[:, None], lambda x, size: x[:, 0])
_COLS = _Axes(lambda x, dim: x[None], lambda x, size: x[0])
# an axis of heads there
_TO_HEADS = _Axes(lambda x, dim: x.flatten(1).T, lambda x, size: x.T.unflatten(1, (size, -1)))
_HEADS = _Axes(lambda x, dim: x.flatten(), lambda x, size: x.unflatten(0, (size, -1)))
_FROM_HEADS = _Axes(lambda x, dim: x.flatten(0, 1).T, lambda x, size: x.T.unflatten(0, (size, -1)))


def _pair(theirs: str, ours: str, axes: _Axes) -> list[_Rule]:
    return [_Rule(f"{theirs}/kernel", f"{ours}.weight", axes), _Rule(f"{theirs}/bias", f"{ours}.bias", _SAME)]


def _norm(theirs: str, ours: str) -> list[_Rule]:
    return [_Rule(f"{theirs}/scale", f"{ours}.weight", _SAME), _Rule(f"{theirs}/bias", f"{ours}.bias", _SAME)]


def _resnet(theirs: str, ours: str) -> list[_Rule]:
    block, here = f"{theirs}/ResNetBlock_{{i}}", f"{ours}.blocks.{{i}}"
    return [
        *_pair(f"{theirs}/Conv_0", f"{ours}.conv", _CONV),
        *_norm(f"{block}/GroupNorm_0", f"{here}.norm1"),
        *_pair(f"{block}/Conv_0", f"{here}.conv1", _CONV),
        *_norm(f"{block}/GroupNorm_1", f"{here}.norm2"),
        _Rule(f"{block}/Conv_1/kernel", f"{here}.conv2.weight", _CONV),
        _Rule(f"{block}/AddBias_0/bias", f"{here}.conv2.bias", _SAME),
        _Rule(f"{block}/skip/kernel", f"{here}.skip.weight", _CONV),
    ]


def _transformer(theirs: str, ours: str) -> list[_Rule]:
    layer, here = f"{theirs}/TransformerLayer_{{i}}", f"{ours}.layers.{{i}}"
    attention, heads = f"{layer}/MultiHeadAttention_0", f"{here}.attention.num_heads"
    joined = f"{here}.attention.query_key_value"
    rules = [
        *_pair(f"{theirs}/Dense_0", f"{ours}.input_map", _DENSE),
        *_norm(f"{layer}/LayerNorm_0", f"{here}.attention_norm"),
        _Rule(f"{attention}/out/kernel", f"{here}.attention.output.weight", _FROM_HEADS, heads),
        _Rule(f"{attention}/out_bias/bias", f"{here}.attention.output.bias", _SAME),
        *_norm(f"{layer}/LayerNorm_1", f"{here}.mlp_norm"),
        *_pair(f"{layer}/MlpBlock_0/wi", f"{here}.expand", _DENSE),
        _Rule(f"{layer}/MlpBlock_0/wo/kernel", f"{here}.contract.weight", _DENSE),
        _Rule(f"{layer}/MlpBlock_0/wo_bias/bias", f"{here}.contract.bias", _SAME),
        *_pair(f"{theirs}/Dense_1", f"{ours}.output_map", _DENSE),
        *_norm(f"{theirs}/LayerNorm_0", f"{ours}.output_norm"),
    ]
    for part, name in enumerate(_JOINED):
        rules.append(_Rule(f"{attention}/{name}/kernel", f"{joined}.weight[{part}]", _TO_HEADS, heads))
        rules.append(_Rule(f"{attention}/{name}/bias", f"{joined}.bias[{part}]", _HEADS, heads))
    return rules


_JOINED = ("query", "key", "value")
"""Three maps there, rows of one here."""

_DECODER = [
    *_resnet("decoder", "decoder"),
    *_norm("decoder/LayerNorm_0", "decoder.norm"),
    *_pair("decoder/Dense_0", "decoder.head", _DENSE),
]
_FRAMES = [
    *_resnet("encoder", "encoder"),
    _Rule("action_embeds/embedding", "encoder.actions.table", _SAME),
    *_DECODER,
]
_TECO = [
    _Rule("sos_post", "first_frame", _FRAME),
    *_resnet("encoder/layers_0", "encoder"),
    *_pair("encoder/layers_1", "latent_map", _DENSE),
    _Rule("codebook/codebook", "quantiser.codebook", _SAME),
    _Rule("codebook/Dense_0/kernel", "quantiser.project_in.weight", _DENSE),
    _Rule("codebook/Dense_1/kernel", "quantiser.project_out.weight", _DENSE),
    _Rule("action_embeds/embedding", "actions.table", _SAME),
    _Rule("z_git/token_embed", "prior.table", _SAME),
    _Rule("z_git/net/BroadcastPositionBiases_0/d_0", "prior.rows", _ROWS),
    _Rule("z_git/net/BroadcastPositionBiases_0/d_1", "prior.cols", _COLS),
    *_transformer("z_git/net", "prior"),
    *_pair("z_git/mlm/Dense_0", "prior.head", _DENSE),
    *_norm("z_git/mlm/LayerNorm_0", "prior.head_norm"),
    _Rule("z_git/mlm/AddBias_0/bias", "prior.bias", _SAME),
    *_DECODER,
]

_THEIR_LAYER, _OUR_LAYER = "sequence_model/layers_{i}", "core.layers.{i}"
_THEIR_BLOCK, _OUR_BLOCK = f"{_THEIR_LAYER}/seq/C_D_conv", f"{_OUR_LAYER}.activation"
_INPUT = _pair("action_conv/Conv_0", "core.input_map", _CELLWISE)
_DYNAMICS = [
    _Rule(f"{_THEIR_LAYER}/seq/{name}", f"{_OUR_LAYER}.ssm.dynamics.{name}", axes)
    for name, axes in (("Lambda_re", _SAME), ("Lambda_im", _SAME), ("log_step", _STEP))
] + _norm(f"{_THEIR_LAYER}/norm", f"{_OUR_LAYER}.norm")
_CONV_LSTM = [
    *_INPUT,
    _Rule(f"{_THEIR_LAYER}/seq/A", f"{_OUR_LAYER}.kernel", _CONV),
    *_norm(f"{_THEIR_LAYER}/norm", "core.norms.{i}"),
]
_CONV_S5 = [
    *_INPUT,
    *_DYNAMICS,
    _Rule(f"{_THEIR_LAYER}/seq/B", f"{_OUR_LAYER}.ssm.B", _B),
    _Rule(f"{_THEIR_LAYER}/seq/C", f"{_OUR_LAYER}.ssm.C", _C),
    *_pair(f"{_THEIR_BLOCK}/SEBlock_0/reduce", f"{_OUR_BLOCK}.gate.reduce", _DENSE),
    *_pair(f"{_THEIR_BLOCK}/SEBlock_0/expand", f"{_OUR_BLOCK}.gate.expand", _DENSE),
]
_RESNET = [  # and diag_resnet, which lacks the second convolution
    *_norm(f"{_THEIR_BLOCK}/GroupNorm_0", f"{_OUR_BLOCK}.first_norm"),
    *_pair(f"{_THEIR_BLOCK}/Conv_0", f"{_OUR_BLOCK}.first_conv", _CONV),
    *_norm(f"{_THEIR_BLOCK}/GroupNorm_1", f"{_OUR_BLOCK}.second_norm"),
    *_pair(f"{_THEIR_BLOCK}/Conv_1", f"{_OUR_BLOCK}.second_conv", _CONV),
]
_STANDARD = [
    *_pair(f"{_THEIR_BLOCK}/Conv_0", f"{_OUR_BLOCK}.feedthrough", _CONV),
    *_norm(f"{_THEIR_BLOCK}/GroupNorm_0", f"{_OUR_BLOCK}.group_norm"),
]
_HALF_GLU = [
    *_norm(f"{_THEIR_BLOCK}/norm", f"{_OUR_BLOCK}.layer_norm"),
    *_pair(f"{_THEIR_BLOCK}/Dense_0", f"{_OUR_BLOCK}.dense", _DENSE),
]
_S5 = [
    _Rule("z_proj/kernel", "core.into_patches.weight", _INTO_PATCHES, "core.patch"),
    _Rule("z_unproj/kernel", "core.out_of_patches.weight", _OUT_OF_PATCHES, "core.patch"),
    *_DYNAMICS,
    *(_Rule(f"{_THEIR_LAYER}/seq/{name}", f"{_OUR_LAYER}.ssm.{name}", _SAME) for name in "BCD"),
    *_pair(f"{_THEIR_LAYER}/seq/out2", f"{_OUR_LAYER}.gate", _DENSE),
    _Rule("sos", "", _SAME),
]
_TRANSFORMER = [
    _Rule("z_proj/kernel", "core.sequence.project.linear.weight", _INTO_PATCHES, "core.sequence.project.shape"),
    _Rule("z_unproj/kernel", "core.sequence.unproject.linear.weight", _OUT_OF_PATCHES, "core.sequence.project.shape"),
    _Rule("sos", "core.sequence.start", _START),
    *_transformer("z_tfm", "core.sequence"),
    _Rule("sos_post", "", _SAME),
]
_CORES = [
    ("z_tfm/Dense_0/kernel", "core.sequence.start", _TRANSFORMER),
    ("sequence_model/layers_0/seq/A", "core.layers.0.kernel", _CONV_LSTM),
    ("sequence_model/layers_0/seq/D", "core.layers.0.ssm.D", _S5),
    ("sequence_model/layers_0/seq/C_D_conv/Dense_0/kernel", "core.layers.0.activation.dense.weight", _HALF_GLU),
    ("sequence_model/layers_0/seq/C_D_conv/GroupNorm_1/scale", "core.layers.0.activation.second_norm.weight", _RESNET),
]
"""A name of theirs and one of ours that tell the kind of core, and its rules; activation blocks share names that mean
different things."""


def read_tree(source: str | Path | Tree) -> dict[str, np.ndarray]:
    """The parameters of a tree by name, without the collection "params" in front, and nothing of other collections."""
    tree = read_arrays(source)
    if any(name.startswith("params/") for name in tree):
        # beside it lies "prime", what the authors' step model has discretised, which is no parameter
        tree = {name.removeprefix("params/"): value for name, value in tree.items() if name.startswith("params/")}
    return tree


def from_tree(tree: Tree) -> dict[str, Tensor]:
    """The state dict of a task with `ResNetEncoder`, one of the authors' cores and `ResNetDecoder`, or of a `TECO`."""
    tree = read_tree(tree)
    dim = np.size(tree.get("sequence_model/layers_0/norm/scale", ()))
    found = {}
    for name, rule, value in _renamed(tree, _rules_of(tree), back=False):
        found[name] = rule.axes.here(torch.from_numpy(np.array(value)), dim).contiguous()
    for whole in {name.partition("[")[0]: None for name in found if name.endswith("]")}:
        found[whole] = torch.cat([found.pop(f"{whole}[{part}]") for part in range(len(_JOINED))])
    return found


def to_tree(model: nn.Module | Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """The authors' tree for such a model: the inverse of `from_tree`."""
    whole = model.state_dict() if isinstance(model, nn.Module) else model
    values: dict[str, Tensor] = {}
    for name, value in _without_tokenizer(whole).items():
        parts = value.chunk(len(_JOINED)) if ".query_key_value." in name else ()
        values |= {f"{name}[{part}]": rows for part, rows in enumerate(parts)} or {name: value}
    tree = {}
    for name, rule, value in _renamed(values, _rules_of(values), back=True):
        size = _size_of(model, rule.size) if rule.size else 0
        tree[name] = np.ascontiguousarray(rule.axes.back(value.detach().cpu(), size).numpy())
    return tree


def load_tree(model: nn.Module, tree: str | Path | Tree) -> None:
    """Loads a tree into a task, or a module with such parts; every tensor but a tokenizer's must have its place."""
    own = _without_tokenizer(model.state_dict())
    load_all(model, from_tree(read_tree(tree)), own, "Build it with the tree's parts and sizes, and with an action_dim")


def _without_tokenizer(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value for name, value in state_dict.items() if not name.startswith("tokenizer.")}


def _rules_of(names: Container[str]) -> list[_Rule]:
    """The rules of the model that a tree or a state dict, given by its names, is of."""
    rules = _TECO if "encoder/layers_1/kernel" in names or "latent_map.weight" in names else _FRAMES
    core = next((core for theirs, ours, core in _CORES if theirs in names or ours in names), _STANDARD)
    return rules + (_CONV_S5 if core in (_RESNET, _STANDARD, _HALF_GLU) else []) + core


def _renamed(values: Mapping[str, Any], rules: list[_Rule], *, back: bool) -> Iterator[tuple[str, _Rule, Any]]:
    """(new name, rule, value) of everything that has a place there."""
    names = [(rule.ours, rule.theirs) if back else (rule.theirs, rule.ours) for rule in rules]
    patterns = [re.compile(re.escape(old).replace(r"\{i\}", r"(\d+)")) for old, _ in names]
    unknown = []
    for name, value in values.items():
        for pattern, (_, new), rule in zip(patterns, names, rules, strict=True):
            if found := pattern.fullmatch(name):
                index = found[1] if found.groups() else ""
                if new:
                    yield new.format(i=index), rule._replace(size=rule.size.format(i=index)), value
                break
        else:
            unknown.append(name)
    if unknown:
        what = "the state dict" if back else "the authors' tree"
        raise FileError(
            f"{what} has {some(unknown)}, which no part of the authors' model with this core has: leave out what is "
            "of another model"
        )


def _size_of(model: nn.Module | Mapping[str, Tensor], path: str) -> int:
    """The attribute of the model at a path; the first number of several, such as the rows of a square patch."""
    if not isinstance(model, nn.Module):
        raise FileError(f"the shapes of the tree depend on {path} of the model: give the model, not its state dict")
    module, _, attribute = path.rpartition(".")
    value = getattr(model.get_submodule(module), attribute)
    return int(value[0] if isinstance(value, tuple) else value)
