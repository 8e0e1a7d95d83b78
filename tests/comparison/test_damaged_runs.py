"""Damaged and hostile run folders: each gets a sentence at most, none hides the others, none leads out."""

from __future__ import annotations

import json
import os
from io import StringIO
from pathlib import Path

import pytest
from made_up_runs import config, make_run
from rich.console import Console

from slotbench.comparison.formats.terminal import print_comparison
from slotbench.comparison.formats.text_formats import to_csv, to_latex, to_markdown
from slotbench.comparison.page.page import write_html
from slotbench.comparison.run_folders import read_run_folder
from slotbench.comparison.sources import open_sources
from slotbench.comparison.table import compare

FILES = ("run.json", "result.json", "config.yaml", "metrics.jsonl")
PIXEL = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\2\0\0\0" + bytes(4) + b"\0\0\0\0IEND" + bytes(4)


@pytest.fixture
def runs(tmp_path):
    """Two runs of three seeds each, finished."""
    for core in ("RIM", "SlotSSM"):
        for seed in range(3):
            rows = [{"step": step, "val/iou": 0.1 * seed + 0.01 * step, "train/loss": 1.0} for step in range(5)]
            scores = {"val/iou": 0.1 * seed, "val/mse": 0.2}
            folder = make_run(tmp_path / "runs" / f"{core}-{seed}", config(core, seed), scores, rows)
            (folder / "result.json").write_text(json.dumps({"metrics": scores, "state": "finished"}))
    return tmp_path / "runs"


def everything(folder: Path, out: Path) -> str:
    """All that `slotbench compare` can make of a folder of runs; the terminal's text."""
    sources = open_sources([str(folder)])
    comparison = compare(sources.runs, title=sources.title, notes=sources.notes)
    text = StringIO()
    print_comparison(comparison, Console(file=text, width=200, force_terminal=True, color_system=None))
    for made in (to_csv, to_markdown, to_latex):
        assert made(comparison)
    write_html(comparison, out / "page.html")
    return text.getvalue()


def hostile(kind: str, victim: Path, outside: Path) -> None:
    """What `tests/damage` does not do to a file."""
    victim.unlink(missing_ok=True)
    if kind == "link":
        victim.symlink_to(outside)
    elif kind == "loop":
        victim.symlink_to(victim)
    elif kind == "aliases":
        steps = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10))
        victim.write_text("a0: &a0 [x, x]\n" + steps)
    elif kind == "hexadecimal":
        victim.write_text("model: {dim: 0x" + "f" * 20_000 + "}\nstep: 1\n")
    else:
        victim.write_text("".join(f"k{n}: {n}\n" for n in range(5_000)))


@pytest.mark.parametrize("kind", ["link", "loop", "aliases", "hexadecimal", "wide"])
@pytest.mark.parametrize("name", FILES)
@pytest.mark.filterwarnings("ignore:.*(passed over|without curves)")
def test_one_hostile_file_hides_no_other_run(runs, tmp_path, name, kind):
    outside = tmp_path / "secret.json"
    outside.write_text(json.dumps({"state": "finished", "id": "a secret", "model": {"key": "a secret"}, "step": 1}))
    hostile(kind, runs / "RIM-1" / name, outside)
    text = everything(runs, tmp_path)
    assert "SlotSSM" in text
    assert "RIM" in text
    page = (tmp_path / "page.html").read_text()
    assert "a secret" not in text + page
    assert page.count("SlotSSM-") >= 3


WRONG = {
    "step": ["x", -1, 1.5, [1], {"a": 1}, 10**300],
    "total_steps": ["x", None, []],
    "seconds_per_step": ["x", -1.0, "NaN", 0, 10**400, 1e-320],
    "seconds": [[], "Infinity"],
    "parameters": [7, [], {"total": [1]}, {"total": -5}, {"total": "many"}, {"core": {}}],
    "headlines": [
        7,
        {"a": 1},
        [7],
        [{"metric": 3}],
        [{"metric": "val/iou", "baselines": [1], "label": {}, "higher_is_better": "no"}],
        [{"metric": "val/iou", "baselines": {"black": "x", "white": None, "grey": 10**400}}],
    ],
    "metrics": [[], 7, {"val/iou": "x", "val/mse": [1]}, {"val/iou": 10**400}, {"val/iou": 1e308, "val/mse": -1e308}],
    "best": [7, [], {"val/iou": 3}, {"val/iou": {"value": {}}}],
    "state": [7, None, ["finished"], "\x1b[2J"],
    "id": [7, None, []],
    "name": [{}, "a[/b]"],
    "group": [7, ["a"]],
    "error": [7, {"a": 1}],
    "created": [7],
    "diverged_at": ["x", []],
    "host": [7],
    "pid": ["x", -1, 10**30],
    "problem": [["x"]],
}


@pytest.mark.parametrize("field", WRONG)
def test_a_field_of_another_type_ends_nothing(runs, tmp_path, field):
    for value in WRONG[field]:
        for state in ("finished", "running", "diverged", "failed"):
            path = runs / "RIM-1" / "run.json"
            path.write_text(json.dumps({"id": "r", "state": state, "step": 3, field: value}))
            (runs / "RIM-1" / "result.json").unlink(missing_ok=True)
            run = read_run_folder(runs / "RIM-1")
            assert run.settings["model.core"] == "RIM"
        assert "SlotSSM" in everything(runs, tmp_path)


def test_bad_lines_of_the_metrics_are_named_and_the_page_is_made(runs, tmp_path):
    path = runs / "RIM-1" / "metrics.jsonl"
    path.write_text(path.read_text() + "{{{\n")
    with pytest.warns(UserWarning, match=r"RIM-1/metrics.jsonl, line 6: no JSON object"):
        assert "SlotSSM" in everything(runs, tmp_path)


def test_pictures_are_regular_files_of_the_run_and_no_links_to_elsewhere(runs, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "private.png").write_bytes(PIXEL)
    media = runs / "RIM-1" / "media"
    media.mkdir()
    (media / "own.png").write_bytes(PIXEL)
    (media / "same.png").symlink_to("own.png")
    (media / "private.png").symlink_to(outside / "private.png")
    (media / "zero.png").symlink_to("/dev/zero")
    (media / "folder").symlink_to(outside)
    os.mkfifo(media / "pipe.png")
    assert [path.name for path in read_run_folder(runs / "RIM-1").media] == ["own.png", "same.png"]
    (runs / "RIM-2" / "media").symlink_to(outside)
    run = read_run_folder(runs / "RIM-2")
    assert run.media == ()
    assert "media folder is a link that leads out" in run.info["problem"]
    everything(runs, tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_is_left_out(runs, tmp_path):
    (runs / "RIM-1").chmod(0)
    try:
        with pytest.warns(UserWarning, match="RIM-1 is left out"):
            assert "SlotSSM" in everything(runs, tmp_path)
    finally:
        (runs / "RIM-1").chmod(0o755)


def test_a_diverged_run_is_told_by_its_record_or_its_result(tmp_path):
    folder = make_run(tmp_path / "r", metrics={"val/iou": "NaN"}, state="diverged", diverged_at=41)
    run = read_run_folder(folder)
    assert (run.state, run.info["diverged_at"]) == ("diverged", 41)
    (folder / "result.json").write_text(json.dumps({"state": "diverged", "diverged_at": 41, "metrics": {}}))
    assert read_run_folder(folder).state == "diverged"
