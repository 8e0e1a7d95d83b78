"""Every stage of `slotbench bench gpu`, whole, on a CPU in tiny sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from slotbench.bench.gpu.plan import STAGES
from slotbench.bench.gpu.records import problem_of, read_result
from slotbench.bench.gpu.training import CASES
from slotbench.cli import run
from slotbench.ops.dispatch import KERNELS


@pytest.mark.slow
def test_every_stage_runs_on_a_cpu(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(Path(__file__).parents[2])
    command = ["bench", "gpu", "--device", "cpu", "--quick", "--minutes", "240", "--out", str(tmp_path)]
    assert run(command) == 0, capsys.readouterr().out
    results = {stage.name: read_result(tmp_path, stage.name) for stage in STAGES}
    assert {result["state"] for result in results.values()} == {"done"}
    problems = [(name, problem_of(item)) for name, result in results.items() for item in result["items"].values()]
    assert [problem for problem in problems if problem[1]] == []
    kernels = results["kernels"]["items"].values()
    assert {item["op"] for item in kernels} == set(KERNELS)
    for item in kernels:
        ran = {name: one for name, one in item["kernels"].items() if one.get("problem") != "not available"}
        assert {"reference", "torch"} <= ran.keys()
        assert max(one["error"] for one in ran.values()) < 1e-4
    training = results["training"]["items"]
    assert len(training) == 2 * len(CASES)
    assert all(item["steps"] == 2 and item["steps_per_second"] > 0 for item in training.values())
    experiment = results["experiment"]["items"]["run"]
    first = experiment["headlines"][0]
    assert first["metric"] in experiment["metrics"]
    assert first["baselines"]
    page = (tmp_path / "report.md").read_text()
    assert "no result" not in page
    assert "cannot be shown" not in page
    assert "Training step, ms" in page
