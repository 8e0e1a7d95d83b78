"""Data sets, which are found by name (`slotbench.build("BouncingBalls")`), and the base classes that they share.

Importing the package imports no module, and so no torch: a name does, when it is asked for. The data sets are not among
the names: the parser would write the shorter path into configurations, which name a data set's own module.
"""

from __future__ import annotations

from slotbench.lazy import lazy_names

_MODULES = {"base": ("ClipDataset", "LoaderOptions", "SlotDataModule")}

__all__, __getattr__, __dir__ = lazy_names(__name__, _MODULES)
