"""Every cell becomes a token by itself."""

from __future__ import annotations

import torch

from slotbench.interfaces import TokenSpec, VideoBatch, VideoSpec
from slotbench.registry import load

MLPEncoder = load("encoders", "MLPEncoder")
FEATURES = VideoSpec(channels=6, height=2, width=3)


def batch_of(frames):
    return VideoBatch(frames, torch.zeros(frames.shape[:2], dtype=torch.long))


def test_a_token_is_the_mlp_of_its_cell_row_by_row():
    torch.manual_seed(0)
    encoder, frames = MLPEncoder(FEATURES, dim=4, hidden_dim=5), torch.randn(2, 2, 6, 2, 3)
    assert encoder.token_spec == TokenSpec(dim=4, num_tokens=6, grid=(2, 3))
    norm, expand, _, contract = encoder.mlp
    tokens = encoder(batch_of(frames))
    cell = frames[1, 0, :, 1, 2]
    normed = (cell - cell.mean()) / (cell.var(unbiased=False) + 1e-5).sqrt() * norm.weight + norm.bias
    hidden = (expand.weight @ normed + expand.bias).relu()
    torch.testing.assert_close(tokens[1, 0, 5], contract.weight @ hidden + contract.bias)
