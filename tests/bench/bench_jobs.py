"""What the processes of the bench are told in these tests: the cores of bench_cores.py, at sizes that take no time."""

from __future__ import annotations

from pathlib import Path

from slotbench.bench.cores import Job, Settings

PLUGIN = Path(__file__).parent / "bench_cores.py"
SMALL = {"batch": 1, "slots": 2, "dim": 4, "tokens": 4, "repeats": 2, "seconds": 30.0, "memory": 1.0}


def settings(*cores: str, lengths: tuple[int, ...] = (4, 8, 16, 32), **changed) -> Settings:
    return Settings(cores, lengths, plugins=(str(PLUGIN),), **{**SMALL, **changed})


def job(core: str, *stages: str, length: int = 16, **changed) -> Job:
    return Job(core, stages, length, settings(core, **{"repeats": 1, "seconds": 60.0, **changed}))
