"""The documentation's examples do what the pages say."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from slotbench import registry
from slotbench.testing import laws

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def my_core(tmp_path, monkeypatch):
    """The class of the page "Add your own core", registered from a file as the page does it."""
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "my_core.py").write_text(blocks("add_a_core.md", "python")[0])
    (entry,) = registry.load_file(tmp_path / "my_core.py")
    yield registry.load(entry.kind, entry.name)
    sys.modules.pop("my_core")


def test_the_core_of_the_page_is_registered_under_its_name(my_core):
    assert my_core.__name__ == "MyCore"
    assert "MyCore" in registry.names("cores")


@pytest.mark.parametrize("law", laws.BUILT_FROM_A_SPEC, ids=lambda law: law.__name__)
def test_the_core_of_the_page_keeps_the_laws(my_core, law):
    law(my_core)


def test_the_core_of_the_page_keeps_the_law_on_permuting_slots(my_core):
    laws.permuting_slot_parameters_permutes_slots(my_core)


def test_the_quickstart_example_runs_and_its_comparison_holds():
    (code,) = blocks("quickstart.md", "python")
    names: dict[str, object] = {}
    exec(code, names)
    assert names["whole"].slots.shape == (2, 10, 8, 64)


def test_the_page_of_commands_has_the_help_of_every_command():
    assert "<!-- commands -->" in (DOCS / "cli.md").read_text()
    assert '"<!-- commands -->", "\\n\\n".join(_help(name) for name in COMMANDS)' in (DOCS / "hooks.py").read_text()


def test_every_page_is_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text()
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    named = set(re.findall(r": ([\w/]+\.md)$", text, re.MULTILINE))
    assert named == pages


@pytest.mark.parametrize(
    ("query", "page"),
    [
        *(("DAVIS", "your_own_videos.md"), ("own dataset", "your_own_videos.md"), ("loss", "metrics.md")),
        ("YouTube-VIS", "datasets.md"),
        *(("multi-GPU", "cluster.md"), ("early stopping", "resume.md"), ("W&B", "wandb.md")),
    ],
)
def test_a_page_has_the_tags_that_readers_search_for(query, page):
    """The search of the site ranks tags above titles, and titles above text."""
    text = (DOCS / page).read_text()
    assert query in yaml.safe_load(text.split("---\n")[1])["tags"]
    words = re.findall(r"\w+", query.lower())
    body = text.split("---\n", 2)[2].lower()
    assert all(word in body or word.rstrip("s") in body for word in words), f"{page} says nothing of it"


@pytest.mark.parametrize(
    "front", ["hide: [toc] ---", "hide: [toc]\n", "tags: [a\n---", "- toc\n---", "hide: [toc]\n# A title\n\n---"]
)
def test_front_matter_that_is_not_closed_or_no_yaml_fails_the_build(front):
    meta = pytest.importorskip("mkdocs.utils.meta")
    exceptions = pytest.importorskip("mkdocs.exceptions")
    spec = importlib.util.spec_from_file_location("hooks", DOCS / "hooks.py")
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)

    def built(source: str) -> str:
        file = SimpleNamespace(src_uri="page.md", content_string=source)
        body, _ = meta.get_data(source)
        return hooks.on_page_markdown(body, page=SimpleNamespace(file=file), config=SimpleNamespace(repo_url=""))

    page = "# A title\n\n---\n"
    assert [built(page), built(f"---\nhide: [toc]\n---\n\n{page}")] == [page, page]
    with pytest.raises(exceptions.PluginError, match=r"page\.md: expected front matter"):
        built(f"---\n{front}\n\n{page}")


def test_sizes_on_the_architecture_page_are_those_of_the_experiment():
    """The flow of a batch is written with the numbers of experiments/blinking_balls.yaml: they must not drift."""
    config = yaml.safe_load((ROOT / "experiments" / "blinking_balls.yaml").read_text())
    data, model = config["data"]["init_args"], config["model"]["init_args"]
    batch, context, side = data["loader"]["batch_size"], data["num_frames"] - 1, data["resolution"]
    slots, dim = model["core"]["init_args"]["num_slots"], model["core"]["init_args"]["dim"]
    assert data["patches_per_side"] == 1
    page = re.sub(r" +", " ", (DOCS / "architecture.md").read_text())
    for shape in (
        (batch, context, 3, side, side),
        (batch, context, (side // 4) ** 2, dim),
        (batch, context, slots, dim),
        (batch, context, 7, side, side),
        (batch, context, slots, side, side),
    ):
        assert " ".join(map(str, shape)) in page, f"no {shape} on the page"


def test_sizes_of_object_discovery_on_the_architecture_page_are_those_of_the_experiment():
    config = yaml.safe_load((ROOT / "experiments" / "movi_like.yaml").read_text())
    data, model = config["data"]["init_args"], config["model"]["init_args"]
    clips, frames, side = data["loader"]["batch_size"], data["num_frames"], data["resolution"]
    slots, dim = model["core"]["init_args"]["num_slots"], model["core"]["init_args"]["dim"]
    page = re.sub(r" +", " ", (DOCS / "architecture.md").read_text())
    for shape in (
        (clips, frames, 3, side, side),
        (clips, frames, (side // 2) ** 2, model["encoder"]["init_args"]["dim"]),
        (clips, frames, slots, dim),
        (clips, frames, slots, (side // 2) ** 2),
        (clips, frames, slots, 3, side, side),
        (clips, frames, slots, side, side),
    ):
        assert " ".join(map(str, shape)) in page, f"no {shape} on the page"


def section(docstring: str, title: str) -> dict[str, str]:
    """The entries of a section of a docstring in Google's style, such as "Args", by name."""
    found: dict[str, str] = {}
    inside, name = False, ""
    for line in docstring.splitlines():
        if not line.startswith(" "):
            inside = line == f"{title}:" or (inside and not line)
        elif inside and line.startswith("    ") and line[4:5] != " ":
            name, _, text = line.strip().partition(": ")
            found[name] = text
        elif inside and name:
            found[name] += f" {line.strip()}"
    return found


def explained_without_being_taken(node: ast.AST) -> list[str]:
    """Arguments in the docstring of a function, or of a class with a constructor, that it does not take."""
    if isinstance(node, ast.ClassDef):
        made = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"]
    else:
        made = [node] if isinstance(node, ast.FunctionDef) else []
    if not made or not (text := ast.get_docstring(node)):  # type: ignore[arg-type]
        return []
    taken = made[0].args
    names = {arg.arg for arg in [*taken.posonlyargs, *taken.args, *taken.kwonlyargs, taken.vararg, taken.kwarg] if arg}
    return [name for name in section(text, "Args") if name.lstrip("*") not in names]


@pytest.mark.parametrize("package", ["slotbench", "plugins"])
def test_docstrings_explain_no_argument_that_is_gone(package):
    found = {
        f"{path.relative_to(ROOT)}:{node.lineno}": gone
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (gone := explained_without_being_taken(node))
    }
    assert found == {}
