"""VQVAE: sizes, moving averages beside loops, and codes that start again."""

from __future__ import annotations

import math
from copy import deepcopy

import pytest
import torch
from slotbench_plugins.tokenizers.vqvae import VQVAE

from slotbench.interfaces import VideoSpec
from slotbench.nn.parameters import trainable_parameters

FRAME = VideoSpec(channels=3, height=12, width=24)


def vqvae(**arguments):
    torch.manual_seed(0)
    small = {"num_codes": 6, "embedding_dim": 4, "channels": 8, "residual_channels": 4, "num_blocks": 1}
    return VQVAE(FRAME, **small | arguments).double()


def frames(batch=4):
    return torch.rand(batch, 2, 3, 12, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("strides", [(1,), (2,), (3,), (2, 2), (4, 3), (1, 2, 3)])
def test_strides_multiply_to_the_side_of_a_cell(strides):
    model, cell = vqvae(strides=strides), math.prod(strides)
    found = model(frames())
    assert (model.code_spec.height, model.code_spec.width) == (12 // cell, 24 // cell)
    assert found.codes.shape == (4, 2, 12 // cell, 24 // cell)
    assert found.reconstruction.shape == (4, 2, 3, 12, 24)


def test_the_default_is_of_laptop_size():
    def conv(before, after, size):
        return before * after * size**2 + after

    blocks = 2 * (conv(96, 32, 3) + conv(32, 96, 1))
    encoder = conv(3, 48, 4) + conv(48, 96, 4) + conv(96, 96, 3) + blocks + conv(96, 64, 1)
    decoder = conv(64, 96, 3) + blocks + conv(96, 48, 4) + conv(48, 3, 4)
    count = trainable_parameters(VQVAE(VideoSpec(3, 32, 32)))["total"]
    assert count == encoder + decoder == 420_291


def test_the_codebook_follows_by_averages_as_loops_have_them():
    model = vqvae(ema_decay=0.7, smoothing=0.1, restart_below=0.0)
    model(frames())  # the codebook starts
    counts, sums = model.counts.clone(), model.sums.clone()
    for step in range(3):
        given = frames() * (step + 1) / 3
        with torch.no_grad():
            vectors = model.encoder(given.flatten(0, 1)).movedim(1, -1).reshape(-1, 4)
        codes = [int((vector - model.codebook).square().sum(1).argmin()) for vector in vectors]
        for code in range(6):
            own = [vector for vector, chosen in zip(vectors, codes, strict=True) if chosen == code]
            counts[code] = 0.7 * counts[code] + 0.3 * len(own)
            sums[code] = 0.7 * sums[code] + 0.3 * sum(own, start=torch.zeros(4, dtype=torch.float64))
        model(given)
        total = counts.sum()
        for code in range(6):
            smoothed = (counts[code] + 0.1) / (total + 6 * 0.1) * total
            torch.testing.assert_close(model.codebook[code], sums[code] / smoothed)
    torch.testing.assert_close(model.counts, counts)


def test_the_commitment_draws_vectors_to_rows_that_have_no_gradient():
    model = vqvae(commitment_weight=0.5).eval()
    found = model(frames())
    maps = model.encoder(frames().flatten(0, 1))
    rows = model.codebook[found.codes.flatten(0, 1)].movedim(-1, 1)
    torch.testing.assert_close(found.losses["commitment"], 0.5 * (maps - rows).square().mean())
    assert not model.codebook.requires_grad


def test_the_first_step_takes_rows_from_its_batch():
    model = vqvae()
    with torch.no_grad():
        vectors = model.encoder(frames().flatten(0, 1)).movedim(1, -1).reshape(-1, 4)
    model._restart_unused(model.encoder(frames().flatten(0, 1)))
    assert (model.codebook[:, None] - vectors).abs().sum(-1).amin(1).max() < 1e-12
    assert len(model.codebook.unique(dim=0)) == 6
    torch.testing.assert_close(model.counts, torch.full((6,), len(vectors) / 6, dtype=torch.float64))


def test_fewer_vectors_than_codes_are_all_taken():
    model = vqvae(num_codes=20, strides=(4, 3))
    maps = model.encoder(frames(1).flatten(0, 1))
    model._restart_unused(maps)
    assert torch.equal(model.codebook.unique(dim=0), maps.movedim(1, -1).reshape(-1, 4).unique(dim=0))


def test_a_code_that_nothing_uses_starts_again_and_the_others_stay():
    model = vqvae(restart_below=0.1)
    model(frames())
    before = deepcopy(model)
    mean = 4 * 2 * 3 * 6 / 6
    with torch.no_grad():
        model.counts.fill_(mean)
        model.counts[2], model.counts[3] = 0.09 * mean, 0.11 * mean
    maps = model.encoder(frames().flatten(0, 1))
    model._restart_unused(maps)
    moved = (model.codebook != before.codebook).any(1)
    assert moved.tolist() == [False, False, True, False, False, False]
    vectors = maps.movedim(1, -1).reshape(-1, 4)
    assert (vectors - model.codebook[2]).square().sum(1).min() == 0
    torch.testing.assert_close(model.sums[2], mean * model.codebook[2])
    assert model.counts[2] == mean
    assert model.counts[3] == 0.11 * mean


def test_encoding_moves_no_average():
    model = vqvae().train()
    model(frames())
    before = deepcopy(model.state_dict())
    model.encode(frames() / 2)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
