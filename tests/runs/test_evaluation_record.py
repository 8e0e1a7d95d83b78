"""The record of an evaluation: what it must have, how two of them differ, and what is refused."""

from __future__ import annotations

import json

import pytest

from slotbench.errors import FileError
from slotbench.records import read_record
from slotbench.runs.evaluation_record import (
    EvaluationRecord,
    clip_list_hash,
    differing_rules,
    make_record,
    rules_of,
    write_record,
)


def record(**rules):
    parts = {name: {} for name in ("data", "masks", "clips", "frames", "baselines")}
    return make_record(rules=rules, scores={"miou/video": {"mean": 0.5, "low": None, "high": None}}, **parts)


def test_a_record_is_read_back_with_version_and_date(tmp_path):
    written = record(window=6, void=[255])
    write_record(tmp_path / "a.json", written)
    found = read_record(tmp_path / "a.json", EvaluationRecord)
    assert found == written
    assert found["slotbench"] == "0.1.0"
    assert found["date"][:2] == "20"


def test_rules_that_differ_are_named_with_all_values():
    records = [record(window=6, skip=0), record(window=None, skip=0), record(window=6, skip=0, empty="one")]
    assert differing_rules(records) == {"window": [6, None, 6], "empty": [None, None, "one"]}
    assert differing_rules(records[:1]) == differing_rules([]) == {}


def test_records_of_before_are_of_the_rules_that_held_then():
    before = record(window=None)
    assert differing_rules([before, record(window=None, fit="refuse", uncovered="background")]) == {}
    assert differing_rules([before, record(window=None, fit="crop")]) == {"fit": ["refuse", "crop"]}
    assert rules_of(before, "miou/video") == rules_of(record(window=None, fit="refuse"), "miou/video")
    assert rules_of(before, "miou/video") != rules_of(record(window=None, uncovered="void"), "miou/video")


def test_how_many_cameras_there_are_is_a_rule_of_every_score_and_the_length_none_of_a_step():
    found = record(window=None) | {"frames": {"lengths": {"6": 2}, "views": {"3 of 5": 2}}}
    for score, frames in (("fg_ari/scene", True), ("mota", True), ("fg_ari/step", False), ("fg_ari/frame", False)):
        rules = rules_of(found, score)
        assert rules["views"] == ["3 of 5"]
        assert ("frames" in rules) is frames, score
    assert "views" not in rules_of(record(window=None), "fg_ari/frame")


def test_the_hash_tells_lists_of_clips_apart_and_not_their_order():
    assert clip_list_hash(["b", "a"]) == clip_list_hash(["a", "b"])
    assert len({clip_list_hash(names) for names in (["a", "b"], ["ab"], ["a"], [], ["a", "b", "b"])}) == 5
    assert len(clip_list_hash(["\udc80"])) == 64


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"record": "another"}, "is not of this version: its 'record' is 'another'"),
        ({"format": 2}, "is not of this version: its 'format' is 2"),
        ({"rules": []}, "its 'rules' is a list; expected an object"),
        ({"scores": None}, "its 'scores' is None; expected an object"),
    ],
)
def test_other_files_are_refused(tmp_path, change, said):
    (tmp_path / "a.json").write_text(json.dumps(record() | change))
    with pytest.raises(FileError, match=said):
        read_record(tmp_path / "a.json", EvaluationRecord)
