"""Autoregressive transformer: a frame's discrete codes one after the other, from those before and from the slots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.interfaces import (
    AutoregressiveDecoder,
    CodeTables,
    Decoded,
    PartError,
    SlotSpec,
    VideoBatch,
    VideoSpec,
)
from slotbench.nn.attention import check_heads, mean_over_heads, merge_heads, split_heads
from slotbench.nn.linear import xavier_linear
from slotbench.nn.parameters import without_decay
from slotbench.ops.code_sampling import CellDecoder, CellWeights, can_decode

Codes = Integer[Tensor, "frames cells"]

CodeInit = Literal["steve", "slate", "normal"]
"""Whose start and positions a decoder of codes begins with."""


class _Memory(NamedTuple):
    """What a layer reads in `step`.

    Attributes:
        slot_keys: the slots' keys with the map of the queries before them: "frames dim heads_and_slots".
        slot_values: the slots' values with the output map after them: "frames heads_and_slots dim".
        kept: keys and values of the cells so far: "frames two heads cells head_dim".
    """

    slot_keys: Tensor
    slot_values: Tensor
    kept: Tensor


class AutoregressiveTransformer(AutoregressiveDecoder):
    """Causal transformer over the codes of a frame in row-major order, whose layers also attend to the frame's slots.

    The target is a grid of codes (`Tokenizer.code_spec`). A cell's logits come from the codes before it; the first has
    a learned vector in their place. In training these are the true ones, of `VideoBatch.target`; `sample` goes cell by
    cell and keeps keys and values, so that a cell costs one token and not the frame up to it. Masks are the
    attention of a cell to the slots while its code is predicted, averaged over layers and heads: our choice; of the
    last layer alone they told objects apart less well where we looked (docs/tokenizers.md).

    Source: Singh et al., "Illiterate DALL-E Learns to Compose" (SLATE), ICLR 2022, and "Simple Unsupervised
    Object-Centric Learning for Complex and Naturalistic Videos" (STEVE), NeurIPS 2022, with its code; PSB (Singh et
    al., 2024), Appendix D.3.2. With `dim` 192, 8 layers, 4096 codes on a grid of 32 x 32 and slots of width 192 it has
    6,542,592 parameters, 36,864 of them in `slot_map`, which STEVE's code counts with its encoder. As in that code the
    first layer replaces its input by its LayerNorm, and output maps start smaller by the root of three times the
    layers. `tables` hands its vectors of codes and places to an encoder that reads codes, as SLATE's does.

    Args:
        slot_spec: the output of the core.
        video_spec: the codes: as many channels as there are codes, and the grid's height and width.
        dim: width of a token.
        num_layers: layers of self-attention, cross-attention and MLP.
        num_heads: heads of every attention.
        mlp_ratio: hidden width of the MLPs in units of `dim`.
        dropout: share of what is dropped in training: of attention weights, of what a layer adds, and of the input.
        init: initial values of the vector before the first code and of the positions; those of the codes are normal of
            deviation 1 in all. "steve", as in STEVE's code: Xavier-uniform, up to sqrt(3 / dim), and normal of
            deviation 1, cut off at 2. "slate", as in SLATE's: normal, for it is one more row of the codes' table, and
            positions as in STEVE's. "normal": both normal of deviation 1.
    """

    def __init__(
        self,
        slot_spec: SlotSpec,
        video_spec: VideoSpec,
        dim: int = 64,
        num_layers: int = 3,
        num_heads: int = 4,
        mlp_ratio: int = 4,
        dropout: float = 0.0,
        init: CodeInit = "steve",
    ):
        super().__init__()
        self.grid = (video_spec.height, video_spec.width)
        cells = video_spec.height * video_spec.width
        self.slot_map = xavier_linear(slot_spec.dim, dim, bias=False)
        self.codes = nn.Embedding(video_spec.channels, dim)
        self.start = nn.Parameter(torch.randn(dim))
        # the last row has no use here: the code of the last cell is predicted and not read
        self.positions = nn.Parameter(torch.randn(1 + cells, dim))
        if init == "steve":
            nn.init.uniform_(self.start, -((3 / dim) ** 0.5), (3 / dim) ** 0.5)
        if init != "normal":
            nn.init.trunc_normal_(self.positions)
        for table in (self.start, self.positions, *self.codes.parameters()):
            without_decay(table)
        self.dropout = nn.Dropout(dropout)
        gain = (3 * num_layers) ** -0.5
        self.layers = nn.ModuleList(
            _Layer(dim, num_heads, mlp_ratio, dropout, gain, is_first=number == 0) for number in range(num_layers)
        )
        self.norm = nn.LayerNorm(dim)
        self.head = xavier_linear(dim, video_spec.channels, bias=False)

    @property
    def tables(self) -> CodeTables:
        """The vectors of codes and places."""
        return CodeTables(self.codes, self.positions)

    def forward(self, slots: Float[Tensor, "batch time slots dim"], batch: VideoBatch | None = None) -> Decoded:
        """Logits of every cell from the true codes before it (teacher forcing), and the slots' shares in each cell."""
        codes = self._true_codes(slots, batch).flatten(0, 1).flatten(1)
        logits, weights = self._logits(self.slot_map(slots.flatten(0, 1)), codes[:, :-1])
        return self._decoded(logits, weights, slots.shape[1])

    @torch.no_grad()
    def sample(
        self, slots: Float[Tensor, "batch time slots dim"], batch: VideoBatch | None = None, temperature: float = 0.0
    ) -> tuple[Integer[Tensor, "batch time rows cols"], Decoded]:
        """Codes one by one; `batch` is not read. See `AutoregressiveDecoder.sample`."""
        with torch.inference_mode():  # a cell is dozens of small operations
            codes, logits, weights = self._sampled(self.slot_map(slots.flatten(0, 1)), temperature)
        decoded = self._decoded(torch.stack(logits, 1), torch.stack(weights, 2), slots.shape[1])
        return self._on_grid(torch.stack(codes, 1), slots.shape[1]), decoded

    def _sampled(self, context: Tensor, temperature: float) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Codes "frames", logits "frames codes" and weights "frames heads slots" of each cell."""
        positions, table = self.positions[:-1].unbind(), self.codes.weight
        decode = self._compiled_cell(context) if can_decode(context) else self._cell(context)
        token = self.start.expand(len(context), -1)
        codes: list[Tensor] = []
        logits: list[Tensor] = []
        weights: list[Tensor] = []
        for cell, position in enumerate(positions):
            of_cell, attended = decode(token + position, cell)
            logits.append(of_cell)
            weights.append(attended)
            codes.append(_chosen(of_cell, temperature))
            token = F.embedding(codes[-1], table)
        return codes, logits, weights

    def _cell(self, context: Tensor) -> Callable[[Tensor, int], tuple[Tensor, Tensor]]:
        """Logits "frames codes" and weights "frames heads slots" of a cell from its token, by torch."""
        layers = [layer for layer in self.layers if isinstance(layer, _Layer)]
        memories = [layer.memory(context, self.grid[0] * self.grid[1]) for layer in layers]

        def decode(x: Tensor, cell: int) -> tuple[Tensor, Tensor]:
            attended: list[Tensor] = []
            for layer, memory in zip(layers, memories, strict=True):
                x, of_layer = layer.step(x, memory, cell)
                attended.append(of_layer)
            return self.head(self.norm(x)), torch.stack(attended).mean(0)

        return decode

    def _compiled_cell(self, context: Tensor) -> Callable[[Tensor, int], tuple[Tensor, Tensor]]:
        """The same, compiled."""
        layers = [layer for layer in self.layers if isinstance(layer, _Layer)]
        memories = [layer.memory(context, 0) for layer in layers]
        heads = (layers[0].num_heads, context.shape[1])
        norms = [(layer.self_norm, layer.cross_norm, layer.mlp_norm) for layer in layers]
        weights = CellWeights(
            norms=torch.stack([torch.stack([_of_norm(norm) for norm in of_layer]) for of_layer in norms]),
            mapping=torch.stack([layer.query_key_value.weight for layer in layers]),
            output=torch.stack([layer.self_output.weight for layer in layers]),
            expand=torch.stack([layer.expand.weight for layer in layers]),
            expand_bias=torch.stack([layer.expand.bias for layer in layers]),
            contract=torch.stack([layer.contract.weight for layer in layers]),
            contract_bias=torch.stack([layer.contract.bias for layer in layers]),
            last_norm=_of_norm(self.norm),
            head=self.head.weight,
            eps=self.norm.eps,
        )
        keys = torch.stack([memory.slot_keys.mT.unflatten(1, heads) for memory in memories])
        values = torch.stack([memory.slot_values.unflatten(1, heads) for memory in memories])
        return CellDecoder(weights, keys, values, self.grid[0] * self.grid[1]).decode

    @torch.no_grad()
    def sample_by_prefix(
        self, slots: Float[Tensor, "batch time slots dim"], temperature: float = 0.0
    ) -> Integer[Tensor, "batch time rows cols"]:
        """What `sample` samples, from a whole pass over all codes so far for every cell: the reference, and slow."""
        context = self.slot_map(slots.flatten(0, 1))
        codes = torch.zeros(len(context), 0, dtype=torch.long, device=slots.device)
        for _ in range(self.grid[0] * self.grid[1]):
            logits, _ = self._logits(context, codes)
            codes = torch.cat([codes, _chosen(logits[:, -1], temperature)[:, None]], 1)
        return self._on_grid(codes, slots.shape[1])

    def _true_codes(self, slots: Tensor, batch: VideoBatch | None) -> Integer[Tensor, "batch time rows cols"]:
        given = None if batch is None else batch.target
        expected = (*slots.shape[:2], *self.grid)
        if given is None or tuple(given.shape) != expected:
            found = "none" if given is None else f"{list(given.shape)}"
            raise PartError(
                f"AutoregressiveTransformer reads the true codes of every step, {list(expected)}, and got {found}: "
                "use it in the task CodeAutoencoding, which passes those of a tokenizer"
            )
        return given

    def _logits(
        self, context: Float[Tensor, "frames slots dim"], before: Codes
    ) -> tuple[Float[Tensor, "frames next_cells codes"], Float[Tensor, "frames heads next_cells slots"]]:
        """Logits of each cell that `before` leads up to, one more than there are codes."""
        tokens = torch.cat([self.start.expand(len(context), 1, -1), self.codes(before)], 1)
        x = self.dropout(tokens + self.positions[: tokens.shape[1]])
        weights: list[Tensor] = []
        for layer in self.layers:
            x, attended = layer(x, context)
            weights.append(attended)
        return self.head(self.norm(x)), torch.stack(weights).mean(0)

    def _decoded(self, logits: Tensor, weights: Tensor, time: int) -> Decoded:
        size = (time, *self.grid)
        shares = mean_over_heads(weights)  # (frames, cells, slots)
        grids = (x.unflatten(0, (-1, time)).movedim(-1, 2).unflatten(-1, size[1:]) for x in (logits, shares))
        return Decoded(*grids)

    def _on_grid(self, codes: Codes, time: int) -> Integer[Tensor, "batch time rows cols"]:
        return codes.unflatten(0, (-1, time)).unflatten(-1, self.grid)


class _Layer(nn.Module):
    """Causal self-attention, cross-attention to the slots and an MLP, each pre-norm with a residual."""

    def __init__(self, dim: int, num_heads: int, mlp_ratio: int, dropout: float, gain: float, is_first: bool):
        super().__init__()
        check_heads(dim, num_heads)
        self.num_heads, self.is_first = num_heads, is_first
        self.self_norm, self.cross_norm, self.mlp_norm = (nn.LayerNorm(dim) for _ in range(3))
        self.query_key_value = xavier_linear(dim, dim, maps=3, bias=False)
        self.self_output = _output_map(dim, dim, gain, bias=False)
        self.slot_query = xavier_linear(dim, dim, bias=False)
        self.slot_key_value = xavier_linear(dim, dim, maps=2, bias=False)
        self.cross_output = _output_map(dim, dim, gain, bias=False)
        self.expand = nn.Linear(dim, mlp_ratio * dim)
        nn.init.kaiming_uniform_(self.expand.weight, nonlinearity="relu")
        nn.init.zeros_(self.expand.bias)
        self.contract = _output_map(mlp_ratio * dim, dim, gain)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "frames cells dim"], context: Float[Tensor, "frames slots dim"]
    ) -> tuple[Float[Tensor, "frames cells dim"], Float[Tensor, "frames heads cells slots"]]:
        """(tokens, their weights on the slots)."""
        x, normed = self._start(x)
        query, key, value = self._heads(self.query_key_value(normed), 3)
        dropped = self.dropout.p if self.training else 0.0
        attended = F.scaled_dot_product_attention(query, key, value, dropout_p=dropped, is_causal=True)
        x = x + self.dropout(self.self_output(merge_heads(attended)))
        query = split_heads(self.slot_query(self.cross_norm(x)), self.num_heads)
        slot_key, slot_value = self._heads(self.slot_key_value(context), 2)
        weights = (query * query.shape[-1] ** -0.5 @ slot_key.mT).softmax(-1)
        read = merge_heads(self.dropout(weights).to(slot_value.dtype) @ slot_value)
        x = x + self.dropout(self.cross_output(read))
        return x + self.dropout(self.contract(F.relu(self.expand(self.mlp_norm(x))))), weights

    def memory(self, context: Float[Tensor, "frames slots dim"], cells: int) -> _Memory:
        """What `step` reads, with room for so many cells."""
        key, value = self._heads(self.slot_key_value(context), 2)  # (frames, heads, slots, head_dim)
        query_map = self.slot_query.weight.unflatten(0, key.shape[1:2] + key.shape[3:]) * key.shape[-1] ** -0.5
        output_map = self.cross_output.weight.unflatten(1, key.shape[1:2] + key.shape[3:])
        slot_keys = torch.einsum("hdi,fhsd->fihs", query_map, key).flatten(2)
        slot_values = torch.einsum("ohd,fhsd->fhso", output_map, value).flatten(1, 2)
        kept = key.new_empty(key.shape[0], 2, key.shape[1], cells, key.shape[-1])
        return _Memory(slot_keys, slot_values, kept)

    def step(
        self, x: Float[Tensor, "frames dim"], memory: _Memory, cell: int
    ) -> tuple[Float[Tensor, "frames dim"], Float[Tensor, "frames heads slots"]]:
        """`forward` for one cell after those whose keys and values `memory` holds, without dropout; adds its own."""
        x, normed = self._start(x)
        mapped = self.query_key_value(normed).view(len(x), 3, self.num_heads, -1)
        memory.kept[:, :, :, cell] = mapped[:, 1:]
        keys, values = memory.kept[:, :, :, : cell + 1].unbind(1)
        attended = F.scaled_dot_product_attention(mapped[:, 0, :, None], keys, values)
        x = x + self.self_output(attended.flatten(1))
        logits = self.cross_norm(x)[:, None] @ memory.slot_keys
        weights = logits.unflatten(-1, (self.num_heads, -1)).softmax(-1)
        x = x + (weights.flatten(2) @ memory.slot_values)[:, 0]
        return x + self.contract(F.relu(self.expand(self.mlp_norm(x)))), weights[:, 0]

    def _start(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(where the residual starts, what the self-attention reads): in the first layer both are normalised."""
        normed = self.self_norm(x)
        return (normed, normed) if self.is_first else (x, normed)

    def _heads(self, mapped: Tensor, parts: int) -> list[Tensor]:
        return [split_heads(part, self.num_heads) for part in mapped.chunk(parts, -1)]


def _of_norm(norm: nn.LayerNorm) -> Float[Tensor, "two dim"]:
    return torch.stack([norm.weight, norm.bias])


def _output_map(before: int, after: int, gain: float, bias: bool = True) -> nn.Linear:
    layer = nn.Linear(before, after, bias=bias)
    nn.init.xavier_uniform_(layer.weight, gain)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def _chosen(logits: Float[Tensor, "frames codes"], temperature: float) -> Integer[Tensor, " frames"]:
    if temperature <= 0:
        return logits.argmax(-1)
    probabilities = (logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature).softmax(-1)
    return torch.multinomial(probabilities, 1)[:, 0]
