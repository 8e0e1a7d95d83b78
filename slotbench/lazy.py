"""Public names of a package that import their module, and so torch, only when they are asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping

__all__ = ["lazy_names"]


def lazy_names(
    package: str, modules: Mapping[str, Iterable[str]]
) -> tuple[list[str], Callable[[str], object], Callable[[], list[str]]]:
    """`__all__`, `__getattr__` and `__dir__` of a package whose names live in its modules.

    Args:
        package: its `__name__`.
        modules: module of the package -> the names that it provides.
    """
    home = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> object:
        if name not in home:
            raise AttributeError(f"module {package} has no attribute {name}")
        return getattr(importlib.import_module(f"{package}.{home[name]}"), name)

    def listed() -> list[str]:
        return [*vars(importlib.import_module(package)), *home]

    return sorted(home), get, listed
