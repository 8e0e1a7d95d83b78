"""Data sets by name, `from slotbench.data import BouncingBalls`, and the base classes that they share.

Importing the package imports no module, and so no torch: a name does, when it is asked for. Configurations name a data
set's own module.
"""

from __future__ import annotations

from slotbench.components import names_of
from slotbench.lazy import lazy_names

_MODULES = {"base": ("ClipDataset", "LoaderOptions", "SlotDataModule", "collate")}

__all__, _base, _listed = lazy_names(__name__, _MODULES)
_dataset, _datasets = names_of("datasets", refuse=False)


def __getattr__(name: str) -> object:
    return _base(name) if name in __all__ else _dataset(name)


def __dir__() -> list[str]:
    return [*_listed(), *_datasets()]
