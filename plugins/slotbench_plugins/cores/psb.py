"""Parallelizable spatiotemporal binder: slots of all steps at once, by attention to all frames so far."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import torch
from einops import rearrange
from jaxtyping import Float, Integer
from torch import Tensor, nn

from slotbench.interfaces import Aggregation, CoreOutput, SlotSpec, TokenSpec, WindowedCore
from slotbench.nn.inverted_attention import InvertedAttention, StepSums, TokenMemory
from slotbench.nn.linear import MLP, xavier_linear
from slotbench.nn.slot_init import InitialisedSlots, SlotInit, initial_slots
from slotbench.nn.temporal_attention import AttentionCache, TemporalAttention, TimeBias
from slotbench_plugins.aggregations.weighted_mean import WeightedMean

Interaction = Literal["decoupled", "joint"]
TOKEN_EPS = 1e-5  # of the LayerNorm on the tokens, which is the same for all layers but for weight and bias


class PSBState(NamedTuple):
    """The slots that were drawn, if they were, the normalised tokens of earlier steps, if a layer looks at them."""

    drawn: Float[Tensor, "batch slots dim"] | None
    tokens: TokenMemory | None
    layers: tuple[PSBBlockState, ...]


class PSB(InitialisedSlots, WindowedCore):
    """Parallelizable Spatiotemporal Binder: layers refine the slots of all steps by attention to frames and steps.

    Nothing is recurrent: all steps run in parallel, and the number of operations that wait for one another does not
    grow with the clip. Slot k of all steps starts from the same vector, and so can come to mean the same object.

    Streaming keeps the tokens of all earlier steps and gives exactly what the parallel run gives. `window` limits
    in every layer how far back a step looks, and with it the state; the parallel run has the same limit. Since layers
    look at what the layers below have made of earlier steps, step t then depends on the last
    (`num_layers` + 1) (`window` - 1) + 1 frames. To see the last frames alone, use `sliding_window`. `num_slots` may be
    set to another number after training where slots are drawn.

    `CoreOutput.attention` is the last layer's: which share of each token of its own step a slot has won, before it is
    normalised. It sums to 1 over the slots.

    Source: Singh et al., "Parallelized Spatiotemporal Slot Binding for Videos", ICML 2024, Algorithm 1, Appendix D.1.
    The LayerNorm on the initial slots is that of the public code.

    Args:
        token_spec: what the encoder hands over; tokens of another width than `dim` are mapped to it once.
        num_slots: slots per step.
        dim: width of a slot.
        num_layers: layers, each with weights of its own; the paper has 3.
        bottom_up_heads: heads of the attention to the frames; the paper has 1 for 2D videos and 4 for 3D.
        time_heads: heads of the attention over time.
        slot_heads: heads of the attention among the slots of a step; not used by `interaction="joint"`.
        mlp_ratio: hidden width of the MLPs in units of `dim`.
        causal: look at no later step. Without it there is no streaming, and no state.
        window: steps that each layer sees, its own included; None for no limit.
        slot_init: "learned" has one vector per slot; "gaussian" draws the slots of each clip from one distribution.
        interaction: "decoupled" attends over time, then among slots; "joint" over both at once.
        aggregation: makes the part that turns (assignment, values) into updates, from the width of a value; one per
            layer. A step sees the tokens of all steps so far: give `BatchScaled` its `reference_tokens`.

    Raises:
        ValueError: a number below 1, heads that do not divide `dim`, an unknown `slot_init` or `interaction`, or a
            `window` without `causal`.
    """

    def __init__(
        self,
        token_spec: TokenSpec,
        num_slots: int = 8,
        dim: int = 64,
        num_layers: int = 2,
        bottom_up_heads: int = 1,
        time_heads: int = 4,
        slot_heads: int = 4,
        mlp_ratio: int = 4,
        causal: bool = True,
        window: int | None = None,
        slot_init: SlotInit = "learned",
        interaction: Interaction = "decoupled",
        aggregation: Callable[[int], Aggregation] = WeightedMean,
    ):
        super().__init__()
        if num_layers < 1:
            raise ValueError(f"num_layers must be at least 1, got {num_layers}")
        if window is not None and not causal:
            raise ValueError(f"window={window} limits how far back a causal core looks: drop it, or set causal to true")
        self.slot_spec = SlotSpec(num_slots=num_slots, dim=dim)
        self.causal, self.window = causal, window
        self.token_projection = nn.Identity() if token_spec.dim == dim else xavier_linear(token_spec.dim, dim)
        self.slot_init = initial_slots(slot_init, num_slots, dim)
        self.slot_norm = nn.LayerNorm(dim)
        self.layers = nn.ModuleList(
            PSBBlock(
                dim,
                aggregation(dim // bottom_up_heads),
                bottom_up_heads,
                time_heads,
                slot_heads,
                mlp_ratio,
                causal,
                window,
                interaction,
                residual_maps=4 * num_layers,
            )
            for _ in range(num_layers)
        )

    def forward(self, tokens: Float[Tensor, "batch time tokens dim"], state: PSBState | None = None) -> CoreOutput:
        """Slots of every step, and a `PSBState`, or None without `causal`.

        Raises:
            ValueError: a state without `causal`.
        """
        if state is not None and not self.causal:
            raise ValueError(
                "a state was given, but with causal=False early steps see later ones, so that a clip cannot be "
                "continued: pass the whole clip without a state, or build PSB with causal=True"
            )
        initial = self.slot_init(tokens.shape[0]) if state is None or state.drawn is None else state.drawn
        slots, attention, kept = self._encode(tokens, initial, state)
        if not self.causal:
            return CoreOutput(slots, attention, None, "assignment")
        return CoreOutput(slots, attention, kept._replace(drawn=initial if self.draws_slots else None), "assignment")

    def sliding_window(self, tokens: Float[Tensor, "batch time tokens dim"], window: int) -> CoreOutput:
        """Slots of each step from the last `window` frames alone, as if the clip had started with them.

        This is how clips longer than those of the training are to be evaluated, with the training's length for
        `window`: each step is then computed as in training. Up to step `window` it is the parallel run; after that
        each step costs a run over a window. It is not what streaming with the argument `window` gives, where the
        layers' own states reach further back. Nothing is carried from window to window but the initial slots, so only
        these keep a slot on its object. Returns no state.

        Source: PSB (Singh et al., 2024), Appendix D.1.7 and B.4.

        Raises:
            ValueError: a `window` below 1, or a core that is not causal.
        """
        if window < 1:
            raise ValueError(f"window={window}: give at least 1 frame")
        if not self.causal:
            raise ValueError("sliding_window reads the last step of each window: build PSB with causal=True")
        initial = self.slot_init(tokens.shape[0])
        pieces = [self._encode(tokens[:, :window], initial)[:2]]
        for stop in range(window + 1, tokens.shape[1] + 1):
            slots, attention, _ = self._encode(tokens[:, stop - window : stop], initial)
            pieces.append((slots[:, -1:], attention[:, -1:]))
        slots, attention = (torch.cat(parts, dim=1) for parts in zip(*pieces, strict=True))
        return CoreOutput(slots, attention, None, "assignment")

    def _encode(
        self, tokens: Tensor, initial: Tensor, state: PSBState | None = None
    ) -> tuple[Tensor, Tensor, PSBState]:
        tokens = self.token_projection(tokens)
        new = TokenMemory(nn.functional.layer_norm(tokens, tokens.shape[-1:], eps=TOKEN_EPS))
        memory = new.after(None if state is None else state.tokens)
        slots = self.slot_norm(initial)[:, None].expand(-1, tokens.shape[1], -1, -1)
        states = []
        for index, layer in enumerate(self.layers):
            last = index == len(self.layers) - 1
            past = None if state is None else state.layers[index]
            slots, attention, kept = layer(slots, memory, past, alike=index == 0, shares=last)
            states.append(kept)
        looks_back = any(kept.sums is None for kept in states)
        earlier = memory if self.window is None else memory.last(self.window - 1)
        return slots, attention, PSBState(None, earlier if looks_back else None, tuple(states))


class PSBBlockState(NamedTuple):
    """What slots that are alike at all steps have won of earlier frames; keys and values of the attention over time."""

    sums: StepSums | None
    slots: AttentionCache


class DecoupledInteraction(nn.Module):
    """Each slot attends to its own past; then the slots of a step attend to one another.

    Source: PSB (Singh et al., 2024), Section 2.1.2, lines 4-7 of Algorithm 1.

    Args:
        dim: width of a slot.
        time_heads: heads of the attention over time.
        slot_heads: heads of the attention among slots.
        causal: look at no later step.
        window: steps that a slot sees, its own included; None for no limit.
    """

    def __init__(self, dim: int, time_heads: int, slot_heads: int, causal: bool, window: int | None):
        super().__init__()
        self.time_norm = nn.LayerNorm(dim)
        self.time_attention = TemporalAttention(dim, time_heads, causal=causal, window=window, bias=False)
        self.slot_norm = nn.LayerNorm(dim)
        # One step at a time it is plain attention among the slots of that step.
        self.slot_attention = TemporalAttention(dim, slot_heads, bias=False)

    def forward(
        self, slots: Float[Tensor, "batch time slots dim"], cache: AttentionCache | None, time_bias: TimeBias
    ) -> tuple[Float[Tensor, "batch time slots dim"], AttentionCache]:
        """(slots, cache with leaves "batch slots heads time 1 head_dim")."""
        slots, cache = self.along_time(slots, cache, time_bias)
        return self.among_slots(slots), cache

    def along_time(
        self, slots: Float[Tensor, "batch time slots dim"], cache: AttentionCache | None, time_bias: TimeBias
    ) -> tuple[Float[Tensor, "batch time slots dim"], AttentionCache]:
        """The first half: no slot learns of another."""
        batch, _, num_slots, _ = slots.shape
        folded = None if cache is None else AttentionCache(*(leaf.flatten(0, 1) for leaf in cache))
        sequences = rearrange(self.time_norm(slots), "batch time slots dim -> (batch slots) time 1 dim")
        change, folded = self.time_attention(sequences, folded, time_bias)
        change = rearrange(change, "(batch slots) time 1 dim -> batch time slots dim", batch=batch)
        return slots + change, AttentionCache(*(leaf.unflatten(0, (batch, num_slots)) for leaf in folded))

    def among_slots(self, slots: Float[Tensor, "batch time slots dim"]) -> Float[Tensor, "batch time slots dim"]:
        """The second half: no step learns of another."""
        steps = rearrange(self.slot_norm(slots), "batch time slots dim -> (batch time) 1 slots dim")
        change, _ = self.slot_attention(steps)
        return slots + rearrange(change, "(batch time) 1 slots dim -> batch time slots dim", batch=slots.shape[0])


class JointInteraction(nn.Module):
    """Each slot attends to all slots of all steps that it may see, at once.

    Source: PSB (Singh et al., 2024), Section 5.3, an ablation; whether it keeps the bias of the offset in time is not
    said there, and it does here.

    Args:
        dim: width of a slot.
        time_heads: heads.
        causal: look at no later step.
        window: steps that a slot sees, its own included; None for no limit.
    """

    def __init__(self, dim: int, time_heads: int, causal: bool, window: int | None):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attention = TemporalAttention(dim, time_heads, causal=causal, window=window, bias=False)

    def forward(
        self, slots: Float[Tensor, "batch time slots dim"], cache: AttentionCache | None, time_bias: TimeBias
    ) -> tuple[Float[Tensor, "batch time slots dim"], AttentionCache]:
        """(slots, cache with leaves "batch heads time slots head_dim")."""
        change, cache = self.attention(self.norm(slots), cache, time_bias)
        return slots + change, cache


class PSBBlock(nn.Module):
    """Inverted attention to the frames, attention over time and among the slots of a step, and an MLP.

    All steps run in parallel. Each part is added to the slots and has a LayerNorm before it.

    Source: PSB (Singh et al., 2024), Algorithm 1 and Appendix D.1. That no attention has biases, the form of the time
    bias, and the initial weights (Xavier, Kaiming before a nonlinearity, output maps scaled down by the root of
    `residual_maps`) are those of the public code.

    Args:
        dim: width of a slot and of a token.
        aggregation: turns (assignment, values) into updates of the slots, an `Aggregation`.
        bottom_up_heads: heads of the attention to the frames, which compete with one another. With one head the time
            bias makes no difference to it, and this attention is blind to the order of the frames.
        time_heads: heads of the attention over time.
        slot_heads: heads of the attention among the slots of a step; not used by "joint".
        mlp_ratio: hidden width of the MLP in units of `dim`.
        causal: look at no later step.
        window: steps that this layer sees, its own included, with `causal`; None for no limit.
        interaction: "decoupled" attends over time, then among slots; "joint" over both at once.
        residual_maps: maps onto the slots in the whole stack, by which the initial weights are scaled down.

    Raises:
        ValueError: a number of heads that does not divide `dim`, or an unknown interaction.
    """

    def __init__(
        self,
        dim: int,
        aggregation: Aggregation,
        bottom_up_heads: int = 1,
        time_heads: int = 4,
        slot_heads: int = 4,
        mlp_ratio: int = 4,
        causal: bool = True,
        window: int | None = None,
        interaction: Interaction = "decoupled",
        residual_maps: int = 4,
    ):
        super().__init__()
        self.bottom_up_heads, self.time_heads = bottom_up_heads, time_heads
        self.causal, self.window = causal, window
        self.query_norm = nn.LayerNorm(dim)
        self.token_norm = nn.LayerNorm(dim, TOKEN_EPS)
        self.bottom_up = InvertedAttention(dim, num_heads=bottom_up_heads, aggregation=aggregation, bias=False)
        self.time_bias = RelativeTimeBias(bottom_up_heads + time_heads)
        self.interaction: DecoupledInteraction | JointInteraction
        if interaction == "decoupled":
            self.interaction = DecoupledInteraction(dim, time_heads, slot_heads, causal, window)
        elif interaction == "joint":
            self.interaction = JointInteraction(dim, time_heads, causal, window)
        else:
            raise ValueError(f"no interaction named {interaction!r}; choose one of {', '.join(get_args(Interaction))}")
        self.mlp_norm = nn.LayerNorm(dim)
        self.mlp = MLP(dim, mlp_ratio * dim)
        nn.init.kaiming_uniform_(self.mlp.expand.weight, nonlinearity="relu")
        attentions = (m for m in self.modules() if isinstance(m, InvertedAttention | TemporalAttention))
        for linear in (self.mlp.contract, *(attention.output for attention in attentions)):
            assert isinstance(linear, nn.Linear)
            nn.init.xavier_uniform_(linear.weight, gain=residual_maps**-0.5)

    def forward(
        self,
        slots: Float[Tensor, "batch time slots dim"],
        memory: TokenMemory,
        state: PSBBlockState | None = None,
        *,
        alike: bool = False,
        shares: bool = True,
    ) -> tuple[Float[Tensor, "batch time slots dim"], Float[Tensor, "batch time slots tokens"] | None, PSBBlockState]:
        """(slots, share that each slot has won of each token of its own step, state).

        Args:
            slots: of steps.
            memory: normalised tokens of them and all earlier ones; of them alone if `alike`.
            state: of an earlier call.
            alike: the slots of all steps are the same.
            shares: whether to return the shares.
        """
        time, num_slots = slots.shape[1:3]
        past, cache = (None, None) if state is None else state
        biases = self._biases(time if cache is None else time + cache.key.shape[-3], slots.device)
        sums = None
        if alike and self.causal and self.bottom_up.pays_to_add_up(memory.size[1]):
            query, new = self.query_norm(slots[:, 0]), TokenMemory(memory.tokens[:, -time:], self.token_norm)
            change, shares_won, sums = self.bottom_up.attend_alike(query, new, past, window=self.window, shares=shares)
        else:
            query, seen = (
                self.query_norm(slots),
                self.bottom_up.memory(memory.tokens, time * num_slots, self.token_norm),
            )
            change, shares_won = self.bottom_up.attend(
                query, seen, causal=self.causal, window=self.window, time_bias=biases[0], shares=shares
            )
        slots, cache = self.interaction(slots + change, cache, biases[1])
        slots = slots + self.mlp(self.mlp_norm(slots))
        return slots, shares_won, PSBBlockState(sums, cache)

    def _biases(self, steps: int, device: torch.device) -> tuple[TimeBias, TimeBias]:
        """Look-ups, for bottom-up attention and for the interaction, in one evaluation of every offset that occurs."""
        first = 1 - steps
        offsets = torch.arange(first, 1 if self.causal else steps, device=device)
        bottom_up, interaction = self.time_bias(offsets).split([self.bottom_up_heads, self.time_heads])
        return lambda offset: bottom_up[:, offset - first], lambda offset: interaction[:, offset - first]


class RelativeTimeBias(nn.Module):
    """A two-layer perceptron on sines and cosines of the signed offset between two steps gives a bias per head.

    It is defined for every offset, so that no clip is too long, and knows no absolute time. All frequencies are
    multiples of the slowest: offsets that are 2 `max_length` - 1 apart have the same bias.

    Source: PSB (Singh et al., 2024), Section 2.1.1 and Appendix D.1.2 ask for a relative bias per head; this form is
    that of the public code.

    Args:
        num_heads: biases per offset.
        hidden_dim: width between the two layers.
        num_frequencies: sines, and as many cosines; each frequency is twice the one before.
        max_length: steps, which set the slowest frequency: one period in 2 `max_length` - 1 steps.

    Raises:
        ValueError: a number below 1.
    """

    def __init__(self, num_heads: int, hidden_dim: int = 128, num_frequencies: int = 8, max_length: int = 1024):
        super().__init__()
        if min(num_heads, hidden_dim, num_frequencies, max_length) < 1:
            raise ValueError(
                f"{num_heads=}, {hidden_dim=}, {num_frequencies=}, {max_length=}: each of them must be at least 1"
            )
        self.num_frequencies = num_frequencies
        self.max_length = max_length
        self.expand = xavier_linear(2 * num_frequencies, hidden_dim)
        nn.init.kaiming_uniform_(self.expand.weight, nonlinearity="relu")
        self.contract = xavier_linear(hidden_dim, num_heads)

    def forward(self, offsets: Integer[Tensor, " offsets"]) -> Float[Tensor, "heads offsets"]:
        """The biases of each offset, step of the key less step of the query. Ask once for each offset that occurs."""
        slowest = 2 * math.pi / (2 * self.max_length - 1)
        # as exact as the weights, and in float32 at least
        dtype = torch.promote_types(self.expand.weight.dtype, torch.float32)
        frequencies = slowest * 2.0 ** torch.arange(self.num_frequencies, device=offsets.device, dtype=dtype)
        angles = offsets[..., None].to(dtype) * frequencies
        code = math.sqrt(2) * torch.cat([angles.sin(), angles.cos()], dim=-1)
        hidden = nn.functional.gelu(self.expand(code.to(self.expand.weight.dtype)))
        return self.contract(hidden).mT
