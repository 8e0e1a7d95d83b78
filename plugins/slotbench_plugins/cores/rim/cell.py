"""Parts of RIM: input attention, choice of the active modules, and communication."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from slotbench.nn.linear import xavier_linear
from slotbench_plugins.cores.rim.groups import GroupLinear

__all__ = ["Communication", "InputAttention", "NullRow", "block_gradient", "most_relevant"]

EPSILON = 1e-8

NullRow = Literal["first", "last", "none"]
"""Where the null input stands among the inputs."""


def most_relevant(null_weights: Float[Tensor, "batch modules"], count: int) -> Bool[Tensor, "batch modules"]:
    """The `count` modules that attend least to the null input; among equals those of lower index.

    No gradient passes through the selection.

    Source: RIM thesis, Eq 3.15-3.16.
    """
    # a stable sort, because torch.topk says nothing about equal values, and at a start from zeros all are equal
    order = null_weights.detach().argsort(dim=-1, stable=True)
    chosen = torch.zeros_like(null_weights, dtype=torch.bool)
    return chosen.scatter(-1, order[:, :count], True)


def block_gradient(
    x: Float[Tensor, "batch modules dim"], active: Bool[Tensor, "batch modules 1"]
) -> Float[Tensor, "batch modules dim"]:
    """`x` itself, whose gradient reaches only the active modules."""
    return torch.where(active, x, x.detach())


class InputAttention(nn.Module):
    """Every module looks at the inputs and at a null input, a row of zeros, with a query made from its own state.

    "standard" is a softmax over the inputs. "competitive" is a softmax over the modules, so that each input is split
    among them, and then each module's shares are scaled to sum to 1 over the inputs. Several heads are averaged, scores
    before the normalisation and values after the projection.

    Source: RIM thesis, Eq 3.13-3.14 and section 4.3; "standard" is what the equation says and the RIM paper does,
    "competitive" what the thesis' text and code do.

    Args:
        num_modules: modules.
        dim: width of a module's state.
        input_dim: width of an input.
        key_dim: width of queries and keys, per head.
        value_dim: width of what a module reads.
        num_heads: heads.
        normalisation: see above.
        share_query: whether one query map serves all modules.
        null_row: where the null input stands among the inputs; of no effect but on the order of the weights. "none":
            there is no null input, and the last input is taken for it when modules are chosen.
        std: standard deviation of the initial weights of grouped maps; Xavier-uniform if None.
        dropout: probability of dropout.
        dropout_on: whether that is on the weights or on what is read.
    """

    def __init__(
        self,
        num_modules: int,
        dim: int,
        input_dim: int,
        key_dim: int = 64,
        value_dim: int = 64,
        num_heads: int = 1,
        normalisation: Literal["competitive", "standard"] = "competitive",
        *,
        share_query: bool = False,
        null_row: NullRow = "last",
        std: float | None = None,
        dropout: float = 0.0,
        dropout_on: Literal["weights", "read"] = "weights",
    ):
        super().__init__()
        self.num_heads = num_heads
        self.normalisation = normalisation
        self.dropout = nn.Dropout(dropout)
        self.drops_what_is_read = dropout_on == "read"
        self.null_index = 0 if null_row == "first" else -1
        self.has_null = null_row != "none"
        # the mean over heads of q k / sqrt(key_dim) is one product of the concatenated heads
        self.scale = 1 / (num_heads * key_dim**0.5)
        self.query: nn.Module
        if share_query:
            self.query = xavier_linear(dim, num_heads * key_dim, bias=False)
        else:
            self.query = GroupLinear(num_modules, dim, num_heads * key_dim, std=std)
        self.key = xavier_linear(input_dim, num_heads * key_dim, bias=False)
        self.value = xavier_linear(input_dim, num_heads * value_dim, bias=False)

    def keys_values(
        self, inputs: Float[Tensor, "*batch inputs input_dim"]
    ) -> tuple[Float[Tensor, "*batch rows key_dim"], Float[Tensor, "*batch rows value_dim"]]:
        """(keys, values) of the inputs and of the null input: what does not depend on the modules' states."""
        rows = inputs
        if self.has_null:
            null = torch.zeros_like(inputs[..., :1, :])
            rows = torch.cat([null, inputs] if self.null_index == 0 else [inputs, null], dim=-2)
        values = self.value(rows)
        if self.num_heads > 1:
            values = values.unflatten(-1, (self.num_heads, -1)).mean(dim=-2)
        return self.key(rows) * self.scale, values

    def forward(
        self,
        hidden: Float[Tensor, "batch modules dim"],
        keys: Float[Tensor, "batch rows key_dim"],
        among: Bool[Tensor, " modules"] | None = None,
    ) -> Float[Tensor, "batch modules rows"]:
        """Attention weights, which sum to 1 over the rows for each module."""
        scores = torch.matmul(self.query(hidden), keys.mT)
        if self.normalisation == "standard":
            return scores.softmax(dim=-1)
        if among is not None:
            scores = scores.masked_fill(~among[:, None], -torch.inf)
        shares = scores.softmax(dim=-2) + EPSILON
        return shares / shares.sum(dim=-1, keepdim=True)

    def read(
        self, weights: Float[Tensor, "batch modules rows"], values: Float[Tensor, "batch rows value_dim"]
    ) -> Float[Tensor, "batch modules value_dim"]:
        """What each module reads, the sum of the values by their weights, with dropout."""
        if self.drops_what_is_read:
            return self.dropout(torch.matmul(weights.to(values.dtype), values))
        return torch.matmul(self.dropout(weights).to(values.dtype), values)

    def null_weights(self, weights: Float[Tensor, "batch modules rows"]) -> Float[Tensor, "batch modules"]:
        """Each module's attention to the null input."""
        return weights[..., self.null_index]

    def input_weights(self, weights: Float[Tensor, "*batch modules rows"]) -> Float[Tensor, "*batch modules inputs"]:
        """Each module's attention to the inputs, without the null input."""
        if not self.has_null:
            return weights
        return weights[..., 1:] if self.null_index == 0 else weights[..., :-1]

    def null_last(self, weights: Float[Tensor, "*batch modules rows"]) -> Float[Tensor, "*batch modules null_last"]:
        """The same weights with the null input in the last place, with zeros there if there is none."""
        if not self.has_null:
            return nn.functional.pad(weights, (0, 1))
        return weights.roll(-1, dims=-1) if self.null_index == 0 else weights


class Communication(nn.Module):
    """Active modules attend to all modules, themselves included; each has its own maps, or all share one set.

    Source: RIM thesis, Eq 3.18, with the output projection of its code ("linear"); the RIM authors' code has a gate
    instead, sigmoid(A c + a) * tanh(B c + b), whose A and B all modules share ("gated").

    Args:
        num_modules: modules.
        dim: width of a module's state.
        num_heads: heads.
        key_dim: width of queries and keys, per head.
        value_dim: width of values, per head.
        output: how the values of all heads become a change of the state.
        dropout: probability, where each code has it: on the weights if "linear", before the tanh if "gated".
        std: standard deviation of the initial weights of grouped maps; Xavier-uniform if None.
        shared: whether one set of maps serves all modules, so that there may be any number of them.
    """

    def __init__(
        self,
        num_modules: int,
        dim: int,
        num_heads: int = 4,
        key_dim: int = 16,
        value_dim: int = 16,
        output: Literal["linear", "gated"] = "linear",
        dropout: float = 0.1,
        std: float | None = None,
        *,
        shared: bool = False,
    ):
        super().__init__()
        self.num_heads = num_heads
        self.scale = key_dim**-0.5
        self.gated = output == "gated"
        self.query_key: nn.Module
        self.value: nn.Module
        self.output: nn.Module
        if shared:
            self.query_key = xavier_linear(dim, num_heads * key_dim, maps=2, bias=False)
            self.value = xavier_linear(dim, num_heads * value_dim, bias=False)
        else:
            self.query_key = GroupLinear(num_modules, dim, num_heads * key_dim, maps=2, std=std)
            self.value = GroupLinear(num_modules, dim, num_heads * value_dim, std=std)
        if self.gated:
            self.output = xavier_linear(num_heads * value_dim, dim, maps=2)
        elif shared:
            self.output = xavier_linear(num_heads * value_dim, dim, bias=False)
        else:
            self.output = GroupLinear(num_modules, num_heads * value_dim, dim, std=std)
        self.dropout = nn.Dropout(dropout)

    def weights(
        self,
        hidden: Float[Tensor, "batch modules dim"],
        active: Bool[Tensor, "batch modules"] | None,
        among: Bool[Tensor, " modules"] | None = None,
    ) -> Float[Tensor, "batch heads modules modules"]:
        """Who listens to whom: rows sum to 1; those of modules that are not active are zero (None: all are active).

        Only modules that are `among` those who can be heard are (None: all of them).
        """
        query, key = (self._heads(part) for part in self.query_key(hidden).chunk(2, dim=-1))
        scores = torch.matmul(query * self.scale, key.mT)
        if among is not None:
            scores = scores.masked_fill(~among, -torch.inf)
        weights = scores.softmax(dim=-1)
        return weights if active is None else weights * active[:, None, :, None]

    def forward(
        self,
        hidden: Float[Tensor, "batch modules dim"],
        active: Bool[Tensor, "batch modules"] | None = None,
        mode: Literal["full", "self"] = "full",
    ) -> Float[Tensor, "batch modules dim"]:
        """What each module adds to its state; in mode "self" every module listens to itself alone."""
        return self.listen(hidden, active, mode)[0]

    def listen(
        self,
        hidden: Float[Tensor, "batch modules dim"],
        active: Bool[Tensor, "batch modules"] | None = None,
        mode: Literal["full", "self"] = "full",
        among: Bool[Tensor, " modules"] | None = None,
    ) -> tuple[Float[Tensor, "batch modules dim"], Float[Tensor, "batch modules modules"]]:
        """(what each module adds to its state, how much of each other it heard: the mean over heads)."""
        values = self.value(hidden)
        if mode == "full":
            weights = self.weights(hidden, active, among)
            heard = weights.detach().mean(dim=1)
            weights = weights if self.gated else self.dropout(weights)
            values = torch.matmul(weights.to(values.dtype), self._heads(values)).transpose(1, 2).flatten(-2)
        else:
            itself = torch.eye(hidden.shape[1], dtype=hidden.dtype, device=hidden.device).expand(len(hidden), -1, -1)
            heard = itself if active is None else itself * active[..., None]
        if not self.gated:
            return self.output(values), heard
        gate, change = self.output(values).chunk(2, dim=-1)
        if active is None:  # where all are active, the records' runs have drawn module by module
            change = self.dropout(change.transpose(0, 1).contiguous()).transpose(0, 1)
        else:
            change = self.dropout(change)
        return torch.sigmoid(gate) * torch.tanh(change), heard

    def _heads(self, x: Float[Tensor, "batch modules width"]) -> Float[Tensor, "batch heads modules head_width"]:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
