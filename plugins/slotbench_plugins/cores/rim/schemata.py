"""Object files: modules whose states are their own, and schemata, the few GRUs that update all of them."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.nn.gru import gru_update
from slotbench.nn.linear import xavier_linear
from slotbench_plugins.cores.rim.draws import Draws, noise_of_steps, start_of_draws
from slotbench_plugins.cores.rim.frame_slots import SlotInputs
from slotbench_plugins.cores.rim.mechanisms import RIMInputs, RIMState

__all__ = ["ObjectFiles", "Schemata"]


class Schemata(nn.Module):
    """GRUs that are shared by object files. Every file sees what each would make of it, and takes one.

        c_j = GRU_j(input a, state h),   score_j = (h Wq) . (c_j We_j)  [/ sqrt(key_dim)],   h' = c of the largest score

    In training Gumbel noise is added to the scores, and the gradient is that of a softmax of (score + noise) /
    temperature in the place of the choice (straight-through); the value is always that of the chosen candidate alone.

    Source: RIM thesis (Lin, 2022), Eq 3.24-3.28; the Gumbel noise and the gradient are those of its code.

    Args:
        num_schemata: GRUs.
        input_dim: width of what a file reads.
        dim: width of its state.
        key_dim: width of queries and keys.
        share_keys: whether the candidates of all schemata make their keys with one map.
        scaled: whether scores are divided by the root of `key_dim`.
        temperature: of the softmax whose gradient trains the choice.
    """

    def __init__(
        self,
        num_schemata: int,
        input_dim: int,
        dim: int,
        key_dim: int = 16,
        *,
        share_keys: bool = False,
        scaled: bool = True,
        temperature: float = 0.5,
    ):
        super().__init__()
        if num_schemata < 1:
            raise ValueError(f"num_schemata={num_schemata}: give at least 1")
        if not temperature > 0:
            raise ValueError(f"temperature={temperature}: give a positive number, such as 0.5")
        self.num_schemata = num_schemata
        self.temperature = temperature
        self.scale = key_dim**-0.5 if scaled else 1.0
        self.input_map = nn.Linear(input_dim, num_schemata * 3 * dim)
        self.hidden_map = nn.Linear(dim, num_schemata * 3 * dim)
        for parameter in (*self.input_map.parameters(), *self.hidden_map.parameters()):
            nn.init.uniform_(parameter, -(dim**-0.5), dim**-0.5)
        self.query = xavier_linear(dim, key_dim, bias=False)
        self.keys = xavier_linear(dim, key_dim, maps=1 if share_keys else num_schemata, bias=False)

    def candidates(
        self, read: Float[Tensor, "batch files input_dim"], hidden: Float[Tensor, "batch files dim"]
    ) -> Float[Tensor, "batch files schemata dim"]:
        """What each schema would make of each file."""
        input_gates = self.input_map(read).unflatten(-1, (self.num_schemata, -1))
        hidden_gates = self.hidden_map(hidden).unflatten(-1, (self.num_schemata, -1))
        return gru_update(input_gates, hidden_gates, hidden[:, :, None].expand(-1, -1, self.num_schemata, -1))

    def scores(
        self, hidden: Float[Tensor, "batch files dim"], candidates: Float[Tensor, "batch files schemata dim"]
    ) -> Float[Tensor, "batch files schemata"]:
        """How well each candidate fits what the file asks for."""
        query = self.query(hidden) * self.scale
        # query . (candidate We_j) = (query We_j') . candidate: one product less wide than the keys of all candidates
        weight = self.keys.weight.unflatten(0, (-1, query.shape[-1])).to(query.dtype)
        asked = torch.einsum("bfk,skd->bfsd", query, weight)
        return (asked * candidates).sum(dim=-1)

    def forward(
        self,
        read: Float[Tensor, "batch files input_dim"],
        hidden: Float[Tensor, "batch files dim"],
        noise: Float[Tensor, "batch files schemata"] | None = None,
    ) -> tuple[Float[Tensor, "batch files dim"], Float[Tensor, "batch files schemata"]]:
        """(the states after the step, which schema each file took, one-hot)."""
        candidates = self.candidates(read, hidden)
        scores = self.scores(hidden, candidates)
        scores = scores if noise is None else scores + noise
        chosen = F.one_hot(scores.argmax(dim=-1), self.num_schemata).to(candidates.dtype)
        after = torch.einsum("bfs,bfsd->bfd", chosen, candidates)
        if torch.is_grad_enabled():
            soft = (scores / self.temperature).softmax(dim=-1).to(candidates.dtype)
            # adds zero, with the gradient of the softmax
            after = after + torch.einsum("bfs,bfsd->bfd", soft - soft.detach(), candidates.detach())
        return after, chosen


class ObjectFiles(SlotInputs):
    """What `SCOFF` and `ALTSCOFF` share: `units` is a `Schemata`.

    Attributes:
        sample_in_evaluation: whether the choice of a schema is drawn in evaluation too, by clip and step.
    """

    units: Schemata
    sample_in_evaluation: bool = False

    @property
    def temperature(self) -> float:
        """Temperature of the softmax that trains the choice; may be set at any time, to anneal it."""
        return self.units.temperature

    @temperature.setter
    def temperature(self, value: float) -> None:
        if not value > 0:
            raise ValueError(f"temperature={value}: give a positive number, such as 0.5")
        self.units.temperature = value

    def _draws(self) -> bool:
        return super()._draws() or self.training or self.sample_in_evaluation

    def per_step(self, tokens: Float[Tensor, "batch time tokens token_dim"], draws: Draws | None = None) -> RIMInputs:
        """As for `OCRIM`, and the noise of the choices."""
        inputs = super().per_step(tokens, draws)
        if not (self.training or self.sample_in_evaluation):
            return inputs
        draws = start_of_draws(len(tokens), tokens.device) if draws is None else draws
        shape, like = (self.slot_spec.num_slots, self.units.num_schemata), self.units.query.weight
        noise = noise_of_steps(shape, tokens.shape[1], draws, like, anew=self.training, kind="gumbel")
        return inputs._replace(noise=noise)

    def _update(
        self, read: Float[Tensor, "batch slots value_dim"], state: RIMState, noise: Tensor | None
    ) -> tuple[RIMState, dict[str, Tensor]]:
        hidden, chosen = self.units(read, state.hidden, noise)
        return state._replace(hidden=hidden), {"schemata": chosen}
