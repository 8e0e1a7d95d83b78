"""What `grid.json` holds, by name and type: the record of a grid in the folder of its runs."""

from __future__ import annotations

from typing import Any, Required, TypedDict

from slotbench.runs.run_info import PluginEntry

__all__ = ["GridRecord", "PointEntry", "PointRecord", "ProtocolEntry"]


class PointRecord(TypedDict, total=False):
    """What `point.json` holds, in the folder of a point."""

    id: str
    fingerprint: str
    after: str
    into: str


class PointEntry(TypedDict, total=False):
    """A point of the grid."""

    id: Required[str]
    stage: str


class ProtocolEntry(TypedDict, total=False):
    """The setting that is chosen for each variant, and what was chosen."""

    choose: Required[str]
    values: list[Any]
    seed: Any
    by: str
    at: dict[str, Any]
    variants: list[dict[str, Any]]


class GridRecord(TypedDict, total=False):
    """The record of a grid; every entry may be absent."""

    name: str
    file: str
    version: str
    metrics: list[str]
    extra: list[str]
    axes: list[str]
    options: list[str]
    checked: list[str]
    starts: list[str]
    plugins: list[PluginEntry]
    points: list[PointEntry]
    protocol: ProtocolEntry
