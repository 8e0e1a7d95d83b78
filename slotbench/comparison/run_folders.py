"""Run folders read as records of a comparison, quickly and whatever state they are in."""

from __future__ import annotations

import contextlib
import os
import re
import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from slotbench.comparison.absence import over_absence
from slotbench.comparison.evaluations import read_evaluations
from slotbench.comparison.metric_rows import last_values, read_curves
from slotbench.comparison.records import ComparisonError, Curve, RunDetails, RunRecord
from slotbench.comparison.settings import flat_settings
from slotbench.errors import FileError
from slotbench.files import is_inside, own_file, read_json, regular_files
from slotbench.records import numbers, valid_part
from slotbench.runs.folder import CONFIG, METRICS, RECORD, RunFolder
from slotbench.runs.grid_record import PointRecord
from slotbench.runs.run_info import RunInfo
from slotbench.yaml_files import read_yaml

__all__ = ["find_run_folders", "images_in", "read_run_folder"]

RESULT, POINT = "result.json", "point.json"
_MEDIA = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp", ".mp4", ".webm"})
_DEPTH = 3
_AT_LENGTH = re.compile(r"lengths/(\d{1,4})T/(.+)")


def find_run_folders(folder: Path) -> Iterator[Path]:
    """Run folders at or below a folder, three levels deep at most, and what looks like one without its record."""
    yield from _find(folder, _DEPTH)


def _find(folder: Path, depth: int) -> Iterator[Path]:
    if any(os.path.isfile(folder / name) for name in (RECORD, METRICS, POINT)):
        yield folder
        return
    if depth == 0:
        return
    try:
        with os.scandir(folder) as entries:
            # a hidden folder is a run that is just being made
            below = sorted(entry.path for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        warnings.warn(f"{folder} is left out: {error.strerror or error}", stacklevel=2)
        return
    for path in below:
        yield from _find(Path(path), depth - 1)


def read_run_folder(path: Path) -> RunRecord:
    """A run as it is on disk now, finished or not.

    What can be done without is left empty and named in `info["problem"]`: a configuration that is not there, metrics
    that are not there yet.

    Raises:
        ComparisonError: the folder has no record, or half of one.
    """
    info = _record(path)
    result, problems = _result(path)
    state = info.get("state", "unknown")
    if result is not None:
        # that it has diverged is how a run may come to its end
        state = "diverged" if "diverged" in (result.get("state"), state) else "finished"
    elif state in ("starting", "running"):
        state, doubt = _state_now(path, state)
        problems += [doubt] if doubt else []
    settings, problem = _settings(path)
    chained = _chained(path)
    settings = {key: value for key, value in settings.items() if key != chained}
    known: RunDetails = {**info, **(result or {})}
    logged = known.pop("metrics", None)
    summary, lost = (numbers(logged), "") if logged else _logged(path)
    best = known.pop("best", {})
    media, hidden = _media(path)
    evaluations = read_evaluations(path)
    problems = [text for text in (*problems, problem, lost, hidden, *evaluations.problems) if text]
    known.pop("problem", None)
    if problems:
        known["problem"] = "; ".join(problems)
    return RunRecord(
        id=info.get("id") or path.name,
        name=info.get("name") or path.parent.name,
        source=str(path),
        state=state,
        settings=settings,
        # what was logged counts where both say it
        summary={**evaluations.scores, **summary},
        best=numbers({name: item["value"] for name, item in best.items()}),
        info=known,
        curves=partial(_curves, path, summary, evaluations.scores),
        media=media,
        scored_by=evaluations.scored_by,
    )


def _record(path: Path) -> RunInfo:
    if not os.path.lexists(path / RECORD):
        raise ComparisonError(f"{path} is a half-written run: {RECORD} is not there")
    try:
        return valid_part(read_json(own_file(path, RECORD)), RunInfo, path / RECORD)
    except FileError as error:
        raise ComparisonError(f"{path} is a half-written run: {RECORD} is cut off or no JSON: {error}") from error


def _result(path: Path) -> tuple[RunInfo | None, list[str]]:
    """What the run came to, if it has come to its end, and what is wrong with the file."""
    if not os.path.lexists(path / RESULT):
        return None, []
    try:
        return valid_part(read_json(own_file(path, RESULT)), RunInfo, path / RESULT), []
    except FileError as error:
        return None, [f"counts as not finished: {error}"]


def _state_now(path: Path, state: str) -> tuple[str, str]:
    """The state of a run that says it trains, and why it counts as stopped if that is not certain."""
    try:
        found = RunFolder(path).standing
    except (FileError, OSError):
        return state, ""
    return found.state, f"counts as killed: {found.words}" if found.words else ""


def _logged(path: Path) -> tuple[dict[str, float], str]:
    try:
        return last_values(own_file(path, METRICS)), ""
    except FileError as error:
        return {}, f"has no scores: {error}"


def _curves(path: Path, summary: Mapping[str, float], scores: Mapping[str, float], limit: int) -> Mapping[str, Curve]:
    over_others = _over_lengths(scores) | _as_curves(over_absence(summary))
    try:
        return {**read_curves(own_file(path, METRICS), limit, tuple(summary)), **over_others}
    except FileError as error:
        warnings.warn(f"a run without curves: {error}", stacklevel=2)
        return over_others


def _over_lengths(scores: Mapping[str, float]) -> dict[str, Curve]:
    """Scores of clips of several lengths, "lengths/4T/NAME", as curves "lengths/NAME" over the length."""
    points: dict[str, dict[int, float]] = {}
    for name, value in scores.items():
        if match := _AT_LENGTH.fullmatch(name):
            points.setdefault(f"lengths/{match[2]}", {})[int(match[1])] = value
    return _as_curves(points)


def _as_curves(points: Mapping[str, Mapping[int, float]]) -> dict[str, Curve]:
    """Those that have more than one point."""
    return {
        name: (np.array(sorted(found), dtype=float), np.array([found[place] for place in sorted(found)]))
        for name, found in points.items()
        if len(found) > 1
    }


def _settings(path: Path) -> tuple[dict[str, Any], str]:
    """The flat settings, and what is wrong with the file."""
    if not os.path.lexists(path / CONFIG):
        return {}, f"has no {CONFIG}"
    try:
        config = read_yaml(own_file(path, CONFIG))
    except FileError as error:
        return {}, f"has no settings, {CONFIG} is cut off or no YAML: {str(error).splitlines()[0]}"
    if not isinstance(config, dict):
        return {}, f"{CONFIG} is empty" if config is None else f"{CONFIG} holds no settings"
    try:
        return flat_settings(config), ""
    except FileError as error:
        return {}, f"{CONFIG} {error}"


def _chained(path: Path) -> str | None:
    """The setting that names the run that a point of a chain starts from, another one for each point."""
    with contextlib.suppress(FileError):
        return valid_part(read_json(own_file(path, POINT)), PointRecord).get("into")
    return None


def _media(path: Path) -> tuple[tuple[Path, ...], str]:
    folder = path / "media"
    if not os.path.isdir(folder):
        return (), ""
    if not is_inside(path, folder):
        return (), "has no media: its media folder is a link that leads out of the run's"
    try:
        return images_in(folder), ""
    except (FileError, OSError) as error:
        return (), f"has no media: {error}"


def images_in(folder: Path) -> tuple[Path, ...]:
    """The images and videos at or below a folder that are regular files in it, and no links to elsewhere.

    Raises:
        FileError: there are far too many files.
    """
    return tuple(file for file in regular_files(folder, "**/*") if file.suffix.lower() in _MEDIA)
