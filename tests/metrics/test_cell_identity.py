"""Which object a cell shows and for how long: worked examples, a slow version, and the errors of the author's code."""

from __future__ import annotations

from itertools import groupby

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from slotbench.metrics.objects.cell_identity import (
    CellIdentity,
    consistency,
    objects_of_cells,
    shift_correlation,
    shuffled_in_time,
)


def squares(*places: tuple[int, int] | None, channels: int = 1, side: int = 12) -> Tensor:
    """Images with a bright square of 4 x 4 pixels each, or none."""
    images = torch.zeros(len(places), channels, side, side)
    for image, place in zip(images, places, strict=True):
        if place is not None:
            image[:, place[0] : place[0] + 4, place[1] : place[1] + 4] = 1
    return images


def slow_correlation(x: Tensor, y: Tensor) -> float:
    """Of two images "channels height width", by cross-correlation as torch has it, with a padding of one."""

    def total(a: Tensor, b: Tensor) -> Tensor:
        return F.conv2d(a[None], b[None], padding=1).sum()

    return float(total(x, y) / (total(x, x) * total(y, y)).sqrt())


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), channels=st.integers(1, 3), height=st.integers(2, 9), width=st.integers(2, 9))
def test_the_correlation_is_that_of_nine_shifts(seed: int, channels: int, height: int, width: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    cells = torch.rand(2, 2, channels, height, width, generator=generator, dtype=torch.float64)
    objects = torch.rand(2, 3, channels, height, width, generator=generator, dtype=torch.float64)
    found = shift_correlation(cells, objects)
    for clip in range(2):
        for k in range(2):
            for o in range(3):
                assert found[clip, k, o].item() == pytest.approx(slow_correlation(cells[clip, k], objects[clip, o]))


def test_a_cell_shows_the_object_it_paints_and_a_dark_cell_the_background() -> None:
    objects = squares((0, 0), (7, 7))
    cells = torch.cat([squares((7, 7)), squares((0, 0)), squares(None), 0.09 * squares((0, 0)), 0.11 * squares((0, 0))])
    assert objects_of_cells(cells, objects).tolist() == [2, 1, 0, 0, 1]
    # an empty layer counts in the mean: the tenth is of half as much then
    with_empty = torch.cat([squares((0, 0)), squares(None)])
    assert objects_of_cells(0.06 * squares((0, 0)), with_empty).tolist() == [1]


def test_an_object_out_of_sight_is_never_shown_but_by_the_authors_rule() -> None:
    objects = torch.cat([squares((0, 0)), squares(None), squares((7, 7)), squares(None)])
    cells = torch.cat([squares((7, 7)), squares((0, 0)), squares(None)])
    assert objects_of_cells(cells, objects).tolist() == [3, 1, 0]
    assert objects_of_cells(cells, objects, "author").tolist() == [2, 2, 0]
    # which is what PyTorch makes of nan
    correlation = shift_correlation(cells, objects)[:2]
    assert (correlation.argmax(-1) + 1).tolist() == [2, 2]
    nothing = squares(None, None)
    assert objects_of_cells(cells, nothing).tolist() == [0, 0, 0]


def test_the_worked_example() -> None:
    acl, mcl = consistency(torch.tensor([[0, 0, 0, 0, 0, 0, 4, 4, 4, 5]]))
    assert acl.item() == pytest.approx((5 / 9 + 2 / 9) / 2)
    assert mcl.item() == pytest.approx(5 / 9)


@given(st.lists(st.lists(st.integers(0, 2), min_size=7, max_size=7), min_size=1, max_size=5))
def test_runs_are_those_of_groupby_and_sequences_do_not_meet(sequences: list[list[int]]) -> None:
    acl, mcl = consistency(torch.tensor(sequences))
    for ids, one, other in zip(sequences, acl.tolist(), mcl.tolist(), strict=True):
        lengths = [len(list(run)) for _, run in groupby(ids)]
        long = [(length - 1) / 6 for length in lengths if length >= 2]
        assert one == pytest.approx(sum(long) / len(long) if long else 0.0)
        assert other == pytest.approx((max(lengths) - 1) / 6)


def test_the_authors_rule_loses_the_last_run_of_those_that_switch_most() -> None:
    ids = torch.tensor([[1, 1, 2, 2, 2], [1, 1, 1, 1, 1], [1, 2, 2, 2, 2]])
    acl, mcl = consistency(ids, "author")
    assert acl.tolist() == pytest.approx([0.25, 1.0, float("nan")], nan_ok=True)
    assert mcl.tolist() == pytest.approx([0.25, 1.0, 0.0])
    # without a switch anywhere there is nothing left
    assert all(value.isnan().all() for value in consistency(ids[1:2], "author"))
    # alone, the second loses nothing of its own; the corrected rule never does
    assert consistency(ids)[1].tolist() == pytest.approx([0.5, 1.0, 0.75])


def test_shuffling_keeps_what_each_sequence_shows_and_breaks_its_runs() -> None:
    ids = torch.arange(50)[:, None] + (torch.arange(10) >= 5).long()
    shuffled = shuffled_in_time(ids)
    assert torch.equal(shuffled.sort(1).values, ids.sort(1).values)
    assert torch.equal(shuffled, shuffled_in_time(ids))
    assert consistency(shuffled)[1].mean() < 0.6 * consistency(ids)[1].mean()


def test_the_metric_is_the_mean_over_cells_and_clips_whatever_the_batches() -> None:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 3, (7, 6, 4), generator=generator)
    whole, parts = CellIdentity(), CellIdentity()
    whole.update(ids)
    for part in ids.split(3):
        parts.update(part)
    acl, mcl = consistency(ids.movedim(1, 2).flatten(0, 1))
    for metric in (whole, parts):
        found = metric.compute()
        assert found["acl"].item() == pytest.approx(acl.mean().item())
        assert found["mcl"].item() == pytest.approx(mcl.mean().item())
        assert found["object_share"].item() == pytest.approx((ids > 0).double().mean().item())
    dead = CellIdentity()
    dead.update(torch.zeros(2, 6, 4, dtype=torch.long))
    found = dead.compute()
    assert (found["acl"], found["object_share"]) == (1, 0)
