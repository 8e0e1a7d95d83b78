"""The recurrence of modules that are all active, with as few operations per step as there can be.

`Mechanisms.cell` is the one to read. Here the modules lead every tensor of the loop, so that no product has to turn
its axes; maps of the same state are one product (queries and gates, then queries, keys and values of the
communication); scale, bias and residual are part of products. Values and gradients are those of `cell` up to rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.nn.gru import gru_update
from slotbench_plugins.cores.rim.cell import EPSILON, Communication, InputAttention
from slotbench_plugins.cores.rim.groups import GroupGRU, GroupLinear

__all__ = ["DenseSteps", "dense_steps", "dense_steps_apply"]


class DenseSteps(NamedTuple):
    """What became of the modules at every step.

    Attributes:
        hidden: their states.
        weights: what they attended to among the inputs, null included.
        heard: how much of each other they heard; None without communication.
    """

    hidden: Float[Tensor, "batch time modules dim"]
    weights: Float[Tensor, "batch time modules rows"]
    heard: Float[Tensor, "batch time modules modules"] | None


def dense_steps_apply(attention: InputAttention, units: nn.Module, communication: Communication | None) -> bool:
    """Whether these parts are such that `dense_steps` can be taken: GRUs, and maps of every module's own."""
    plain = type(units) is GroupGRU and type(attention.query) is GroupLinear and not attention.drops_what_is_read
    return plain and (communication is None or type(communication.query_key) is GroupLinear)


def dense_steps(
    attention: InputAttention,
    units: GroupGRU,
    communication: Communication | None,
    keys: Float[Tensor, "batch time rows key_dim"],
    values: Float[Tensor, "batch time rows value_dim"],
    hidden: Float[Tensor, "batch modules dim"],
) -> DenseSteps:
    """All steps of a clip.

    Args:
        attention: of the modules to the inputs.
        units: by which modules update themselves.
        communication: by which modules hear one another; None for none.
        keys: of the inputs and of the null input.
        values: of the inputs and of the null input.
        hidden: the states before the first step.
    """
    assert isinstance(attention.query, GroupLinear)
    query = attention.query.weight
    of_state = torch.cat([query, units.hidden_weight], dim=-1)
    of_state_bias = F.pad(units.hidden_bias, (query.shape[-1], 0))
    widths = (query.shape[-1], of_state.shape[-1] - query.shape[-1])
    maps = None if communication is None else _communication_maps(communication)
    state = hidden.transpose(0, 1)
    states, kept, heard = [], [], []
    for key, value in zip(keys.unbind(1), values.unbind(1), strict=True):
        queries, hidden_gates = torch.baddbmm(of_state_bias, state, of_state).split(widths, dim=-1)
        scores = torch.matmul(queries.transpose(0, 1), key.mT)
        if attention.normalisation == "standard":
            weights = scores.softmax(dim=-1)
        else:
            shares = scores.softmax(dim=-2) + EPSILON
            weights = shares / shares.sum(dim=-1, keepdim=True)
        read = attention.read(weights, value).transpose(0, 1)
        input_gates = torch.baddbmm(units.input_bias, read, units.input_weight)
        state = gru_update(input_gates, hidden_gates, state)
        if communication is not None and maps is not None:
            state, listened = _communicate(communication, maps, state)
            heard.append(listened)
        states.append(state)
        kept.append(weights)
    whole = rearrange(torch.stack(states), "time modules batch dim -> batch time modules dim")
    return DenseSteps(whole, torch.stack(kept, dim=1), torch.stack(heard, dim=1) if heard else None)


def _communication_maps(communication: Communication) -> Float[Tensor, "modules dim maps"]:
    """Queries with the scale of the scores, keys and values, one after the other."""
    assert isinstance(communication.query_key, GroupLinear)
    assert isinstance(communication.value, GroupLinear)
    query, key = communication.query_key.weight.chunk(2, dim=-1)
    return torch.cat([query * communication.scale, key, communication.value.weight], dim=-1)


def _communicate(
    communication: Communication, maps: Tensor, state: Float[Tensor, "modules batch dim"]
) -> tuple[Float[Tensor, "modules batch dim"], Float[Tensor, "batch modules modules"]]:
    """(the states with what the modules heard, how much of each other they heard)."""
    assert isinstance(communication.query_key, GroupLinear)
    modules, batch, heads = state.shape[0], state.shape[1], communication.num_heads
    width = communication.query_key.weight.shape[-1] // 2
    split = torch.bmm(state, maps).split((width, width, maps.shape[-1] - 2 * width), dim=-1)
    # the heads of a sample follow one another, as they do in `Communication.weights`
    query, key, value = (part.reshape(modules, batch * heads, -1).transpose(0, 1) for part in split)
    weights = torch.bmm(query, key.mT).softmax(dim=-1)
    heard = weights.detach().unflatten(0, (batch, heads)).mean(dim=1)
    weights = weights if communication.gated else communication.dropout(weights)
    context = torch.bmm(weights, value).transpose(0, 1).reshape(modules, batch, -1)
    if isinstance(communication.output, GroupLinear):
        return torch.baddbmm(state, context, communication.output.weight), heard
    gate, change = communication.output(context).chunk(2, dim=-1)
    return torch.addcmul(state, torch.sigmoid(gate), torch.tanh(communication.dropout(change))), heard
