"""COCO's run lengths: what pycocotools writes is read, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from clevrer_files import pack
from hypothesis import given
from hypothesis import strategies as st

from slotbench.data.clevrer.videos import decode_coco_runs


@pytest.mark.parametrize(
    ("text", "height", "width", "bits"),
    [("01", 1, 1, "80"), ("6", 2, 3, "00"), ("132N013OO0N", 4, 6, "0a9e20"), ("31;", 3, 5, "4000")],
)
def test_what_pycocotools_has_written_is_read(text: str, height: int, width: int, bits: str) -> None:
    expected = np.unpackbits(np.frombuffer(bytes.fromhex(bits), np.uint8))[: height * width].reshape(height, width)
    np.testing.assert_array_equal(decode_coco_runs(text, height, width), expected)


@given(st.integers(1, 40), st.integers(1, 40), st.randoms(use_true_random=False), st.floats(0, 1))
def test_any_mask_comes_back(height: int, width: int, random, share: float) -> None:
    mask = np.array([random.random() < share for _ in range(height * width)]).reshape(height, width)
    np.testing.assert_array_equal(decode_coco_runs(pack(mask), height, width), mask)


@pytest.mark.parametrize("counts", ["132N013OO0M", "1 2", "0" * 1000, [-1, 25], [1 << 80], [24, 24]])
def test_what_is_no_mask_is_refused(counts) -> None:
    with pytest.raises(ValueError, match="do not add up"):
        decode_coco_runs(counts, 4, 6)
