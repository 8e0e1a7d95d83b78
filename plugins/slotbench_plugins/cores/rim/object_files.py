"""Object files: modules whose states are their own, and whose updates all of them share."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from slotbench_plugins.cores.rim.draws import Draws, noise_of_steps, start_of_draws
from slotbench_plugins.cores.rim.mechanisms import RIMInputs, RIMState
from slotbench_plugins.cores.rim.schemata import Schemata
from slotbench_plugins.cores.rim.slot_inputs import SlotInputs

__all__ = ["ObjectFiles"]


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

    def per_step(  # type: ignore[override]
        self, tokens: Float[Tensor, "batch time tokens token_dim"], draws: Draws | None = None
    ) -> RIMInputs:
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
