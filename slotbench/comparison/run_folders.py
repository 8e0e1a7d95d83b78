"""Run folders read as records of a comparison, quickly and whatever state they are in."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from slotbench.comparison.flat_settings import flat_settings
from slotbench.comparison.metric_rows import last_values, number, read_curves
from slotbench.comparison.records import ComparisonError, RunRecord
from slotbench.runs.folder import CONFIG, METRICS, RECORD, RunFolder

__all__ = ["find_run_folders", "read_run_folder"]

RESULT, POINT = "result.json", "point.json"
_PICTURES = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp", ".mp4", ".webm"})
_DEPTH = 3
# ten times as fast, where libyaml is there
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def find_run_folders(folder: Path) -> Iterator[Path]:
    """Run folders at or below a folder, three levels deep at most, and what looks like one without its record."""
    yield from _find(folder, _DEPTH)


def _find(folder: Path, depth: int) -> Iterator[Path]:
    if any((folder / name).is_file() for name in (RECORD, METRICS, POINT)):
        yield folder
        return
    if depth == 0:
        return
    with os.scandir(folder) as entries:
        # a hidden folder is a run that is just being made
        below = sorted(entry.path for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    for path in below:
        yield from _find(Path(path), depth - 1)


def read_run_folder(path: Path) -> RunRecord:
    """A run as it is on disk now, finished or not.

    What can be done without is left empty and named in `info["problem"]`: a configuration that is not there, metrics
    that are not there yet.

    Raises:
        ComparisonError: the folder has no record, or half of one.
    """
    info = _json(path / RECORD)
    if info is None:
        there = (path / RECORD).is_file()
        raise ComparisonError(
            f"{path} is a half-written run: {RECORD} {'is cut off or no JSON' if there else 'is not there'}"
        )
    result = _json(path / RESULT)
    state = str(info.get("state", "unknown"))
    if result is not None:
        state = "finished"
    elif state in ("starting", "running"):
        state = RunFolder(path).state
    settings, problem = _settings(path / CONFIG)
    known = {**info, **(result or {})}
    logged = known.get("metrics")
    summary = _numbers(logged) if isinstance(logged, Mapping) and logged else last_values(path / METRICS)
    best = known.get("best")
    kept = {name: item.get("value") for name, item in best.items() if isinstance(item, Mapping)} if best else {}
    left_out = ("metrics", "best")
    return RunRecord(
        id=str(info.get("id") or path.name),
        name=str(info.get("name") or path.parent.name),
        source=str(path),
        state=state,
        settings=settings,
        summary=summary,
        best=_numbers(kept),
        info={key: value for key, value in known.items() if key not in left_out}
        | ({"problem": problem} if problem else {}),
        curves=partial(_curves, path / METRICS, tuple(summary)),
        media=_media(path / "media"),
    )


def _curves(path: Path, expected: tuple[str, ...], limit: int) -> Mapping[str, Any]:
    return read_curves(path, limit, expected)


def _json(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _settings(path: Path) -> tuple[dict[str, Any], str]:
    """The flat settings, and what is wrong with the file."""
    try:
        config = yaml.load(path.read_bytes(), Loader=_LOADER)
    except FileNotFoundError:
        return {}, f"has no {CONFIG}"
    except yaml.YAMLError:
        return {}, f"{CONFIG} is cut off or no YAML"
    return (flat_settings(config), "") if isinstance(config, dict) else ({}, f"{CONFIG} is empty")


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    read = {str(name): number(value) for name, value in values.items()}
    return {name: value for name, value in read.items() if value is not None}


def _media(folder: Path) -> tuple[Path, ...]:
    if not folder.is_dir():
        return ()
    return tuple(sorted(file for file in folder.rglob("*") if file.suffix.lower() in _PICTURES))
