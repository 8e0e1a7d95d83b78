"""Values of settings: as part of a hash, as an argument of a command line, and as a word of a folder's name."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["as_argument", "as_label", "as_word", "canonical", "is_possible", "sha256"]


def is_possible(value: Any) -> bool:
    """Whether a value can be handed over: what JSON can hold, finite."""
    if value is None or isinstance(value, bool | int | str):
        return True
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, list):
        return all(map(is_possible, value))
    return isinstance(value, dict) and all(isinstance(key, str) and is_possible(item) for key, item in value.items())


def canonical(value: Any) -> str:
    """The one JSON text of a value, whatever the order of its keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, default=str)


def sha256(value: Any) -> str:
    """Hash of the canonical text, in hex digits."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def as_argument(value: Any) -> str:
    """The value as one types it on a command line."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def as_label(value: Any) -> str:
    """The value in a word or two, for people; two values may have the same."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return " ".join(map(as_label, value)) or "[]"
    if isinstance(value, Mapping):
        arguments = {key: item for key, item in value.items() if key not in ("class_path", "init_args")}
        arguments |= value.get("init_args") or {}
        words = [str(value["class_path"]).rpartition(".")[2]] if value.get("class_path") else []
        return " ".join([*words, *(f"{key} {as_label(item)}" for key, item in arguments.items())]) or "{}"
    return as_argument(value)


def as_word(label: str, longest: int = 32) -> str:
    """The label as part of a folder's name: letters, digits and _ . + @ -, and no longer than that."""
    return re.sub(r"[^A-Za-z0-9_.+@-]+", "-", label)[:longest] or "-"
