"""`slotbench compare`: what it prints and writes, and how it fails."""

from __future__ import annotations

import json
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
    for name in ("WANDB_API_KEY", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_BASE_URL", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    for core, values in SCORES.items():
        for seed, value in enumerate(values):
            folder = tmp_path / "runs" / "balls" / f"{core}-{seed}"
            folder.mkdir(parents=True)
            headline = {"metric": "val/iou", "label": "IoU", "higher_is_better": True, "baselines": {"copy": 0.4}}
            record = {"id": folder.name, "name": "balls", "state": "finished", "seconds_per_step": 0.1}
            record |= {"parameters": {"total": 1500}, "headlines": [headline]}
            record |= {"metrics": {"val/iou": value, "val/loss": 1 - value, "train/loss": 0.5}}
            (folder / "run.json").write_text(json.dumps(record))
            (folder / "config.yaml").write_text(yaml.safe_dump({"seed_everything": seed, "model": {"core": core}}))
            rows = [{"step": 1, "val/iou": 0.95, "val/loss": 0.2}, {"step": 2, "val/iou": value, "val/loss": 1 - value}]
            (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path / "runs" / "balls"


def test_the_table(runs, capsys):
    assert run(["compare", "runs/balls"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "balls"
    rows = [line.split() for line in lines]
    assert ["copy", "0.400"] in [row[:2] for row in rows]
    assert ["SlotSSM", "1,500", "0.100", "0.910", "±", "0.010"] in [row[:6] for row in rows]


def test_neither_torch_nor_bokeh_is_imported_for_a_table(runs):
    code = (
        "import sys; from slotbench.cli import run; code = run(['compare', 'runs/balls', '--out', 'x.md']); "
        "print(code, [name for name in ('torch', 'lightning', 'wandb', 'bokeh') if name in sys.modules])"
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
        ("t.txt", "balls"),
    ],
)
def test_the_format_follows_from_the_file(runs, capsys, name, beginning):
    assert run(["compare", "runs/balls", "--out", f"deep/{name}"]) == 0
    assert Path("deep", name).read_text().startswith(beginning)
    assert capsys.readouterr().out == f"wrote deep/{name}\n"


def test_a_format_on_standard_output_is_nothing_else(runs, capsys):
    assert run(["compare", "runs/balls", "--json", "--html", "page.html"]) == 0
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert document["command"] == "slotbench compare runs/balls --json --html page.html"
    assert "wrote page.html" in said.err
    assert Path("page.html").is_file()


def test_columns_rows_and_values_can_be_chosen(runs, capsys):
    words = [
        "--only",
        "core=R?M",
        "--metric",
        "loss",
        "val/iou",
        "--sort",
        "iou",
        "--select",
        "best",
        "--title",
        "mine",
    ]
    assert run(["compare", *words, "--format", "markdown", "--", "runs/balls"]) == 0
    table = capsys.readouterr().out
    assert "### mine" in table
    assert "IoU ↑ | loss ↓ |" in table
    assert "0.950" in table
    assert "- 3 of 6 runs: those with core=R?M" in table
    assert run(["compare", "runs/balls", "--runs", "--by", "core", "--all", "--format", "csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 7


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["compare needs runs"]),
        (["runs/nowhere"], ["there is no run runs/nowhere"]),
        (["runs/balls", "--metric", "ioo"], ["no run has a metric ioo", "val/iou"]),
        (["runs/balls", "--by", "colour"], ["no run has a setting colour", "model.core"]),
        (["runs/balls", "--only", "core=PSB"], ["no run has model.core=PSB; they have model.core: RIM, SlotSSM"]),
        (["runs/balls", "--out", "t.xls"], ["does not say which format"]),
        (["runs/balls", "--out", "runs"], ["is a folder"]),
        (["wandb:me/balls"], ["no W&B key"]),
        (["wandb:"], ["no project of W&B"]),
    ],
)
def test_what_cannot_be_compared_is_said_in_a_sentence(runs, capsys, arguments, words):
    assert run(["compare", *arguments]) == 2
    said = capsys.readouterr()
    assert not said.out
    assert all(word in said.err for word in words), said.err
