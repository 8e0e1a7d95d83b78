"""The fixtures of runs that are trained to their end."""

from __future__ import annotations

from ended_runs import here, place, whole
from tiny_configs import tiny_components

__all__ = ["here", "place", "tiny_components", "whole"]
