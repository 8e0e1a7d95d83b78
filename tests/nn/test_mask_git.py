"""MaskGit: its logits, what it masks, its loss and how it samples."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from slotbench.interfaces import SlotSpec, VideoSpec
from slotbench.nn.mask_git import MaskGit, random_masks


def small(**options):
    torch.manual_seed(0)
    settings = {"dim": 16, "num_layers": 2, "num_heads": 2, "code_dim": 8} | options
    return MaskGit(SlotSpec(6, 5, (2, 3)), VideoSpec(11, 2, 3), **settings).double()


def given(frames=4, cells=6, seed=1):
    torch.manual_seed(seed)
    return torch.randint(11, (frames, cells)), torch.randn(frames, cells, 5, dtype=torch.float64)


def transformer_parameters(width_in, dim, hidden, layers):
    layer = 4 * dim + 4 * (dim**2 + dim) + (dim * hidden + hidden) + (hidden * dim + dim)
    return width_in * dim + dim + layers * layer + dim**2 + dim + 2 * dim


@pytest.mark.parametrize(
    ("codes", "condition", "dim", "heads", "layers"),
    [(1024, 512, 512, 8, 8), (1024, 64, 512, 8, 8), (1024, 512, 768, 12, 6), (2048, 512, 1024, 16, 16)],
)
def test_papers_priors_have_the_parameters_of_their_sizes(codes, condition, dim, heads, layers):
    with torch.device("meta"):
        prior = MaskGit(SlotSpec(64, condition, (8, 8)), VideoSpec(codes, 8, 8), dim, layers, heads, code_dim=256)
    expected = (codes + 1) * 256 + transformer_parameters(256 + condition, dim, 4 * dim, layers)
    expected += 8 * dim + (256 * dim + 256) + 512 + codes
    assert sum(parameter.numel() for parameter in prior.parameters()) == expected


def by_hand(prior, codes, condition):
    """Logits of one frame, cell by cell and head by head."""
    norm = lambda x, of: F.layer_norm(x, x.shape[-1:], of.weight, of.bias, 1e-6)  # noqa: E731
    gelu = lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))  # noqa: E731
    cells = []
    for cell, code in enumerate(codes):
        place = torch.cat([prior.rows[cell // 3, 0], prior.cols[0, cell % 3]])
        cells.append(prior.input_map(torch.cat([prior.table[code], condition[cell]])) + place)
    x = torch.stack(cells)
    for layer in prior.layers:
        query, key, value = layer.attention.query_key_value(norm(x, layer.attention_norm)).chunk(3, -1)
        heads = []
        for part in range(2):
            at = slice(8 * part, 8 * part + 8)
            heads.append((query[:, at] @ key[:, at].T / math.sqrt(8)).softmax(-1) @ value[:, at])
        x = x + layer.attention.output(torch.cat(heads, -1))
        hidden = layer.expand(norm(x, layer.mlp_norm))
        x = x + layer.contract(hidden * torch.sigmoid(1.702 * hidden))
    x = norm(gelu(prior.output_map(x)), prior.output_norm)
    x = norm(gelu(prior.head(x)), prior.head_norm)
    return x @ prior.table[:-1].T + prior.bias


def test_logits_are_those_of_a_readable_loop():
    prior, (codes, condition) = small(), given()
    nn.init.normal_(prior.bias)
    codes[0, :3] = prior.mask_id
    expected = torch.stack([by_hand(prior, *one) for one in zip(codes, condition, strict=True)])
    torch.testing.assert_close(prior(codes, condition), expected, rtol=0, atol=1e-12)


def test_masks_have_as_many_cells_as_the_cosine_of_a_uniform_number_says():
    torch.manual_seed(3)
    counts = random_masks(400, 64).sum(1)
    torch.manual_seed(3)
    expected = [max(1, math.floor(math.cos(math.pi / 2 * float(r)) * 64)) for r in torch.rand(400, 1)]
    assert counts.tolist() == expected
    assert counts.min() >= 1
    assert random_masks(50, 1).all()


def test_masked_cells_are_anywhere():
    torch.manual_seed(0)
    masks = random_masks(4000, 9)
    share = masks.double().mean(0)
    assert (share - share.mean()).abs().max() < 0.04


def test_loss_is_the_mean_of_masked_codes_times_the_cells_and_no_masked_code_is_read():
    prior, (codes, condition) = small(), given()
    torch.manual_seed(7)
    loss = prior.loss(codes, condition)
    torch.manual_seed(7)
    masked = random_masks(*codes.shape)
    terms = []
    for frame, mask in enumerate(masked):
        seen = torch.where(mask, torch.tensor(11), codes[frame])
        logits = by_hand(prior, seen, condition[frame])
        terms += [-logits[cell].log_softmax(-1)[codes[frame, cell]] for cell in range(6) if mask[cell]]
    torch.testing.assert_close(loss, 6 * torch.stack(terms).mean())


class Recorded(MaskGit):
    """Notes which cells are masked when logits are asked for."""

    def forward(self, codes, condition):
        self.__dict__.setdefault("seen", []).append(codes == self.mask_id)
        return super().forward(codes, condition)


def test_rounds_fill_in_disjoint_chunks_that_cover_all_cells():
    torch.manual_seed(0)
    prior = Recorded(SlotSpec(12, 5, (3, 4)), VideoSpec(11, 3, 4), 16, draft_chunks=4, revise_chunks=3, revisions=2)
    codes = prior.sample(torch.randn(2, 12, 5))
    assert ((codes >= 0) & (codes < 11)).all()
    seen = prior.seen
    assert len(seen) == 4 + 2 * 3
    assert all(torch.equal(one[0], one[1]) for one in seen)
    assert [int(one[0].sum()) for one in seen[:4]] == [12, 9, 6, 3]
    for first in (4, 7):
        chunks = torch.stack([one[0] for one in seen[first : first + 3]])
        assert (chunks.sum(0) == 1).all()
        assert (chunks.sum(1) == 4).all()


def test_more_chunks_than_cells_are_a_cell_each():
    torch.manual_seed(0)
    prior = Recorded(SlotSpec(2, 5, (1, 2)), VideoSpec(3, 1, 2), 16, draft_chunks=8, revisions=0)
    prior.sample(torch.randn(1, 2, 5))
    assert [int(one.sum()) for one in prior.seen] == [2, 1]


def test_samples_are_those_of_the_seed():
    prior, (_, condition) = small(), given()
    drawn = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        drawn.append(prior.sample(condition))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_samples_follow_a_distribution_that_was_learned():
    """All cells of a frame are alike, and which two codes they may be, the condition says."""
    torch.manual_seed(0)
    prior = MaskGit(SlotSpec(4, 1, (2, 2)), VideoSpec(4, 2, 2), 32, 1, 2, draft_chunks=4, revise_chunks=2)
    optimiser = torch.optim.Adam(prior.parameters(), 3e-3)
    for _ in range(150):
        group = torch.randint(2, (64, 1, 1))
        codes = (2 * group[:, :, 0] + torch.randint(2, (64, 1))).expand(-1, 4)
        optimiser.zero_grad()
        prior.loss(codes, group.float().expand(-1, 4, -1)).backward()
        optimiser.step()
    group = torch.arange(2).repeat(100)
    sampled = prior.sample(group.float()[:, None, None].expand(-1, 4, 1))
    alike = (sampled == sampled[:, :1]).all(1)
    assert alike.float().mean() > 0.95
    assert (sampled[:, 0] // 2 == group).float().mean() > 0.95
