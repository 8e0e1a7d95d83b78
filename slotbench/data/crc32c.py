"""The check sum of TFRecord files: CRC-32C (Castagnoli), rotated and shifted as that format wants it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

__all__ = ["masked_crc32c"]

_POLYNOMIAL = 0x82F63B78  # of CRC-32C, lowest bit first
_SHORT = 16  # bytes that are not worth loading a compiler for


def masked_crc32c(data: bytes | memoryview) -> int:
    """The check sum of `data` as a TFRecord file stores it.

    Source: the TFRecord format's description: `((crc >> 15) | (crc << 17)) + 0xa282ead8`, modulo 2^32.
    """
    if len(data) <= _SHORT:
        crc = _crc(bytes(data), _table().tolist())
    else:
        crc = int(_compiled()(np.frombuffer(data, np.uint8), _table()))
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


@lru_cache(maxsize=1)
def _table() -> np.ndarray:
    values = np.arange(256, dtype=np.int64)
    for _ in range(8):
        values = np.where(values & 1, (values >> 1) ^ _POLYNOMIAL, values >> 1)
    return values


@lru_cache(maxsize=1)
def _compiled() -> Callable[..., Any]:
    import numba  # takes half a second, so only those who check wait for it

    return numba.njit(cache=True, nogil=True)(_crc)


def _crc(data: Any, table: Any) -> int:
    crc = 0xFFFFFFFF
    for i in range(len(data)):
        crc = table[(crc ^ data[i]) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF
