"""Contracts hold every call against the shapes that its annotations say."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module", autouse=True)
def shapes_are_checked(checked_shapes: None) -> None:
    """Of every module here; those that repeat calls take `unchecked_shapes` beside it."""
