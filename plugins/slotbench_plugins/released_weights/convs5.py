"""Weights of the ConvS5 authors' JAX models for our parts, and back.

The model is `ResNetEncoder` with an action embedding, `ConvS5` or `ConvLSTM`, and `ResNetDecoder`; the tree is that of
their models without vector quantisation, its parameters under names such as "sequence_model/layers_0/seq/B". Each
conversion is a change of axes, so that there and back is the same to the bit.

    tree = read_tree("params.npz")     # numpy.savez(path, **flax.traverse_util.flatten_dict(params, sep="/"))
    load_tree(task, tree)

Source: ConvS5 (Smith et al., NeurIPS 2023) and the modules of its code, github.com/NVlabs/ConvSSM.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from slotbench.arrays import read_npz
from slotbench.errors import FileError

_MOST_BYTES = 1 << 32

__all__ = ["TreeMissingError", "from_tree", "load_tree", "read_tree", "to_tree"]

Tree = Mapping[str, Any]
"""Arrays by their names in the authors' tree."""


class TreeMissingError(FileError, FileNotFoundError):
    """There is no file where a parameter tree was looked for."""


class _Axes(NamedTuple):
    """How an array changes on the way here and back; `dim` is the width of the layers."""

    here: Callable[[Tensor, int], Tensor]
    back: Callable[[Tensor], Tensor]


class _Rule(NamedTuple):
    theirs: str
    ours: str
    axes: _Axes


def _kernel_of_b(value: Tensor, dim: int) -> Tensor:
    """(state, dim * rows * cols, 2), columns in that order, as a kernel."""
    size = round((value.shape[1] / dim) ** 0.5)
    return value.reshape(len(value), dim, size, size, 2)


_SAME = _Axes(lambda x, dim: x, lambda x: x)
_DENSE = _Axes(lambda x, dim: x.T, lambda x: x.T)
_CONV = _Axes(lambda x, dim: x.permute(3, 2, 0, 1), lambda x: x.permute(2, 3, 1, 0))
_STEP = _Axes(lambda x, dim: x[:, 0], lambda x: x[:, None])
_B = _Axes(_kernel_of_b, lambda x: x.flatten(1, 3))
_C = _Axes(lambda x, dim: x.permute(3, 2, 0, 1, 4), lambda x: x.permute(2, 3, 1, 0, 4))
# a convolution of one cell there, a linear layer here
_CELLWISE = _Axes(lambda x, dim: x[0, 0].T, lambda x: x.T[None, None])


def _pair(theirs: str, ours: str, axes: _Axes) -> list[_Rule]:
    return [_Rule(f"{theirs}/kernel", f"{ours}.weight", axes), _Rule(f"{theirs}/bias", f"{ours}.bias", _SAME)]


def _norm(theirs: str, ours: str) -> list[_Rule]:
    return [_Rule(f"{theirs}/scale", f"{ours}.weight", _SAME), _Rule(f"{theirs}/bias", f"{ours}.bias", _SAME)]


def _resnet_block(part: str) -> list[_Rule]:
    theirs, ours = f"{part}/ResNetBlock_{{i}}", f"{part}.blocks.{{i}}"
    return [
        *_norm(f"{theirs}/GroupNorm_0", f"{ours}.norm1"),
        *_pair(f"{theirs}/Conv_0", f"{ours}.conv1", _CONV),
        *_norm(f"{theirs}/GroupNorm_1", f"{ours}.norm2"),
        _Rule(f"{theirs}/Conv_1/kernel", f"{ours}.conv2.weight", _CONV),
        _Rule(f"{theirs}/AddBias_0/bias", f"{ours}.conv2.bias", _SAME),
        _Rule(f"{theirs}/skip/kernel", f"{ours}.skip.weight", _CONV),
    ]


_FRAMES = [
    *_pair("encoder/Conv_0", "encoder.conv", _CONV),
    *_resnet_block("encoder"),
    _Rule("action_embeds/embedding", "encoder.actions.table", _SAME),
    *_pair("action_conv/Conv_0", "core.input_map", _CELLWISE),
    *_pair("decoder/Conv_0", "decoder.conv", _CONV),
    *_resnet_block("decoder"),
    *_norm("decoder/LayerNorm_0", "decoder.norm"),
    *_pair("decoder/Dense_0", "decoder.head", _DENSE),
]
_THEIR_LAYER, _OUR_LAYER = "sequence_model/layers_{i}", "core.layers.{i}"
_THEIR_BLOCK, _OUR_BLOCK = f"{_THEIR_LAYER}/seq/C_D_conv", f"{_OUR_LAYER}.activation"
_CONV_LSTM = [
    _Rule(f"{_THEIR_LAYER}/seq/A", f"{_OUR_LAYER}.kernel", _CONV),
    *_norm(f"{_THEIR_LAYER}/norm", "core.norms.{i}"),
]
_CONV_S5 = [
    *(
        _Rule(f"{_THEIR_LAYER}/seq/{name}", f"{_OUR_LAYER}.ssm.dynamics.{name}", axes)
        for name, axes in (("Lambda_re", _SAME), ("Lambda_im", _SAME), ("log_step", _STEP))
    ),
    _Rule(f"{_THEIR_LAYER}/seq/B", f"{_OUR_LAYER}.ssm.B", _B),
    _Rule(f"{_THEIR_LAYER}/seq/C", f"{_OUR_LAYER}.ssm.C", _C),
    *_norm(f"{_THEIR_LAYER}/norm", f"{_OUR_LAYER}.norm"),
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


def read_tree(source: str | Path | Tree) -> dict[str, np.ndarray]:
    """The parameters of a tree by name, without the collection "params" in front, and nothing of other collections.

    Args:
        source: an .npz file of arrays under names joined by "/", or such a mapping.

    Raises:
        TreeMissingError: there is no such file.
        FileError: it is damaged or larger than 4 GiB, or nothing in it is a parameter.
    """
    if isinstance(source, str | Path):
        path = Path(source)
        if not path.is_file():
            raise TreeMissingError(
                f"no parameter tree at {path}: write one from the authors' parameters with "
                'numpy.savez(path, **flax.traverse_util.flatten_dict(params, sep="/"))'
            )
        tree = read_npz(path, limit=_MOST_BYTES)
    else:
        tree = {name: np.asarray(value) for name, value in source.items()}
    if any(name.startswith("params/") for name in tree):
        # beside it lies "prime", what the authors' step model has discretised, which is no parameter
        tree = {name.removeprefix("params/"): value for name, value in tree.items() if name.startswith("params/")}
    if not any(name.startswith("sequence_model/layers_") for name in tree):
        what = f"the tree of {source}" if isinstance(source, str | Path) else "this tree"
        raise FileError(
            f"{what} has no sequence_model/layers_0/..., but {_some(tree)}: expected the parameters of one of the "
            'authors\' ConvS5 or ConvLSTM models, nested names joined by "/"'
        )
    return tree


def from_tree(tree: Tree) -> dict[str, Tensor]:
    """The state dict of a task with `ResNetEncoder`, `ConvS5` or `ConvLSTM`, and `ResNetDecoder`.

    Args:
        tree: the authors' parameters by name, as `read_tree` gives them.

    Raises:
        ValueError: a name in it is none of those models', or there is no width to be found.
    """
    tree = read_tree(tree)
    dim = np.size(tree.get("sequence_model/layers_0/norm/scale", ()))
    if not dim:
        raise FileError("this tree has no sequence_model/layers_0/norm/scale, which tells how wide the layers are")
    rules = [(rule.theirs, rule.ours, rule.axes) for rule in _rules_of(tree)]
    found = {}
    for name, axes, value in _renamed(tree, rules, "the authors' tree"):
        try:
            found[name] = axes.here(torch.from_numpy(np.array(value)), dim).contiguous()
        except (RuntimeError, IndexError, TypeError, ValueError, ZeroDivisionError) as error:
            shape, dtype = np.shape(value), np.asarray(value).dtype
            raise FileError(f"{name} of the tree has the shape {shape} of {dtype}, which cannot be its own") from error
    return found


def to_tree(state_dict: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """The authors' tree for a state dict of such a task: the inverse of `from_tree`.

    Args:
        state_dict: parameters under "encoder.", "core." and "decoder.".

    Raises:
        ValueError: a name in it is none of those parts'.
    """
    rules = [
        (rule.ours, rule.theirs, rule.axes)
        for rule in (*_FRAMES, *_CONV_LSTM, *_CONV_S5, *_RESNET, *_STANDARD, *_HALF_GLU)
    ]
    return {
        name: np.ascontiguousarray(axes.back(value.detach().cpu()).numpy())
        for name, axes, value in _renamed(state_dict, rules, "the state dict")
    }


def load_tree(model: nn.Module, tree: str | Path | Tree) -> None:
    """Loads a tree into a task, or a module with `encoder`, `core` and `decoder`; every tensor must have its place.

    Args:
        model: the model that takes the weights, in its own dtype.
        tree: an .npz file or the authors' parameters by name.

    Raises:
        TreeMissingError: there is no such file.
        ValueError: the tree is not one of those models', or not of this one: layers, widths or kernels differ.
    """
    where = f"{tree}: " if isinstance(tree, str | Path) else ""
    held = read_tree(tree)
    try:
        model.load_state_dict(from_tree(held))
    except FileError as error:
        raise FileError(f"{where}{error}") from error
    except RuntimeError as error:
        raise FileError(
            f"{where}the tree is not of this model: give ResNetEncoder an action_dim, and all parts the tree's sizes."
            f"\n{error}"
        ) from error


def _rules_of(tree: Tree) -> list[_Rule]:
    """The rules that fit the kind of layer in a tree; the activation blocks share names that mean different things."""
    kinds = {name.partition("/seq/")[2] for name in tree}
    if "A" in kinds:
        return _FRAMES + _CONV_LSTM
    if "C_D_conv/Dense_0/kernel" in kinds:
        return _FRAMES + _CONV_S5 + _HALF_GLU
    return _FRAMES + _CONV_S5 + (_RESNET if "C_D_conv/GroupNorm_1/scale" in kinds else _STANDARD)


def _renamed(
    values: Mapping[str, Any], rules: list[tuple[str, str, _Axes]], what: str
) -> Iterator[tuple[str, _Axes, Any]]:
    patterns = [(re.compile(re.escape(old).replace(r"\{i\}", r"(\d+)")), new, axes) for old, new, axes in rules]
    unknown = []
    for name, value in values.items():
        for pattern, new, axes in patterns:
            if found := pattern.fullmatch(name):
                yield new.format(i=found[1] if found.groups() else ""), axes, value
                break
        else:
            unknown.append(name)
    if unknown:
        raise FileError(
            f"{what} has {_some(unknown)}, which no part of ResNetEncoder, ConvS5 or ConvLSTM, and ResNetDecoder has"
        )


def _some(names: Any, limit: int = 4) -> str:
    names = list(names)
    return ", ".join(names[:limit]) + (f" and {len(names) - limit} more" if len(names) > limit else "") or "nothing"
