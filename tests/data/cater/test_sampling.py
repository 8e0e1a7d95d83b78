"""Frames of a clip: in order, within the video, and of the kind that was asked for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotbench.data.cater.cater import Sampling, frame_numbers


@pytest.mark.parametrize("sampling", ["segments", "window", "random"])
@given(count=st.integers(1, 12), more=st.integers(0, 40), training=st.booleans(), seed=st.integers(0, 99))
def test_frames_are_in_order_without_repetition_and_within_the_video(
    sampling: Sampling, count: int, more: int, training: bool, seed: int
) -> None:
    length = count + more
    found = frame_numbers(sampling, np.random.default_rng(seed), length, count, training)
    assert len(found) == count
    assert found[0] >= 0
    assert found[-1] < length
    assert (np.diff(found) > 0).all()
    assert (np.diff(found) == 1).all() or sampling != "window"
    again = frame_numbers(sampling, np.random.default_rng(seed), length, count, training)
    np.testing.assert_array_equal(again, found)
