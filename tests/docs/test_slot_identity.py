"""`docs/scripts/slot_identity.py`: runs and trackers on long clips, and what pages make of the records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from docs_scripts import assert_tables_are_made_again, docs_script
from tiny_discovery import tiny_discovery, train

from slotbench.config.run_loading import load_run
from slotbench.data.base import LoaderOptions
from slotbench.data.movi_like.movi_like import MOViLike
from slotbench.files import read_json

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch):
    with docs_script("slot_identity") as script:
        monkeypatch.setattr(script, "LENGTHS", (2, 4, 8))
        monkeypatch.setattr(script, "CLIPS", 3)
        yield script


def test_runs_are_scored_as_by_the_test_of_long_clips(script, tmp_path, monkeypatch, capsys):
    run = train(tiny_discovery(steps=1, clips=(2, 5)), tmp_path / "runs" / "tiny")
    monkeypatch.setattr(script, "data_of", lambda orbit: load_run(run, changes={"data.eval_frames": 8}).data)
    assert script.main(["run", str(run), "--out", str(tmp_path / "out")]) == 0
    files = sorted((tmp_path / "out").iterdir())
    assert [path.name for path in files] == [f"{run.name}-circling.json", f"{run.name}-fixed.json"]
    record = json.loads(files[0].read_text())
    assert (record["name"], record["clips"], record["training_frames"], record["step"]) == ("SAVi", 3, 2, 1)
    assert list(record["lengths"]) == ["2", "4", "8"]
    from slotbench.cli import run as slotbench

    assert slotbench(["test", str(run), "--lengths", "4", "--clips", "3"]) == 0
    (theirs,) = run.glob("lengths-*-4T-decoder.json")
    scores = {name: score["mean"] for name, score in read_json(theirs)["scores"].items()}
    found = record["lengths"]["8"]
    for name in ("hota", "mota", "fg_ari/video", "switches_per_object"):
        assert found.get(name) == pytest.approx(scores.get(name), abs=1e-6)
    capsys.readouterr()
    assert script.main(["run", str(run), "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.count("done before") == 2


def test_trackers_and_what_is_hidden(script, tmp_path, monkeypatch):
    def data_of(orbit):
        loader = LoaderOptions(batch_size=2, val_batch_size=2)
        sizes = {"resolution": 24, "num_objects": (3, 5), "video_frames": 8, "eval_frames": 8, "num_frames": 2}
        data = MOViLike(**sizes, test_videos=3, spread=2.0, samples_per_side=1, orbit=orbit, loader=loader)
        data.setup("test")
        return data

    monkeypatch.setattr(script, "data_of", data_of)
    monkeypatch.setattr(script, "CAMERAS", {"circling": 20.0})
    assert script.main(["trackers", "--out", str(tmp_path)]) == 0
    found = {record["name"]: record for record in script.read_records(tmp_path) if "name" in record}
    assert set(found) == set(script.makers())
    for length in ("2", "8"):
        true = found[script.TRUE]["lengths"][length]
        assert (true["hota"], true["switches_per_object"], true["identity"]) == (1, 0, 1)
        assert found[script.LINKED]["lengths"][length]["deta"] == 1
    (hidden,) = (record["hidden"] for record in script.read_records(tmp_path) if "hidden" in record)
    for shares in hidden.values():
        assert 0 <= shares["hidden"] <= shares["half"] <= shares["part"] < 1
    assert hidden["8"]["part"] > 0
    assert hidden["8"]["objects"] >= 9


def written(folder: Path, script, name: str, values: list[float | None], **of: object) -> None:
    for seed, value in enumerate(values):
        life = {"half_life": None if value is None else 10 * value}
        scores = {"hota": value, "misses": 0.6, "identity": 0.25, "switches_per_object": 1.0} | life
        lengths = {length: {key: one for key, one in scores.items() if one is not None} for length in script.LENGTHS}
        record = {"name": name, "camera": "circling", "lengths": lengths} | of
        if "run" in record:
            record["run"] = f"{name}{seed}"
        (folder / f"{name}-{seed}.json").write_text(json.dumps(record))


def test_the_table_has_means_over_seeds_and_the_median_life(script, tmp_path, capsys):
    written(tmp_path, script, "OCSlotSSM", [0.2, 0.3, 0.4], run="")
    written(tmp_path, script, "guess", [0.5])
    written(tmp_path, script, script.TRUE, [1.0])
    assert script.main(["table", "--records", str(tmp_path)]) == 0
    rows = capsys.readouterr().out.splitlines()[2:]
    assert rows == [
        "| OC-SlotSSM, n = 3 | 0.300 ± 0.100 | 0.25 ± 0.00 | 0.40 ± 0.00 | 1.00 ± 0.00 | 3 |",
        "| *guess* | 0.500 | 0.25 | 0.40 | 1.00 | 5 |",
    ]
    assert script.main(["table", "--records", str(tmp_path), "--camera", "fixed"]) == 0
    written(tmp_path, script, "SAVi", [None, None, 0.4], run="")
    script.main(["table", "--records", str(tmp_path)])
    assert "| > 7 |" in next(row for row in capsys.readouterr().out.splitlines() if row.startswith("| SAVi"))


def test_the_tests_of_verdicts_read_the_records(script, tmp_path):
    written(tmp_path, script, "OCSlotSSM", [0.2, 0.3, 0.4], run="")
    written(tmp_path, script, "guess", [0.5])
    import contrasts

    runs = contrasts.identity(tmp_path)
    assert [run.settings["model.core"] for run in runs] == ["OCSlotSSM"] * 3
    assert [run.scores["circling, 8/hota"] for run in runs] == [0.2, 0.3, 0.4]
    assert {run.scores["guess, circling, 8/hota"] for run in runs} == {0.5}


def test_the_committed_records_make_the_table_of_the_page_again():
    page = (DOCS / "results" / "slot_identity.md").read_text(encoding="utf-8")
    assert_tables_are_made_again(page, Path("nowhere"))
