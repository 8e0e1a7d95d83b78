"""Recurrent independent mechanisms."""

from slotbench_plugins.cores.rim.rim import RIM, RIMInputs, RIMState

__all__ = ["RIM", "RIMInputs", "RIMState"]
