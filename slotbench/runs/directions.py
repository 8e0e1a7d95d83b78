"""Which way a score is better, as far as its name says it."""

from __future__ import annotations

import re

__all__ = ["higher_is_better"]

_LOWER = frozenset(
    {"loss", "mse", "bce", "nll", "rmse", "rel", "lpips", "fvd", "error", "switches", "misses", "milliseconds"}
)
_HIGHER = frozenset({"accuracy", "iou", "miou", "ari", "mbo", "psnr", "ssim", "r2", "mota", "motp", "ahead"})


def higher_is_better(name: str) -> bool | None:
    """Whether more of it is better, by the words of its name; None if they do not say, or say both.

    >>> higher_is_better("val/rollout_mse/first_8"), higher_is_better("val/fg_ari/video"), higher_is_better("val/depth")
    (False, True, None)
    """
    words = set(re.split(r"[/_\W]+", name.lower()))
    directions = {False} if words & _LOWER else set()
    directions |= {True} if words & _HIGHER else set()
    return directions.pop() if len(directions) == 1 else None
