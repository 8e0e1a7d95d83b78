"""Modules whose inputs are the slots of each frame, or the tokens."""

from __future__ import annotations

from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import CoreOutput
from slotbench_plugins.cores.rim.draws import Draws, noise_of_steps, start_of_draws
from slotbench_plugins.cores.rim.frame_slots import FrameSlots, reading_of
from slotbench_plugins.cores.rim.mechanisms import Mechanisms, RIMInputs, RIMState

__all__ = ["SlotInputs"]


class SlotInputs(Mechanisms):
    """What `OCRIM`, `SCOFF` and `ALTSCOFF` share: `encoder` is a `FrameSlots`, or None where tokens are the inputs."""

    encoder: nn.Module | None

    @property
    def frame_slots(self) -> FrameSlots | None:
        """The slot attention before the modules, if there is one."""
        return self.encoder if isinstance(self.encoder, FrameSlots) else None

    def initial_state(self, tokens: Float[Tensor, "batch tokens token_dim"]) -> RIMState:
        """States as `initial` says; the clips are numbered where anything is drawn."""
        state = super().initial_state(tokens)
        return state._replace(draws=start_of_draws(len(tokens), tokens.device)) if self._draws() else state

    def _draws(self) -> bool:
        return self.frame_slots is not None and self.frame_slots.draws

    def per_step(  # type: ignore[override]
        self,
        tokens: Float[Tensor, "batch time tokens token_dim"],
        draws: Draws | None = None,
        past: Float[Tensor, "batch inputs input_dim"] | None = None,
    ) -> RIMInputs:
        """Slot attention of all frames, and keys and values of the slots; `past` are those of the frame before."""
        if self.frame_slots is None:
            return RIMInputs(*self.input_attention.keys_values(tokens))
        noise = None
        if self.frame_slots.draws:
            draws = start_of_draws(len(tokens), tokens.device) if draws is None else draws
            shape = (self.frame_slots.num_slots, self.frame_slots.dim)
            weight = self.input_attention.key.weight
            noise = noise_of_steps(shape, tokens.shape[1], draws, weight, anew=self.training, kind="normal")
        if self.frame_slots.past_share is not None:
            return self._inputs(*self.frame_slots.one_by_one(tokens, noise, past))
        return self._inputs(*self.frame_slots(tokens, noise))

    def inputs_of(self, tokens: Float[Tensor, "batch time tokens token_dim"], state: RIMState) -> Any:
        """What the modules read, after the slots that the state holds, if it holds any."""
        return self.per_step(tokens, state.draws, state.inputs) if self._has_past else super().inputs_of(tokens, state)

    def run(self, inputs: Any, state: RIMState) -> CoreOutput:
        """Runs the steps; the last slots of a frame are part of the state where the next ones start from them."""
        output = super().run(inputs, state)
        if self._has_past and inputs.slots is not None:
            output.state = output.state._replace(inputs=inputs.slots[:, -1])
        return output

    @property
    def _has_past(self) -> bool:
        return self.frame_slots is not None and self.frame_slots.past_share is not None

    def _inputs(self, slots: Tensor, assignment: Tensor) -> RIMInputs:
        reading = reading_of(assignment)
        return RIMInputs(*self.input_attention.keys_values(slots), reading, assignment, slots=slots)
