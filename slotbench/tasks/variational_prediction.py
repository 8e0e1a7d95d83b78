"""Video prediction by a latent model: trained by the evidence lower bound, evaluated by samples from its prior."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim import AdamW

from slotbench.interfaces import CoreOutput, DataSpec, Decoded, GenerativeCore, PartError, TokenSpec, VideoBatch
from slotbench.tasks.factories import DecoderFactory, EncoderFactory, OptimizerFactory, ScheduleFactory
from slotbench.tasks.frame_losses import at_least_float32, squash
from slotbench.tasks.metric_weights import MetricWeights
from slotbench.tasks.optimisation import Decay, WarmupCosine
from slotbench.tasks.part_checks import check_whole_frames
from slotbench.tasks.rollouts.conditions import RolloutOptions
from slotbench.tasks.rollouts.rollout import PIECE, Feedback, Watch, painted_alone
from slotbench.tasks.rollouts.rollout_task import RolloutTask

__all__ = ["VariationalPrediction"]


class VariationalPrediction(RolloutTask):
    """Learns a latent model of videos (`GenerativeCore`, such as `CWVAE`), and predicts by its prior.

    The loss is the negative evidence lower bound in nats per frame: the negative log likelihood of each frame, a
    Gaussian around the frame decoded from the posterior's slots, plus the core's own terms (`CoreOutput.losses`). In
    evaluation the posterior reads `context` true frames, and the prior goes on for `horizon` frames.

    Source: Saxena, Ba, Hafner, "Clockwork Variational Autoencoders", NeurIPS 2021, and its code.

    Args:
        core: makes a `GenerativeCore` from the encoder's `TokenSpec`.
        deviation: standard deviation of a pixel around the decoded one, in units of white.
    """

    monitor = ("val/rollout_mse", "min")

    def __init__(
        self,
        encoder: EncoderFactory,
        core: Callable[[TokenSpec], GenerativeCore],
        decoder: DecoderFactory,
        optimizer: OptimizerFactory = AdamW,
        schedule: ScheduleFactory = WarmupCosine,
        deviation: float = 1.0,
        rollout: RolloutOptions = RolloutOptions(),
        init_from: str | None = None,
        data_spec: DataSpec | None = None,
        decay: Decay = "matrices",
        metric_weights: MetricWeights = MetricWeights(),
    ):
        super().__init__(encoder, core, decoder, optimizer, schedule, init_from, data_spec, decay)
        check_whole_frames(self.data_spec, "VariationalPrediction continues the frames that it reads", "MovingMNIST")
        if not isinstance(self.core, GenerativeCore):
            raise PartError(f"expected a GenerativeCore, such as CWVAE; got {type(self.core).__name__}")
        if not (math.isfinite(deviation) and deviation > 0):
            raise ValueError(f"deviation is {deviation}; expected a positive number, such as 1.0, in units of white")
        self.deviation = deviation
        self.declare_rollouts(rollout, metric_weights)

    def forward(self, batch: VideoBatch) -> Decoded:
        """Decodes every frame from the posterior's slots; the losses are the core's and the decoder's."""
        output = self.tracked(self.encoded(batch))
        decoded = self.decoded(output.slots, batch)
        return replace(decoded, losses={**decoded.losses, **output.losses})

    def loss(self, output: Decoded, batch: VideoBatch) -> Float[Tensor, ""]:
        """The negative evidence lower bound in nats per frame, the mean over frames and clips."""
        painted = at_least_float32(output.reconstruction)
        error = (painted - batch.pixels.to(painted)).square().mean() / (2 * self.deviation**2)
        surprise = error + math.log(self.deviation) + 0.5 * math.log(2 * math.pi)
        return output.add_losses(surprise * painted[0, 0].numel())

    def frames(self, decoded: Decoded) -> Float[Tensor, "batch time channels height width"]:
        """What the decoder painted, cut off at black and white."""
        return squash(decoded.reconstruction, "mse")

    def _predicted(
        self, batch: VideoBatch, context: int, horizon: int, feedback: Feedback, components: bool, watch: Watch
    ) -> Iterator[Decoded]:
        """Reads the context by the posterior, then draws `horizon` frames by the prior."""
        pieces = [batch.slice_time(at, min(at + PIECE, context)) for at in range(0, context, PIECE)]
        output = self.core(torch.cat([self.encoder(piece) for piece in pieces], dim=1))
        watch(output)

        def go_on(output: CoreOutput) -> Iterator[Decoded]:
            assert isinstance(self.core, GenerativeCore)
            for _ in range(horizon):
                output = self.core.imagine(output.state, 1)
                watch(output)
                decoded = self.decoder(output.slots)
                alone = painted_alone(decoded, self.frames) if components else None
                yield Decoded(self.frames(decoded), decoded.masks, alone)

        return go_on(output)
