"""The page of a GPU run: measured numbers with their machine, problems by name, and no stage left out in silence."""

from __future__ import annotations

import pytest

from slotbench.bench.gpu.plan import STAGES, Items, Settings
from slotbench.bench.gpu.report import write_report
from slotbench.files import dump_json

FACTS = {"device": "Loom 9000", "driver": "1.2", "torch": "2.99+cu1", "mamba-ssm": None}
KERNEL = {"op": "ssd", "sequences": 384, "steps": 6, "width": 128}


@pytest.fixture
def out(tmp_path):
    (tmp_path / "gpu.json").write_text(dump_json({"device": "Loom 9000", "torch": "2.99", "quick": False}))
    store(tmp_path, "machine", facts=FACTS)
    return tmp_path


def store(out, stage, state="done", **items) -> None:
    found = Items(out, stage)
    found.update(items)
    found.write(
        state=state,
        message=f"{stage} | said",
        seconds=90.0,
        commit="commit 0123 with changes",
        date="2031-02-03T04:05:06",
    )


def page(out, *, quick: bool = False) -> str:
    return write_report(Settings(out, command="slotbench bench gpu --minutes 30", quick=quick)).read_text()


def test_the_page_has_device_date_commit_and_command(out):
    text = page(out)
    assert text.startswith("# GPU run: Loom 9000\n")
    assert "    slotbench bench gpu --minutes 30\n" in text
    assert "Loom 9000, torch 2.99, commit 0123 with changes, 2031-02-03." in text
    assert "Quick" not in text
    assert "numbers say nothing" in page(out, quick=True)


def test_every_stage_has_a_row_and_one_without_a_result_says_so(out):
    store(out, "cores", "failed")
    text = page(out)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    for stage in STAGES:
        row = next(row for row in rows if row.startswith(f"| {stage.name} |"))
        state = {"machine": "done", "cores": "failed"}.get(stage.name, "no result")
        assert f"| {state} |" in row
    assert r"cores \| said" in text


def test_kernels_are_shown_with_ratio_error_and_what_did_not_run(out):
    times = {"forward": [1.0, 2.0, 4.0], "both": [5.0, 6.0, 9.0], "both_mb": 12.0, "error": 2e-4}
    kernels = {
        "torch": {**times, "both": [10.0, 24.0, 90.0]},
        "fast": times,
        "broken": {"problem": "error", "message": "illegal memory access"},
        "absent": {"problem": "not available", "message": "it needs a pilot"},
    }
    store(out, "kernels", one={**KERNEL, "kernels": kernels})
    text = page(out)
    assert "| 384 x 6 x 128 | torch | 2.00 (1.00–4.00) | 24.0 (10.0–90.0) | 1.00 | 12.0 | 2e-04 |" in text
    assert "|  | fast | 2.00 (1.00–4.00) | 6.00 (5.00–9.00) | 0.250 | 12.0 | 2e-04 |" in text
    assert "|  | broken | error: illegal memory access |" in text
    assert "ssd/absent was not run: it needs a pilot" in text


def test_trainings_and_the_experiment_are_shown_with_scores_beside_baselines(out):
    run = {"family": "PSB", "precision": "bf16", "files": ["a.yaml"], "stands_in": "balls for MOVi", "steps": 300}
    run |= {"sizes": {"batch": 24, "num_frames": 6, "resolution": 128}, "parameters": 5607187, "kernels": {}}
    lost = {**run, "precision": "fp32", "problem": "out of memory", "message": "CUDA"}
    store(out, "training", a={**run, "steps_per_second": 2.5, "memory_mb": 4000.0}, b=lost)
    headline = {"metric": "val/iou", "label": "IoU", "baselines": {"copying": 0.78}, "oracles": {"all": 1.0}}
    result = {"steps": 900, "steps_per_second": 9.0, "headlines": [headline], "metrics": {"val/iou": 0.8312}}
    store(out, "experiment", choice={"plan": "whole frames", "steps": 900, "steps_per_second": {"x": 4.0}}, run=result)
    text = page(out)
    assert "| PSB | bf16 | 24 x 6, 128 | 2.50 | 4,000 | 300 | 5,607,187 |" in text
    assert "| PSB | fp32 | 24 x 6, 128 | out of memory: CUDA |" in text
    assert "PSB: `a.yaml`; balls for MOVi" in text
    assert "| val/iou | IoU | 0.831 | copying: 0.780; all: 1.000 |" in text


def test_a_section_that_cannot_be_written_is_a_sentence(out):
    store(out, "kernels", one={"nothing": "of use"})
    text = page(out)
    assert "The results cannot be shown (KeyError: 'op'); they are in kernels.json." in text
    assert "## Stages" in text


def test_tests_that_failed_and_the_one_that_ended_the_process_are_named(out):
    passed, failed = {"outcome": "passed"}, {"outcome": "failed", "problem": "failed", "message": "off by 2"}
    store(out, "gpu_tests", "failed", a=passed, b=failed, c=passed, running={"test": "tests/test_x.py::crashes"})
    text = page(out)
    assert "2 passed, 1 failed, 0 skipped." in text
    assert "| b | off by 2 |" in text
    assert "The process ended in `tests/test_x.py::crashes`" in text
