"""What the page and the notebook on the use from Python show is what happens."""

from __future__ import annotations

import doctest
import importlib
import json
import re
import shlex
from pathlib import Path

import pytest

from slotbench import cli, registry

DOCS = Path(__file__).parents[2] / "docs"
TINY = (
    "--trainer.max_steps=1 --trainer.val_check_interval=1 --data.num_frames=2 --data.eval_frames=2 "
    "--data.loader.batch_size=1 --data.loader.val_size=2 --data.loader.val_batch_size=2 --model.baseline_clips=0"
)

SHORTER = {
    "max_steps = 800": "max_steps = 2",
    "val_size=32": "val_size=16",
    "baseline_clips=16": "baseline_clips=1",
}

# Lightning's advice on loaders, as a user sees it
pytestmark = pytest.mark.filterwarnings("default")


def test_the_examples_of_the_page_give_what_it_says(tmp_path, monkeypatch, capsys):
    page = (DOCS / "python.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^\$ slotbench (.*)$", page, re.MULTILINE)
    examples = "\n".join(re.findall(r"^```pycon\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    monkeypatch.chdir(tmp_path)
    words = [str(DOCS.parent / word) if word.startswith("experiments/") else word for word in shlex.split(command)]
    assert cli.run([*words, *TINY.split()]) == 0
    capsys.readouterr()
    test = doctest.DocTestParser().get_doctest(examples, {}, "python.md", None, 0)
    assert len(test.examples) > 40
    result = doctest.DocTestRunner(verbose=False).run(test)
    assert result.failed == 0, capsys.readouterr().out
    assert (tmp_path / "panel.png").is_file()


def code_of(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def shown(cell):
    """What a cell shows, by kind: its text without numbers that a training has made."""
    found = []
    for output in cell["outputs"]:
        data = output.get("data", {})
        text = "".join(output.get("text") or data["text/plain"])
        found.append((sorted(data), re.sub(r"-?\d\.\d+(e-\d+)?", "SCORE", text)))
    return found


@pytest.fixture
def notebook():
    return json.loads((DOCS / "python.ipynb").read_text(encoding="utf-8"))


def test_the_notebook_is_committed_with_what_its_cells_show(notebook):
    code = code_of(notebook)
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert [cell["id"] for cell in code if not cell["outputs"]] == [code[0]["id"]]  # the imports
    kinds = [output["output_type"] for cell in code for output in cell["outputs"]]
    assert set(kinds) <= {"stream", "execute_result"}
    images = [kind for cell in code for kind, _ in shown(cell) if "image/png" in kind]
    assert len(images) >= 4
    assert (DOCS / "python.ipynb").stat().st_size < 500_000


def test_the_notebook_runs_shows_what_is_stored_and_leaves_no_file(notebook, tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.syspath_prepend(DOCS / "scripts")
    stored = [shown(cell) for cell in code_of(notebook)]
    text = json.dumps(notebook)
    for long, short in SHORTER.items():
        assert text.count(long) == 1
        text = text.replace(long, short)
    smaller = json.loads(text)
    monkeypatch.chdir(tmp_path)
    names = importlib.import_module("run_notebook").run(smaller)
    assert list(tmp_path.iterdir()) == []
    assert [shown(cell) for cell in code_of(smaller)] == stored
    assert names["whole"].shape[1:] == (8, 4, 32)
