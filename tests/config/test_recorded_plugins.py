"""A run and a grid remember their plugin file, say what to type where it is missing, and never run it by themselves."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tiny_configs import COMPONENTS, tiny_config

from slotbench import registry
from slotbench.cli import run
from slotbench.config.policy import check_run_plugins
from slotbench.errors import UserError

MARK = "the file was run"


@pytest.fixture
def plugin(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A plugin file that says when it is run; nothing of it is left behind."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = workspace / "remembered_parts.py"
    source = re.sub(r"\b(Other|Drawing|Scored|Noise)", r"Kept\1", COMPONENTS.read_text().replace("Tiny", "Kept"))
    file.write_text(f"{source}\nopen({MARK!r}, 'a').close()\n")
    Path("kept.yaml").write_text(yaml.safe_dump(tiny_config()).replace("Tiny", "Kept"))
    yield file
    forget()


def forget() -> None:
    """As in a new process: nothing of the file is imported."""
    for key in [key for key, (entry, _) in registry._registered.items() if "remembered_parts" in entry.target]:
        del registry._registered[key]
    sys.modules.pop("remembered_parts", None)


@pytest.fixture
def made(plugin: Path, capsys) -> Path:
    """A run that the plugin was needed for, in a process that does not know the plugin any more."""
    assert run(["fit", "--config", "kept.yaml", "--plugin", plugin.name, "--run_dir", "made"]) == 0
    forget()
    Path(MARK).unlink()
    return Path("made")


def test_a_run_records_the_path_and_the_content_of_its_plugin(made, plugin):
    (record,) = json.loads((made / "run.json").read_text())["plugins"]
    assert record["path"] == str(plugin)
    assert record["sha256"] == hashlib.sha256(plugin.read_bytes()).hexdigest()
    assert "KeptCore" in record["components"]


def test_what_the_run_prints_at_its_end_can_be_typed(plugin, capsys):
    assert run(["fit", "--config", "kept.yaml", "--plugin", plugin.name, "--run_dir", "made"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "slotbench test" in line)
    assert run(line.split()[1:]) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["test", "made"],
        ["validate", "made"],
        ["predict", "made"],
        ["probe", "made"],
        ["show", "made"],
        ["fit", "--resume", "made"],
        ["fit", "--config", "kept.yaml", "--run_dir", "made"],
    ],
)
def test_a_command_on_the_run_says_what_to_type_and_runs_nothing(made, plugin, capsys, arguments):
    assert run(arguments) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"the plugin file {plugin}, for " in said
    assert "KeptCore" in said
    named = "--run_dir made" if "--run_dir" in arguments else "--resume made" if "fit" in arguments else "made"
    assert f"{arguments[0]} {named} --plugin {plugin}" in said
    assert not Path(MARK).exists()


def test_typed_again_it_is_used_and_a_change_is_said(made, plugin, capsys):
    assert run(["test", "made", "--plugin", str(plugin)]) == 0
    assert "warning" not in capsys.readouterr().err
    forget()
    plugin.write_text(plugin.read_text() + "\n# another version\n")
    assert run(["test", "made", "--plugin", str(plugin)]) == 0
    assert "remembered_parts.py: its content has changed since made was made" in " ".join(
        capsys.readouterr().err.split()
    )


def test_a_plugin_whose_components_are_known_or_not_named_is_not_asked_for(made):
    record = json.loads((made / "run.json").read_text())
    record["plugins"] = [{"path": "/nowhere/parts.py", "components": ["SlotSSM", "Unknown"]}]
    (made / "run.json").write_text(json.dumps(record))
    check_run_plugins(made, [], "core: SlotSSM", "slotbench test run")
    with pytest.raises(UserError, match=r"parts\.py, for SlotSSM, Unknown"):
        check_run_plugins(made, [], "core: Unknown", "slotbench test run")
