"""What the page and the notebook on the use from Python show is what happens."""

from __future__ import annotations

import doctest
import json
import re
import shlex
from pathlib import Path

import pytest

from slotbench import cli

DOCS = Path(__file__).parents[2] / "docs"
TINY = (
    "--trainer.max_steps=1 --trainer.val_check_interval=1 --data.num_frames=2 --data.eval_frames=2 "
    "--data.loader.batch_size=1 --data.loader.val_size=2 --data.loader.val_batch_size=2 --model.baseline_clips=0"
)

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


def test_the_notebook_runs_and_has_no_outputs(tmp_path, monkeypatch):
    cells = json.loads((DOCS / "python.ipynb").read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell for cell in code if cell["outputs"] or cell["execution_count"]] == []
    sources = ["".join(cell["source"]) for cell in code]
    short = [re.sub(r"^max_steps = \d+", "max_steps = 2", source, flags=re.MULTILINE) for source in sources]
    assert short != sources
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "notebook"}
    for source in short:
        exec(source, names)
    assert names["found"].slots.shape == (1, 8, 4, 32)
