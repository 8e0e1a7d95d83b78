"""Recurrent independent mechanisms, object files and schemata, and their monolithic baseline."""

from slotbench_plugins.cores.rim.alt_scoff import ALTSCOFF
from slotbench_plugins.cores.rim.gru import GRU
from slotbench_plugins.cores.rim.mechanisms import RIMInputs, RIMState
from slotbench_plugins.cores.rim.oc_rim import OCRIM
from slotbench_plugins.cores.rim.rim import RIM
from slotbench_plugins.cores.rim.scoff import SCOFF

__all__ = ["ALTSCOFF", "GRU", "OCRIM", "RIM", "SCOFF", "RIMInputs", "RIMState"]
