"""Run folders read as lines of a comparison, finished or not."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from slotbench.comparison.runs import FACTS, ComparisonError, Run
from slotbench.comparison.settings import flat_settings
from slotbench.io import numbers, open_file, read_json_object, read_json_object_or_none, read_yaml
from slotbench.metric_info import MetricInfo, infos_from_record
from slotbench.runs.evaluation_place import stage_of_test
from slotbench.runs.folder import RunFolder

__all__ = ["find_run_folders", "newest_media", "read_curves", "read_run_folder"]

_DATED = re.compile(r"(test|lengths)-\d{8}-\d{6}(?:-\d+)?\.json")
_MEDIA = frozenset({".png", ".jpg", ".jpeg", ".gif", ".webp", ".mp4", ".webm"})
_VERSION = re.compile(r"_(latest|step(\d+))$")
_DEPTH = 3


def find_run_folders(folder: Path, depth: int = _DEPTH) -> Iterator[Path]:
    """Run folders at or below a folder, hidden ones left out."""
    if any((folder / name).is_file() for name in ("run.json", "metrics.jsonl", "point.json")):
        yield folder
    elif depth:
        for below in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
            yield from find_run_folders(below, depth - 1)


def read_run_folder(path: Path) -> Run:
    """A run as it is on disk now.

    Raises:
        ComparisonError: the folder has no record.
        FileError: its record, or its configuration, is damaged.
    """
    if not (path / "run.json").is_file():
        raise ComparisonError(f"{path} is a half-written run: run.json is not there")
    record, result = read_json_object(path / "run.json"), read_json_object_or_none(path / "result.json")
    state = record.get("state", "unknown")
    if result is not None:
        state = "diverged" if "diverged" in (result.get("state"), state) else "finished"
    elif state in ("starting", "running"):
        state = RunFolder(path).state
    known = {**record, **(result or {})}
    settings = flat_settings(read_yaml(path / "config.yaml") or {}) if (path / "config.yaml").is_file() else {}
    # the run that a point of a chain starts from is another one for each point
    settings.pop((read_json_object_or_none(path / "point.json") or {}).get("into", ""), None)
    facts = {name: known.get(name) for name in FACTS} | {
        "name": record.get("name") or path.parent.name,
        "source": str(path),
        "state": state,
        "parameters": (known.get("parameters") or {}).get("total"),
    }
    probed, probes = _probe(read_json_object_or_none(path / "probe.json") or {})
    return Run(
        id=record.get("id") or path.name,
        facts=facts,
        settings=settings,
        scores=_newest_tests(path) | probed | (numbers(known.get("metrics")) or _last_values(path / "metrics.jsonl")),
        infos=infos_from_record(known.get("metric_infos")) | probes,
        headlines=known.get("headlines") or (),
        curves=partial(read_curves, path / "metrics.jsonl"),
        media=newest_media(path / "media"),
    )


def read_curves(path: Path) -> pd.DataFrame:
    """What a run has logged: a line for each logging call, metrics as columns, with "step" and "seconds"."""
    rows = []
    if path.is_file():
        with open_file(path) as file:
            for line in file:
                try:
                    row = json.loads(line)
                except ValueError:
                    continue  # a last line that is torn
                rows.append({"step": row.get("step")} | numbers(row))
    return pd.DataFrame(rows)


def _last_values(path: Path) -> dict[str, float]:
    curves = read_curves(path).drop(columns=["step", "epoch", "seconds"], errors="ignore")
    return {name: float(values.iloc[-1]) for name in curves if len(values := curves[name].dropna())}


def _newest_tests(folder: Path) -> dict[str, float]:
    """Scores of the newest test with the same settings, and of the newest test of long clips."""
    newest: dict[str, dict[str, float]] = {}
    for path in sorted(folder.glob("*-*.json")):
        if (match := _DATED.fullmatch(path.name)) is not None:
            written, kind = read_json_object_or_none(path) or {}, match[1]
            stage = stage_of_test(written.get("settings") or {}) if kind == "test" else kind
            logged = numbers(written.get("metrics")).items()
            newest[stage] = {
                stage + name.removeprefix(kind): value for name, value in logged if name.startswith(f"{kind}/")
            }
    return {name: value for scores in newest.values() for name, value in scores.items()}


def _probe(record: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, MetricInfo]]:
    """Scores of a probe, and what its baselines are those of."""
    scores: dict[str, float] = {}
    infos: dict[str, MetricInfo] = {}
    for factor, found in (record.get("factors") or {}).items():
        for head in set(found) & {"linear", "mlp"}:
            name = f"{found['metric']}/{factor}/{head}"
            scores[f"probe/{name}"] = found[head]
            for by, value in found["baselines"].items():
                baseline = f"baseline/{name}/{by}"
                scores[f"probe/{baseline}"] = value
                infos[baseline] = MetricInfo(baseline, reference="baseline", of=name, by=by)
    return scores, infos


def newest_media(folder: Path) -> list[Path]:
    """One file per name: NAME_latest.png, or the highest NAME_step1000.png, or NAME.png."""
    found: dict[str, tuple[float, Path]] = {}
    for path in sorted(folder.glob("**/*")) if folder.is_dir() else ():
        if path.suffix.lower() in _MEDIA:
            version = _VERSION.search(path.stem)
            age = -1.0 if version is None else float(version[2] or "inf")
            name = f"{_VERSION.sub('', path.stem)}{path.suffix.lower()}"
            if name not in found or age >= found[name][0]:
                found[name] = (age, path)
    return [path for _, (_, path) in sorted(found.items())]
