"""The fixtures of the tiny components."""

from __future__ import annotations

from tiny_configs import no_curves, tiny_components, workspace

__all__ = ["no_curves", "tiny_components", "workspace"]
