"""`docs/scripts/draw_lengths.py`: a line per core over the frames, its newest test, baselines, and what is missing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from docs_scripts import docs_script


@pytest.fixture
def script():
    with docs_script("draw_lengths") as script:
        yield script


def run_of(folder: Path, core: str, seed: int) -> Path:
    run = folder / f"config={core},rule=earliest,seed={seed}-0123abcd"
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({"state": "finished"}))
    (run / "config.yaml").write_text(
        json.dumps({"model": {"class_path": "T", "init_args": {"core": {"class_path": "C"}}}, "seed_everything": seed})
    )
    (run / "metrics.jsonl").write_text('{"step": 1, "val/loss": 1.0}\n')
    return run


def write_test(run: Path, scores: tuple[float, ...], *, day: int = 1, frames: int = 3, score: str = "accuracy") -> None:
    lengths = [{"multiple": 4**power, "frames": frames * 4**power} for power in range(len(scores))]
    metrics = {}
    for one, value in zip(lengths, scores, strict=True):
        start = f"lengths/{one['multiple']}T"
        metrics |= {f"{start}/{score}": value, f"{start}/baseline/{score}/last": 0.5, f"{start}/state_numbers": 8}
        metrics |= {f"{start}/milliseconds_per_frame": 0.25}
    record = {"training_frames": frames, "lengths": lengths, "metrics": metrics}
    (run / f"lengths-2026010{day}-120000.json").write_text(json.dumps(record))


def drawn(script, monkeypatch, folder: Path, *arguments: str) -> tuple[int, list]:
    axes: list = []
    figure_of = script.figure_of

    def watched(columns):
        made = figure_of(columns)
        axes.extend(made[1])
        return made

    monkeypatch.setattr(script, "figure_of", watched)
    line = ["draw_lengths.py", str(folder), "--score", "accuracy", "--out", str(folder / "out"), "--name", "study"]
    monkeypatch.setattr(sys, "argv", [*line, *arguments])
    return script.main(), axes


def test_a_line_per_core_is_the_mean_of_the_newest_test_of_each_run(script, monkeypatch, tmp_path):
    for seed, last in enumerate((0.25, 0.75)):
        run = run_of(tmp_path, "PSB", seed)
        write_test(run, (0.0, 0.0), day=1)
        write_test(run, (1.0, last), day=2)
        write_test(run, (0.0, 0.0), day=3, score="something_else")
    write_test(run_of(tmp_path, "RIM", 0), (0.5, 0.125))
    code, axes = drawn(script, monkeypatch, tmp_path)
    assert code == 0
    assert (tmp_path / "out" / "study_lengths.png").exists()
    lines = {line.get_label(): [list(map(float, data)) for data in line.get_data()] for line in axes[0].get_lines()}
    assert lines["PSB"] == [[3.0, 12.0], [1.0, 0.5]]
    assert lines["RIM"] == [[3.0, 12.0], [0.5, 0.125]]
    assert [0.5, 0.5] in [data[1] for data in lines.values()]
    assert [axis.get_title(loc="left") for axis in axes] == [
        "accuracy",
        "numbers in the state of a clip",
        "ms per frame of a clip",
    ]


def test_runs_that_were_not_tested_are_named_and_left_out(script, monkeypatch, tmp_path, capsys):
    write_test(run_of(tmp_path, "PSB", 0), (1.0, 0.5))
    missing = run_of(tmp_path, "RIM", 0)
    assert drawn(script, monkeypatch, tmp_path)[0] == 0
    assert f"{missing.name} has not been tested at several lengths" in capsys.readouterr().out


def test_different_lengths_are_not_drawn_into_one_figure(script, monkeypatch, tmp_path, capsys):
    write_test(run_of(tmp_path, "PSB", 0), (1.0, 0.5))
    write_test(run_of(tmp_path, "RIM", 0), (1.0, 0.5), frames=4)
    assert drawn(script, monkeypatch, tmp_path)[0] == 1
    assert "different lengths" in capsys.readouterr().err


def test_a_folder_without_tests_says_so(script, monkeypatch, tmp_path, capsys):
    run_of(tmp_path, "PSB", 0)
    assert drawn(script, monkeypatch, tmp_path)[0] == 1
    assert "has accuracy at several lengths" in capsys.readouterr().err


def test_names_lose_the_ends_that_all_have(script):
    names = ["PSB, rule a", "RIM, rule a"]
    assert list(script.without_what_all_say(names).values()) == ["PSB", "RIM"]
    names = ["PSB, rule a", "PSB, rule b"]
    assert list(script.without_what_all_say(names).values()) == names
    assert script.without_what_all_say(["PSB"]) == {"PSB": "PSB"}
