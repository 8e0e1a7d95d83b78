"""OC-SlotSSM: a slot state space model whose slots compete for the tokens in every layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import Aggregation, CoreOutput, SlotSpec, TemporalCore, TokenSpec
from slotbench.nn.inverted_attention import InvertedAttention
from slotbench.nn.linear import xavier_linear
from slotbench.nn.slot_init import InitialisedSlots, LearnedSlots, SlotInit, initial_slots
from slotbench.nn.slot_ssm_layer import MixerName, SlotSSMStack, SSMName, SSMState, slot_mixers, ssm_blocks
from slotbench_plugins.aggregations.weighted_mean import WeightedMean


class OCSlotSSMState(NamedTuple):
    """The slots that were drawn for each clip, if they were drawn, and one state of the SSM per layer."""

    drawn: Float[Tensor, "batch slots dim"] | None
    layers: tuple[SSMState, ...]


class CompetingReader(nn.Module):
    """Inverted attention to a frame's tokens with a residual, and a LayerNorm on both sides before it.

    Source: SlotSSM, Eq 14 and 23-26; residual, LayerNorms and the map after the aggregation are those of the public
    code, which has biases, and maps the tokens anew in every block.

    Args:
        dim: width of a slot.
        num_heads: heads.
        across_heads: the slots of all heads compete with one another.
        aggregation: turns (assignment, values) into updates.
        bias: give the linear maps of the attention biases. That of the queries is added to all competitors for a token
            alike, so with one head it has no effect.
        token_dim: width of a token where the reader has a linear map of its own from there to `dim`; None where tokens
            come with the width of a slot.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        across_heads: bool,
        aggregation: Aggregation,
        bias: bool = False,
        token_dim: int | None = None,
    ):
        super().__init__()
        self.token_projection = nn.Identity() if token_dim is None else xavier_linear(token_dim, dim)
        self.slot_norm = nn.LayerNorm(dim)
        self.token_norm = nn.LayerNorm(dim)
        self.attention = InvertedAttention(
            dim, num_heads=num_heads, aggregation=aggregation, across_heads=across_heads, bias=bias
        )

    def forward(
        self, slots: Float[Tensor, "batch slots dim"], tokens: Float[Tensor, "batch tokens token_dim"]
    ) -> tuple[Float[Tensor, "batch slots dim"], Float[Tensor, "batch slots tokens"]]:
        """(slots, share that each has won of each token)."""
        tokens = self.token_norm(self.token_projection(tokens))
        updates, assignment, _ = self.attention(self.slot_norm(slots), tokens)
        assert assignment is not None
        return slots + updates, assignment


class OCSlotSSM(InitialisedSlots, TemporalCore):
    """Object-centric SlotSSM: in every layer slots compete for the tokens, run through time, and are mixed.

    The competition takes the place of `SlotSSM`'s encoder: slots of a step start from the same vectors at every step
    and are refined by the tokens layer after layer, so that slots come to hold one object each. Everything but the scan
    runs in parallel over time. `num_slots` may be set to another number after training where slots are drawn.

    `CoreOutput.attention` is the last layer's: which share of each token a slot has won, before the aggregation. It
    sums to 1 over the slots.

    Source: Jiang, Deng, Singh, Lee, Ahn, "Slot State Space Models", NeurIPS 2024, Section 5.1, Eq 14-16 and 23-26.
    Table 2 has `dim` 192, 11 slots and 4 heads in the competition; the number of layers is not stated there.
    `OCSlotSSM.original` has the settings of the authors' public code, whose weights
    `slotbench_plugins.released_weights.slotssm` reads.

    Args:
        num_slots: slots per step, the same in all layers.
        dim: width of a slot.
        num_layers: layers, each with weights of its own.
        bottom_up_heads: heads of the competition for tokens.
        across_heads: the slots of all heads compete with one another, as in the public code; otherwise each head holds
            a competition of its own.
        bottom_up_bias: whether the linear maps of the competition have biases, as in the public code.
        token_projection: "once" maps tokens of another width than `dim` to it, for all layers; "per_layer" has a linear
            map in every layer whatever their width, as the public code does.
        num_heads: heads of the attention that mixes the slots of a step.
        mlp_ratio: hidden width of the MLPs in units of `dim`.
        ssm: the block that carries a slot through time, "mamba" or "mamba2".
        state_dim: SSM state per channel.
        expand: inner width of the SSM block in units of `dim`.
        conv_width: steps that the SSM block's causal convolution sees.
        head_dim: channels that share a decay in Mamba-2; must divide the inner width. Mamba has no heads.
        exact_zoh: discretise the input matrix exactly instead of Mamba's first-order form.
        kernel: which kernel of `slotbench.ops.selective_scan` (of `slotbench.ops.ssd` for Mamba-2) runs the scan.
        slot_init: "learned" has one vector per slot; "gaussian" draws the slots of each clip from one distribution.
        aggregation: makes the part that turns (assignment, values) into updates, from the width of a value; one per
            layer.
        mixer: what follows the SSM of every layer: attention over the slots and an MLP on each (as in the paper), the
            attention alone (as in the public code), the MLP alone, or nothing.
        init: initial weights, ours ("plain", Xavier-uniform maps with biases of zero) or those of the authors' public
            code ("slotssm", PyTorch's linear layers, and learned slots that are normal).
    """

    def __init__(
        self,
        token_spec: TokenSpec,
        num_slots: int = 8,
        dim: int = 64,
        num_layers: int = 2,
        bottom_up_heads: int = 1,
        across_heads: bool = True,
        bottom_up_bias: bool = False,
        token_projection: Literal["once", "per_layer"] = "once",
        num_heads: int = 4,
        mlp_ratio: int = 4,
        ssm: SSMName = "mamba",
        state_dim: int = 16,
        expand: float = 1.25,
        conv_width: int = 4,
        head_dim: int = 20,
        exact_zoh: bool = False,
        kernel: str = "auto",
        slot_init: SlotInit = "learned",
        aggregation: Callable[[int], Aggregation] = WeightedMean,
        mixer: MixerName = "attention_mlp",
        init: Literal["plain", "slotssm"] = "plain",
    ):
        super().__init__()
        self.slot_spec = SlotSpec(num_slots, dim)
        once = token_projection == "once" and token_spec.dim != dim
        self.token_projection = xavier_linear(token_spec.dim, dim) if once else nn.Identity()
        self.slot_init = initial_slots(slot_init, num_slots, dim)
        self.layers = SlotSSMStack(
            dim,
            num_layers,
            ssm_blocks(ssm, state_dim, expand, conv_width, head_dim, exact_zoh, kernel),
            slot_mixers(mixer, num_heads, mlp_ratio),
        )
        token_dim = token_spec.dim if token_projection == "per_layer" else None
        self.readers = nn.ModuleList(
            CompetingReader(
                dim, bottom_up_heads, across_heads, aggregation(dim // bottom_up_heads), bottom_up_bias, token_dim
            )
            for _ in range(num_layers)
        )
        if init == "slotssm":
            self._start_as_published()

    def _start_as_published(self) -> None:
        """The initial weights of the authors' public code, where they are not those of the layers here."""
        # the SSM blocks have theirs: both are mamba-ssm's
        outside = [self.token_projection, *self.readers, *(layer.mixer for layer in self.layers)]
        for part in outside:
            for layer in part.modules():
                if isinstance(layer, nn.Linear):
                    layer.reset_parameters()
        if isinstance(self.slot_init, LearnedSlots):
            nn.init.normal_(self.slot_init.slots)

    @classmethod
    def original(cls, token_spec: TokenSpec, num_slots: int = 6, dim: int = 256, num_layers: int = 4) -> OCSlotSSM:
        """The settings of the authors' public code, in its one example; `dim` is a multiple of 64, there of 256.

        Source: github.com/JindongJiang/SlotSSMs, train.py and src/models/slotssm.py.
        """
        return cls(
            token_spec,
            num_slots,
            dim,
            num_layers,
            bottom_up_bias=True,
            token_projection="per_layer",
            num_heads=dim // 64,
            ssm="mamba2",
            state_dim=128,
            expand=2.0,
            head_dim=64,
            mixer="attention",
            init="slotssm",
        )

    def forward(
        self, tokens: Float[Tensor, "batch time tokens token_dim"], state: OCSlotSSMState | None = None
    ) -> CoreOutput:
        """Slots after every step, and an `OCSlotSSMState`."""
        batch, time = tokens.shape[:2]
        drawn = None if state is None else state.drawn
        initial = self.slot_init(batch) if drawn is None else drawn
        # no information crosses time in the competition, so time is folded into the batch
        frames = self.token_projection(tokens).flatten(0, 1)
        slots = initial[:, None].expand(-1, time, -1, -1)
        states = []
        for index, (reader, layer) in enumerate(zip(self.readers, self.layers, strict=True)):
            read, attention = reader(slots.flatten(0, 1), frames)
            slots, layer_state = layer(read.unflatten(0, (batch, time)), None if state is None else state.layers[index])
            states.append(layer_state)
        kept = OCSlotSSMState(initial if self.draws_slots else None, tuple(states))
        return CoreOutput(slots, attention.unflatten(0, (batch, time)), kept, "assignment")
