"""The page of a slice: measured numbers with their machine, and problems by name."""

from __future__ import annotations

from slotbench.bench.gpu.plan import Items, slices_named
from slotbench.bench.gpu.report import write_report

FACTS = {"device": "Loom 9000", "driver": "1.2", "torch": "2.99+cu1", "mamba-ssm": None}
KERNEL = {"op": "ssd", "sequences": 384, "steps": 6, "width": 128}


def page(out, name: str, state="done", result: dict | None = None, **found) -> str:
    items = Items(out, name)
    items.update(found)
    items.result |= {"state": state, "message": f"{name} | said", "seconds": 90.0, "commit": "commit 0123 with changes"}
    items.result |= {"date": "2031-02-03T04:05:06", "command": "slotbench bench gpu --minutes 5", "facts": FACTS}
    items.result |= result or {}
    (one,) = slices_named(name)
    return write_report(one, items).read_text()


def test_the_page_has_device_date_commit_and_command(tmp_path):
    text = page(tmp_path, "e1")
    assert text.startswith("## e1: every kernel of the other scans, on Loom 9000\n")
    assert "    slotbench bench gpu --minutes 5\n" in text
    assert "driver 1.2, torch 2.99+cu1, commit 0123 with changes, 2031-02-03. done, 1.5 minutes: e1 | said" in text
    assert "Quick" not in text
    assert "numbers say nothing" in page(tmp_path, "e1", result={"quick": True})


def test_kernels_are_shown_with_ratio_error_and_what_did_not_run(tmp_path):
    times = {"forward": [1.0, 2.0, 4.0], "both": [5.0, 6.0, 9.0], "both_mb": 12.0, "error": 2e-4}
    kernels = {
        "torch": {**times, "both": [10.0, 24.0, 90.0]},
        "fast": times,
        "broken": {"problem": "error", "message": "illegal memory access"},
        "absent": {"problem": "not available", "message": "it needs a pilot"},
    }
    text = page(tmp_path, "e2", one={**KERNEL, "kernels": kernels})
    assert "| 384 x 6 x 128 | torch | 2.00 (1.00–4.00) | 24.0 (10.0–90.0) | 1.00 | 12.0 | 2e-04 |" in text
    assert "|  | fast | 2.00 (1.00–4.00) | 6.00 (5.00–9.00) | 0.250 | 12.0 | 2e-04 |" in text
    assert "|  | broken | error: illegal memory access |" in text
    assert "ssd/absent was not run: it needs a pilot" in text


def test_without_a_kernel_torch_the_ratio_is_to_the_reference(tmp_path):
    times = {"forward": [1.0], "both": [5.0], "both_mb": 12.0, "error": 2e-4}
    kernels = {"reference": {**times, "both": [20.0]}, "streamed": times}
    assert "| streamed | 1.00 | 5.00 | 0.250 |" in page(tmp_path, "d1", one={**KERNEL, "kernels": kernels})


def test_trainings_are_shown_with_the_share_of_kernels_and_the_longest_of_them(tmp_path):
    run = {"family": "PSB", "precision": "bf16", "files": ["a.yaml"], "stands_in": "balls for MOVi", "steps": 300}
    run |= {"sizes": {"batch": 24, "num_frames": 6, "resolution": 128}, "parameters": 5607187, "kernels": {}}
    lost = {**run, "precision": "fp32", "problem": "out of memory", "message": "CUDA"}
    longest = [{"name": "void gemm<float>", "seconds": 0.07, "share": 0.25, "calls": 12.5}]
    profile = {"seconds_per_step": 0.4, "busy_seconds": 0.28, "longest": longest}
    text = page(tmp_path, "b1", a={**run, "steps_per_second": 2.5, "memory_mb": 4000.0, "profile": profile}, b=lost)
    assert "| PSB | bf16 | 24 x 6, 128 | 2.50 | 70% | 4,000 | 5,607,187 |" in text
    assert "| PSB | fp32 | 24 x 6, 128 | out of memory: CUDA | – |" in text
    assert "PSB: `a.yaml`; balls for MOVi" in text
    assert "| PSB | bf16, compile graphs | 24 x 6, 128 |" in page(tmp_path, "b4", a={**run, "compile": "graphs"})
    row = next(line for line in text.splitlines() if "gemm" in line)
    assert row.endswith("| 70.0 | 25% | 12.5 |")


def test_the_experiment_is_shown_with_scores_beside_baselines(tmp_path):
    headline = {"metric": "val/iou", "label": "IoU", "baselines": {"copying": 0.78}, "oracles": {"all": 1.0}}
    run = {"config": "a.yaml", "step": 900, "total_steps": 3000, "steps_per_second": 9.0, "seconds": 120.0}
    run |= {"headlines": [headline], "metrics": {"val/iou": 0.8312}, "state": "interrupted"}
    text = page(tmp_path, "g1", run=run)
    assert "`a.yaml`: 900 of 3,000 steps in 2 minutes, 9.00 steps/s, interrupted." in text
    assert "| val/iou | IoU | 0.831 | copying: 0.780; all: 1.000 |" in text
    begun = page(tmp_path, "g1", run={**dict.fromkeys(run), "config": "a.yaml", "state": None})
    assert "0 of 0 steps" in begun


def test_a_section_that_cannot_be_written_is_a_sentence(tmp_path):
    text = page(tmp_path, "e1", one={"nothing": "of use"})
    assert "The results cannot be shown (KeyError: 'op'); they are in e1.json." in text
    assert "Loom 9000" in text


def test_tests_that_failed_and_the_one_that_ended_the_process_are_named(tmp_path):
    passed, failed = {"outcome": "passed"}, {"outcome": "failed", "problem": "failed", "message": "off by 2"}
    finding = {"name": "ssd", "state": "broken", "text": "no triton"}
    doctor = {"doctor": {"findings": [finding, {**finding, "state": "ok"}], "failing": ["ssd"]}}
    lost = {"test": "tests/test_x.py::crashes"}
    text = page(tmp_path, "a1", "failed", doctor, a=passed, b=failed, c=passed, running=lost)
    assert "2 passed, 1 failed, 0 skipped." in text
    assert "2 findings, 1 broken." in text
    assert "- ssd: no triton" in text
    assert "| b | off by 2 |" in text
    assert "The process ended in `tests/test_x.py::crashes`" in text
