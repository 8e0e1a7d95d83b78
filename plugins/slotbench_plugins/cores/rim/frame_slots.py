"""Slot Attention on every frame alone, with slots drawn anew for each, as the inputs of recurrent modules."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from slotbench.interfaces import State, TokenSpec
from slotbench.nn.slot_attention import Corrected, SlotCorrector
from slotbench.nn.slot_attention_init import initialise_slot_attention
from slotbench.nn.slot_init import GaussianSlots, LearnedSlots, SlotInit, initial_slots
from slotbench.ops.inverted_attention import Memory
from slotbench_plugins.aggregations.weighted_mean import WeightedMean

__all__ = ["FrameSlots", "JointCorrector", "PastGradient", "SlotNorm", "frame_slots", "reading_of"]

SlotNorm = Literal["vector", "joint"]
"""What a LayerNorm spans: one vector, with a learned scale, or all vectors of a set together, without."""

PastGradient = Literal["kept", "stopped"]
"""Whether a frame's slots hand a gradient on to those of the frame before, from which they start."""

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

    Nothing is carried from frame to frame, so that all run in parallel, unless a frame's slots start from a mixture of
    what is drawn and the slots of the frame before (`past`). The order of the slots is another in every frame. Slots
    that are not drawn start from one learned vector each (`slot_init`): their order stays, and so does their number.

    Source: RIM thesis (Lin, 2022), section 3.4; Slot Attention (Locatello et al., 2020), Algorithm 1, for "vector".
    Learned starts are ours.

    Args:
        token_dim: width of a token.
        num_slots: slots of a frame.
        dim: width of a slot.
        num_iterations: corrections per frame.
        mlp_dim: hidden width of the MLP.
        norm: "vector" is the original form, "joint" that of the thesis' code, see `JointCorrector`.
        past: whether a frame's slots start from those of the frame before too, with a learned weight.
        past_gradient: whether the gradient goes back through these, or stops, as in the thesis' code.
        slot_init: where a frame's slots start: a draw for each frame, or the same learned vectors in every frame.
        init: initial weights: those of the authors of Slot Attention ("plain"), or of the thesis' code.

    Raises:
        ValueError: a number below 1, or an unknown `norm` or `past_gradient`.
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
        past: bool = False,
        past_gradient: PastGradient = "kept",
        slot_init: SlotInit = "gaussian",
        init: Literal["plain", "thesis"] = "plain",
    ):
        super().__init__()
        if norm not in get_args(SlotNorm):
            raise ValueError(f"no slot_norm named {norm!r}; choose one of {', '.join(get_args(SlotNorm))}")
        if past_gradient not in get_args(PastGradient):
            raise ValueError(
                f"no past_slots_gradient named {past_gradient!r}; choose one of {', '.join(get_args(PastGradient))}"
            )
        for name, value in (("slot_iterations", num_iterations), ("slot_dim", dim), ("slot_mlp_dim", mlp_dim)):
            if value < 1:
                raise ValueError(f"{name}={value}: give at least 1")
        self.num_iterations = num_iterations
        self.dim = dim
        self.slots = initial_slots(slot_init, num_slots, dim)
        if norm == "joint":
            self.corrector: SlotCorrector = JointCorrector(dim, token_dim, mlp_dim / dim)
        else:
            self.corrector = SlotCorrector(dim, token_dim, mlp_ratio=mlp_dim / dim, aggregation=_mean(dim))
        self.past_gradient = past_gradient
        self.past_share = nn.Parameter(torch.zeros(())) if past else None
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
        slots = self._starts(tokens, noise).flatten(0, 1)
        slots, assignment, _ = self.corrector(slots, tokens.flatten(0, 1), self.num_iterations)
        return slots.unflatten(0, tokens.shape[:2]), assignment.unflatten(0, tokens.shape[:2])

    def one_by_one(
        self,
        tokens: Float[Tensor, "batch time tokens token_dim"],
        noise: Float[Tensor, "batch time slots dim"] | None,
        past: Float[Tensor, "batch slots dim"] | None,
    ) -> tuple[Float[Tensor, "batch time slots dim"], Float[Tensor, "batch time slots tokens"]]:
        """The same where the slots of a frame start from those of the frame before, too; `past` are before the first.

        Only the corrections wait for one another: what they read of the tokens is made for all frames at once.
        """
        assert self.past_share is not None
        starts = self._starts(tokens, noise)
        frames = self.corrector.frames(tokens, self.num_slots, self.num_iterations)
        share = self.past_share.sigmoid().to(starts.dtype)
        found = []
        for frame, start in zip(frames, starts.unbind(1), strict=True):
            if past is not None and self.past_gradient == "stopped":
                past = past.detach()
            begin = start if past is None else torch.lerp(start, past, share)
            past, assignment, _ = self.corrector(begin, frame, self.num_iterations)
            found.append((past, assignment))
        slots, assignments = zip(*found, strict=True)
        return torch.stack(slots, dim=1), torch.stack(assignments, dim=1)

    def _starts(
        self, tokens: Float[Tensor, "batch time tokens token_dim"], noise: Float[Tensor, "batch time slots dim"] | None
    ) -> Float[Tensor, "batch time slots dim"]:
        if isinstance(self.slots, LearnedSlots):
            return self.slots.slots.expand(*tokens.shape[:2], -1, -1)
        assert noise is not None
        return self.slots.mean + self.slots.log_deviation.exp() * noise


def frame_slots(
    token_spec: TokenSpec,
    num_inputs: int | None,
    dim: int,
    iterations: int,
    mlp_dim: int,
    norm: SlotNorm,
    slot_init: SlotInit,
) -> FrameSlots | None:
    """Slot attention before a core, or None where its tokens are the inputs."""
    if num_inputs is None:
        return None
    return FrameSlots(token_spec.dim, num_inputs, dim, iterations, mlp_dim, norm, slot_init=slot_init)


def _mean(dim: int) -> WeightedMean:
    return WeightedMean(dim, EPSILON, "entry")
