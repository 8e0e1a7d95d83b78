"""What a run's record says, field by field as it has to be: records are written by other versions, and by strangers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["checked_record", "numbers", "real", "whole"]

_WHOLE = ("step", "total_steps", "diverged_at", "epoch")
_AMOUNTS = ("seconds", "seconds_per_step")
_WORDS = (
    *("id", "name", "group", "state", "device", "accelerator", "error", "created", "command", "problem"),
    *("wandb_id", "project", "job_type", "host"),
)
# more than this no double holds exactly, and no run has
_MOST = 2**53
_MOST_NUMBERS = 20_000


def checked_record(given: Mapping[str, Any]) -> dict[str, Any]:
    """The record without the fields that a comparison uses and that are not of their type; the others stay."""
    record = {str(key): value for key, value in given.items()}
    for names, reader in ((_WHOLE, whole), (_AMOUNTS, _amount), (_WORDS, _word)):
        for name in names:
            if name in record and (value := reader(record.pop(name))) is not None:
                record[name] = value
    if "parameters" in record:
        parts = record.pop("parameters")
        counts = {str(part): whole(count) for part, count in parts.items()} if isinstance(parts, Mapping) else {}
        record["parameters"] = {part: count for part, count in counts.items() if count is not None}
    if "headlines" in record:
        headlines = record.pop("headlines")
        record["headlines"] = [
            _headline(item)
            for item in (headlines if isinstance(headlines, list) else [])
            if isinstance(item, Mapping) and isinstance(item.get("metric"), str)
        ]
    if "tags" in record:
        tags = record.pop("tags")
        record["tags"] = [str(tag) for tag in tags] if isinstance(tags, list | tuple) else []
    return record


def numbers(values: Any) -> dict[str, float]:
    """The numbers of a mapping, by name; the first 20,000."""
    if not isinstance(values, Mapping):
        return {}
    read = {str(name): real(value) for name, value in list(values.items())[:_MOST_NUMBERS]}
    return {name: value for name, value in read.items() if value is not None}


def real(value: Any) -> float | None:
    """A logged value as a float, non-finite ones from their words; None for what is no number."""
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and value not in ("NaN", "Infinity", "-Infinity"):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer beyond every float
        return None


def whole(value: Any) -> int | None:
    """A number of steps or of parameters; None for what can be none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value < _MOST and value == int(value) else None


def _amount(value: Any) -> float | None:
    amount = real(value)
    return amount if amount is not None and math.isfinite(amount) and 0 <= amount < _MOST else None


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _headline(item: Mapping[str, Any]) -> dict[str, Any]:
    label, higher, needs = item.get("label"), item.get("higher_is_better"), item.get("needs")
    return {
        "metric": item["metric"],
        "label": label if isinstance(label, str) and label else item["metric"],
        "higher_is_better": higher if isinstance(higher, bool) else None,
        "needs": needs if isinstance(needs, str) else None,
        "floors": numbers(item.get("floors")),
        "oracles": numbers(item.get("oracles")),
    }
