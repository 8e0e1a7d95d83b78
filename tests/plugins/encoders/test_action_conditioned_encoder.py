"""ActionConditionedEncoder joins tokens and actions, and hides frames."""

from functools import partial

import pytest
import torch

from slotbench.interfaces import VideoBatch, VideoSpec
from slotbench.registry import load

ENCODER = load("encoders", "ActionConditionedEncoder")


def encoder_and_clip(vectors: bool = False):
    torch.manual_seed(0)
    spec = VideoSpec(3, 8, 8, num_actions=5, vector_actions=vectors)
    encoder = ENCODER(spec, partial(load("encoders", "PatchEncoder"), dim=8, patch_size=4), action_dim=4)
    actions = torch.randn(2, 3, 5) if vectors else torch.eye(5)[torch.tensor([[0, 3, 1], [4, 4, 2]])]
    return encoder, VideoBatch(torch.rand(2, 3, 3, 8, 8), torch.arange(3).repeat(2, 1), actions=actions)


@pytest.mark.parametrize("vectors", [False, True])
def test_tokens_are_those_of_the_encoder_beside_the_action(vectors: bool) -> None:
    encoder, batch = encoder_and_clip(vectors)
    tokens, action = encoder(batch).split([8, 4], dim=-1)
    torch.testing.assert_close(tokens, encoder.encoder(batch))
    torch.testing.assert_close(action, (batch.actions @ encoder.actions.table[:-1])[:, :, None].expand_as(action))


def test_the_tokens_of_hidden_frames_say_nothing_of_the_frame() -> None:
    encoder, batch = encoder_and_clip()
    batch.hidden = torch.tensor([[False, True, True], [False, False, True]])
    tokens, action = encoder(batch).split([8, 4], dim=-1)
    assert (tokens[batch.hidden] == -2).all()
    assert not (tokens[~batch.hidden] == -2).any()
    batch.hidden = None
    assert torch.equal(encoder(batch)[..., 8:], action)
