"""The pictures of a comparison's page: which of a run's files, in which order, and how many fit."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from slotbench.comparison.html_media import embed, newest
from slotbench.comparison.records import Comparison, Row, RunRecord


def _run(number: int = 0, **fields: Any) -> RunRecord:
    return RunRecord(f"id-{number}", f"run {number}", f"runs/{number}", "finished", {}, {}, **fields)


def _comparison(*runs: RunRecord) -> Comparison:
    return Comparison("of runs", [], [], [Row(run.name, {}, [run], {}) for run in runs])


def test_the_newest_file_of_every_name():
    names = [
        "a_step0000100.png",
        "a_step0002000.png",
        "b_latest.gif",
        "b_step0009000.gif",
        "loss.png",
        "log.txt",
        "c.PNG",
    ]
    found = {medium.name: medium.path.name for medium in newest([Path(name) for name in names])}
    assert found == {"a.png": "a_step0002000.png", "b.gif": "b_latest.gif", "loss.png": "loss.png", "c.png": "c.PNG"}


def _file(path: Path, size: int, fill: int) -> Path:
    """A file that begins as a picture of one pixel does."""
    begins = {
        ".png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\2\0\0\0" + bytes(4) + b"\0\0\0\0IEND" + bytes(4),
        ".gif": b"GIF89a\1\0\1\0\0\0\0\x3b",
    }.get(path.suffix, b"")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((begins + bytes([fill]) * size)[:size])
    return path


def test_the_first_run_of_every_row_and_what_most_rows_have_goes_in_first(tmp_path):
    def run(number: int, *names: str) -> RunRecord:
        return _run(number, media=[_file(tmp_path / str(number) / name, 300, number + len(name)) for name in names])

    rows = [
        Row("one", {}, [run(0, "clip.png", "loss.png"), run(1, "clip.png")], {}),
        Row("two", {}, [run(2, "clip.png", "alone.png")], {}),
    ]
    entries, _ = embed(Comparison("", [], [], rows), 10_000)
    assert [(entry["name"], entry["run"]) for entry in entries] == [
        ("clip.png", 0),
        ("clip.png", 2),
        ("alone.png", 2),
        ("clip.png", 1),
        ("loss.png", 0),
    ]


def test_the_budget_is_kept_and_what_is_left_out_is_named(tmp_path):
    runs = [_run(number, media=[_file(tmp_path / f"{number}.png", 3000, number)]) for number in range(5)]
    runs.append(_run(5, media=[_file(tmp_path / "small.png", 30, 9)]))
    entries, contents = embed(_comparison(*runs), 9000)
    assert sum(map(len, contents)) <= 9000
    assert len(contents) == 3
    out = [entry for entry in entries if entry["content"] is None]
    assert len(out) == 3
    assert all(Path(entry["path"]).exists() and entry["bytes"] == 3000 for entry in out)
    assert next(entry for entry in entries if entry["name"] == "small.png")["content"] is not None


def test_a_picture_that_two_runs_share_is_held_once(tmp_path):
    runs = [_run(number, media=[_file(tmp_path / str(number) / "a.png", 300, 7)]) for number in range(3)]
    entries, contents = embed(_comparison(*runs), 10_000)
    assert [entry["content"] for entry in entries] == [0, 0, 0]
    assert base64.b64decode(contents[0].removeprefix("data:image/png;base64,")).endswith(bytes([7]) * 200)


def test_a_picture_that_is_gone_is_said_to_be(tmp_path):
    ((entry,), contents) = embed(_comparison(_run(media=[tmp_path / "gone.png"])), 10_000)
    assert contents == []
    assert entry["content"] is None
    assert "there is no file" in entry["problem"]
