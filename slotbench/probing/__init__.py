"""Probing: what frozen slots say about the objects of a clip.

Importing the package imports no module, and so no torch: a name does, when it is asked for.
"""

from __future__ import annotations

from slotbench.lazy import lazy_names

_MODULES = {
    "clips": ("Clips", "collect"),
    "evaluation": ("FactorScore", "ProbeReport", "ProbeSettings", "probe"),
    "factors": ("Factor", "ProbeError", "choose_factors"),
    "heads": ("fit_linear", "fit_mlp"),
    "matching": ("match_by_masks", "match_by_position"),
    "task_probing": ("ClipChoice", "probe_task"),
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _MODULES)
