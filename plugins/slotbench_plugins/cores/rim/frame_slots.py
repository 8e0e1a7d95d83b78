"""Slot Attention on every frame alone, with slots drawn anew for each, as the inputs of recurrent modules."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.interfaces import State
from slotbench.nn.slot_attention import Corrected, SlotCorrector
from slotbench.nn.slot_attention_init import initialise_slot_attention
from slotbench.nn.slot_init import GaussianSlots, LearnedSlots, SlotInit, initial_slots
from slotbench.ops.inverted_attention import Memory
from slotbench_plugins.aggregations.weighted_mean import WeightedMean
from slotbench_plugins.cores.rim.draws import Draws, noise_of_steps, start_of_draws
from slotbench_plugins.cores.rim.mechanisms import Mechanisms, RIMInputs, RIMState

__all__ = ["FrameSlots", "JointCorrector", "SlotInputs", "SlotNorm", "reading_of"]

SlotNorm = Literal["vector", "joint"]
"""What a LayerNorm spans: one vector, with a learned scale, or all vectors of a set together, without."""

EPSILON = 1e-8


def reading_of(assignment: Float[Tensor, "*batch slots tokens"]) -> Float[Tensor, "*batch slots tokens"]:
    """How much of each token is in a slot's mean of the tokens: an assignment scaled to sum to 1 over the tokens."""
    shares = assignment + EPSILON
    return shares / shares.sum(dim=-1, keepdim=True)


class JointNorm(nn.Module):
    """A LayerNorm over all vectors of a set together, without a learned scale."""

    def forward(self, x: Float[Tensor, "*batch vectors dim"]) -> Float[Tensor, "*batch vectors dim"]:
        """Mean 0 and variance 1 over the vectors and their channels."""
        return F.layer_norm(x, x.shape[-2:])


class JointCorrector(SlotCorrector):
    """Slot Attention as the thesis' code has it: norms over a whole set, and a GRU on the normalised slots.

        s = LN(slots);  u = mean of the values, weighted with softmax over slots of k q(s) / sqrt(dim)
        slots = GRU(input u, state s);   slots = slots + MLP(LN(slots))

    The result depends on how many slots there are, and every slot on all others.

    Source: the code of the RIM thesis (Lin, 2022), slot_attn.

    Args:
        dim: width of a slot.
        token_dim: width of a token.
        mlp_ratio: hidden width of the MLP in units of `dim`.
    """

    def __init__(self, dim: int, token_dim: int, mlp_ratio: float):
        super().__init__(dim, token_dim, mlp_ratio=mlp_ratio, aggregation=_mean(dim))
        assert self.mlp is not None
        self.token_norm, self.slot_norm, self.mlp[0] = JointNorm(), JointNorm(), JointNorm()  # type: ignore[assignment]

    def forward(
        self,
        slots: Float[Tensor, "batch slots dim"],
        frame: Float[Tensor, "batch tokens token_dim"] | Memory,
        num_iterations: int,
        statistics: State = None,
    ) -> Corrected:
        """Corrects the slots by a frame: its tokens, or its element of `frames`."""
        assert self.mlp is not None
        assignment = None
        if isinstance(frame, Tensor):
            (frame,) = self.frames(frame[:, None], slots.shape[1], num_iterations)
        for _ in range(num_iterations):
            normed = self.slot_norm(slots)
            updates, assignment, statistics = self.attention(normed, frame, statistics)
            slots = self.gru(self.gru.input_gates(updates), normed)
            slots = slots + self.mlp(slots)
        assert assignment is not None
        return Corrected(slots, assignment, statistics)


class FrameSlots(nn.Module):
    """Slots of every frame, drawn from one learned distribution and corrected by the frame's tokens.

    Nothing is carried from frame to frame, so that all run in parallel. The order of the slots is another in every
    frame. Slots that are not drawn start from one learned vector each (`slot_init`): their order stays.

    Source: RIM thesis (Lin, 2022), section 3.4; Slot Attention (Locatello et al., 2020), Algorithm 1, for "vector".
    Learned starts are ours.

    Args:
        token_dim: width of a token.
        num_slots: slots of a frame.
        dim: width of a slot.
        num_iterations: corrections per frame.
        mlp_dim: hidden width of the MLP.
        norm: "vector" is the original form, "joint" that of the thesis' code, see `JointCorrector`.
        slot_init: where a frame's slots start: a draw for each frame, or the same learned vectors in every frame.
        init: initial weights: those of the authors of Slot Attention ("plain"), or of the thesis' code.
    """

    def __init__(
        self,
        token_dim: int,
        num_slots: int,
        dim: int,
        num_iterations: int = 3,
        mlp_dim: int = 128,
        norm: SlotNorm = "vector",
        *,
        slot_init: SlotInit = "gaussian",
        init: Literal["plain", "thesis"] = "plain",
    ):
        super().__init__()
        self.num_iterations = num_iterations
        self.dim = dim
        self.slots = initial_slots(slot_init, num_slots, dim)
        if norm == "joint":
            self.corrector: SlotCorrector = JointCorrector(dim, token_dim, mlp_dim / dim)
        else:
            self.corrector = SlotCorrector(dim, token_dim, mlp_ratio=mlp_dim / dim, aggregation=_mean(dim))
        if init == "plain":
            initialise_slot_attention("slot_attention", self.slots, self.corrector)
        else:
            self._start_as_the_thesis()

    @torch.no_grad()
    def _start_as_the_thesis(self) -> None:
        """PyTorch's linear layers and GRU, and a standard normal mean and log deviation."""
        for layer in (self.corrector.attention, self.corrector.mlp):
            assert layer is not None
            for part in layer.modules():
                if isinstance(part, nn.Linear):
                    part.reset_parameters()
        bound = self.dim**-0.5
        for parameter in self.corrector.gru.parameters():
            nn.init.uniform_(parameter, -bound, bound)
        if isinstance(self.slots, GaussianSlots):
            nn.init.normal_(self.slots.mean)
            nn.init.normal_(self.slots.log_deviation)

    @property
    def num_slots(self) -> int:
        """Slots of a frame."""
        return self.slots.num_slots

    @property
    def draws(self) -> bool:
        """Whether slots are drawn, from the noise that `forward` takes."""
        return isinstance(self.slots, GaussianSlots)

    def forward(
        self, tokens: Float[Tensor, "batch time tokens token_dim"], noise: Float[Tensor, "batch time slots dim"] | None
    ) -> tuple[Float[Tensor, "batch time slots dim"], Float[Tensor, "batch time slots tokens"]]:
        """(slots, which slot won which token) of all frames at once."""
        if isinstance(self.slots, LearnedSlots):
            slots = self.slots.slots.expand(*tokens.shape[:2], -1, -1).flatten(0, 1)
        else:
            assert noise is not None
            slots = (self.slots.mean + self.slots.log_deviation.exp() * noise).flatten(0, 1)
        slots, assignment, _ = self.corrector(slots, tokens.flatten(0, 1), self.num_iterations)
        return slots.unflatten(0, tokens.shape[:2]), assignment.unflatten(0, tokens.shape[:2])


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

    def per_step(self, tokens: Float[Tensor, "batch time tokens token_dim"], draws: Draws | None = None) -> RIMInputs:
        """Slot attention of all frames, and keys and values of the slots."""
        if self.frame_slots is None:
            return RIMInputs(*self.input_attention.keys_values(tokens))
        noise = None
        if self.frame_slots.draws:
            draws = start_of_draws(len(tokens), tokens.device) if draws is None else draws
            shape = (self.frame_slots.num_slots, self.frame_slots.dim)
            weight = self.input_attention.key.weight
            noise = noise_of_steps(shape, tokens.shape[1], draws, weight, anew=self.training, kind="normal")
        slots, assignment = self.frame_slots(tokens, noise)
        return RIMInputs(*self.input_attention.keys_values(slots), reading_of(assignment), assignment, slots=slots)


def _mean(dim: int) -> WeightedMean:
    return WeightedMean(dim, EPSILON, "entry")
