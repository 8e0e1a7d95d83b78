"""Parts of RIM: input attention, choice of the active modules, communication, and a GRU or LSTM per module."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from slotbench.nn.gru import gru_update
from slotbench.nn.linear import xavier_linear
from slotbench.nn.parameters import without_decay

__all__ = ["Communication", "GroupGRU", "GroupLSTM", "GroupLinear", "InputAttention", "block_gradient", "most_relevant"]

EPSILON = 1e-8


def most_relevant(null_weights: Float[Tensor, "batch modules"], count: int) -> Bool[Tensor, "batch modules"]:
    """The `count` modules that attend least to the null input; among equals those of lower index.

    No gradient passes through the selection.

    Source: RIM thesis, Eq 3.15-3.16.

    Args:
        null_weights: attention of each module to the null input.
        count: modules to select, per sample.
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
        bias: whether the keys and values have a bias, and with them the null input.
        null_row: where the null input stands among the inputs; of no effect but on the order of the weights.
        std: standard deviation of the initial weights of grouped maps; Xavier-uniform if None.
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
        bias: bool = False,
        null_row: Literal["first", "last"] = "last",
        std: float | None = None,
    ):
        super().__init__()
        self.num_heads = num_heads
        self.normalisation = normalisation
        self.null_index = 0 if null_row == "first" else -1
        # the mean over heads of q k / sqrt(key_dim) is one product of the concatenated heads
        self.scale = 1 / (num_heads * key_dim**0.5)
        self.query: nn.Module
        if share_query:
            self.query = nn.Linear(dim, num_heads * key_dim, bias=False)
            nn.init.xavier_uniform_(self.query.weight)
        else:
            self.query = GroupLinear(num_modules, dim, num_heads * key_dim, std=std)
        self.key = _linear(input_dim, num_heads * key_dim, bias)
        self.value = _linear(input_dim, num_heads * value_dim, bias)

    def keys_values(
        self, inputs: Float[Tensor, "*batch inputs input_dim"]
    ) -> tuple[Float[Tensor, "*batch rows key_dim"], Float[Tensor, "*batch rows value_dim"]]:
        """(keys, values) of the inputs and of the null input: what does not depend on the modules' states."""
        null = torch.zeros_like(inputs[..., :1, :])
        rows = torch.cat([null, inputs] if self.null_index == 0 else [inputs, null], dim=-2)
        values = self.value(rows)
        if self.num_heads > 1:
            values = values.unflatten(-1, (self.num_heads, -1)).mean(dim=-2)
        return self.key(rows) * self.scale, values

    def forward(
        self, hidden: Float[Tensor, "batch modules dim"], keys: Float[Tensor, "batch rows key_dim"]
    ) -> Float[Tensor, "batch modules rows"]:
        """Attention weights, which sum to 1 over the rows for each module."""
        scores = torch.matmul(self.query(hidden), keys.mT)
        if self.normalisation == "standard":
            return scores.softmax(dim=-1)
        shares = scores.softmax(dim=-2) + EPSILON
        return shares / shares.sum(dim=-1, keepdim=True)

    def null_weights(self, weights: Float[Tensor, "batch modules rows"]) -> Float[Tensor, "batch modules"]:
        """Each module's attention to the null input."""
        return weights[..., self.null_index]

    def input_weights(self, weights: Float[Tensor, "batch modules rows"]) -> Float[Tensor, "batch modules inputs"]:
        """Each module's attention to the inputs, without the null input."""
        return weights[..., 1:] if self.null_index == 0 else weights[..., :-1]

    def null_last(self, weights: Float[Tensor, "batch modules rows"]) -> Float[Tensor, "batch modules rows"]:
        """The same weights with the null input in the last place."""
        return weights.roll(-1, dims=-1) if self.null_index == 0 else weights


class Communication(nn.Module):
    """Active modules attend to all modules, themselves included; each module has its own maps.

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
    ):
        super().__init__()
        self.num_heads = num_heads
        self.scale = key_dim**-0.5
        self.gated = output == "gated"
        self.query_key = GroupLinear(num_modules, dim, num_heads * key_dim, maps=2, std=std)
        self.value = GroupLinear(num_modules, dim, num_heads * value_dim, std=std)
        self.output: nn.Module
        if self.gated:
            self.output = xavier_linear(num_heads * value_dim, dim, maps=2)
        else:
            self.output = GroupLinear(num_modules, num_heads * value_dim, dim, std=std)
        self.dropout = nn.Dropout(dropout)

    def weights(
        self, hidden: Float[Tensor, "batch modules dim"], active: Bool[Tensor, "batch modules"] | None
    ) -> Float[Tensor, "batch heads modules modules"]:
        """Who listens to whom: rows sum to 1; those of modules that are not active are zero (None: all are active)."""
        query, key = (self._heads(part) for part in self.query_key(hidden).chunk(2, dim=-1))
        weights = torch.matmul(query * self.scale, key.mT).softmax(dim=-1)
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
    ) -> tuple[Float[Tensor, "batch modules dim"], Float[Tensor, "batch modules modules"]]:
        """(what each module adds to its state, how much of each other it heard: the mean over heads)."""
        values = self.value(hidden)
        if mode == "full":
            weights = self.weights(hidden, active)
            heard = weights.detach().mean(dim=1)
            weights = weights if self.gated else self.dropout(weights)
            values = torch.matmul(weights.to(values.dtype), self._heads(values)).transpose(1, 2).flatten(-2)
        else:
            itself = torch.eye(hidden.shape[1], dtype=hidden.dtype, device=hidden.device).expand(len(hidden), -1, -1)
            heard = itself if active is None else itself * active[..., None]
        if not self.gated:
            return self.output(values), heard
        gate, change = self.output(values).chunk(2, dim=-1)
        return torch.sigmoid(gate) * torch.tanh(self.dropout(change)), heard

    def _heads(self, x: Float[Tensor, "batch modules width"]) -> Float[Tensor, "batch heads modules head_width"]:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


def _linear(in_features: int, out_features: int, bias: bool) -> nn.Linear:
    layer = nn.Linear(in_features, out_features, bias=bias)
    nn.init.xavier_uniform_(layer.weight)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


class GroupLinear(nn.Module):
    """A linear map without bias for each group.

    Several maps of one input can be stored one after the other along the output; each is initialised by its own fan.

    Source: the primitives of the RIM thesis' code, which starts all weights at 0.01 N(0, 1); here that is `std=0.01`.

    Args:
        groups: how many maps side by side.
        in_features: width of a group's input.
        out_features: width of a group's output, of one map.
        maps: how many maps each group holds.
        std: standard deviation of the initial weights; Xavier-uniform if None.
    """

    def __init__(self, groups: int, in_features: int, out_features: int, maps: int = 1, std: float | None = None):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(groups, in_features, maps * out_features))
        if std is None:
            bound = (6 / (in_features + out_features)) ** 0.5
            nn.init.uniform_(self.weight, -bound, bound)
        else:
            nn.init.normal_(self.weight, std=std)

    def forward(self, x: Float[Tensor, "batch groups in_features"]) -> Float[Tensor, "batch groups out_features"]:
        """Each group by its own map."""
        return torch.bmm(x.transpose(0, 1), self.weight).transpose(0, 1)


class GroupGRU(nn.Module):
    """A GRU for each group: `groups` times `torch.nn.GRUCell`, with its two biases and its initialisation.

    Args:
        groups: how many GRUs side by side.
        input_dim: width of a group's input.
        dim: width of a group's state.
    """

    def __init__(self, groups: int, input_dim: int, dim: int):
        super().__init__()
        self.input_weight = nn.Parameter(torch.empty(groups, input_dim, 3 * dim))
        self.hidden_weight = nn.Parameter(torch.empty(groups, dim, 3 * dim))
        # the leading axis of the groups would make a bias look like a matrix to weight decay
        self.input_bias = without_decay(nn.Parameter(torch.empty(groups, 1, 3 * dim)))
        self.hidden_bias = without_decay(nn.Parameter(torch.empty(groups, 1, 3 * dim)))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(dim**-0.5), dim**-0.5)

    def forward(
        self, x: Float[Tensor, "batch groups input_dim"], hidden: Float[Tensor, "batch groups dim"]
    ) -> Float[Tensor, "batch groups dim"]:
        """The state after one step."""
        # groups first throughout, which is how the products come out
        before = hidden.transpose(0, 1)
        input_gates = torch.baddbmm(self.input_bias, x.transpose(0, 1), self.input_weight)
        hidden_gates = torch.baddbmm(self.hidden_bias, before, self.hidden_weight)
        return gru_update(input_gates, hidden_gates, before).transpose(0, 1)


class GroupLSTM(nn.Module):
    """An LSTM for each group, without biases or with the two of `torch.nn.LSTMCell`.

        i, f, o = sigmoid(W x + U h + b),  g = tanh(W x + U h + b)
        c' = f * c + i * g,  h' = o * tanh(c')

    Source: the primitives of the RIM thesis' code, which have no biases; the RIM authors' code has them.

    Args:
        groups: how many LSTMs side by side.
        input_dim: width of a group's input.
        dim: width of a group's state.
        bias: add a bias to the input's part and another to the state's.
    """

    def __init__(self, groups: int, input_dim: int, dim: int, bias: bool = False):
        super().__init__()
        self.input_weight = nn.Parameter(torch.empty(groups, input_dim, 4 * dim))
        self.hidden_weight = nn.Parameter(torch.empty(groups, dim, 4 * dim))
        self.input_bias: nn.Parameter | None = None
        self.hidden_bias: nn.Parameter | None = None
        if bias:
            self.input_bias = without_decay(nn.Parameter(torch.empty(groups, 1, 4 * dim)))
            self.hidden_bias = without_decay(nn.Parameter(torch.empty(groups, 1, 4 * dim)))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(dim**-0.5), dim**-0.5)

    def forward(
        self,
        x: Float[Tensor, "batch groups input_dim"],
        hidden: Float[Tensor, "batch groups dim"],
        memory: Float[Tensor, "batch groups dim"],
    ) -> tuple[Float[Tensor, "batch groups dim"], Float[Tensor, "batch groups dim"]]:
        """(h, c) after one step."""
        dim = hidden.shape[-1]
        hidden_gates = torch.bmm(hidden.transpose(0, 1), self.hidden_weight)
        if self.input_bias is not None and self.hidden_bias is not None:
            hidden_gates = hidden_gates + (self.input_bias + self.hidden_bias)
        gates = torch.baddbmm(hidden_gates, x.transpose(0, 1), self.input_weight).to(memory.dtype)
        sigmoids, candidate = gates.split((3 * dim, dim), dim=-1)
        enter, keep, show = torch.sigmoid(sigmoids).chunk(3, dim=-1)
        memory = torch.addcmul(keep * memory.transpose(0, 1), enter, torch.tanh(candidate))
        return (show * torch.tanh(memory)).transpose(0, 1), memory.transpose(0, 1)
