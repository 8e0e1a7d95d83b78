"""Action-conditioned encoder: the tokens of another encoder, with the action of their step."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from slotbench.interfaces import Encoder, TokenSpec, VideoBatch, VideoSpec
from slotbench.nn.action_embedding import ActionEmbedding, hide_steps
from slotbench_plugins.encoders.patch_encoder import PatchEncoder


class ActionConditionedEncoder(Encoder):
    """Tokens of any encoder beside an embedding of the step's action.

    Tokens of a hidden frame are -2, as in `ResNetEncoder`, which has its own embedding of actions.

    Source: the embedding is that of ConvS5's models of 3D environments (Smith et al., NeurIPS 2023).

    Args:
        video_spec: one step of the input.
        encoder: makes the encoder of the frames.
        action_dim: width of the embedding beside each token.
    """

    hides_frames: ClassVar[bool] = True

    def __init__(
        self,
        video_spec: VideoSpec,
        encoder: Callable[[VideoSpec], Encoder] = PatchEncoder,
        action_dim: int = 16,
    ):
        super().__init__()
        self.encoder = encoder(video_spec)
        tokens = self.encoder.token_spec
        self.token_spec = TokenSpec(tokens.dim + action_dim, tokens.num_tokens, tokens.grid)
        self.actions = ActionEmbedding(video_spec.num_actions, action_dim, vectors=video_spec.vector_actions)

    def forward(self, batch: VideoBatch) -> Float[Tensor, "batch time tokens dim"]:
        """Tokens of every step: those of the encoder, then the action's embedding."""
        return self.actions.beside(hide_steps(self.encoder(batch), batch.hidden), batch.actions)
