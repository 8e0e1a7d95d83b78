"""`slotbench bench cores`: what is measured, what a failure is, and what is not measured again."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import pytest

from slotbench import registry
from slotbench.bench import cores as module
from slotbench.bench.core_process import CoreBench, build
from slotbench.bench.cores import Results, Settings, growth, number, sweep, tables
from slotbench.cli import run
from slotbench.errors import UserError

PLUGIN = Path(__file__).with_name("bench_cores.py")
SIZES = {"batch": 1, "slots": 2, "dim": 4, "tokens": 4, "repeats": 2, "plugins": (str(PLUGIN),)}


def settings(*cores: str, lengths: tuple[int, ...] = (4, 16), **changed) -> Settings:
    return Settings(cores, lengths, **{**SIZES, "memory": 1.0, "seconds": 30.0, **changed})


@pytest.fixture
def bench_cores():
    """The cores, registered for a test."""
    registered = dict(registry._registered)
    registry.load_file(PLUGIN)
    yield
    registry._registered.clear()
    registry._registered.update(registered)
    sys.modules.pop("bench_cores", None)


def swept(folder: Path, *cores: str, **changed) -> dict:
    results = Results.open(folder / "cores.json", settings(*cores, **changed))
    sweep(results, lambda point: None)
    return results.points


@pytest.mark.parametrize(
    ("core", "seconds", "problem"),
    [("Greedy", 30.0, "memory"), pytest.param("Slow", 2.0, "time", marks=pytest.mark.slow)],
)
def test_a_stage_that_takes_too_much_is_a_result_and_the_others_go_on(core, seconds, problem, tmp_path):
    points = swept(tmp_path, core, lengths=(4, 16, 32), seconds=seconds)
    assert points[core, "training", 16]["problem"] == problem
    assert (core, "training", 32) not in points
    assert "problem" not in points[core, "inference", 32]
    assert "problem" not in points[core, "streaming", 32]


def test_an_error_is_shown_and_measured_again_the_next_time(tmp_path):
    points = swept(tmp_path, "Broken")
    assert points["Broken", "inference", 16]["message"] == "RuntimeError: no such shape"
    again = Results.open(tmp_path / "cores.json", settings("Broken"))
    assert ("Broken", "inference", 16) not in again.points
    assert ("Broken", "inference", 4) in again.points


def test_what_is_measured_is_not_measured_again(tmp_path, monkeypatch):
    asked = []

    def answer(core, jobs, settings):
        asked.append((core, jobs))
        for stage, length in jobs:
            yield {"stage": stage, "length": length, "problem": "time", "message": ""}

    monkeypatch.setattr(module, "_run", answer)
    swept(tmp_path, "Plain", lengths=(4,))
    swept(tmp_path, "Plain", lengths=(4, 8))
    assert [jobs for _, jobs in asked] == [[("inference", 4), ("training", 4), ("streaming", 4)]]
    with pytest.raises(UserError, match="batch 1 in place of 3"):
        Results.open(tmp_path / "cores.json", settings("Plain", batch=3))
    assert not Results.open(tmp_path / "cores.json", settings("Plain", batch=3), restart=True).points


def test_a_core_is_built_with_the_sizes_it_takes(bench_cores):
    given = vars(settings())
    assert build("Plain", {**given, "slots": 5, "dim": 6}).slot_spec.num_slots == 5
    fixed = build("Fixed", {**given, "slots": 5, "dim": 6}).slot_spec
    assert (fixed.num_slots, fixed.dim) == (1, 5)


def test_little_time_means_fewer_repeats(bench_cores, monkeypatch):
    monkeypatch.setattr("slotbench.bench.memory.MemoryMeter.limit", lambda self, gibibytes: None)
    found = CoreBench("Plain", {**vars(settings()), "repeats": 50, "seconds": 1e-9}).inference(4)
    assert len(found["seconds"]) == 1
    assert "flops" not in found


def test_growth_is_the_exponent_of_the_upper_lengths():
    assert growth([(8, 100.0), (16, 4.0), (32, 16.0), (64, 64.0)]) == "T^2.00"
    assert growth([(8, 1.0)]) == ""
    assert [number(value) for value in (0.012345, 12.3, 123.4, 12345)] == ["0.0123", "12.3", "123", "12,345"]


def test_tables_show_medians_and_problems(tmp_path):
    results = Results.open(tmp_path / "cores.json", settings("Line"))
    for length, seconds in ((8, [0.001, 0.002, 0.009]), (16, [0.004])):
        results.add({"core": "Line", "stage": "training", "length": length, "seconds": seconds})
    results.add({"core": "Line", "stage": "training", "length": 32, "problem": "memory", "message": ""})
    rows = tables(results)["Training step, ms"]
    assert rows == [
        ["core", "T=8", "T=16", "T=32", "grows as"],
        ["Line", "2.00 (1.00–9.00)", "4.00", "memory", "T^1.00"],
    ]


def test_the_command_measures_every_stage_at_every_length_and_writes_json_a_page_and_a_figure(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    sizes = [
        word for name in ("batch", "slots", "dim", "tokens", "repeats") for word in (f"--{name}", str(SIZES[name]))
    ]
    assert run(["bench", "cores", "Plain", "--lengths", "4", "16", *sizes, "--plugin", str(PLUGIN)]) == 0
    found = json.loads(Path("bench/cores.json").read_text())["points"]
    points = {(point["stage"], point["length"]): point for point in found}
    assert set(points) == {*itertools.product(("inference", "training"), (4, 16)), ("streaming", 16)}
    inference, training = points["inference", 16], points["training", 16]
    assert len(inference["seconds"]) == len(training["seconds"]) == 2
    assert min(training["seconds"]) > 0
    assert training["parameters"] == 4 * 4 + 4
    # a map of 16 steps from 4 to 4 numbers; in training the gradient of its weight too
    assert (inference["flops"], training["flops"]) == (2 * 16 * 16, 2 * 2 * 16 * 16)
    assert points["streaming", 16]["steps"] == 16
    assert points["streaming", 16]["late_state_mb"] == pytest.approx(1 * 2 * 4 * 4 / 1e6)
    assert "| Plain |" in Path("bench/cores.md").read_text()
    assert Path("bench/cores.png").read_bytes().startswith(b"\x89PNG")
    assert "Training step, ms" in capsys.readouterr().out
    assert run(["bench", "cores", "SlotSMM"]) == 2
    assert "no core named SlotSMM; did you mean SlotSSM?" in capsys.readouterr().err
