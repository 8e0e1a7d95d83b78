"""Binary masks as run lengths of COCO: column by column, lengths of runs of 0 and of 1 in turn, often packed into text.

Source: the format of pycocotools (cocodataset/cocoapi). In its packed form a length is a row of characters of six bits,
five of the number each, lowest first, and the sixth says that more follow; from the fourth length on it is
the difference to the last but one.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool

__all__ = ["decode_coco_runs"]

_FIRST, _MORE, _SIGN, _BITS = 48, 0x20, 0x10, 5


def decode_coco_runs(counts: str | list[int], height: int, width: int) -> Bool[np.ndarray, "height width"]:
    """The pixels of a mask, of packed or plain lengths.

    Example:
        >>> decode_coco_runs([1, 2, 3], 2, 3).astype(int)
        array([[0, 1, 0],
               [1, 0, 0]])
    """
    found = _unpacked(counts) if isinstance(counts, str) else counts
    if any(not 0 <= length <= height * width for length in found) or sum(found) != height * width:
        raise ValueError(f"a mask whose runs do not add up to the pixels of {height} x {width}")
    return np.repeat(np.arange(len(found)) % 2 == 1, np.array(found, np.int64)).reshape(width, height).T


def _unpacked(text: str) -> list[int]:
    lengths: list[int] = []
    value = place = 0
    for character in text:
        bits = ord(character) - _FIRST
        value |= (bits & (_MORE - 1)) << (_BITS * place)
        place += 1
        if bits & _MORE:
            continue
        if bits & _SIGN:
            value -= 1 << (_BITS * place)
        lengths.append(value + (lengths[-2] if len(lengths) > 2 else 0))
        value = place = 0
    return lengths
