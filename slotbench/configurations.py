"""Short names of settings, and which settings name files."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

__all__ = ["may_be_path", "shortest_keys"]

_PATHS = re.compile(
    r"(?:\w+_)?(?:paths?|dir|folders?|files?|root|weights|heads|runs?|checkpoint|cache|annotations|digits)"
    r"|init_from|lpips|fvd"
)


def shortest_keys(keys: Sequence[str], taken: Collection[str] = ()) -> dict[str, str]:
    """Whole key -> its shortest ending that no other key has, is not `taken` and no place in a list; else itself.

    >>> shortest_keys(["model.core.dim", "model.encoder.dim", "data.size"])
    {'model.core.dim': 'core.dim', 'model.encoder.dim': 'encoder.dim', 'data.size': 'size'}
    """

    def is_free(end: str, key: str) -> bool:
        if end in taken or end[0].isdigit():
            return False
        return not any(f".{other}".endswith(f".{end}") for other in keys if other != key)

    short = {}
    for key in keys:
        parts = key.split(".")
        ends = (".".join(parts[-count:]) for count in range(1, len(parts) + 1))
        short[key] = next((end for end in ends if is_free(end, key)), key)
    return short


def may_be_path(name: str, text: str) -> bool:
    """Whether the text of a setting of this name may be that of a file or folder."""
    return bool(text) and "://" not in text and (_PATHS.fullmatch(name) is not None or "/" in text)
