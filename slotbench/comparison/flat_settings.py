"""A configuration as flat settings, the same whether it was read from YAML or from a logger's JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from slotbench.errors import FileError

__all__ = ["MOST_SETTINGS", "flat_settings"]

MOST_SETTINGS = 2000
"""Settings that a configuration may have: what compares runs looks at pairs of them."""

_DEPTH, _BITS = 60, 1024

# whose classes the command line takes by their last name
_SHORT = ("slotbench.", "slotbench_plugins.", "torch.optim.")


def flat_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings by the keys that one types on the command line; the order stays.

    A component `{class_path: C, init_args: {a: 1}}` under `key` becomes `key: C` and `key.a: 1`. Classes of ours and of
    torch.optim lose their modules, as on the command line; others keep theirs. Lists stay values, components in them
    included. Numbers become equal in type where they are equal in value (JSON writes 2.0 as 2), and numbers that are
    not finite become words (JSON has none).

    Args:
        config: the nested configuration.

    Raises:
        FileError: it has more than `MOST_SETTINGS` settings.

    >>> flat_settings({"model": {"core": {"class_path": "RIM", "init_args": {"top_k": 4.0}}}, "seed_everything": 0})
    {'model.core': 'RIM', 'model.core.top_k': 4, 'seed_everything': 0}
    """
    flat: dict[str, Any] = {}
    for key, value in config.items():
        _flatten(str(key), value, flat, 1)
    return flat


def _flatten(key: str, value: Any, flat: dict[str, Any], depth: int) -> None:
    if len(flat) >= MOST_SETTINGS:
        raise FileError(f"has more than {MOST_SETTINGS:,} settings; a configuration has fewer")
    if not isinstance(value, Mapping) or not value or depth > _DEPTH:
        flat[key] = _settled(value, depth)
        return
    inner: Mapping[str, Any] = value
    if isinstance(path := value.get("class_path"), str):
        flat[key] = _class_name(path)
        given = [value.get(name) for name in ("init_args", "dict_kwargs")]
        inner = {name: item for part in given if isinstance(part, Mapping) for name, item in part.items()}
    for name, item in inner.items():
        _flatten(f"{key}.{name}", item, flat, depth + 1)


def _class_name(path: str) -> str:
    return path.rpartition(".")[2] if path.startswith(_SHORT) else path


def _settled(value: Any, depth: int) -> Any:
    if depth > _DEPTH and isinstance(value, Mapping | list | tuple):
        return "nested too deeply"
    if isinstance(value, Mapping):
        return {str(key): _settled(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_settled(item, depth + 1) for item in value]
    if isinstance(value, int) and value.bit_length() > _BITS:
        # Python refuses to print an integer of thousands of digits
        return f"an integer of {value.bit_length():,} bits"
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        # beyond this a float does not hold every whole number, and keeps its exponent when printed
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    return value
