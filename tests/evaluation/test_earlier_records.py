"""`slotbench score --beside FILE`: earlier scores in a column of their own, never by other rules or of other clips."""

from __future__ import annotations

import json

import numpy as np
import pytest
from written_masks import clip

from slotbench import cli


def score(*arguments):
    return cli.run(["score", *map(str, arguments), "--no-baselines"])


@pytest.fixture
def scored(tmp_path):
    """Arguments that score a clip, and its record."""
    true, slots, _ = clip(0)
    for name, values in {"masks": slots, "truth": true}.items():
        (tmp_path / name).mkdir()
        np.save(tmp_path / name / "a.npy", values)
    arguments = tmp_path / "masks", "--truth", tmp_path / "truth"
    assert score(*arguments, "--out", tmp_path / "theirs.json") == 0
    return arguments, tmp_path / "theirs.json"


def test_the_scores_of_a_record_stand_in_a_column_of_their_own(scored, capsys):
    arguments, path = scored
    record = json.loads(path.read_text())
    record["scores"]["fg_ari/video"]["mean"] = 0.1234
    path.write_text(json.dumps(record))
    capsys.readouterr()
    assert score(*arguments, "--beside", path) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("masks" in line and "theirs.json" in line for line in lines)
    (line,) = [line for line in lines if line.startswith("FG-ARI per video")]
    assert line.split()[-1] == "0.123"
    (line,) = [line for line in lines if line.startswith("mIoU per video")]
    own, beside = line.split()[-2:]
    assert own == beside


def test_a_record_by_other_rules_is_refused_and_the_rules_are_named(scored, capsys):
    arguments, path = scored
    assert score(*arguments, "--beside", path, "--window", "3", "--empty", "skip") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "was scored by other rules: they cannot stand in one table" in said
    assert "none in theirs.json, 3 here" in said
    assert "one in theirs.json, skip here" in said
    assert "min_pixels" not in said


def test_a_record_of_other_clips_is_refused(scored, capsys):
    arguments, path = scored
    for folder in (arguments[0], arguments[2]):
        np.save(folder / "b.npy", np.load(folder / "a.npy"))
    assert score(*arguments, "--beside", path) == 2
    assert "was scored on other clips (1 there, 2 here)" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("content", ["{}", "[]", "no", '{"record": "slotbench evaluation", "format": 1, "rules": 3}'])
def test_a_file_that_is_no_record_is_refused_in_a_sentence(scored, capsys, content):
    arguments, path = scored
    path.write_text(content)
    assert score(*arguments, "--beside", path) == 2
    said = capsys.readouterr().err
    assert "theirs.json" in said
    assert "Traceback" not in said


def test_scores_that_are_none_are_left_out(scored, capsys):
    arguments, path = scored
    record = json.loads(path.read_text())
    record["scores"] |= {"mota": "high", "fg_ari/frame": {"mean": [1]}, "miou/frame": None}
    path.write_text(json.dumps(record))
    capsys.readouterr()
    assert score(*arguments, "--beside", path) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("MOTA")]
    assert len(line.split()) == 3
