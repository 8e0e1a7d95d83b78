"""Vector quantisation: the nearest rows, the gradient that passes the choice, and quantisers."""

from __future__ import annotations

import torch

from slotbench.nn.vector_quantisation import CosineQuantiser, code_rows, nearest_codes, straight_through


def test_a_cell_takes_the_row_of_the_least_distance_and_no_gradient_comes_of_it():
    torch.manual_seed(0)
    maps, codebook = torch.randn(2, 4, 3, 5, dtype=torch.float64), torch.randn(7, 4, dtype=torch.float64)
    maps.requires_grad_(True)
    codebook.requires_grad_(True)
    codes = nearest_codes(maps, codebook)
    distances = torch.cdist(maps.movedim(1, -1).reshape(-1, 4), codebook)
    assert torch.equal(codes.flatten(), distances.argmin(1))
    rows = code_rows(codes, codebook)
    assert rows.shape == maps.shape
    assert torch.equal(rows[1, :, 2, 4], codebook[codes[1, 2, 4]])


def test_codes_are_those_of_float32_under_autocast():
    torch.manual_seed(0)
    maps, codebook = torch.randn(8, 4, 16, 16), torch.randn(64, 4)
    expected = nearest_codes(maps, codebook)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(nearest_codes(maps, codebook), expected)


def test_straight_through_has_the_value_of_the_rows_and_the_gradient_of_the_maps():
    torch.manual_seed(0)
    maps, rows = (torch.randn(2, 4, 3, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    passed, weights = straight_through(maps, rows), torch.randn(2, 4, 3, 3, dtype=torch.float64)
    torch.testing.assert_close(passed, rows)
    (weights * passed.square()).sum().backward()
    torch.testing.assert_close(maps.grad, 2 * weights * rows.detach())
    assert rows.grad is None


def quantiser():
    torch.manual_seed(0)
    return CosineQuantiser(6, num_codes=9, code_dim=4, commitment_weight=0.25).double()


def unit(vector):
    return vector / vector.square().sum().sqrt()


def test_cosine_quantiser_is_a_readable_loop():
    part, vectors = quantiser(), torch.randn(2, 3, 5, 6, dtype=torch.float64)
    out = part(vectors)
    codebook, commitment = [], []
    for place in torch.cartesian_prod(torch.arange(2), torch.arange(3), torch.arange(5)):
        given = unit(part.project_in.weight @ vectors[*place])
        code = int(torch.stack([given @ unit(row) for row in part.codebook]).argmax())
        row = unit(part.codebook[code])
        assert out.codes[*place] == code
        torch.testing.assert_close(out.vectors[*place], part.project_out.weight @ row)
        codebook.append(0.5 * (given - row).square().mean())
        commitment.append(0.25 * 0.5 * (given - row).square().mean())
    torch.testing.assert_close(out.losses["codebook"], torch.stack(codebook).mean())
    torch.testing.assert_close(out.losses["commitment"], torch.stack(commitment).mean())
    torch.testing.assert_close(part.embed(out.codes), out.vectors)


def test_codebook_moves_by_its_own_term_and_vectors_by_commitment_and_what_follows():
    part, vectors = quantiser(), torch.randn(7, 6, dtype=torch.float64, requires_grad=True)
    out = part(vectors)
    moves = {term: out.losses[term] for term in ("codebook", "commitment")} | {"what follows": out.vectors.sum()}
    pair = part.codebook, vectors
    found = {
        name: torch.autograd.grad(term, pair, retain_graph=True, allow_unused=True) for name, term in moves.items()
    }
    moved = {name: [gradient is not None for gradient in pair] for name, pair in found.items()}
    assert moved == {"codebook": [True, False], "commitment": [False, True], "what follows": [False, True]}
    assert all(gradient.abs().max() > 0 for pair in found.values() for gradient in pair if gradient is not None)


def test_papers_codebook_has_the_parameters_of_its_sizes():
    part = CosineQuantiser(64, num_codes=1024)
    assert sum(parameter.numel() for parameter in part.parameters()) == 1024 * 32 + 64 * 64
