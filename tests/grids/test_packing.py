"""The records of a grid as one file: the way there and back, what is left out, and archives that are none of ours."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest
import stand_in_grid

from slotbench.cli import run
from slotbench.grids import packing

GRID = "widths.yaml"


@pytest.fixture
def done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a grid of three points; the last has diverged, and has none of the others' extra files."""
    monkeypatch.chdir(tmp_path)
    stand_in_grid.stand_in(monkeypatch)
    stand_in_grid.write_grid(tmp_path, (1, 2, 3))
    stand_in_grid.fault(tmp_path, 3, 0, "diverge")
    run(["grid", "run", GRID])
    folder = tmp_path / "runs/widths"
    first = point(folder, 1)
    (first / "metrics.jsonl").write_text('{"step": 1, "val/loss": 0.5}\n')
    (first / "config.yaml").write_text(f"data: {tmp_path}/clips.h5\n")
    (first / "val-decoder.json").write_text("{}")
    (first / "checkpoints").mkdir()
    (first / "checkpoints" / "last.ckpt").write_bytes(b"weights")
    return folder


def point(folder: Path, width: int) -> Path:
    (found,) = folder.glob(f"dim={width},*")
    return found


def states(capsys: pytest.CaptureFixture[str]) -> list[str]:
    capsys.readouterr()
    run(["grid", "status", GRID, "--json"])
    return [row["state"] for row in json.loads(capsys.readouterr().out)["points"]]


def texts_in(archive: str) -> dict[str, str]:
    """The texts of an archive by "POINT/FILE"."""
    with zipfile.ZipFile(archive) as packed:
        lines = [json.loads(line) for line in packed.read("records.jsonl").splitlines()]
    return {f"{point_id}/{name}": text for point_id, name, text in lines}


def write_archive(archive: str, texts: dict[str, str], a_member_each: bool = False) -> None:
    """An archive of these texts, in the layout of now or in the one of before."""
    with zipfile.ZipFile(archive, "w") as packed:
        if a_member_each:
            for name, text in texts.items():
                packed.writestr(name, text)
        else:
            rows = [[*name.partition("/")[::2], text] for name, text in texts.items()]
            packed.writestr("records.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))


def refusal(*arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert run(["grid", *arguments]) == 2
    return capsys.readouterr().err


def test_what_is_unpacked_is_done_and_is_not_run_again(done, tmp_path, capsys):
    before = {path.name: path.read_text() for path in point(done, 1).iterdir() if path.is_file()}
    assert run(["grid", "pack", GRID, "kept.zip"]) == 0
    assert "records of 3 points of 3" in capsys.readouterr().out
    shutil.rmtree(done)
    assert run(["grid", "unpack", GRID, "kept.zip"]) == 0
    assert "3 points unpacked, 0 were there already" in capsys.readouterr().out
    assert states(capsys) == ["done", "done", "diverged"]
    first = point(done, 1)
    for name in ("metrics.jsonl", "result.json", "val-decoder.json"):
        assert (first / name).read_text() == before[name]
    assert not (first / "checkpoints").exists()
    run(["grid", "run", GRID])
    assert not list(done.glob("*/starts.txt"))


def test_only_the_rest_of_a_half_run_study_is_run(done, capsys):
    shutil.rmtree(point(done, 2))
    run(["grid", "pack", GRID, "kept.zip"])
    shutil.rmtree(done)
    run(["grid", "unpack", GRID, "kept.zip"])
    assert states(capsys) == ["done", "waiting", "diverged"]
    run(["grid", "run", GRID])
    assert [path.parent for path in done.glob("*/starts.txt")] == [point(done, 2)]


def test_an_archive_says_nothing_of_the_machine_and_is_the_same_each_time(done, tmp_path):
    run(["grid", "pack", GRID, "kept.zip"])
    first = Path("kept.zip").read_bytes()
    run(["grid", "pack", GRID, "kept.zip"])
    assert Path("kept.zip").read_bytes() == first
    texts = texts_in("kept.zip")
    assert not [name for name, text in texts.items() if str(tmp_path) in text]
    records = [json.loads(text) for name, text in texts.items() if name.endswith("run.json")]
    assert records
    assert not [record for record in records if record.keys() & {"host", "pid"}]
    assert any(text == "data: clips.h5\n" for text in texts.values())


def test_paths_of_another_checkout_in_which_it_was_run_are_cut_off_too(done, tmp_path):
    record = json.loads((done / "grid.json").read_text())
    (done / "grid.json").write_text(json.dumps(record | {"file": f"/elsewhere/project/{GRID}"}))
    (point(done, 2) / "config.yaml").write_text("data: /elsewhere/project/clips.h5\n")
    run(["grid", "pack", GRID, "kept.zip"])
    assert texts_in("kept.zip")[f"{point(done, 2).name}/config.yaml"] == "data: clips.h5\n"


def test_whole_paths_in_the_command_of_a_run_that_was_taken_in_are_names_only(done, tmp_path):
    record = json.loads((point(done, 2) / "run.json").read_text())
    command = "slotbench fit --config /home/me/a.yaml --data.path=/home/me/b.h5 --rate 1/2 --name x=1/y --log '/tmp/z'"
    record["command"] = f"{command} --config {tmp_path}/b/c.yaml"
    (point(done, 2) / "run.json").write_text(json.dumps(record))
    run(["grid", "pack", GRID, "kept.zip"])
    kept = json.loads(texts_in("kept.zip")[f"{point(done, 2).name}/run.json"])["command"]
    assert kept == (
        "slotbench fit --config a.yaml --data.path=b.h5 --rate 1/2 --name x=1/y --log 'z' --config b/c.yaml"
    )


def test_evaluations_of_runs_that_were_elsewhere_name_their_weights_by_file_alone(done, tmp_path):
    elsewhere = "/home/me/studies/width=2,seed=0-ab/checkpoints/last.ckpt"
    record = {"checkpoint": elsewhere, "rules": {"note": "a/b"}, "run": {"checkpoint": "runs/a/last.ckpt"}}
    name = "validate-20261124-134746-decoder.json"
    (point(done, 2) / name).write_text(json.dumps(record))
    run(["grid", "pack", GRID, "kept.zip"])
    kept = json.loads(texts_in("kept.zip")[f"{point(done, 2).name}/{name}"])
    assert kept == record | {"checkpoint": "last.ckpt"}


def test_what_was_read_off_a_run_is_kept(done):
    (point(done, 2) / "probe.json").write_text('{"checkpoint": "/home/me/runs/last.ckpt", "factors": {}}')
    run(["grid", "pack", GRID, "kept.zip"])
    shutil.rmtree(done)
    assert run(["grid", "unpack", GRID, "kept.zip"]) == 0
    assert json.loads((point(done, 2) / "probe.json").read_text()) == {"checkpoint": "last.ckpt", "factors": {}}


def test_points_that_are_there_are_left_as_they_are(done, capsys):
    run(["grid", "pack", GRID, "kept.zip"])
    (point(done, 1) / "metrics.jsonl").write_text("newer\n")
    assert run(["grid", "unpack", GRID, "kept.zip"]) == 0
    assert "0 points unpacked, 3 were there already" in capsys.readouterr().out
    assert (point(done, 1) / "metrics.jsonl").read_text() == "newer\n"
    assert (point(done, 1) / "checkpoints" / "last.ckpt").exists()


def test_records_of_another_experiment_are_left_out_and_named(done, tmp_path, capsys):
    run(["grid", "pack", GRID, "kept.zip"])
    shutil.rmtree(done)
    (tmp_path / "base.yaml").write_text("model: {class_path: OtherTask}\n")
    capsys.readouterr()
    assert run(["grid", "unpack", GRID, "kept.zip"]) == 1
    said = capsys.readouterr().out
    assert said.count("left out: dim=") == 3
    assert not list(done.glob("dim=*"))


def test_there_must_be_something_to_pack_and_a_name_for_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    stand_in_grid.write_grid(tmp_path, (1,))
    assert "has no point that has ended" in refusal("pack", GRID, "kept.zip", capsys=capsys)
    assert not Path("kept.zip").exists()
    assert "type a name that ends in .zip" in refusal("pack", GRID, "kept.tar", capsys=capsys)
    assert "needs a grid file and an archive" in refusal("unpack", GRID, capsys=capsys)
    assert "there is no file kept.zip" in refusal("unpack", GRID, "kept.zip", capsys=capsys)


def test_archives_with_a_member_for_each_file_are_read_as_before(done):
    run(["grid", "pack", GRID, "kept.zip"])
    write_archive("before.zip", texts_in("kept.zip"), a_member_each=True)
    shutil.rmtree(done)
    assert run(["grid", "unpack", GRID, "before.zip"]) == 0
    assert run(["grid", "pack", GRID, "again.zip"]) == 0
    assert texts_in("again.zip") == texts_in("kept.zip")


@pytest.mark.parametrize("a_member_each", [True, False])
@pytest.mark.parametrize("name", ["../outside.json", "/etc/passwd", "a/b/run.json", "a/checkpoints", "run.json"])
def test_other_files_than_records_are_refused_before_anything_is_written(done, tmp_path, capsys, name, a_member_each):
    run(["grid", "pack", GRID, "kept.zip"])
    shutil.rmtree(done)
    write_archive("kept.zip", texts_in("kept.zip") | {name: "{}"}, a_member_each)
    assert "is no archive of a grid: it holds" in refusal("unpack", GRID, "kept.zip", capsys=capsys)
    assert not list(done.glob("dim=*"))
    assert not (tmp_path / "runs/outside.json").exists()


@pytest.mark.parametrize("a_member_each", [True, False])
def test_damaged_archives_end_in_a_sentence_and_leave_no_half_point(done, monkeypatch, capsys, a_member_each):
    run(["grid", "pack", GRID, "kept.zip"])
    name = point(done, 1).name
    shutil.rmtree(done)
    whole = texts_in("kept.zip")
    write_archive("kept.zip", whole, a_member_each)
    content = Path("kept.zip").read_bytes()
    Path("cut.zip").write_bytes(content[: len(content) // 2])
    assert "is no archive of a grid, or is damaged" in refusal("unpack", GRID, "cut.zip", capsys=capsys)
    for content, words in (("[]", "holds no JSON object"), ("{", "is not valid JSON")):
        write_archive("kept.zip", whole | {f"{name}/result.json": content}, a_member_each)
        assert words in refusal("unpack", GRID, "kept.zip", capsys=capsys)
    write_archive("kept.zip", whole | {f"{name}/point.json": json.dumps({"id": "other"})}, a_member_each)
    assert "its point.json is of another point" in refusal("unpack", GRID, "kept.zip", capsys=capsys)
    write_archive("kept.zip", whole, a_member_each)
    monkeypatch.setattr(packing, "RECORD_LIMIT", 10)
    assert "than the 10 bytes" in refusal("unpack", GRID, "kept.zip", capsys=capsys)
    assert not list(done.glob("dim=1*"))
    assert not list(done.glob(".adopted*"))


@pytest.mark.parametrize("line", ["{}", "[1, 2, 3]", '["a", "run.json"]', "nothing", "[" * 5000])
def test_lines_that_are_no_records_are_refused(done, capsys, line):
    run(["grid", "pack", GRID, "kept.zip"])
    with zipfile.ZipFile("kept.zip", "w") as packed:
        packed.writestr("records.jsonl", f"{line}\n")
    assert "kept.zip" in refusal("unpack", GRID, "kept.zip", capsys=capsys)
