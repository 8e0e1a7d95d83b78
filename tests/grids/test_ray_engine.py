"""The Ray engine, with a Ray of its own on this machine."""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path

import pytest

from slotbench.grids.engines import EngineError, Job
from slotbench.grids.engines.ray_engine import RayEngine

NEEDS_RAY = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs ray")

SAVES = """
import signal, sys, time
def stop(*_): print("saved", flush=True); sys.exit(143)
signal.signal(signal.SIGTERM, stop)
print("began", flush=True)
time.sleep(300)
"""


def make_job(folder: Path, script: str) -> Job:
    folder.mkdir(parents=True)
    return Job(folder.name, folder, [sys.executable, "-c", script], {"OMP_NUM_THREADS": "1"})


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EngineError, match=r'pip install "slotbench\[ray\]"; or use --engine local'):
        RayEngine(2)


@NEEDS_RAY
def test_gpus_are_shared_by_the_points_that_run_at_once() -> None:
    assert RayEngine(2).gpus_of({"CPU": 4.0}) == 0
    assert RayEngine(2).gpus_of({"GPU": 4.0}) == 1
    assert RayEngine(3).gpus_of({"GPU": 1.0}) == pytest.approx(1 / 3, abs=1e-4)
    assert 3 * RayEngine(3).gpus_of({"GPU": 1.0}) <= 1


@NEEDS_RAY
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_jobs_end_with_their_codes_and_the_rest_is_taken_back(tmp_path: Path) -> None:
    import ray

    scripts = {"good": "pass", "bad": "import sys; sys.exit(3)", "long": SAVES, "never": "pass"}
    jobs = [make_job(tmp_path / name, script) for name, script in scripts.items()]
    engine = RayEngine(1)
    try:
        engine.submit(jobs)
        codes = {}
        until = time.monotonic() + 120
        while len(codes) < 2 and time.monotonic() < until:
            codes |= {outcome.id: outcome.exit_code for outcome in engine.poll()}
            time.sleep(0.05)
        assert codes == {"good": 0, "bad": 3}
        log = tmp_path / "long" / "log.txt"
        while "began\n" not in (log.read_text() if log.exists() else "") and time.monotonic() < until:
            time.sleep(0.05)
        assert engine.running() == {"long": "ray"}
        engine.cancel()
        assert [outcome.id for outcome in engine.poll()] == ["long"]
        assert log.read_text().splitlines()[-1] == "saved"
        assert not (tmp_path / "never" / "log.txt").exists()
    finally:
        ray.shutdown()
