"""What the pages take from the project when they are built."""

from __future__ import annotations

import importlib.util
import json
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest

from slotbench import registry

ROOT = Path(__file__).parents[2]


@pytest.fixture
def hooks():
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "docs" / "hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_have_slotbenchs_own_components_whatever_else_is_installed(hooks, monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})
    registry.register("cores")(type("Foreign", (registry.load("cores", "SlotRNN"),), {}))
    page = hooks.on_page_markdown("<!-- components: cores -->", config=SimpleNamespace(repo_url=""))
    assert "Foreign" in registry.names("cores")
    assert "| [`SlotRNN`][slotbench_plugins.cores.slot_rnn.SlotRNN] |" in page
    # classes of other libraries have no page here
    assert "| `Adam` |" in hooks.on_page_markdown(
        "<!-- components: optimizers -->", config=SimpleNamespace(repo_url="")
    )
    assert "Foreign" not in page


def test_the_pages_link_to_the_repository_that_they_are_built_from(hooks, monkeypatch):
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://example.org")
    monkeypatch.setenv("GITHUB_REPOSITORY", "somebody/slotbench")
    config = hooks.on_config(SimpleNamespace(repo_url="", repo_name=""))
    assert config.repo_name == "somebody/slotbench"
    assert config.edit_uri == "edit/main/docs/"
    assert config.copyright == f"slotbench {version('slotbench')}"
    page = hooks.on_page_markdown("In <!-- repository -->.", config=config)
    assert page == "In [the repository](https://example.org/somebody/slotbench)."


def test_a_page_shows_a_notebook_with_its_outputs_and_runs_nothing(hooks):
    page = hooks.on_page_markdown("<!-- notebook: python.ipynb -->", config=SimpleNamespace(repo_url=""))
    cells = json.loads((ROOT / "docs" / "python.ipynb").read_text(encoding="utf-8"))["cells"]
    assert page.startswith("# ")
    places = [page.index("".join(cell["source"])) for cell in cells]
    assert places == sorted(places)
    outputs = [output for cell in cells if cell["cell_type"] == "code" for output in cell["outputs"]]
    assert page.count('<img class="output"') == sum("image/png" in output.get("data", {}) for output in outputs)
    assert page.count('output"') == len(outputs)
    assert "<image" not in page, "text of outputs is escaped"
