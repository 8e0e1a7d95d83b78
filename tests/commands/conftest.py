"""The fixtures of the tiny components, and of runs that are trained to their end."""

from __future__ import annotations

from ended_runs import here, place, whole
from tiny_configs import no_curves, tiny_components, workspace

__all__ = ["here", "no_curves", "place", "tiny_components", "whole", "workspace"]
