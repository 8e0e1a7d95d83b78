"""`slotbench compare`: what it prints and writes, and how it fails."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from slotbench.cli import run

SCORES = {"SlotSSM": [0.90, 0.91, 0.92], "RIM": [0.3, 0.5, 0.4]}


@pytest.fixture
def runs(tmp_path, monkeypatch) -> Path:
    """Two cores with three seeds each below `runs/balls`, in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    # whatever key there is on this machine
    for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_BASE_URL", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    for core, values in SCORES.items():
        for seed, value in enumerate(values):
            write_run(tmp_path / "runs" / "balls" / f"{core}-{seed}", core, seed, value)
    return tmp_path / "runs" / "balls"


def write_run(folder: Path, core: str, seed: int, value: float) -> None:
    folder.mkdir(parents=True)
    record = {
        "id": folder.name,
        "name": "balls",
        "state": "finished",
        "parameters": {"total": 1500},
        "seconds_per_step": 0.1,
        "headlines": [{"metric": "val/iou", "label": "IoU", "higher_is_better": True, "baselines": {"copy": 0.4}}],
        "metrics": {"val/iou": value, "val/loss": 1 - value, "train/loss": 0.5},
    }
    (folder / "run.json").write_text(json.dumps(record))
    (folder / "config.yaml").write_text(yaml.safe_dump({"seed_everything": seed, "model": {"core": core}}))
    rows = [{"step": 1, "val/iou": 0.95, "val/loss": 0.2}, {"step": 2, "val/iou": value, "val/loss": 1 - value}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_help_has_an_example(capsys):
    assert run(["compare", "--help"]) == 0
    assert "slotbench compare runs/bouncing_balls" in capsys.readouterr().out


def test_a_part_of_the_runs(runs, capsys):
    wanted = ["--only", "core=R?M", "seed_everything=0", "seed_everything=2"]
    assert run(["compare", "runs/balls", *wanted, "--format", "csv"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    (row,) = [row for row in rows if row["kind"] == "runs"]
    assert (row["runs"], float(row["val/iou"])) == ("2", pytest.approx(0.35))
    assert run(["compare", "runs/balls", *wanted, "--format", "markdown"]) == 0
    assert "- 2 of 6 runs: those with core=R?M, seed_everything=0, seed_everything=2" in capsys.readouterr().out


def test_a_part_of_a_grid_has_the_columns_that_it_has(runs, capsys, tmp_path):
    grid = {"base": "b.yaml", "product": {"model.core": ["RIM"]}, "metrics": ["val/iou", "val/rim"]}
    (tmp_path / "balls.yaml").write_text(yaml.safe_dump(grid))
    (tmp_path / "b.yaml").write_text("model: {core: RIM}")
    record = runs / "RIM-0" / "run.json"
    found = json.loads(record.read_text())
    record.write_text(json.dumps(found | {"metrics": {**found["metrics"], "val/rim": 0.7}}))
    for core, columns in (("RIM", ["val/iou", "val/rim"]), ("SlotSSM", ["val/iou"])):
        assert run(["compare", "balls.yaml", "--only", f"core={core}", "--format", "csv"]) == 0
        header = capsys.readouterr().out.splitlines()[0].split(",")
        assert [name for name in header if name.startswith("val/") and "_" not in name] == columns


@pytest.mark.parametrize(
    ("only", "words"),
    [
        ("core=PSB", ["no run has core=PSB; they have model.core: RIM, SlotSSM"]),
        ("core", ["--only 'core': expected KEY=VALUE, such as data.level=a"]),
        ("level=a", ["no run has a setting level", "model.core"]),
    ],
)
def test_a_part_that_there_is_not(runs, capsys, only, words):
    assert run(["compare", "runs/balls", "--only", only]) == 2
    said = capsys.readouterr()
    assert not said.out
    assert all(word in said.err for word in words), said.err


def test_the_table(runs, capsys):
    assert run(["compare", "runs/balls"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "balls"
    assert lines[2].split()[:2] == ["copy", "0.400"]
    assert lines[3].split()[:6] == ["SlotSSM", "1,500", "0.100", "0.910", "±", "0.010"]
    assert lines[4].split()[0] == "RIM"


def test_torch_is_not_imported(runs):
    code = (
        "import sys; from slotbench.cli import run; code = run(['compare', 'runs/balls', '--out', 'x.md']); "
        "print(code, [name for name in ('torch', 'lightning', 'wandb', 'matplotlib', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"


@pytest.mark.parametrize(
    ("name", "beginning"),
    [
        ("t.csv", "kind,label,model.core"),
        ("t.md", "### balls"),
        ("t.tex", "% balls"),
        ("t.json", "{"),
        ("t.txt", "balls\n"),
    ],
)
def test_the_format_follows_from_the_file(runs, capsys, name, beginning):
    assert run(["compare", "runs/balls", "--out", f"deep/{name}"]) == 0
    assert Path("deep", name).read_text().startswith(beginning)
    assert capsys.readouterr().out == f"wrote deep/{name}\n"
    assert os.listdir("deep") == [name]


def test_a_format_on_standard_output_is_nothing_else(runs, capsys):
    assert run(["compare", "runs/balls", "--format", "csv", "--runs"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [float(row["val/iou"]) for row in rows] == sorted([*SCORES["RIM"], *SCORES["SlotSSM"]], reverse=True)


def test_json_has_every_value_in_full(runs, capsys):
    assert run(["compare", "runs/balls", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["title"] == "balls"
    assert document["command"] == "slotbench compare runs/balls --json"
    assert document["keys"] == ["model.core"]
    iou = document["metrics"][0]
    assert (iou["name"], iou["label"], iou["higher_is_better"]) == ("val/iou", "IoU", True)
    assert (iou["baselines"], iou["oracles"]) == ({"copy": 0.4}, {})
    best, other = document["rows"]
    assert (best["label"], best["settings"]) == ("SlotSSM", {"model.core": "SlotSSM"})
    assert (best["parameters"], best["seconds_per_step"], best["unfinished"]) == (1500, 0.1, 0)
    assert (best["success"], other["success"]["beat_the_best_baseline"]) == (
        {"seeds": 3, "beat_the_best_baseline": 3},
        1,
    )
    assert [found["id"] for found in best["runs"]] == ["SlotSSM-0", "SlotSSM-1", "SlotSSM-2"]
    assert best["scores"]["val/iou"]["values"] == SCORES["SlotSSM"]
    assert best["scores"]["val/iou"]["std"] == pytest.approx(0.01)
    assert best["scores"]["val/iou"]["is_best"] is True
    assert other["scores"]["val/iou"]["is_best"] is False


def words_of(value):
    """All text of a document."""
    if isinstance(value, dict):
        return [*value, *(word for part in value.values() for word in words_of(part))]
    if isinstance(value, list):
        return [word for part in value for word in words_of(part)]
    return [value] if isinstance(value, str) else []


def test_json_is_strict_and_no_name_in_it_is_obeyed_by_a_terminal(runs, capsys):
    write_run(runs / "odd", "A\x1b[2J\u202e" * 3000, 0, 0.5)
    record = json.loads((runs / "odd" / "run.json").read_text())
    record |= {"name": "b\x1b[2J", "step": "many", "metrics": {"val/iou": "NaN", "val/\x1b[2Jloss": 1e999}}
    (runs / "odd" / "run.json").write_text(json.dumps(record))
    assert run(["compare", "runs/balls", "--runs", "--json"]) == 0
    text = capsys.readouterr().out
    assert text.isascii()
    assert len(text) < 200_000
    # what is escaped would be obeyed again where a program prints the value
    assert all(word.isprintable() for word in words_of(json.loads(text, parse_constant=pytest.fail)))


def test_the_command_is_the_line_that_was_typed(runs, capsys):
    assert run(["compare", "runs/balls", "--metric", "val/*", "--format", "markdown"]) == 0
    assert "    slotbench compare runs/balls --metric 'val/*' --format markdown\n" in capsys.readouterr().out


def test_columns_rows_and_values_can_be_chosen(runs, capsys):
    words = ["runs/balls", "--metric", "val/loss", "train/loss", "--by", "core", "--select", "best", "--title", "Mine"]
    assert run(["compare", *words, "--format", "markdown"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("### Mine\n")
    assert "| core | parameters | s per step | loss ↓ | train/loss ↓ | seeds |" in out
    # its best validation was the first one: a loss of 0.2 for RIM
    assert "| RIM | 1,500 | 0.100 | 0.200 ± 0.000 |" in out


def test_sources_may_follow_options(runs, capsys):
    assert run(["compare", "--all", "runs/balls/RIM-0", "--format", "csv", "runs/balls/RIM-1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split(",")[2:5] == ["1500", "0.1", "2"]


def test_a_grid_file_knows_its_metrics(runs, capsys):
    Path("balls.yaml").write_text(yaml.safe_dump({"base": "x.yaml", "metrics": ["val/loss"]}))
    assert run(["compare", "balls.yaml", "--format", "csv"]) == 0
    header = capsys.readouterr().out.splitlines()[0]
    assert "val/loss" in header
    assert "val/iou" not in header


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["compare needs runs", "slotbench compare runs/NAME"]),
        (["--by", "core", "runs/balls"], ["compare needs runs before --metric, --only and --by"]),
        (["runs/bals"], ["no run folder at runs/bals", "did you mean runs/balls?"]),
        (["run/balls"], ["no run folder at run/balls", "did you mean runs/balls?"]),
        (["runs/bals/RIM-0"], ["did you mean runs/balls/RIM-0?"]),
        (["runs/bals/RIM-7"], ["did you mean runs/balls?"]),
        (["runs/balls/RIM0"], ["did you mean runs/balls/RIM-0?"]),
        (["runs/balls", "--metric", "val/ious"], ["no run has a metric val/ious; did you mean val/iou?", "val/loss"]),
        (["runs/balls", "--metric", "iou/slots"], ["no run has a metric iou/slots; did you mean val/iou?", "val/loss"]),
        (["runs/balls", "--metric", "loss of val"], ["no run has a metric loss of val; did you mean val/loss?"]),
        (["runs/balls", "--sort", "speed"], ["no run has a metric speed metrics: val/iou, val/loss"]),
        (["runs/balls", "--by", "model.cor"], ["no run has a setting model.cor; did you mean model.core?"]),
        (["runs/balls", "--out", "table"], ["does not say which format", ".tex"]),
        (["runs/balls", "--out", "runs"], ["is a folder"]),
        (["runs/balls", "--format", "word"], ["invalid choice", "--help"]),
        (["runs/balls", "--colour"], ["unrecognized arguments: --colour"]),
        (["grid.yaml"], ["no point of grid.yaml has run yet", "slotbench grid run grid.yaml"]),
        (["half"], ["half is a half-written run: run.json is cut off"]),
        (["wandb:"], ["wandb:ENTITY/PROJECT"]),
        (["wandb:me/project"], ["no W&B key"]),
        (["wandb-offline:nowhere"], ["no W&B runs at nowhere"]),
        (["runs/balls", "--wandb_report", "me/project"], ["no W&B report", "no W&B key"]),
    ],
)
def test_what_cannot_be_compared_is_said_in_a_sentence(runs, capsys, arguments, words):
    Path("grid.yaml").write_text("base: x.yaml\n")
    Path("half").mkdir()
    Path("half/run.json").write_text('{"id": "x')
    assert run(["compare", *arguments]) == 2
    printed = " ".join(capsys.readouterr().err.split())
    assert all(word in printed for word in words), printed
    assert "Traceback" not in printed


def test_a_half_written_run_among_others_is_a_note(runs, capsys):
    (runs / "RIM-1" / "run.json").write_text("")
    assert run(["compare", "runs/balls"]) == 0
    out = capsys.readouterr().out
    assert "RIM-1 is a half-written run" in out
    assert "rows have different seeds" in out


def test_a_run_whose_files_cannot_be_read_hides_no_other(runs, capsys):
    (runs / "RIM-1" / "metrics.jsonl").unlink()
    (runs / "RIM-1" / "config.yaml").unlink()
    (runs / "RIM-1" / "config.yaml").mkdir()
    assert run(["compare", "runs/balls"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "RIM-1/config.yaml is a folder" in said
    assert "SlotSSM" in said


def test_a_file_that_cannot_be_written(runs, capsys):
    Path("file").touch()
    assert run(["compare", "runs/balls", "--out", "file/table.md"]) == 2
    assert "cannot be written" in " ".join(capsys.readouterr().err.split())


def test_scores_that_have_moved_from_a_stored_table_end_with_1(runs, capsys):
    assert run(["compare", str(runs), "--out", "stored.csv"]) == 0
    assert run(["compare", str(runs), "--against", "stored.csv"]) == 0
    assert "no score of stored.csv has changed" in capsys.readouterr().err
    for seed in range(3):
        write_run(runs.parent / "later" / f"SlotSSM-{seed}", "SlotSSM", seed, 0.5 + 0.01 * seed)
    assert run(["compare", str(runs.parent / "later"), "--against", "stored.csv"]) == 1
    said = capsys.readouterr().err
    assert "SlotSSM, val/iou: 0.91 ± 0.01 (3) is stored, and now it is 0.51 ± 0.01 (3)" in said
    assert "RIM, val/iou: 0.4 is stored, and nothing is there now" in said
    assert run(["compare", str(runs), "--against", "nowhere.csv"]) == 2
