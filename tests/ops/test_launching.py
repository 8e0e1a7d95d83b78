from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slotbench.ops._cuda.launching import blocks, in_rows, multiprocessors, num_spans, power_of_two


def seen_in_rows(x: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """The tensor as a kernel reads it: rows so many elements apart from where it begins; and whether it was copied."""
    batch, time, dim = x.shape
    rows, apart = in_rows(x)
    return torch.as_strided(rows, (batch * time, dim), (apart, 1)).view(x.shape), rows.data_ptr() != x.data_ptr()


@pytest.mark.parametrize(("batch", "time"), [(2, 5), (1, 5), (3, 1), (1, 1)])
def test_a_part_of_a_projection_is_read_where_it_lies(batch, time):
    for part in torch.randn(batch, time, 12).split([3, 4, 5], dim=-1):
        seen, copied = seen_in_rows(part)
        assert torch.equal(seen, part)
        assert not copied


@given(
    sizes=st.tuples(*[st.integers(1, 4)] * 3),
    order=st.permutations([0, 1, 2]),
    step=st.integers(1, 2),
    spread=st.sampled_from([None, 0, 1]),
)
def test_rows_are_right_for_any_strides(sizes, order, step, spread):
    x = torch.randn(*(step * size for size in sizes))[::step, ::step, ::step].permute(order)
    if spread is not None:
        x = x.narrow(spread, 0, 1).expand([3 if axis == spread else size for axis, size in enumerate(x.shape)])
    assert torch.equal(seen_in_rows(x)[0], x)


def test_blocks_cover_and_powers_of_two_are_the_smallest():
    for size in range(1, 70):
        assert (blocks(size, 16) - 1) * 16 < size <= blocks(size, 16) * 16
        power = power_of_two(size)
        assert power.bit_count() == 1
        assert power // 2 < size <= power


H200 = 132  # multiprocessors


@pytest.mark.parametrize(
    ("time", "warps", "spans"),
    [
        (2560, 256, 6),  # 32 sequences x 128 channels x 16 states, 256 of which are one warp's
        (2560, 768, 2),
        (10_000, 64, 24),
        (1_000_000, 1, 12 * H200),
        (300, 768, 1),  # short
        (300, 1, 1),
        (2560, 1000, 1),  # enough of them
        (2560, 10**6, 1),
        (1, 1, 1),
        (2560, 0, 10),  # of an empty batch
    ],
)
def test_few_sequences_of_many_steps_are_cut_into_spans(time, warps, spans):
    assert num_spans(time, warps, H200) == spans


@given(time=st.integers(1, 10**5), warps=st.integers(0, 10**5), multiprocessors=st.integers(0, 200))
def test_spans_are_long_and_no_more_than_the_device_runs_at_once(time, warps, multiprocessors):
    spans = num_spans(time, warps, multiprocessors)
    assert spans >= 1
    assert spans == 1 or (time // spans >= 256 and spans * warps <= 12 * multiprocessors)


def test_off_cuda_a_scan_is_one_span():
    assert num_spans(10**6, 1, multiprocessors(torch.device("cpu"))) == 1
