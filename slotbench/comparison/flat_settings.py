"""A configuration as flat settings, the same whether it was read from YAML or from a logger's JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["flat_settings"]

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

    >>> flat_settings({"model": {"core": {"class_path": "RIM", "init_args": {"top_k": 4.0}}}, "seed_everything": 0})
    {'model.core': 'RIM', 'model.core.top_k': 4, 'seed_everything': 0}
    """
    flat: dict[str, Any] = {}
    for key, value in config.items():
        _flatten(str(key), value, flat)
    return flat


def _flatten(key: str, value: Any, flat: dict[str, Any]) -> None:
    if not isinstance(value, Mapping) or not value:
        flat[key] = _settled(value)
        return
    inner: Mapping[str, Any] = value
    if isinstance(path := value.get("class_path"), str):
        flat[key] = _class_name(path)
        inner = {**(value.get("init_args") or {}), **(value.get("dict_kwargs") or {})}
    for name, item in inner.items():
        _flatten(f"{key}.{name}", item, flat)


def _class_name(path: str) -> str:
    return path.rpartition(".")[2] if path.startswith(_SHORT) else path


def _settled(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _settled(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_settled(item) for item in value]
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        # beyond this a float does not hold every whole number, and keeps its exponent when printed
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    return value
