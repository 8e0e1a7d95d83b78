"""The cores of bench_cores.py for the processes of the bench, and results that nobody had to measure."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench_jobs import PLUGIN, settings

from slotbench import registry
from slotbench.bench.cores import Results


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """One machine for all tests; to ask this one takes a while."""
    environment = {"device": "Loom x 2", "versions": {"torch": "2.0"}, "command": "slotbench bench cores"}
    monkeypatch.setattr("slotbench.bench.cores.describe_environment", lambda: environment)


@pytest.fixture
def bench_cores() -> Iterator[Path]:
    """The file of the cores, registered here too; they leave the registry with the test."""
    registered = dict(registry._registered)
    registry.load_file(PLUGIN)
    yield PLUGIN
    registry._registered.clear()
    registry._registered.update(registered)
    sys.modules.pop("bench_cores", None)


@pytest.fixture
def measured(tmp_path: Path) -> Results:
    """Two cores: one quadratic, out of memory in training from T=32 on; one linear. Noise rose once."""
    results = Results.open(tmp_path / "cores.json", settings("Line", "Square", lengths=(8, 16, 32, 64)))
    for core, power in (("Line", 1), ("Square", 2)):
        for length in results.settings.lengths:
            for measure in ("inference", "training"):
                if core == "Square" and measure == "training" and length >= 32:
                    if length == 32:
                        failure = {"problem": "out of memory", "message": "above 1 GiB", "limit": 1.0}
                    else:
                        failure = {"problem": "skipped", "message": "out of memory at 32"}
                    results.add(core, measure, length, **failure)
                    continue
                seconds = [1e-3 * scale * (length / 8) ** power for scale in (1.0, 2.0, 9.0)]
                noise = [0.001, 0.004 if (core, length) == ("Line", 16) else 0.001]
                memory = 2.5 * length**power
                results.add(
                    core, measure, length, seconds=seconds, memory_mb=memory, noise=noise, parameters=1234, calls=1
                )
    results.add(
        "Line",
        "streaming",
        64,
        steps=64,
        early_steps=8,
        early=[0.001, 0.001],
        late=[0.0011, 0.0013],
        ratio=[1.1, 1.3],
        curve=[(1, 0.002), (8, 0.001), (60, 0.0012)],
        early_state_mb=0.5,
        late_state_mb=0.5,
        memory_mb=1.0,
        noise=[0.001, 0.001],
        parameters=1234,
    )
    results.add("Square", "streaming", 64, problem="out of time", message="longer than 30 s", limit=30.0)
    return results
