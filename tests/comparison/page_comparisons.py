"""Comparisons made up for the tests of the page: as many rows, seeds, curves and pictures as a test asks for."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from slotbench.comparison.records import Cell, Comparison, Curve, Metric, Row, RunRecord

SCORE, ERROR = "val/fg_ari/video", "val/rollout_mse"
CURVES = f"curves {SCORE}"
CORES = ("SlotSSM", "OCSlotSSM", "PSB", "SAVi", "RIM", "SlotTransformer", "S5", "ConvLSTM", "Transformer", "SlotRNN")
METRICS = (
    Metric(SCORE, "FG-ARI per video", True, {"one slot": 0.0, "k-means": 0.46}),
    Metric(ERROR, "error: MSE per pixel", False, {"copy the last frame": 0.21, "black": 9.0}),
)


def made_up(
    cores: int = 3,
    slots: Sequence[int] = (4, 8),
    seeds: int = 3,
    points: int = 40,
    media: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    states: Mapping[int, str] | None = None,
    notes: Sequence[str] = (),
) -> Comparison:
    """A row per core and number of slots.

    Args:
        cores: how many, up to ten.
        slots: values of model.core.num_slots.
        seeds: runs per row.
        points: of every training curve; a tenth of them for validation. 0 for no curves.
        media: folder to write pictures to; None for none.
        settings: more settings of all runs.
        states: position of a run -> its state, where that is not "finished".
        notes: the comparison's notes.
    """
    rows = []
    count = itertools.count()
    for core, num_slots in itertools.product(CORES[:cores], slots):
        varied = {"model.core": core, "model.core.num_slots": num_slots}
        runs = []
        for seed in range(seeds):
            position = next(count)
            values = {SCORE: _score(core, num_slots, seed), ERROR: 0.2 - 0.2 * _score(core, num_slots, seed)}
            runs.append(
                RunRecord(
                    id=f"20260101-{position:06}-abcd",
                    name=f"{core}-{num_slots}-{seed}",
                    source=f"runs/{core}-{num_slots}-{seed}",
                    state=(states or {}).get(position, "finished"),
                    settings={
                        "seed_everything": seed,
                        "model": "Task",
                        **varied,
                        _own_key(core): 3,
                        **(settings or {}),
                    },
                    summary=values,
                    info={
                        "step": 10 * points,
                        "seconds": 60.0 * points,
                        "seconds_per_step": 0.05,
                        "device": "a machine",
                    },
                    curves=_Curves(values, points, seed),
                    media=_pictures(media, core, num_slots, seed),
                )
            )
        cells = {metric.name: _cell([run.summary[metric.name] for run in runs]) for metric in METRICS}
        parameters = 100_000 * num_slots + 1000 * CORES.index(core)
        unfinished = sum(run.state != "finished" for run in runs)
        diverged = sum(run.state == "diverged" for run in runs)
        label = f"{core}, {num_slots} slots"
        rows.append(Row(label, varied, runs, cells, parameters, 0.01 * num_slots, unfinished, diverged))
    rows.sort(key=lambda row: -row.cells[SCORE].mean)
    if rows and seeds > 1:
        cells = rows[0].cells
        rows[0] = replace(rows[0], cells={**cells, SCORE: replace(cells[SCORE], is_best=True)})
    command = "slotbench compare runs/made_up --html page.html"
    return Comparison("Made up", ["model.core", "model.core.num_slots"], METRICS, rows, notes, command)


class _Curves:
    """The curves of one run, read when they are asked for."""

    def __init__(self, values: Mapping[str, float], points: int, seed: int) -> None:
        self.values, self.points, self.seed = values, points, seed

    def __call__(self, limit: int) -> Mapping[str, Curve]:
        if not self.points:
            return {}
        steps = 10 * np.arange(1, self.points + 1)
        noise = np.random.default_rng(self.seed).normal(0, 0.02, self.points)
        sparse = slice(None, None, max(1, self.points // 10))
        rise = 1 - np.exp(-4 * steps / steps[-1])
        curves = {
            "train/loss": (steps, 0.5 * np.exp(-3 * steps / steps[-1]) + 0.05 + np.abs(noise)),
            "seconds": (steps, 6.0 * steps),
            SCORE: (steps[sparse], (self.values[SCORE] * rise + noise)[sparse]),
            ERROR: (steps[sparse], (0.25 - (0.25 - self.values[ERROR]) * rise)[sparse]),
            "val/other": (steps[sparse], rise[sparse]),
        }
        return {name: (x[-limit:], y[-limit:]) for name, (x, y) in curves.items()}


def _score(core: str, num_slots: int, seed: int) -> float:
    hashed = zlib.crc32(core.encode()) % 100 / 400 + 0.0007 * CORES.index(core)
    return round(0.3 + hashed + 0.0303 * num_slots + 0.02 * ((seed * 7 + num_slots) % 5 - 2), 6)


def _cell(values: list[float]) -> Cell:
    if len(values) == 1:
        return Cell(tuple(values), values[0])
    mean, std = float(np.mean(values)), float(np.std(values, ddof=1))
    return Cell(tuple(values), mean, std, mean - std, mean + std)


def _own_key(core: str) -> str:
    return f"model.core.of_{core.lower()}"


def _pictures(folder: Path | None, core: str, num_slots: int, seed: int) -> list[Path]:
    if folder is None:
        return []
    place = folder / f"{core}-{num_slots}-{seed}" / "media"
    place.mkdir(parents=True)
    paths = []
    for name, shade in (("clip_0_step0000100.png", 40), ("clip_0_latest.png", 200), ("loss.png", 90)):
        paths.append(place / name)
        shades = (num_slots * 20 + seed * 30 + shade) % 256, CORES.index(core) * 25, shade
        Image.new("RGB", (96, 48), shades).save(paths[-1])
    return paths
