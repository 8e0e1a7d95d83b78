"""The fixtures of the tiny components."""

from __future__ import annotations

from tiny_configs import tiny_components, workspace

__all__ = ["tiny_components", "workspace"]
