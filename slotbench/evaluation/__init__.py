"""Evaluation: from masks and frozen slots to numbers.

Masks of files beside the truth (`slotbench score`), masks and answers over clips of several lengths (`--lengths`), and
what frozen slots know of the objects (`slotbench probe`).

Importing the package imports no module, and so no torch: a name does, when it is asked for.
"""

from __future__ import annotations

from slotbench.lazy import lazy_names

_MODULES = {
    "probe_clips": ("Clips", "collect"),
    "probe_factors": ("Factor", "ProbeError", "choose_factors"),
    "probe_heads": ("fit_linear", "fit_mlp"),
    "probing": ("ClipChoice", "FactorScore", "ProbeReport", "ProbeSettings", "probe", "probe_task"),
    "slot_matching": ("match_by_masks", "match_by_position"),
}

__all__, __getattr__, __dir__ = lazy_names(__name__, _MODULES)
