"""The initial weights of Slot Attention and SAVi, as their authors have them."""

from __future__ import annotations

import math
from typing import Literal, get_args

from torch import Tensor, nn

from slotbench.nn.slot_attention import SlotCorrector
from slotbench.nn.slot_init import ConditionedSlots, GaussianSlots, LearnedSlots
from slotbench.nn.slot_predictor import PreNormBlock, SlotPredictor

__all__ = ["SlotAttentionInit", "initialise_slot_attention"]

SlotAttentionInit = Literal["slot_attention", "steve", "videosaur", "plain"]
"""Whose initial weights: those of Slot Attention's code, of STEVE's, of VideoSAUR's and SlotContrast's, or of
slotbench's layers as they come."""


def initialise_slot_attention(
    init: SlotAttentionInit,
    slots: LearnedSlots | GaussianSlots | ConditionedSlots,
    corrector: SlotCorrector,
    predictor: SlotPredictor | PreNormBlock | None = None,
) -> None:
    """Gives the parts of a core the initial weights of `init`.

    All but "videosaur" have Xavier-uniform queries, keys and values, each map by its own fan, and zero biases. Apart
    from that, with D the width of a slot:

    - "slot_attention": the GRU's three input maps are Xavier-uniform as one matrix of 3 D rows, and its three recurrent
      maps are one matrix with orthonormal columns; the mean and the log deviation of drawn slots are uniform up to
      sqrt(6 / (1 + D)), which is Keras' Xavier for their shape; the MLP is Xavier-uniform. There is no predictor in
      Slot Attention, and that of SAVi stays Xavier-uniform.
    - "steve": the GRU is the same; mean and log deviation are uniform up to sqrt(6 / (2 D)), which is PyTorch's Xavier
      for their shape; the first layers of both MLPs are Kaiming-uniform for a ReLU; what the predictor adds to the
      slots, its attention's output map and its MLP's second layer, is Xavier-uniform with a gain of sqrt(1/2).
    - "videosaur": maps and GRU are as PyTorch makes them, but for the Xavier-uniform attention of the predictor; of the
      corrector biases are zero. Slots are drawn around zero with deviation D^-1/2, and learned ones begin so.
    - "plain": each map of the GRU is Xavier-uniform by its own fan, mean and log deviation are zero, and the MLPs and
      the predictor are Xavier-uniform.

    Learned slots start alike in all others. The attention normalisation paper's code has the weights of
    "slot_attention" and the mean and deviation of "steve".

    Source: google-research/slot_attention, `model.py`, with Keras' defaults; singhgautam/steve, `steve.py`,
    `transformer.py` and `utils.py`; martius-lab/videosaur, `modules/initializers.py`, `groupers.py` and `networks.py`.

    Args:
        init: whose weights.
        slots: where the slots start.
        corrector: of the core.
        predictor: of the core, if it has one.
    """
    if init not in get_args(SlotAttentionInit):
        raise ValueError(f"no init named {init!r}; choose one of {', '.join(get_args(SlotAttentionInit))}")
    if init == "plain":  # the layers as they have been made, to the bit
        return
    if init == "videosaur":
        _as_in_videosaur(slots, corrector, predictor)
        return
    nn.init.xavier_uniform_(corrector.gru.input_map.weight)
    nn.init.orthogonal_(corrector.gru.hidden_map.weight)
    if isinstance(slots, GaussianSlots):
        dim = slots.mean.shape[0]
        bound = (6 / (1 + dim if init == "slot_attention" else 2 * dim)) ** 0.5
        nn.init.uniform_(slots.mean, -bound, bound)
        nn.init.uniform_(slots.log_deviation, -bound, bound)
    if init == "slot_attention":
        return
    if corrector.mlp is not None:
        nn.init.kaiming_uniform_(_weight(corrector.mlp[1]), nonlinearity="relu")
    if predictor is not None:
        nn.init.kaiming_uniform_(_weight(predictor.mlp[1]), nonlinearity="relu")
        for layer in (predictor.attention.output, predictor.mlp[3]):
            # two maps onto the slots in a predictor of one block
            nn.init.xavier_uniform_(_weight(layer), gain=2**-0.5)


def _as_in_videosaur(
    slots: nn.Module, corrector: SlotCorrector, predictor: SlotPredictor | PreNormBlock | None
) -> None:
    for layer in corrector.modules():
        if isinstance(layer, nn.Linear):
            layer.reset_parameters()
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    for parameter in corrector.gru.parameters():
        nn.init.uniform_(parameter, -((3 / len(parameter)) ** 0.5), (3 / len(parameter)) ** 0.5)
    if isinstance(slots, GaussianSlots):
        nn.init.zeros_(slots.mean)
        nn.init.constant_(slots.log_deviation, -0.5 * math.log(len(slots.mean)))
    elif isinstance(slots, LearnedSlots):
        nn.init.normal_(slots.slots, std=slots.slots.shape[1] ** -0.5)
    for layer in () if predictor is None else predictor.mlp.modules():
        if isinstance(layer, nn.Linear):
            layer.reset_parameters()


def _weight(layer: nn.Module) -> Tensor:
    assert isinstance(layer, nn.Linear)
    return layer.weight
