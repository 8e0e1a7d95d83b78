"""Scores of different rules never stand in one column, and a table says which rules differ."""

from __future__ import annotations

import json
import os
from pathlib import Path

import made_up_runs
import pytest

from slotbench.comparison.records import ComparisonError
from slotbench.comparison.run_folders import read_run_folder
from slotbench.comparison.table import compare
from slotbench.runs.evaluation_record import make_record, record_file, write_record

VIDEO, FRAME = "val/fg_ari/video/decoder", "val/fg_ari/frame/decoder"
HEADLINE = {"metric": VIDEO, "label": "FG-ARI", "higher_is_better": True}


def scored_run(
    folder: Path, score: float, frames: int | None, stage: str = "val", truth: str = "a", core: str = "SAVi", **rules
) -> Path:
    """A run with a baseline of its own; without a record of its scores if `frames` is None."""
    if not folder.exists():
        made_up_runs.make_run(
            folder,
            made_up_runs.config(core, data_frames=frames or 99),
            {VIDEO: score, FRAME: score + 0.1},
            headlines=[HEADLINE | {"baselines": {"grid": (frames or 99) / 100}}],
            metrics_step=100,
        )
    if frames is not None:
        record = make_record(
            data={"name": "Clips", "version": "1", "split": stage},
            masks={"source": "decoder"},
            rules={"empty": "one", "window": None} | rules,
            clips={"scored": 8, "there": 8, "truth": truth},
            frames={"lengths": {str(frames): 8}},
            scores={name: {"mean": score} for name in ("fg_ari/video", "fg_ari/frame", "mota")},
            baselines={},
            more={"step": 100},
        )
        evaluation = "val" if stage == "val" else "test-20260131-120000"
        write_record(record_file(folder, evaluation, "decoder"), record)
    return folder


def table(*folders: Path, **arguments):
    return compare([read_run_folder(folder) for folder in folders], **arguments)


def columns(found) -> dict[str, list[float]]:
    return {
        metric.name: [row.cells[metric.name].mean for row in found.rows if metric.name in row.cells]
        for metric in found.metrics
    }


def test_videos_of_other_lengths_are_columns_of_their_own_and_frames_are_not(tmp_path):
    runs = [scored_run(tmp_path / "a", 0.5, 6), scored_run(tmp_path / "b", 0.9, 24)]
    found = table(*runs, metrics=[VIDEO, FRAME])
    assert columns(found) == {f"{VIDEO} (6 frames)": [0.5], f"{VIDEO} (24 frames)": [0.9], FRAME: [0.6, 1.0]}
    assert [metric.label for metric in found.metrics][:2] == ["FG-ARI (6 frames)", "FG-ARI (24 frames)"]
    assert f"{VIDEO} of 6 frames and of 24 frames are different scores, in columns of their own" in found.notes
    assert all(metric.higher_is_better for metric in found.metrics)


def test_each_column_has_the_baselines_of_its_rule(tmp_path):
    found = table(scored_run(tmp_path / "a", 0.5, 6), scored_run(tmp_path / "b", 0.9, 24))
    assert [metric.baselines for metric in found.metrics[:2]] == [{"grid": 0.06}, {"grid": 0.24}]


def test_any_rule_that_differs_is_named(tmp_path):
    found = table(
        scored_run(tmp_path / "a", 0.5, 6, empty="skip"), scored_run(tmp_path / "b", 0.9, 6), metrics=[VIDEO, FRAME]
    )
    assert list(columns(found)) == [f"{name} (empty {value})" for name in (VIDEO, FRAME) for value in ("skip", "one")]


def test_the_same_rules_are_one_column_without_a_word(tmp_path):
    found = table(scored_run(tmp_path / "a", 0.5, 6), scored_run(tmp_path / "b", 0.9, 6, core="PSB"))
    assert columns(found) == {VIDEO: [0.9, 0.5]}
    assert not any("rules" in note or "clips" in note or "scores" in note for note in found.notes)


def test_a_run_without_a_record_stands_in_no_column_of_several(tmp_path):
    runs = [scored_run(tmp_path / "a", 0.5, 6), scored_run(tmp_path / "c", 0.7, None)]
    alone = table(*runs)
    assert columns(alone) == {VIDEO: [0.7, 0.5]}
    assert f"no evaluation record says by which rules these scores are: {VIDEO} (1 of 2 runs)" in alone.notes
    found = table(*runs, scored_run(tmp_path / "b", 0.9, 24))
    assert columns(found)[f"{VIDEO} (rules unknown)"] == [0.7]
    assert columns(found)[f"{VIDEO} (6 frames)"] == [0.5]


def test_other_clips_are_one_column_and_a_note(tmp_path):
    runs = [scored_run(tmp_path / "a", 0.5, 6), scored_run(tmp_path / "b", 0.9, 6, truth="b", core="PSB")]
    found = table(*runs, scored_run(tmp_path / "c", 0.4, 6))
    assert columns(found) == {VIDEO: [0.9, 0.45]}
    # the two sets of clips read alike, so a run of each is named
    clips = "8 clips of Clips, val"
    told = f"{VIDEO}: not all runs are scored on the same clips: {clips} (2 runs, such as a); {clips} (1 run, b)"
    assert told in found.notes


def test_a_column_that_is_apart_can_be_sorted_by_and_chosen_by_its_plain_name(tmp_path):
    runs = [scored_run(tmp_path / "a", 0.5, 6), scored_run(tmp_path / "b", 0.9, 24)]
    assert table(*runs, sort="fg_ari/video/decoder").metrics[0].logged == VIDEO
    assert len(table(*runs, metrics=["fg_ari/video/decoder"]).metrics) == 2
    assert [metric.name for metric in table(*runs, metrics=[f"{VIDEO} (24 frames)"]).metrics] == [
        f"{VIDEO} (24 frames)"
    ]


def test_scores_of_tracking_and_of_the_newest_test_are_columns_when_asked_for(tmp_path):
    run = scored_run(scored_run(tmp_path / "a", 0.5, 6), 0.25, 6, stage="test")
    for name, score in (("test-20260131-120000", 0.25), ("test-20260130-120000", 0.1)):
        (run / f"{name}.json").write_text(json.dumps({"metrics": {"test/psnr/frame": score, "other": 1}}))
    found = table(run, metrics=["mota/decoder", "test/*"])
    assert columns(found) == {
        "val/mota/decoder": [0.5],
        "test/psnr/frame": [0.25],
        "test/fg_ari/video/decoder": [0.25],
        "test/fg_ari/frame/decoder": [0.25],
        "test/mota/decoder": [0.25],
    }
    assert columns(table(run)) == {VIDEO: [0.5]}


def test_scores_of_a_record_of_another_step_are_left_out(tmp_path):
    run = scored_run(tmp_path / "a", 0.5, 6)
    record = json.loads((run / "val-decoder.json").read_text())
    (run / "val-decoder.json").write_text(json.dumps(record | {"step": 200}))
    with pytest.raises(ComparisonError, match="no run has a metric"):
        table(run, metrics=["mota/decoder"])


def test_a_record_that_is_damaged_or_not_the_runs_own_is_a_note(tmp_path):
    run = scored_run(tmp_path / "a", 0.5, 6)
    (run / "val-decoder.json").write_text("{")
    os.symlink(scored_run(tmp_path / "b", 0.5, 6) / "val-decoder.json", run / "val-attention.json")
    found = table(run)
    assert columns(found) == {VIDEO: [0.5]}
    (note,) = [note for note in found.notes if "evaluation record" in note]
    assert "val-decoder.json" in note
    assert "val-attention.json is a link that leads out of" in note


def test_foreign_rules_are_cut_short_and_put_on_one_line(tmp_path):
    run = scored_run(tmp_path / "a", 0.5, 6, **{"x\x1b[31m\n": "y" * 100_000, "deep": [[["z" * 1000]] * 100]})
    found = table(run, scored_run(tmp_path / "b", 0.9, 6))
    for metric in found.metrics:
        assert len(metric.name) < 300
        assert metric.name.isprintable()
